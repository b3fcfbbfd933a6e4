"""Brings the workload index up to date with what changed since the last snapshot.

`auxiliary_objects` calls it at every snapshot, with the objects that define workloads; the store reports changed pods
and nodes. Where no object or pod declares a workload, there is no index and all pods are single pods.
"""

from __future__ import annotations

import functools
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Any, Protocol

from windlass.cluster.workloads import Grouping, WorkloadIndex
from windlass.model.bisection import first_failing
from windlass.model.bug import bug_of
from windlass.model.kueue import WorkloadObject, has_shared_queues, queue_system
from windlass.model.namespace_limits import LimitRange, ResourceQuota
from windlass.model.node import Node
from windlass.model.owners import OwnerObject, owner_from_object
from windlass.model.pod import Pod
from windlass.model.pod_defaults import RuntimeClass
from windlass.model.pod_group import PodGroupObject, pod_group_from_object
from windlass.model.queue import QueueSystem
from windlass.model.quota import cluster_capacity
from windlass.model.run_time_history import FinishedRun

ObjectId = tuple[str, str, str]
"""API group, kind and key of an object."""
IndexEntryKey = tuple[str, Any]
"""Kind and key of an entry of the index."""
WORKLOAD, OWNER, GROUP = "workload", "owner", "group"
_NO_QUEUES = QueueSystem()
_NO_WORKLOADS = Grouping(())


class GroupingSource(Protocol):
    """What is read of the store."""

    def pod_for_grouping(self, key: str) -> Pod | None: ...
    def pod_keys_for_grouping(self) -> Iterable[str]: ...
    @property
    def nodes_for_grouping(self) -> Mapping[str, Node]: ...
    @property
    def unreadable_pods(self) -> Container[str]: ...


