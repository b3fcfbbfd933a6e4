"""Recent refusals of the API server: an eviction refused by a budget or webhook, a bind refused by a webhook or policy.

`apply` reports them as deltas; the snapshot has those in force, so that the next decision chooses other victims or
another node, and a hold can name the refusal. Each expires, since the API server may allow the request later.
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
    """Seconds since 1970; from then on the request may be tried again."""
    uid: str = ""
    """Of the pod: a new pod of the same name is not affected."""
    node: str = ""
    """Of a bind."""
    for_workload: str = ""
    """Of an eviction: the preemptor."""
    budget: str = ""
    """`namespace/name` of the PodDisruptionBudget that covers the pod, where one does."""
    message: str = ""
    """The API server's message."""

    @property
    def key(self) -> tuple[str, str, str]:
        """A newer refusal with the same key replaces the older one."""
        return self.kind, self.pod, self.node

    @property
    def text(self) -> str:
        if self.kind == BIND:
            return f"binding it to {self.node} was refused: {self.message}"
        refused = f"PodDisruptionBudget {self.budget} doesn't allow" if self.budget else "the API server refused"
        return f"{refused} the eviction of pod {self.pod} for it: {self.message}"

    @property
    def public_text(self) -> str:
        """Without names of other tenants' objects."""
        if self.kind == BIND:
            return self.text
        refused = "a PodDisruptionBudget doesn't allow" if self.budget else "the API server refused"
        return f"{refused} the eviction of a pod that would make room for it"


class Refusals(msgspec.Struct, frozen=True):
    """All refusals in force."""

    evictions: Mapping[str, Refusal] = {}
    """Pod that may not be evicted → the refusal."""
    binds: Mapping[str, tuple[Refusal, ...]] = {}
    """Pod → one refusal per node that it may not be bound to."""

    def __bool__(self) -> bool:
        return bool(self.evictions or self.binds)

    def forbid_eviction(self, pods: Iterable[str]) -> bool:
        """Whether one of the pods may not be evicted."""
        return bool(self.evictions) and any(pod in self.evictions for pod in pods)

    def end_of(self, pods: Iterable[str]) -> int:
        """From when on all these pods may be evicted; 0: now."""
        return max((self.evictions[pod].until for pod in pods if pod in self.evictions), default=0)

    def affecting(self, workload: str, pods: Iterable[str]) -> tuple[Refusal, ...]:
        """The refusals that affect a pending workload with these pods."""
        kept = [refusal for refusal in self.evictions.values() if refusal.for_workload == workload]
        return (*kept, *(refusal for pod in pods for refusal in self.binds.get(pod, ())))


NO_REFUSALS = Refusals()


def index_refusals(found: Iterable[Refusal]) -> Refusals:
    evictions: dict[str, Refusal] = {}
    binds: dict[str, tuple[Refusal, ...]] = {}
    for refusal in sorted(found, key=lambda refusal: refusal.key):  # texts name them in this order
        if refusal.kind == BIND:
            binds[refusal.pod] = (*binds.get(refusal.pod, ()), refusal)
        else:
            evictions[refusal.pod] = refusal
    return Refusals(evictions, binds) if evictions or binds else NO_REFUSALS
