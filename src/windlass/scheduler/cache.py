"""The scheduler cache: objects as the informers show them, with what was sent and is not confirmed yet.

`kube.informers` pushes deltas at any time; `scheduler.loop` calls `flush` between two decisions, which applies to the
store what the engine has to see of them. Pending pods of other schedulers never reach the store; pods on nodes always
do, whichever scheduler bound them. `apply` reads objects and reports what it sends through `ClusterCache`.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import msgspec

from windlass.apply.assumed_status import AssumedStatus, AssumedStatuses
from windlass.apply.owners import SUSPEND_FIELDS
from windlass.cluster.change_detection import is_node_unchanged, is_pod_health_unchanged
from windlass.cluster.delta import Assume, Deleted, Delta, Forget, Nominated, Put
from windlass.cluster.store import Store
from windlass.kube.resources import KUEUE_API_GROUP
from windlass.model.codec import Unreadable, object_id
from windlass.model.configuration import Settings
from windlass.model.default_queue import DEFAULT_QUEUE, is_default_queue, with_default_queue
from windlass.model.disruption import PodDisruptionBudget
from windlass.model.kueue import WorkloadObject
from windlass.model.kueue.queue_wire import ClusterQueueObject, LocalQueueObject, QueueObject
from windlass.model.names.kueue import QUEUE_NAME_LABEL, WORKLOAD_PRIORITY_CLASS_LABEL
from windlass.model.node import Node
from windlass.model.owners import Owner, OwnerObject
from windlass.model.pod import Pod
from windlass.model.run_time_history import RunTimeHistoryObject
from windlass.model.times import format_timestamp
from windlass.model.volume import PersistentVolumeClaim
from windlass.scheduler.awaiting_owner import PodsAwaitingOwner
from windlass.scheduler.nominations import Nominations
from windlass.scheduler.options import SchedulerOptions
from windlass.scheduler.queued_owners import QueuedOwners
from windlass.scheduler.responsibility import Responsibility

ObjectKey = tuple[str, str]
"""Kind and `namespace/name`."""


class FlushResult(NamedTuple):
    applied: list[Delta]
    """Deltas applied to the store, in order."""
    needs_decision: bool
    """False if they only confirm our own binds, or change what no decision depends on."""


class AssumeObserver(Protocol):
    def on_assume(self, now: int, binds: Sequence[Assume]) -> None: ...


class SchedulerCache:
    def __init__(self, options: SchedulerOptions) -> None:
        self._options = options
        self.store = Store()
        self.pods: dict[str, Pod] = {}
        self.nodes: set[str] = set()
        self.objects: dict[tuple[str, str, str], Any] = {}
        """API group, kind and key → every object but pods."""
        self.assumed: dict[str, str] = {}
        """Pod → node, for binds that were sent and have not been seen in the watch."""
        self._assumed_statuses = AssumedStatuses()
        self._nominations = Nominations()
        self._nominated_workloads: frozenset[str] = frozenset()
        self.unreadable: dict[ObjectKey, Unreadable] = {}
        """Objects that could not be decoded."""
        self.on_pod_deleted: Callable[[str], None] = lambda key: None
        self.assume_observer: AssumeObserver | None = None
        self.changed = asyncio.Event()
        self.responsibility = Responsibility(options, self.objects)
        self.owners = QueuedOwners()
        self._default_queues: dict[str, LocalQueueObject] = {}
        """Namespace → its LocalQueue `default`."""
        self._inbox: list[Delta] = []
        self._unapplied: list[Delta] = []
        """Taken out of the inbox, and not applied to the store yet."""
        self._in_store: set[ObjectKey] = set()
        """Objects that the store knows, and that a deletion has to remove there."""
        self._now = 0
        self._trigger_count = 0
        """Unapplied deltas that call for a decision."""
        self._budget_counts: Counter[str] = Counter()
        """Namespace → number of its PodDisruptionBudgets."""
        self._backing_off: set[str] = set()
        """Pods left out of decisions after a refused bind."""
        self.awaiting_owner = PodsAwaitingOwner(self.objects)

    # Called by informers and by `apply`

    def push(self, deltas: Sequence[Delta]) -> None:
        self._inbox.extend(deltas)
        if deltas:
            self.changed.set()

    def assume(self, assumed: Sequence[Assume]) -> None:
        """Applies binds that are about to be sent to the store at once, so that the next decision counts them."""
        self.assumed.update((bind.pod, bind.node) for bind in assumed)
        self.store.apply(assumed)
        if self.assume_observer is not None:
            self.assume_observer.on_assume(self._now, assumed)

    def nominate(self, workloads: frozenset[str], nominated: Mapping[str, str]) -> None:
        """The plan's nominations (workloads, and pod → node), in place of earlier ones: the next decision sees them."""
        if workloads != self._nominated_workloads:
            self._nominated_workloads = workloads
            self._unapplied.append(Nominated(workloads))
        for key in self._nominations.replace(nominated, self.pods):
            if ("Pod", key) in self._in_store:
                self._unapplied.append(Put(self._for_engine(self.pods[key])))

    def assume_status(self, known: WorkloadObject, assumed: WorkloadObject, *, is_admission: bool) -> AssumedStatus:
        """A Workload's status is about to be written: the next decision sees it as `assumed`."""
        self.objects[object_id(assumed)] = assumed
        self._unapplied.append(Put(assumed))
        return self._assumed_statuses.assume(known, assumed, is_admission=is_admission)

    def finish_status(self, sent: AssumedStatus, version: str) -> None:
        """The API server has accepted the write, with this resourceVersion."""
        self.drain_inbox()
        self._reobserve_workload(self._assumed_statuses.finish(sent, version))

    def forget_status(self, sent: AssumedStatus) -> None:
        """The API server has refused the write."""
        self.drain_inbox()
        self._reobserve_workload(self._assumed_statuses.revert(sent))

    def recorded_workload(self, key: str) -> WorkloadObject | None:
        """The Workload without an admission that the API server has not answered yet."""
        known: WorkloadObject | None = self.get("Workload", key, KUEUE_API_GROUP)
        return None if known is None else self._assumed_statuses.recorded(known)

    def is_unconfirmed(self, sent: AssumedStatus) -> bool:
        self.drain_inbox()
        return self._assumed_statuses.is_pending(sent)

    def _reobserve_workload(self, workload: WorkloadObject | None) -> None:
        if workload is not None:
            self._unapplied += self._observe_object(workload)
            self.changed.set()

    def request_decision(self) -> None:
        """Something can be tried again, such as pods that the last plan left out, though no object has changed."""
        self._trigger_count += 1
        self.changed.set()

    def start_backoff(self, key: str) -> None:
        """Leaves the pod out of decisions until `end_backoff`."""
        self.drain_inbox()  # deltas pushed earlier must not undo this one
        self._backing_off.add(key)
        pod = self.pods.get(key)
        self.push([Forget(key), *([Put(pod)] if pod is not None else [])])

    def end_backoff(self, key: str) -> None:
        self.drain_inbox()
        self._backing_off.discard(key)
        pod = self.pods.get(key)
        if pod is not None:
            self.push([Put(pod)])

    # Called by the loop

    def flush(self, now: int) -> FlushResult:
        """Applies everything that was pushed to the store."""
        self.changed.clear()
        self._now = now
        self.drain_inbox()
        deltas, self._unapplied = self._unapplied, []
        triggers, self._trigger_count = self._trigger_count, 0
        self.store.apply(deltas)
        return FlushResult(deltas, triggers > 0)

    def drain_inbox(self) -> None:
        """Updates the cache, but not the store: a decision may be under way on the store's state."""
        self._take_in()
        take_over = self.responsibility.take_over
        if take_over.is_stale and take_over.reevaluate(self.objects, self.responsibility.kueue_is_live):
            queues = [obj for obj in self.objects.values() if isinstance(obj, ClusterQueueObject | LocalQueueObject)]
            self._unapplied += self._as_triggers(
                [Put(self.responsibility.without_takeover_hold(queue)) for queue in queues]
            )
            self._push_again(WorkloadObject, OwnerObject)
            self._take_in()
        self._unapplied += self._reobserve_pods(self.awaiting_owner.pop_overdue(self._now))

    def _take_in(self) -> None:
        inbox, self._inbox = self._inbox, []
        self._unapplied += [delta for pushed in inbox for delta in self._store_deltas(pushed)]

    @property
    def object_count(self) -> int:
        """Number of objects other than pods."""
        return len(self.objects)

    def get(self, kind: str, key: str, group: str = "") -> Any:
        return self.objects.get((group, kind, key))

    def disruption_budget_of(self, pod: Pod) -> str:
        """Key of the first PodDisruptionBudget that covers the pod, by name; empty if none does."""
        if not self._budget_counts[pod.metadata.namespace or "default"]:
            return ""
        budgets = (obj for obj in self.objects.values() if isinstance(obj, PodDisruptionBudget))
        covering = (budget for budget in budgets if budget.covers(pod))
        return min((f"{budget.namespace}/{budget.metadata.name}" for budget in covering), default="")

    def persistent_volume_claim(self, key: str) -> PersistentVolumeClaim | None:
        found: PersistentVolumeClaim | None = self.get("PersistentVolumeClaim", key)
        return found

    @property
    def settings(self) -> Settings:
        return self._options.settings

    def priority_of(self, owner: Owner) -> int:
        """Value of its WorkloadPriorityClass, else of its pods' PriorityClass, else its pods' `priority`."""
        labels, spec = owner.metadata.labels, owner.pod_sets[0].template.spec
        for group, kind, name in (
            (KUEUE_API_GROUP, "WorkloadPriorityClass", labels.get(WORKLOAD_PRIORITY_CLASS_LABEL, "")),
            ("scheduling.k8s.io", "PriorityClass", spec.priority_class_name),
        ):
            priority_class = self.get(kind, name, group) if name else None
            if priority_class is not None:
                return int(priority_class.value)
        return spec.priority

    def reevaluate_queue_ownership(self) -> None:
        """Kueue has appeared or disappeared: pushes everything again whose relevance depends on that."""
        self._queues_changed()
        self.drain_inbox()  # a newer state there must not be undone by an older one
        self._push_again(WorkloadObject, OwnerObject)

    def _queues_changed(self) -> None:
        """Which queues may be taken over has to be asked again."""
        self.responsibility.take_over.is_stale = bool(self.responsibility.take_over.wanted)

    def _push_again(self, *kinds: type) -> None:
        self.push([Put(obj) for obj in self.objects.values() if isinstance(obj, kinds)])

    # From observed deltas to what the store has to apply

    def _store_deltas(self, delta: Delta) -> list[Delta]:
        if self.unreadable and isinstance(delta, Put | Deleted):
            self._clear_unreadable(delta)
        match delta:
            case Put(object=Pod() as pod):
                return self._observe_pod(pod)
            case Put(object=Node() as node):
                return self._observe_node(node)
            case Put(object=Unreadable() as unreadable):
                return self._observe_unreadable(unreadable)
            case Put(object=obj):
                return self._observe_object(obj)
            case Deleted():
                return self._observe_deletion(delta)
            case Forget():
                self.assumed.pop(delta.pod, None)
                return self._as_triggers([delta])
            case _:
                return self._as_triggers([delta])

    def _clear_unreadable(self, delta: Put | Deleted) -> None:
        if isinstance(delta, Deleted):
            self.unreadable.pop((delta.kind, delta.key), None)
        elif not isinstance(delta.object, Unreadable):
            _, kind, key = object_id(delta.object)
            self.unreadable.pop((kind, key), None)

    def _as_triggers(self, deltas: list[Delta]) -> list[Delta]:
        self._trigger_count += len(deltas)
        return deltas

    def _observe_pod(self, pod: Pod) -> list[Delta]:
        known = self.pods.get(pod.key)
        self.pods[pod.key] = pod
        is_pending = not pod.is_bound and not pod.is_terminal
        if is_pending and (
            not self.responsibility.covers(pod) or pod.metadata.deletion_timestamp or pod.key in self._backing_off
        ):
            return self._remove_from_store("Pod", pod.key)
        in_store = ("Pod", pod.key) in self._in_store
        if is_pending and not in_store and self.awaiting_owner.must_wait(pod, self._now):
            return []
        overlay = self._nominations.overlay
        if in_store and known is not None and _is_unchanged_for_engine(overlay(known), overlay(pod)):
            counts_readiness = self._options.settings.ready_seconds is not None
            if not counts_readiness and not self._budget_counts[pod.metadata.namespace or "default"]:
                return []
            return [] if is_pod_health_unchanged(known, pod) else self._health_updates([pod])
        # The watch confirms our own bind: the store counts the pod there already, so no decision is needed.
        if pod.is_bound and self.assumed.pop(pod.key, None) == pod.spec.node_name and not pod.is_terminal:
            return [Put(self._for_engine(pod))]
        return self._put_in_store("Pod", pod.key, self._for_engine(pod))

    def _for_engine(self, pod: Pod) -> Pod:
        return _with_start_time(self._nominations.overlay(pod), self._now)

    def _health_updates(self, pods: Iterable[Pod]) -> list[Delta]:
        """Readiness of pods, which PodDisruptionBudgets count, and `waitForPodsReady`. It triggers no decision: the
        budget's status will, and time-outs come with the tick."""
        bound = [pod for pod in pods if pod.is_bound and ("Pod", pod.key) in self._in_store]
        return [Put(self._for_engine(pod)) for pod in bound]

    def _add_budget(self, namespace: str) -> list[Delta]:
        """Counts a budget. With the first one of a namespace, the readiness of its pods begins to matter."""
        self._budget_counts[namespace] += 1
        if self._budget_counts[namespace] > 1:
            return []
        return self._health_updates(
            [pod for pod in self.pods.values() if (pod.metadata.namespace or "default") == namespace]
        )

    def _reobserve_pods(self, pods: Iterable[str]) -> list[Delta]:
        """Deltas for pods that were kept back until now."""
        return [delta for key in pods if key in self.pods for delta in self._observe_pod(self.pods[key])]

    def _observe_node(self, node: Node) -> list[Delta]:
        if not self._options.settings.selects_node(node.labels):
            self.nodes.discard(node.name)
            self.objects.pop(("", "Node", node.name), None)
            return self._remove_from_store("Node", node.name)
        known = self.objects.get(("", "Node", node.name))
        self.objects["", "Node", node.name] = node
        self.nodes.add(node.name)
        in_store = ("Node", node.name) in self._in_store
        if in_store and known is not None and _is_unchanged_for_engine(known, node):
            return []
        return self._put_in_store("Node", node.name, node)

    def _observe_unreadable(self, unreadable: Unreadable) -> list[Delta]:
        """An unreadable pod replaces its readable version: on a node it blocks the node; a pending one is held."""
        key = f"{unreadable.namespace}/{unreadable.name}" if unreadable.namespace else unreadable.name
        self.unreadable[unreadable.kind, key] = unreadable
        if unreadable.kind != "Pod":
            return []
        self.pods.pop(key, None)
        if unreadable.node_name:
            return self._put_in_store("Pod", key, unreadable)
        self._trigger_count += 1
        return self._remove_from_store("Pod", key)

    def _observe_object(self, obj: Any) -> list[Delta]:
        group, kind, key = object_id(obj)
        if is_default_queue(obj):
            self._observe_default_queue(obj)
        obj = self._in_its_queue(obj)
        if isinstance(obj, WorkloadObject):
            obj = self._assumed_statuses.overlay(obj)
        known = self.objects.get((group, kind, key))
        self.objects[group, kind, key] = obj
        if isinstance(obj, RunTimeHistoryObject):
            self._in_store.add((f"{kind}.{group}", key))
            return [Put(obj)]  # triggers no decision: run times only refine estimates
        if isinstance(obj, QueueObject):
            self._queues_changed()
        if isinstance(obj, LocalQueueObject) and key in self.responsibility.take_over.names and known is None:
            # Its ClusterQueue may have been observed before, and counts as taken over from now on.
            cluster_queue = self.get("ClusterQueue", obj.spec.cluster_queue, KUEUE_API_GROUP)
            self.push([Put(cluster_queue)] if cluster_queue is not None else [])
        if isinstance(obj, ClusterQueueObject | LocalQueueObject):
            obj = self.responsibility.without_takeover_hold(obj)
        if isinstance(obj, LocalQueueObject):
            self.owners.mark_all_changed()  # which of them are ours may depend on it
        if isinstance(obj, WorkloadObject):
            self.owners.workload_observed(key, obj)
        if isinstance(obj, OwnerObject) and kind in SUSPEND_FIELDS:
            self.owners.remove((kind, key))
            self.owners.mark_parents_changed(obj)
            if QUEUE_NAME_LABEL in obj.metadata.labels and self.responsibility.owner_concerns_engine(obj):
                self.owners.put((kind, key), obj)
        pods = self.awaiting_owner.pop_waiting_for((group, kind, key))
        if not self.responsibility.concerns_engine(obj):
            removal = self._remove_from_store(f"{kind}.{group}", key, Deleted(kind, key, group))
            return [*removal, *self._reobserve_pods(pods)]
        in_store = (f"{kind}.{group}", key) in self._in_store
        if in_store and known is not None and _is_unchanged_for_engine(known, obj):
            return []
        is_new_budget = isinstance(obj, PodDisruptionBudget) and known is None
        health = self._add_budget(obj.namespace) if is_new_budget else []
        return [*self._put_in_store(f"{kind}.{group}", key, obj), *self._reobserve_pods(pods), *health]

    def _observe_default_queue(self, queue: LocalQueueObject) -> None:
        namespace = queue.metadata.namespace or "default"
        is_new = namespace not in self._default_queues
        self._default_queues[namespace] = queue
        if is_new:  # owners of the namespace may have been observed before it
            self._push_again(OwnerObject)

    def _in_its_queue(self, obj: Any) -> Any:
        """An owner without a queue is in the default one, unless a live Kueue decides on that."""
        if not self._default_queues or not isinstance(obj, OwnerObject):
            return obj
        is_ours = self.responsibility.admits_to(obj.metadata.namespace or "default", DEFAULT_QUEUE)
        return with_default_queue(obj, self._default_queues) if is_ours else obj

    def _observe_deletion(self, deletion: Deleted) -> list[Delta]:
        if deletion.kind == "Pod":
            self.pods.pop(deletion.key, None)
            self.on_pod_deleted(deletion.key)
            self.awaiting_owner.forget(deletion.key)
            self._backing_off.discard(deletion.key)
            self.assumed.pop(deletion.key, None)
            self._nominations.forget(deletion.key)
            return self._remove_from_store("Pod", deletion.key)
        known = self.objects.pop((deletion.group, deletion.kind, deletion.key), None)
        if isinstance(known, QueueObject):
            self._queues_changed()
        if is_default_queue(known):
            del self._default_queues[known.metadata.namespace or "default"]
        if isinstance(known, WorkloadObject):
            self._assumed_statuses.forget(deletion.key)
            self.owners.workload_deleted(deletion.key, known)
        elif isinstance(known, PodDisruptionBudget):
            self._budget_counts[known.namespace] -= 1
        self.owners.remove((deletion.kind, deletion.key))
        if deletion.kind == "Node":
            self.nodes.discard(deletion.key)
            return self._remove_from_store("Node", deletion.key)
        return self._remove_from_store(f"{deletion.kind}.{deletion.group}", deletion.key, deletion)

    def _put_in_store(self, kind: str, key: str, obj: object) -> list[Delta]:
        self._in_store.add((kind, key))
        return self._as_triggers([Put(obj)])

    def _remove_from_store(self, kind: str, key: str, deletion: Deleted | None = None) -> list[Delta]:
        if (kind, key) not in self._in_store:
            return []
        self._in_store.discard((kind, key))
        return self._as_triggers([deletion or Deleted(kind, key)])


