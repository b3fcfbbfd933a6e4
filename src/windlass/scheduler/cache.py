"""The cluster as the loop sees it: what the informers say, what of it the engine is told, and what it needs to act.

Informers push deltas in here at any time; the loop takes them over between two decisions. Pods that wait for another
scheduler are not the engine's business; all that are on nodes are.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, Protocol

import msgspec

from windlass.apply.assumed_status import AssumedStatus, AssumedStatuses
from windlass.apply.owners import SUSPEND_FIELDS
from windlass.cluster.change_detection import is_node_unchanged, is_pod_health_unchanged
from windlass.cluster.delta import Assume, Deleted, Delta, Forget, Put
from windlass.cluster.store import Store
from windlass.cluster.workloads.workload_attributes import PRIORITY_CLASS
from windlass.kube.resources import KUEUE_API_GROUP
from windlass.model.codec import Unreadable, object_id
from windlass.model.disruption import PodDisruptionBudget
from windlass.model.kueue import WorkloadObject
from windlass.model.kueue.queue_wire import ClusterQueueObject, LocalQueueObject
from windlass.model.node import Node
from windlass.model.owners import Owner, OwnerObject, owner_from_object
from windlass.model.owners.normalise import QUEUE_NAME
from windlass.model.pod import Pod
from windlass.model.run_time_history import RunTimeHistoryObject
from windlass.model.times import format_timestamp
from windlass.model.volume import (
    PersistentVolumeClaim,
)
from windlass.scheduler.awaiting_owner import PodsAwaitingOwner
from windlass.scheduler.options import SchedulerOptions

STOP_POLICY_HOLD = "Hold"

ObjectKey = tuple[str, str]
"""Kind and `namespace/name`."""


class FlushResult(NamedTuple):
    applied: list[Delta]
    """What the store was told, in order."""
    needs_decision: bool
    """Something of it is more than a bind of ours that was confirmed."""


class AssumeObserver(Protocol):
    def on_assume(self, now: int, binds: Sequence[Assume]) -> None: ...


class SchedulerCache:
    def __init__(self, options: SchedulerOptions) -> None:
        self._options = options
        self.store = Store()
        self.pods: dict[str, Pod] = {}
        self.nodes: set[str] = set()
        self.objects: dict[tuple[str, str, str], Any] = {}
        """API group, kind and key → everything but pods and nodes."""
        self.assumed: dict[str, str] = {}
        """Pod → node of binds that were sent and have not been seen on the watch."""
        self._assumed_statuses = AssumedStatuses()
        self.unreadable: dict[ObjectKey, Unreadable] = {}
        """What could not be decoded."""
        self.on_pod_deleted: Callable[[str], None] = lambda key: None
        """Told of pods that are gone."""
        self.assume_observer: AssumeObserver | None = None
        self.changed = asyncio.Event()
        self.kueue_is_live = False
        self._inbox: list[Delta] = []
        self._untaken: list[Delta] = []
        """Taken in, and not told to the store."""
        self._told: set[ObjectKey] = set()
        """What the store knows of that may have to be taken back."""
        self._now = self._news = 0
        self._budgets: Counter[str] = Counter()
        """Namespace → its disruption budgets."""
        self._queued: dict[tuple[str, str], OwnerObject] = {}
        self._workload_of: dict[str, str] = {}
        """Uid of an owner → the Workload that stands for it, whoever made that."""
        self._resting: set[str] = set()
        """Pods that are not to be decided on for a while."""
        self.awaiting_owner = PodsAwaitingOwner(self.objects)

    # Informers and outcomes push

    def push(self, deltas: Sequence[Delta]) -> None:
        self._inbox.extend(deltas)
        if deltas:
            self.changed.set()

    def assume(self, assumed: Sequence[Assume]) -> None:
        """Binds that are about to be sent; in the store at once."""
        self.assumed.update((one.pod, one.node) for one in assumed)
        self.store.apply(assumed)
        if self.assume_observer is not None:
            self.assume_observer.on_assume(self._now, assumed)

    def assume_status(
        self, known: WorkloadObject, assumed: WorkloadObject, *, is_admission: bool
    ) -> AssumedStatus:
        """A Workload's status is about to be written: the next decision sees it as `shown`."""
        self.objects[object_id(assumed)] = assumed
        self._untaken.append(Put(assumed))
        return self._assumed_statuses.assume(known, assumed, is_admission=is_admission)

    def finish_status(self, sent: AssumedStatus, version: str) -> None:
        """The server has written it, as this version."""
        self.drain_inbox()
        self._show(self._assumed_statuses.finish(sent, version))

    def forget_status(self, sent: AssumedStatus) -> None:
        """The server has refused it."""
        self.drain_inbox()
        self._show(self._assumed_statuses.revert(sent))

    def is_unconfirmed(self, sent: AssumedStatus) -> bool:
        self.drain_inbox()
        return self._assumed_statuses.is_pending(sent)

    def _show(self, seen: WorkloadObject | None) -> None:
        if seen is not None:
            self._untaken += self._other(seen)
            self.changed.set()

    def start_backoff(self, key: str) -> None:
        """Leave the pod out of decisions until `wake`."""
        self.drain_inbox()  # what was pushed before is older than this
        self._resting.add(key)
        pod = self.pods.get(key)
        self.push([Forget(key), *([Put(pod)] if pod is not None else [])])

    def end_backoff(self, key: str) -> None:
        self.drain_inbox()
        self._resting.discard(key)
        pod = self.pods.get(key)
        if pod is not None:
            self.push([Put(pod)])

    # The loop takes

    def flush(self, now: int) -> FlushResult:
        """Bring the store up to date with everything that was pushed."""
        self.changed.clear()
        self._now = now
        self.drain_inbox()
        told, self._untaken = self._untaken, []
        news, self._news = self._news, 0
        self.store.apply(told)
        return FlushResult(told, news > 0)

    def drain_inbox(self) -> None:
        """Know what was pushed, without telling the store yet: a decision may be under way on what it was told."""
        inbox, self._inbox = self._inbox, []
        self._untaken += [delta for one in inbox for delta in self._taken(one)]
        self._untaken += self._again(self.awaiting_owner.pop_overdue(self._now))

    @property
    def object_count(self) -> int:
        """How many there are beside pods."""
        return len(self.objects)

    def get(self, kind: str, key: str, group: str = "") -> Any:
        return self.objects.get((group, kind, key))

    def disruption_budget_of(self, pod: Pod) -> str:
        """The first disruption budget that covers the pod; empty where none does."""
        if not self._budgets[pod.metadata.namespace or "default"]:
            return ""
        budgets = (thing for thing in self.objects.values() if isinstance(thing, PodDisruptionBudget))
        return min((f"{one.namespace}/{one.metadata.name}" for one in budgets if one.covers(pod)), default="")

    def persistent_volume_claim(self, key: str) -> PersistentVolumeClaim | None:
        found: PersistentVolumeClaim | None = self.get("PersistentVolumeClaim", key)
        return found

    def queued_owners(self) -> list[OwnerObject]:
        """Those that wait in a queue or run by its leave, that nothing of their kind is above, and whose pods are
        ours."""
        return [one for one in self._queued.values() if not self._is_below_another(one)]

    def workload_key_of(self, owner: OwnerObject) -> str:
        """Key of the Workload that stands for it; empty where there is none."""
        return self._workload_of.get(owner.metadata.uid, "")

    def _is_below_another(self, thing: OwnerObject) -> bool:
        above = (one for one in thing.metadata.owner_references if one.controller)
        namespace = thing.metadata.namespace or "default"
        return any((one.kind, f"{namespace}/{one.name}") in self._queued for one in above)

    def priority_of(self, owner: Owner) -> int:
        """By its queue's class, or its pods'; the classes may be of either kind."""
        labels, spec = owner.metadata.labels, owner.pod_sets[0].template.spec
        for group, kind, name in (
            (KUEUE_API_GROUP, "WorkloadPriorityClass", labels.get(PRIORITY_CLASS, "")),
            ("scheduling.k8s.io", "PriorityClass", spec.priority_class_name),
        ):
            found = self.get(kind, name, group) if name else None
            if found is not None:
                return int(found.value)
        return spec.priority

    def is_responsible_for(self, pod: Pod) -> bool:
        return self._options.shadow or pod.spec.scheduler_name in self._options.settings.scheduler_names

    def is_responsible_for_unreadable(self, odd: Unreadable) -> bool:
        """Whether a pod that can't be read is for us."""
        names = self._options.settings.scheduler_names
        return self._options.shadow or (odd.scheduler_name or "default-scheduler") in names

    def is_responsible_for_owner(self, owner: Owner) -> bool:
        names = {one.template.spec.scheduler_name for one in owner.pod_sets}
        return self._options.shadow or not names.isdisjoint(self._options.settings.scheduler_names)

    def is_taken_over(self, namespace: str, queue: str) -> bool:
        names = self._options.take_over
        if f"{namespace}/{queue}" in names:
            return True
        local = self.get("LocalQueue", f"{namespace}/{queue}", KUEUE_API_GROUP)
        return local is not None and local.spec.cluster_queue in names

    def reevaluate_queue_ownership(self) -> None:
        """Who decides on queues has changed: everything that depends on it is judged again."""
        self.push(
            [Put(thing) for thing in self.objects.values() if isinstance(thing, WorkloadObject | OwnerObject)]
        )

    def _taken(self, delta: Delta) -> list[Delta]:
        if self.unreadable and isinstance(delta, Put | Deleted):
            self._not_odd(delta)
        match delta:
            case Put(object=Pod() as pod):
                return self._pod(pod)
            case Put(object=Node() as node):
                return self._node(node)
            case Put(object=Unreadable() as odd):
                return self._odd(odd)
            case Put(object=thing):
                return self._other(thing)
            case Deleted():
                return self._gone(delta)
            case Forget():
                self.assumed.pop(delta.pod, None)
                return self._news_of([delta])
            case _:
                return self._news_of([delta])

    def _not_odd(self, delta: Put | Deleted) -> None:
        """It can be read now, or is gone."""
        if isinstance(delta, Deleted):
            self.unreadable.pop((delta.kind, delta.key), None)
        elif not isinstance(delta.object, Unreadable):
            _, kind, key = object_id(delta.object)
            self.unreadable.pop((kind, key), None)

    def _news_of(self, deltas: list[Delta]) -> list[Delta]:
        self._news += len(deltas)
        return deltas

    def _pod(self, pod: Pod) -> list[Delta]:
        known = self.pods.get(pod.key)
        self.pods[pod.key] = pod
        waits = not pod.is_bound and not pod.is_terminal
        if waits and (
            not self.is_responsible_for(pod) or pod.metadata.deletion_timestamp or pod.key in self._resting
        ):
            return self._untold("Pod", pod.key)
        told = ("Pod", pod.key) in self._told
        if waits and not told and self.awaiting_owner.must_wait(pod, self._now):
            return []
        if told and known is not None and _same(known, pod):
            is_watched = self._budgets[pod.metadata.namespace or "default"] and not is_pod_health_unchanged(
                known, pod
            )
            return self._health_of([pod]) if is_watched else []
        if pod.is_bound and self.assumed.pop(pod.key, None) == pod.spec.node_name and not pod.is_terminal:
            return [Put(_dated(pod, self._now))]
        return self._tell("Pod", pod.key, _dated(pod, self._now))

    def _health_of(self, pods: Iterable[Pod]) -> list[Delta]:
        """What disruption budgets read of pods: no news, since a budget's own status says what follows from it."""
        told = [pod for pod in pods if pod.is_bound and ("Pod", pod.key) in self._told]
        return [Put(_dated(pod, self._now)) for pod in told]

    def _note_budget(self, namespace: str) -> list[Delta]:
        """The first budget of a namespace: how its pods are has not been told before."""
        self._budgets[namespace] += 1
        if self._budgets[namespace] > 1:
            return []
        return self._health_of(
            [pod for pod in self.pods.values() if (pod.metadata.namespace or "default") == namespace]
        )

    def _again(self, pods: Iterable[str]) -> list[Delta]:
        """What the engine is to be told of pods that it was not told of before."""
        return [delta for key in pods if key in self.pods for delta in self._pod(self.pods[key])]

    def _node(self, node: Node) -> list[Delta]:
        if not self._options.settings.selects_node(node.labels):
            self.nodes.discard(node.name)
            return self._untold("Node", node.name)
        known = self.objects.get(("", "Node", node.name))
        self.objects["", "Node", node.name] = node
        self.nodes.add(node.name)
        if known is not None and ("Node", node.name) in self._told and _same(known, node):
            return []
        return self._tell("Node", node.name, node)

    def _odd(self, odd: Unreadable) -> list[Delta]:
        """What it was before counts no more. On a node it blocks that; one that waits is held, and said to be."""
        key = f"{odd.namespace}/{odd.name}" if odd.namespace else odd.name
        self.unreadable[odd.kind, key] = odd
        if odd.kind != "Pod":
            return []
        self.pods.pop(key, None)
        if odd.node_name:
            return self._tell("Pod", key, odd)
        self._news += 1
        return self._untold("Pod", key)

    def _other(self, thing: Any) -> list[Delta]:
        group, kind, key = object_id(thing)
        if isinstance(thing, WorkloadObject):
            thing = self._assumed_statuses.overlay(thing)
        known = self.objects.get((group, kind, key))
        self.objects[group, kind, key] = thing
        if isinstance(thing, RunTimeHistoryObject):
            self._told.add((f"{kind}.{group}", key))
            return [Put(thing)]  # the next decision knows of it; it is no reason to make one
        if isinstance(thing, LocalQueueObject) and key in self._options.take_over and known is None:
            self.push([Put(one) for one in (self._queue_of(thing),) if one is not None])
        if isinstance(thing, ClusterQueueObject | LocalQueueObject):
            thing = self._as_ours(thing)
        if isinstance(thing, WorkloadObject):
            self._workload_of.update((uid, key) for uid in _controllers(thing))
        if isinstance(thing, OwnerObject) and kind in SUSPEND_FIELDS:
            self._queued.pop((kind, key), None)
            if QUEUE_NAME in thing.metadata.labels and self._owner_matters(thing):
                self._queued[kind, key] = thing
        waited = self.awaiting_owner.pop_waiting_for((group, kind, key))
        if not self._matters(thing):
            return [*self._untold(f"{kind}.{group}", key, Deleted(kind, key, group)), *self._again(waited)]
        if (f"{kind}.{group}", key) in self._told and known is not None and _same(known, thing):
            return []
        is_new_budget = isinstance(thing, PodDisruptionBudget) and known is None
        more = self._note_budget(thing.namespace) if is_new_budget else []
        return [*self._tell(f"{kind}.{group}", key, thing), *self._again(waited), *more]

    def _queue_of(self, local: LocalQueueObject) -> ClusterQueueObject | None:
        found: ClusterQueueObject | None = self.get("ClusterQueue", local.spec.cluster_queue, KUEUE_API_GROUP)
        return found

    def _as_ours(self, queue: ClusterQueueObject | LocalQueueObject) -> ClusterQueueObject | LocalQueueObject:
        """A queue that was taken over admits although it is on hold: the hold is what keeps Kueue off it."""
        if queue.spec.stop_policy != STOP_POLICY_HOLD or not self._is_taken(queue):
            return queue
        return msgspec.structs.replace(queue, spec=msgspec.structs.replace(queue.spec, stop_policy="None"))

    def _is_taken(self, queue: ClusterQueueObject | LocalQueueObject) -> bool:
        names = self._options.take_over
        if isinstance(queue, LocalQueueObject):
            return f"{queue.metadata.namespace}/{queue.metadata.name}" in names
        name = queue.metadata.name
        locals_ = (self.get("LocalQueue", one, KUEUE_API_GROUP) for one in names if "/" in one)
        return name in names or any(one is not None and one.spec.cluster_queue == name for one in locals_)

    def _matters(self, thing: Any) -> bool:
        """Whether the engine has to see it."""
        if isinstance(thing, WorkloadObject):
            namespace = thing.metadata.namespace or "default"
            if not self.kueue_is_live or self.is_taken_over(namespace, thing.spec.queue_name):
                return True
            return thing.status.admission is not None
        if isinstance(thing, OwnerObject):
            return self._owner_matters(thing)
        return True

    def _owner_matters(self, thing: OwnerObject) -> bool:
        """Owners whose pods have nothing to do with one another, or are another scheduler's, don't."""
        owner = owner_from_object(thing)
        queue = owner.metadata.labels.get(QUEUE_NAME, "")
        namespace = owner.metadata.namespace or "default"
        if queue and self.kueue_is_live and not self.is_taken_over(namespace, queue):
            return False
        if owner.pod_sets and not self.is_responsible_for_owner(owner):
            return False
        return owner.is_gang or any(one.controller for one in owner.metadata.owner_references)

    def _gone(self, gone: Deleted) -> list[Delta]:
        if gone.kind == "Pod":
            self.pods.pop(gone.key, None)
            self.on_pod_deleted(gone.key)
            self.awaiting_owner.forget(gone.key)
            self._resting.discard(gone.key)
            self.assumed.pop(gone.key, None)
            return self._untold("Pod", gone.key)
        known = self.objects.pop((gone.group, gone.kind, gone.key), None)
        if isinstance(known, WorkloadObject):
            self._assumed_statuses.forget(gone.key)
            for uid in _controllers(known):
                if self._workload_of.get(uid) == gone.key:
                    del self._workload_of[uid]
        elif isinstance(known, PodDisruptionBudget):
            self._budgets[known.namespace] -= 1
        self._queued.pop((gone.kind, gone.key), None)
        if gone.kind == "Node":
            self.nodes.discard(gone.key)
            return self._untold("Node", gone.key)
        return self._untold(f"{gone.kind}.{gone.group}", gone.key, gone)

    def _tell(self, kind: str, key: str, thing: object) -> list[Delta]:
        self._told.add((kind, key))
        return self._news_of([Put(thing)])

    def _untold(self, kind: str, key: str, gone: Deleted | None = None) -> list[Delta]:
        if (kind, key) not in self._told:
            return []
        self._told.discard((kind, key))
        return self._news_of([gone or Deleted(kind, key)])


def _controllers(workload: WorkloadObject) -> list[str]:
    return [one.uid for one in workload.metadata.owner_references if one.controller]


def _same(old: Any, new: Any) -> bool:
    """Equal as far as the engine reads it. Of a pod's status only its end counts."""
    if isinstance(old, Pod) and isinstance(new, Pod):
        return old.is_terminal == new.is_terminal and old.spec == new.spec and _same_meta(old, new)
    if isinstance(old, Node) and isinstance(new, Node):
        return is_node_unchanged(old, new)
    return _same_meta(old, new) and all(
        getattr(old, field) == getattr(new, field) for field in old.__struct_fields__ if field != "metadata"
    )


def _same_meta(old: Any, new: Any) -> bool:
    before = msgspec.structs.replace(old.metadata, resource_version="")
    return bool(before == msgspec.structs.replace(new.metadata, resource_version=""))


def _dated(pod: Pod, now: int) -> Pod:
    """A pod on a node whose kubelet has not said yet when it started: as of now, and not as of its creation, so that
    a gang which waited for long still has its grace."""
    if not pod.is_bound or pod.status.start_time:
        return pod
    status = msgspec.structs.replace(pod.status, start_time=format_timestamp(now))
    return msgspec.structs.replace(pod, status=status)
