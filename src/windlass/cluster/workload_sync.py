"""The store's workloads: what changed since the last snapshot goes into the book, and the grouping comes out.

Fed by the store, which says which pods and nodes changed, and by `others`, which has the objects that say what belongs
together. Where nothing does, every pod is a workload by itself and no book is kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from windlass.cluster.workloads import Grouping, WorkloadIndex
from windlass.model.kueue import WorkloadObject, queue_system
from windlass.model.namespace_limits import LimitRange, ResourceQuota
from windlass.model.node import Node
from windlass.model.owners import OwnerObject, owner_from_object
from windlass.model.pod import Pod
from windlass.model.pod_group import PodGroupObject, pod_group_from_object
from windlass.model.queue import QueueSystem
from windlass.model.run_time_history import FinishedRun

ObjectId = tuple[str, str, str]
"""API group, kind and key of an object."""
IndexEntryKey = tuple[str, Any]
"""Where an object is in the book: the kind of entry, and its key."""
WORKLOAD, OWNER, GROUP = "workload", "owner", "group"
_NO_QUEUES = QueueSystem()
_NO_WORKLOADS = Grouping(())


class GroupingSource(Protocol):
    """The store, as this reads it."""

    def pod_for_grouping(self, key: str) -> Pod | None: ...
    def pod_keys_for_grouping(self) -> Iterable[str]: ...
    @property
    def nodes_for_grouping(self) -> Mapping[str, Node]: ...


class WorkloadSync:
    def __init__(self) -> None:
        self._book: WorkloadIndex | None = None
        self._system = _NO_QUEUES
        self._pods: set[str] = set()
        self._nodes: set[str] = set()
        self._places: dict[ObjectId, IndexEntryKey] = {}
        """Object → its entry in the book; those that have none are rules for all."""
        self._entries: dict[IndexEntryKey, dict[ObjectId, Any]] = {}
        """Entry → the objects that claim it; the last one has it."""
        self._rules: dict[ObjectId, Any] = {}
        self._quotas: dict[ObjectId, ResourceQuota] = {}
        self._namespaces: Mapping[str, object] = {}
        self._rules_changed = True

    def pod_changed(self, key: str) -> None:
        if self._book is not None:
            self._pods.add(key)

    def node_changed(self, name: str) -> None:
        if self._book is not None:
            self._nodes.add(name)

    def sync(
        self,
        cluster: GroupingSource,
        objects: dict[ObjectId, Any],
        changed: Iterable[ObjectId],
        namespaces: Mapping[str, object],
        now: int,
        needs_workloads: bool,
    ) -> tuple[QueueSystem, Grouping]:
        """Queues and workloads. `changed` are names of extras; `spelled_out` is false where every pod is a workload by
        itself: then no book is needed, and only what is a rule for all of them is read."""
        if namespaces is not self._namespaces:
            self._namespaces, self._rules_changed = namespaces, True
        if (
            self._book is None and needs_workloads
        ):  # from then on it is kept: what was needed once is needed again
            self._start_book(cluster, objects)
            changed = objects
        for name in changed:
            self._enter(name, objects.get(name))
        if self._rules_changed:
            self._set_rules()
        if self._book is None:
            return self._system, _NO_WORKLOADS
        self._book.set_quotas(self._quotas.values())
        for node in self._nodes:
            self._book.put_node(node, cluster.nodes_for_grouping.get(node))
        for key in sorted(self._pods):
            self._book.put_pod(key, cluster.pod_for_grouping(key))
        self._pods, self._nodes = set(), set()
        return self._system, self._book.grouping(now)

    def _start_book(self, cluster: GroupingSource, extras: dict[ObjectId, Any]) -> None:
        self._book, self._rules_changed = WorkloadIndex(), True
        self._places, self._entries, self._rules, self._quotas = {}, {}, {}, {}
        self._pods, self._nodes = set(cluster.pod_keys_for_grouping()), set(cluster.nodes_for_grouping)

    def pop_new_templates(self) -> list[Pod]:
        return self._book.pop_new_templates() if self._book is not None else []

    def pop_finished_runs(self) -> list[FinishedRun]:
        return self._book.pop_finished_runs() if self._book is not None else []

    def _enter(self, name: ObjectId, thing: Any) -> None:
        """An object came, changed, or is gone (None)."""
        if isinstance(thing, ResourceQuota):
            self._quotas[name] = thing
            return
        if self._quotas.pop(name, None) is not None:
            return
        place, entry = self._entry(thing)
        known = self._places.pop(name, None)
        if known is not None and known != place:
            self._claim(known, name, None)
        if place is None:
            gone = self._rules.pop(name, None)
            if thing is not None:
                self._rules[name] = thing
            self._rules_changed |= gone is not None or thing is not None
            return
        self._places[name] = place
        self._claim(place, name, entry)

    def _entry(self, thing: Any) -> tuple[IndexEntryKey | None, Any]:
        match thing:
            case WorkloadObject():
                return (WORKLOAD, thing.key), thing
            case OwnerObject():
                owner = owner_from_object(thing)
                return (OWNER, (owner.kind, owner.key)), owner
            case PodGroupObject():
                group = pod_group_from_object(thing)
                return (GROUP, (group.api_group, group.key)), group
            case _:
                return None, None

    def _claim(self, place: IndexEntryKey, name: ObjectId, entry: Any) -> None:
        """Objects of one kind and name in several API groups claim one entry."""
        claimants = self._entries.setdefault(place, {})
        before = next(reversed(claimants.values()), None)
        if entry is None:
            claimants.pop(name, None)
        else:
            claimants[name] = entry
        after = next(reversed(claimants.values()), None)
        if after is None:
            del self._entries[place]
        book = self._book
        if after == before or book is None:
            return
        kind, key = place
        if kind == WORKLOAD:
            book.put_workload(key, after)
        elif kind == OWNER:
            book.put_owner(key, after)
        else:
            book.put_pod_group(key, after)

    def _set_rules(self) -> None:
        things = list(self._rules.values())
        self._system = queue_system([*self._namespaces.values(), *things])
        if self._book is not None:
            limits = [thing for thing in things if isinstance(thing, LimitRange)]
            self._book.set_cluster_rules(self._system, limits, self._quotas.values())
        self._rules_changed = False
