"""Pods that are here before what made them: kept back until their owner is known, for a while.

Each kind has a watch of its own, so a pod may be seen before the Job, JobSet or LeaderWorkerSet that made it. Decided
on at once it would stand alone: past its queue, and without the rest of its gang. `scheduler.cache` asks here before
it tells the engine of a pod.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from windlass.cluster.workloads.units import GANG_IF_QUEUED_KINDS, GANG_KINDS, controller_of, sibling_key
from windlass.model.pod import Pod

OWNER_WAIT_SECONDS = 5
"""An owner that has not been seen by then is taken not to exist."""

OwnerKey = tuple[str, str, str]
"""API group, kind and key."""


class PodsAwaitingOwner:
    def __init__(self, objects: Mapping[OwnerKey, Any]) -> None:
        self._things = objects
        self.is_watched: Callable[[str, str], bool] = lambda kind, group: False
        """Whether objects of this kind and API group are on their way to us if they exist."""
        self._waiting: dict[OwnerKey, dict[str, int]] = {}
        """Owner → its pods, and since when."""
        self._given_up: set[str] = set()

    def must_wait(self, pod: Pod, now: int) -> bool:
        """Whether the pod has to wait; if so, its owner's arrival or `overdue` gives it back."""
        if pod.key in self._given_up:
            return False
        owner = self._missing(pod)
        if owner is not None:
            self._waiting.setdefault(owner, {}).setdefault(pod.key, now)
        return owner is not None

    def pop_waiting_for(self, owner: OwnerKey) -> Iterable[str]:
        """The pods that waited for it."""
        return self._waiting.pop(owner, ())

    def pop_overdue(self, now: int) -> list[str]:
        """The pods that have waited for long enough; they are not held again."""
        late: list[str] = []
        for owner, pods in [*self._waiting.items()]:
            late += (key for key, since in pods.items() if now - since >= OWNER_WAIT_SECONDS)
            left = {key: since for key, since in pods.items() if now - since < OWNER_WAIT_SECONDS}
            self._waiting[owner] = left
            if not left:
                del self._waiting[owner]
        self._given_up.update(late)
        return late

    def forget(self, pod: str) -> None:
        """It is gone; another one may come by the same name."""
        self._given_up.discard(pod)
        for pods in self._waiting.values():
            pods.pop(pod, None)

    def _missing(self, pod: Pod) -> OwnerKey | None:
        """The lowest of the owners above the pod that should be known and is not."""
        seen: set[OwnerKey] = set()
        reference = controller_of(pod.metadata)
        while reference is not None:
            group = reference.api_version.rpartition("/")[0]
            owner = (group, reference.kind, sibling_key(pod.metadata, reference.name))
            if owner in seen or owner[:2] not in GANG_KINDS | GANG_IF_QUEUED_KINDS:
                return None
            seen.add(owner)
            found = self._things.get(owner)
            if found is None:
                return owner if self.is_watched(reference.kind, group) else None
            reference = controller_of(found.metadata)
        return None
