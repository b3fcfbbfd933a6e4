"""Keeps back pods whose owner has not been observed yet, for a minute at most.

Each kind has its own watch, so a pod may be seen before the Job, JobSet or LeaderWorkerSet that created it. Decided on
at once, it would be taken for a single pod: it would bypass its queue and start without its gang. `scheduler.cache`
asks here before it puts a pod into the store.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from windlass.cluster.workloads.ancestors import controller_of, deployment_of, sibling_key
from windlass.model.group_membership import GANG_IF_QUEUED_KINDS, GANG_KINDS
from windlass.model.pod import Pod

OWNER_WAIT_SECONDS = 60
"""An owner that has not been observed by then is assumed not to exist. A watch is back sooner, and the pods of a
queued Job would go past its queue otherwise. Those whose owner is gone are garbage, and deleted before."""

AWAITED_KINDS = GANG_KINDS | GANG_IF_QUEUED_KINDS | {("apps", "Deployment"), ("apps", "StatefulSet")}
"""Kinds that say whether their pods start together, or which queue they are in."""

OwnerKey = tuple[str, str, str]
"""API group, kind and key."""


class PodsAwaitingOwner:
    def __init__(self, objects: Mapping[OwnerKey, Any]) -> None:
        self._objects = objects
        self.is_watched: Callable[[str, str], bool] = lambda kind, group: False
        """Whether an informer watches this kind and API group."""
        self._waiting: dict[OwnerKey, dict[str, int]] = {}
        """Owner → its pods, and since when each waits."""
        self._given_up: set[str] = set()
        """Pods that have waited long enough."""

    def must_wait(self, pod: Pod, now: int) -> bool:
        """Whether the pod has to wait; if so, `pop_waiting_for` or `pop_overdue` returns it later."""
        if pod.key in self._given_up:
            return False
        owner = self._missing_owner(pod)
        if owner is not None:
            self._waiting.setdefault(owner, {}).setdefault(pod.key, now)
        return owner is not None

    def pop_waiting_for(self, owner: OwnerKey) -> Iterable[str]:
        return self._waiting.pop(owner, ())

    def pop_overdue(self, now: int) -> list[str]:
        """Pods that have waited for `OWNER_WAIT_SECONDS`; they will not wait again."""
        overdue: list[str] = []
        for owner, pods in [*self._waiting.items()]:
            # A negative time: the clock was set back, and nothing may wait for as long as that.
            remaining = {key: since for key, since in pods.items() if 0 <= now - since < OWNER_WAIT_SECONDS}
            overdue += (key for key in pods if key not in remaining)
            self._waiting[owner] = remaining
            if not remaining:
                del self._waiting[owner]
        self._given_up.update(overdue)
        return overdue

    def forget(self, pod: str) -> None:
        """The pod was deleted; a later pod of the same name may wait again."""
        self._given_up.discard(pod)
        for pods in self._waiting.values():
            pods.pop(pod, None)

    def _missing_owner(self, pod: Pod) -> OwnerKey | None:
        """The nearest owner up the chain of controllers that is watched and has not been observed."""
        seen: set[OwnerKey] = set()
        reference = controller_of(pod.metadata)
        while reference is not None:
            group = reference.api_version.rpartition("/")[0]
            owner = (group, reference.kind, sibling_key(pod.metadata, reference.name))
            if owner in seen:
                return None
            seen.add(owner)
            found = self._objects.get(owner)
            if found is None and owner[:2] in AWAITED_KINDS and self.is_watched(reference.kind, group):
                return owner
            reference = controller_of(found.metadata) if found is not None else deployment_of(reference, pod.metadata)
        return None
