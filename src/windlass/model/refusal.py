"""What the API server has just refused: an eviction by a budget or a webhook, a bind by a webhook or a policy.

Whoever carries decisions out hands these in as deltas; the snapshot carries those that are in force, so that the next
decision chooses other victims or another node, and a hold can say what stands in the way. Each ends by itself: what was
refused once may be allowed later.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

EVICTION, BIND = "eviction", "bind"


class Refusal(msgspec.Struct, frozen=True, gc=False):
    kind: str
    """`eviction` or `bind`."""
    pod: str
    until: int
    """Seconds since 1970: from then on it may be tried again."""
    uid: str = ""
    """Of the pod: the next one of its name is another one."""
    node: str = ""
    """Of a bind."""
    for_workload: str = ""
    """Of an eviction: who would have had the room."""
    budget: str = ""
    """`namespace/name` of the PodDisruptionBudget that covers the pod, where one does."""
    message: str = ""
    """The server's own words."""

    @property
    def key(self) -> tuple[str, str, str]:
        """There is one refusal of a name at a time."""
        return self.kind, self.pod, self.node

    @property
    def text(self) -> str:
        if self.kind == BIND:
            return f"binding it to {self.node} was refused: {self.message}"
        by = f"PodDisruptionBudget {self.budget} keeps" if self.budget else "the API server keeps"
        return f"nobody is evicted for it: {by} pod {self.pod}: {self.message}"

    @property
    def public_text(self) -> str:
        """Without the names of others."""
        if self.kind == BIND:
            return self.text
        by = "a PodDisruptionBudget keeps" if self.budget else "the API server keeps"
        return f"nobody is evicted for it: {by} a pod that would make room"


class Refusals(msgspec.Struct, frozen=True):
    """All that are in force."""

    evictions: Mapping[str, Refusal] = {}
    """Pod that may not be evicted → why."""
    binds: Mapping[str, tuple[Refusal, ...]] = {}
    """Pod → those of nodes that it may not be bound to."""

    def __bool__(self) -> bool:
        return bool(self.evictions or self.binds)

    def forbid_eviction(self, pods: Iterable[str]) -> bool:
        """Whether one of the pods may not be evicted."""
        return bool(self.evictions) and any(pod in self.evictions for pod in pods)

    def affecting(self, workload: str, pods: Iterable[str]) -> tuple[Refusal, ...]:
        """What stands in the way of a workload that waits, with these pods."""
        kept = [refusal for refusal in self.evictions.values() if refusal.for_workload == workload]
        return (*kept, *(refusal for pod in pods for refusal in self.binds.get(pod, ())))


NO_REFUSALS = Refusals()


def index_refusals(found: Iterable[Refusal]) -> Refusals:
    evictions: dict[str, Refusal] = {}
    binds: dict[str, tuple[Refusal, ...]] = {}
    for refusal in found:
        if refusal.kind == BIND:
            binds[refusal.pod] = (*binds.get(refusal.pod, ()), refusal)
        else:
            evictions[refusal.pod] = refusal
    return Refusals(evictions, binds) if evictions or binds else NO_REFUSALS
