"""Why something is not placed, as counted by the pass that decided it.

`placement` fills it, `explain` (here) puts it into words; `simulate --explain`, conditions, events and `why` all read
the same verdict, so that what people are told can't differ from what was decided.
"""

from __future__ import annotations

import msgspec


class ReasonCount(msgspec.Struct, frozen=True, gc=False):
    """So many nodes refuse for this reason. `kube` is kube-scheduler's wording of it."""

    code: str
    kube: str
    nodes: int


class NearMiss(msgspec.Struct, frozen=True, gc=False):
    """A node that almost fits: what it lacks, per resource, in the resource's own unit."""

    node: str
    reasons: tuple[str, ...]
    """kube-scheduler's wordings."""
    lacks: dict[str, str]
    free: dict[str, str]


class Verdict(msgspec.Struct, frozen=True, gc=False):
    """The count of nodes per reason, and the nearest misses."""

    code: str
    """From the closed list of reasons: what binds it most."""
    nodes: int = 0
    counts: tuple[ReasonCount, ...] = ()
    nearest: tuple[NearMiss, ...] = ()
    detail: str = ""
    """For holds that look at no node (gates, claims, an object that can't be read)."""
    planned_start: int | None = None
    """When it is planned to start, in seconds; None where no plan can be made."""
    ahead: int = 0
    """How many others wait before it in its queue."""
    outlook: str = ""
    """The planned start and what it rests on, or why there is none; in words."""

    @property
    def message(self) -> str:
        """What holds it, and what is planned, in one sentence."""
        text = self.detail or self.kube_message
        return f"{text}; {self.outlook}" if self.outlook else text

    @property
    def kube_message(self) -> str:
        """kube-scheduler's own form: `0/N nodes are available: …`."""
        if self.detail:
            return f"0/{self.nodes} nodes are available: {self.detail}."
        if not self.nodes:
            return "no nodes available to schedule pods"
        words = sorted(f"{count.nodes} {count.kube}" for count in self.counts)
        return f"0/{self.nodes} nodes are available: {', '.join(words)}."