def _is_unchanged_for_engine(old: Any, new: Any) -> bool:
    """Compares what the engine reads. Of a pod's status that is whether it has ended, and its nomination."""
    if isinstance(old, Pod) and isinstance(new, Pod):
        if old.is_terminal != new.is_terminal or old.status.nominated_node_name != new.status.nominated_node_name:
            return False
        return old.spec == new.spec and _is_metadata_unchanged(old, new)
    if isinstance(old, Node) and isinstance(new, Node):
        return is_node_unchanged(old, new)
    return _is_metadata_unchanged(old, new) and all(
        getattr(old, field) == getattr(new, field) for field in old.__struct_fields__ if field != "metadata"
    )


def _is_metadata_unchanged(old: Any, new: Any) -> bool:
    before = msgspec.structs.replace(old.metadata, resource_version="")
    return bool(before == msgspec.structs.replace(new.metadata, resource_version=""))


def _with_start_time(pod: Pod, now: int) -> Pod:
    """Dates a bound pod's start to now until its kubelet reports it. With its creation time instead, a gang that has
    waited for long would be past its grace period at once."""
    if not pod.is_bound or pod.status.start_time:
        return pod
    status = msgspec.structs.replace(pod.status, start_time=format_timestamp(now))
    return msgspec.structs.replace(pod, status=status)
