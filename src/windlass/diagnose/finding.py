"""The result of a stage of diagnosis (`Finding`), and the answer (`Diagnosis`).

Stages return findings; `why` makes one `Diagnosis`, which `cli.why` prints and scripts read.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from windlass.diagnose.causes import CAUSES
from windlass.dump.configuration import UsedConfiguration

NAME = re.compile(r"\S+[./]\w")


BLOCKED, UNKNOWN, WAITING, WELL = "blocked", "unknown", "waiting", "well"
"""States: needs a person; needs a look, since the evidence names no cause; only needs time; nothing is wrong."""


class PatchTarget(msgspec.Struct, frozen=True, rename="camel"):
    """The object that a patch is for."""

    api_version: str
    kind: str
    namespace: str
    name: str


ACCEPTED, REFUSED, UNTRIED = "accepted", "refused", "untried"
"""Results of a dry run."""


class DryRun(msgspec.Struct, frozen=True):
    """What the API server said to the change, tried without storing it."""

    result: str
    """accepted, refused or untried."""
    message: str = ""
    """The server's words, or why it could not be tried."""


class Patch(msgspec.Struct, frozen=True):
    """A change of one object, for `kubectl patch`."""

    target: PatchTarget
    type: str
    """json, merge or strategic."""
    patch: Any
    runs_after: bool
    """Whether the engine would start it at once with the patch."""
    what: str = ""
    """The change, for people."""
    accepted: bool = True
    """False: the API server refuses to change these fields; delete the object and create `manifest` instead."""
    refused: tuple[str, ...] = ()
    """The fields that can't be changed."""
    manifest: Any = None
    """The whole object with the change, where the patch is not accepted."""
    dry_run: DryRun | None = msgspec.field(default=None, name="dryRun")
    """What the API server said to it, or to `manifest` where the patch is not accepted; null without a server."""


class MissingEvidence(msgspec.Struct, frozen=True):
    """Evidence that the answer needs, and the command that gets it."""

    what: str
    command: str


class Finding(msgspec.Struct, frozen=True):
    """One cause with its evidence."""

    code: str
    headline: str = ""
    """The cause with its names and numbers; if empty, the meaning of the code."""
    evidence: tuple[str, ...] = ()
    contributing: tuple[str, ...] = ()
    remedy: str = ""
    missing: tuple[MissingEvidence, ...] = ()
    explains: tuple[str, ...] = ()
    """Codes that it explains in this cluster, beside those of `explanations`: it is about another object."""
    changed_by: str = ""
    """Who can change it, where that is not whom `explanations` names for the code."""
    suggestion: str = ""
    """The value that the evidence shows to be right in place of the wrong one."""

    @property
    def message(self) -> str:
        return self.headline or CAUSES[self.code].meaning

    @property
    def effective_remedy(self) -> str:
        return self.remedy or CAUSES[self.code].remedy

    @property
    def sentence(self) -> str:
        do = f" — {self.effective_remedy}" if self.effective_remedy else ""
        message = self.message
        # The name of a field or a resource keeps its case.
        if not NAME.match(message):
            message = f"{message[:1].upper()}{message[1:]}"
        return f"{message}{do}."


class NodeSummary(msgspec.Struct, frozen=True):
    """One node, with the resources that the pod requests."""

    name: str
    codes: tuple[str, ...]
    lacks: dict[str, str]
    capacity: dict[str, str]
    allocatable: dict[str, str]
    requested: dict[str, str]
    free: dict[str, str]
    detail: tuple[str, ...] = ()
    """The reasons with the names of taints, labels and resources."""
    candidate: bool = True
    """Whether the node has the requested devices at all."""


class GpuHolder(msgspec.Struct, frozen=True):
    """An owner of running pods that use matching GPUs."""

    namespace: str
    owner: str
    gpus: int
    since: str
    nodes: tuple[str, ...]


class Outlook(msgspec.Struct, frozen=True):
    """When waiting work may start, as the engine plans it."""

    position: int
    """Its place among the workloads that wait for the same queue or devices, from 1."""
    queue: str = ""
    """The ClusterQueue; empty if it is in no queue."""
    ahead: tuple[str, ...] = ()
    """The first workloads ahead of it."""
    start: str | None = None
    """The estimated start; null if no run-time limit bounds it."""
    planned: bool = False
    """True: a planned start, which the engine reserves. False: when enough running work will have ended."""
    basis: str = ""
    """What the estimate is based on, or why there is none."""


class CauseLink(msgspec.Struct, frozen=True):
    """One cause of a chain; the next link is the cause behind it."""

    code: str
    message: str
    evidence: tuple[str, ...] = ()


class RuledOut(msgspec.Struct, frozen=True):
    """A cause that was considered, and the evidence against it."""

    code: str
    what: str
    by: str


class Diagnosis(msgspec.Struct, frozen=True):
    """The answer of `why`."""

    subject: str
    code: str
    """The deepest cause that the evidence shows: the code of the last link of `chain`."""
    contributing: tuple[str, ...]
    headline: str
    is_wait: bool = False
    evidence: tuple[str, ...] = ()
    nodes: tuple[NodeSummary, ...] = ()
    holders: tuple[GpuHolder, ...] = ()
    outlook: Outlook | None = None
    """Only where nothing is wrong and it waits for other work."""
    patches: tuple[Patch, ...] = ()
    refused_patches: tuple[Patch, ...] = msgspec.field(default=(), name="refusedPatches")
    """Changes that would help, and that the API server refuses in a dry run."""
    missing_evidence: tuple[MissingEvidence, ...] = ()
    chain: tuple[CauseLink, ...] = ()
    """From the scheduler's reason to the root cause. If the engine holds the subject, the first link is that hold, with
    the code that `windlass plan`, the pod's condition, the event and the metric have."""
    confidence: str = "high"
    """`high` if the cause's own evidence is there, nothing speaks against it and, where the engine can answer, it says
    that the pod would run without it. `low` otherwise."""
    configuration: UsedConfiguration = UsedConfiguration()
    """The configuration that the engine used for this answer."""
    ruled_out: tuple[RuledOut, ...] = msgspec.field(default=(), name="ruledOut")
    """Causes that were considered, and what speaks against them."""
    doubt: str = ""
    """What speaks against the cause without ruling it out."""
    changed_by: str = msgspec.field(default="", name="changedBy")
    """Who can change the cause; empty if that depends, or if nobody has to."""
    next_commands: tuple[str, ...] = msgspec.field(default=(), name="nextCommands")
    """With low confidence: the commands whose output would settle the cause."""

    moves: tuple[str, ...] = ()
    """What the work is asked now, to make room for other work, and how its last move went: asked, answered, evicted,
    bound, started."""

    @property
    def printed_patch(self) -> Patch | None:
        """What `--patch` prints: the first, unless the engine has judged that it would still wait with it."""
        best = next(iter(self.patches), None)
        return None if best is None or (not best.runs_after and self.nodes) else best

    @property
    def state(self) -> str:
        if self.code in ("NONE", "UNKNOWN"):
            return WELL if self.code == "NONE" else UNKNOWN
        return WAITING if self.is_wait else BLOCKED