class WorkloadSync:
    def __init__(self) -> None:
        self._index: WorkloadIndex | None = None
        self._system = _NO_QUEUES
        self._pods: set[str] = set()
        self._nodes: set[str] = set()
        self._entry_keys: dict[ObjectId, IndexEntryKey] = {}
        """Object → its entry of the index; objects without one are rules for all workloads."""
        self._claimants: dict[IndexEntryKey, dict[ObjectId, Any]] = {}
        """Entry → the objects that claim it, of several API groups; the last one counts."""
        self._rules: dict[ObjectId, Any] = {}
        self._quotas: dict[ObjectId, ResourceQuota] = {}
        self._namespaces: Mapping[str, object] = {}
        self._rules_changed = True
        self._has_shared_queues = False
        """Among the rules are queues of KAI or Volcano."""
        self.broken: dict[ObjectId, str] = {}
        """Objects that count as absent because of a bug of ours, which the text names."""
        self._capacity: dict[str, int] | None = None
        """What all nodes have; None as long as nobody asked."""

    def pod_changed(self, key: str) -> None:
        if self._index is not None:
            self._pods.add(key)

    def node_changed(self, object_id: str) -> None:
        if self._index is not None:
            self._nodes.add(object_id)

    def sync(
        self,
        cluster: GroupingSource,
        objects: dict[ObjectId, Any],
        changed: Iterable[ObjectId],
        namespaces: Mapping[str, object],
        now: int,
        needs_workloads: bool,
    ) -> tuple[QueueSystem, Grouping]:
        """Queues and workloads. `changed` are ids in `objects`; `needs_workloads` is false where all pods are single
        pods: then only rules for all workloads are read."""
        if namespaces is not self._namespaces:
            self._namespaces, self._rules_changed = namespaces, True
        if self._index is None and needs_workloads:
            # From now on the index is kept, since building it again would read every object.
            self._start_index(cluster)
            changed = objects
        for object_id in changed:
            self._update_object(object_id, objects.get(object_id))
        if self._rules_changed:
            self._has_shared_queues = has_shared_queues(self._rules.values())
        if self._has_shared_queues and (self._nodes or self._capacity is None):
            self._update_capacity(cluster_capacity(cluster.nodes_for_grouping.values()))
        if self._rules_changed:
            self._update_rules()
        if self._index is None:
            return self._system, _NO_WORKLOADS
        self._index.set_quotas(self._quotas.values())
        for node in sorted(self._nodes):
            self._index.put_node(node, cluster.nodes_for_grouping.get(node))
        for key in sorted(self._pods):
            self._index.put_pod(key, cluster.pod_for_grouping(key))
        self._pods, self._nodes = set(), set()
        return self._system, self._index.grouping(now)

    def _update_capacity(self, capacity: dict[str, int]) -> None:
        """Queues of other schedulers share what no queue has of the cluster."""
        self._rules_changed |= capacity != self._capacity
        self._capacity = capacity

    def _start_index(self, cluster: GroupingSource) -> None:
        self._index, self._rules_changed = WorkloadIndex(cluster.unreadable_pods), True
        self._entry_keys, self._claimants, self._rules, self._quotas = {}, {}, {}, {}
        self._pods, self._nodes = set(cluster.pod_keys_for_grouping()), set(cluster.nodes_for_grouping)

    def pop_finished_runs(self) -> list[FinishedRun]:
        return self._index.pop_finished_runs() if self._index is not None else []

    def _update_object(self, object_id: ObjectId, obj: Any) -> None:
        """`obj` was added or changed; None: it was deleted."""
        if isinstance(obj, ResourceQuota):
            self._quotas[object_id] = obj
            return
        if self._quotas.pop(object_id, None) is not None:
            return
        self.broken.pop(object_id, None)
        try:
            entry_key, entry = self._index_entry(obj)
        except Exception as error:  # whatever it is: it concerns this object, and must not concern the others
            self.broken[object_id] = bug_of(error).message
            obj, entry_key, entry = None, None, None
        previous_key = self._entry_keys.pop(object_id, None)
        if previous_key is not None and previous_key != entry_key:
            self._update_entry(previous_key, object_id, None)
        if entry_key is None:
            removed = self._rules.pop(object_id, None)
            if obj is not None:
                self._rules[object_id] = obj
            self._rules_changed |= removed is not None or obj is not None
            return
        self._entry_keys[object_id] = entry_key
        self._update_entry(entry_key, object_id, entry)

    def _index_entry(self, obj: Any) -> tuple[IndexEntryKey | None, Any]:
        match obj:
            case WorkloadObject():
                return (WORKLOAD, obj.key), obj
            case OwnerObject():
                owner = owner_from_object(obj)
                return (OWNER, (owner.kind, owner.key)), owner
            case PodGroupObject():
                group = pod_group_from_object(obj)
                return (GROUP, (group.api_group, group.key)), group
            case _:
                return None, None

    def _update_entry(self, entry_key: IndexEntryKey, object_id: ObjectId, entry: Any) -> None:
        """Objects of one kind and name in several API groups claim the same entry."""
        claimants = self._claimants.setdefault(entry_key, {})
        before = next(reversed(claimants.values()), None)
        if entry is None:
            claimants.pop(object_id, None)
        else:
            claimants[object_id] = entry
        after = next(reversed(claimants.values()), None)
        if after is None:
            del self._claimants[entry_key]
        index = self._index
        if after == before or index is None:
            return
        kind, key = entry_key
        if kind == WORKLOAD:
            index.put_workload(key, after)
        elif kind == OWNER:
            index.put_owner(key, after)
        else:
            index.put_pod_group(key, after)

    def _update_rules(self) -> None:
        self._system = self._read_rules()
        objects = [obj for object_id, obj in self._rules.items() if object_id not in self.broken]
        if self._index is not None:
            limits = [obj for obj in objects if isinstance(obj, LimitRange)]
            classes = {obj.metadata.name: obj for obj in objects if isinstance(obj, RuntimeClass)}
            self._index.set_cluster_rules(self._system, limits, self._quotas.values(), classes)
        self._rules_changed = False

    def _read_rules(self) -> QueueSystem:
        """The queues, without rules that can't be read because of a bug of ours."""
        for object_id in self._rules:
            self.broken.pop(object_id, None)
        namespaces = list(self._namespaces.values())
        while True:
            ids = [object_id for object_id in self._rules if object_id not in self.broken]
            try:
                return queue_system([*namespaces, *(self._rules[object_id] for object_id in ids)], self._capacity)
            except Exception as error:  # whatever it is: it concerns one object, and must not concern the others
                attempt = functools.partial(self._rules_error, namespaces, ids)
                if not ids or attempt(0) is not None:
                    raise
                index, found = first_failing(len(ids), error, attempt)
                self.broken[ids[index]] = bug_of(found).message

    def _rules_error(self, namespaces: Sequence[object], ids: Sequence[ObjectId], count: int) -> Exception | None:
        """The error of reading the first rules."""
        try:
            queue_system([*namespaces, *(self._rules[object_id] for object_id in ids[:count])], self._capacity)
        except Exception as error:  # this is what is asked for
            return error
        return None
