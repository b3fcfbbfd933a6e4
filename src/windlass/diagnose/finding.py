"""What a stage of diagnosis found, and the answer that is made of it.

Stages return `Finding`s; `why` ranks them into one `Diagnosis`, which the command prints and scripts read.
"""

from __future__ import annotations

from typing import Any

import msgspec

from windlass.diagnose.causes import CAUSES
from windlass.dump.configuration import UsedConfiguration


class PatchTarget(msgspec.Struct, frozen=True, rename="camel"):
    """The object that a patch is for."""

    api_version: str
    kind: str
    namespace: str
    name: str


class Patch(msgspec.Struct, frozen=True):
    """A change that can be applied as it is."""

    target: PatchTarget
    type: str
    """json, merge or strategic."""
    patch: Any
    runs_after: bool
    """Whether it would run at once with the patch, as the engine says."""
    what: str = ""
    """The change in words."""


class MissingEvidence(msgspec.Struct, frozen=True):
    """Evidence that would decide, and the command that gets it."""

    what: str
    command: str


class Finding(msgspec.Struct, frozen=True):
    """One cause, with what speaks for it."""

    code: str
    headline: str = ""
    """One sentence: the cause in this very case. Empty: the code's own words."""
    evidence: tuple[str, ...] = ()
    contributing: tuple[str, ...] = ()
    remedy: str = ""
    missing: tuple[MissingEvidence, ...] = ()

    @property
    def message(self) -> str:
        """The cause in words."""
        return self.headline or CAUSES[self.code].meaning

    @property
    def effective_remedy(self) -> str:
        return self.remedy or CAUSES[self.code].remedy

    @property
    def sentence(self) -> str:
        do = f" — {self.effective_remedy}" if self.effective_remedy else ""
        return f"{self.message[:1].upper()}{self.message[1:]}{do}."


class NodeSummary(msgspec.Struct, frozen=True):
    """One node, as the question sees it."""

    name: str
    codes: tuple[str, ...]
    lacks: dict[str, str]
    capacity: dict[str, str]
    allocatable: dict[str, str]
    requested: dict[str, str]
    free: dict[str, str]
    detail: tuple[str, ...] = ()
    """The same reasons, in words that name the taint, the label or the pod."""
    candidate: bool = True
    """Whether it could ever have been the place: a node without GPUs is none for a pod that asks for them."""


class GpuHolder(msgspec.Struct, frozen=True):
    """Somebody who has GPUs that would do."""

    namespace: str
    owner: str
    gpus: int
    since: str
    nodes: tuple[str, ...]


class Outlook(msgspec.Struct, frozen=True):
    """When work that waits may start, as the engine plans it."""

    position: int
    """Its place among those that wait for the same, from 1."""
    queue: str = ""
    """The ClusterQueue; empty where it waits in none."""
    ahead: tuple[str, ...] = ()
    """The workloads before it, the first of them; only those that the evidence may name."""
    start: str | None = None
    """The estimate; null where nothing bounds it."""
    planned: bool = False
    """The engine keeps the room from then on; else it is when what it waits for will have ended."""
    basis: str = ""
    """What the estimate rests on, or why there is none."""


class CauseLink(msgspec.Struct, frozen=True):
    """One cause of a chain, and the next one stands behind it."""

    code: str
    message: str
    evidence: tuple[str, ...] = ()


class Diagnosis(msgspec.Struct, frozen=True):
    """The answer."""

    subject: str
    code: str
    """The deepest cause that the evidence carries: the code of the chain's last link."""
    contributing: tuple[str, ...]
    headline: str
    is_wait: bool = False
    evidence: tuple[str, ...] = ()
    nodes: tuple[NodeSummary, ...] = ()
    holders: tuple[GpuHolder, ...] = ()
    outlook: Outlook | None = None
    """Where it waits for others, and nothing is wrong."""
    patches: tuple[Patch, ...] = ()
    missing_evidence: tuple[MissingEvidence, ...] = ()
    chain: tuple[CauseLink, ...] = ()
    """From what the scheduler says to what stands behind it. Where the engine holds the subject, the first link is that
    hold: its code is the one of `windlass plan`, of the pod's condition, of the event and of the metric."""
    confidence: str = "high"
    """`low` where evidence is missing that could show another cause."""
    configuration: UsedConfiguration = UsedConfiguration()
    """What the engine was configured with for this answer."""
