"""The workloads of a cluster, kept up to date: a changed object recomputes only the workloads that depend on it.

`workload_sync` puts objects in as they change and asks for the grouping at every snapshot; `group_workloads` fills an
index from a whole set of objects. The results of `units` and `build_workload` are kept with what they looked up
(`dependency_tracking`), so that after any changes the index equals a newly filled one.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from windlass.cluster.workloads.ancestors import OwnerKey, sibling_key
from windlass.cluster.workloads.broken_workload import broken_workload
from windlass.cluster.workloads.build_workload import (
    build_excess_workloads,
    build_terminating_workload,
    build_workload,
)
from windlass.cluster.workloads.dependency_tracking import DependencyTracker, Dependent, Lookup, TrackedMap
from windlass.cluster.workloads.finished_runs import finished_run
from windlass.cluster.workloads.grouping_inputs import GroupingInputs
from windlass.cluster.workloads.resource_quota_holds import hold_over_resource_quota
from windlass.cluster.workloads.unique_keys import WorkloadSortKey, with_unique_keys
from windlass.cluster.workloads.units import Unit, UnitFinder, UnitKey, UnknownOwner, unknown_owner_notes
from windlass.model.kueue import WorkloadObject
from windlass.model.names.kubernetes import HOSTNAME_LABEL
from windlass.model.namespace_limits import LimitRange, ResourceQuota
from windlass.model.node import Node
from windlass.model.owners import Owner
from windlass.model.pod import Pod
from windlass.model.pod_defaults import RuntimeClass
from windlass.model.pod_group import PodGroup
from windlass.model.queue import QueueSystem
from windlass.model.run_time_history import FinishedRun
from windlass.model.workload import Workload

POD, UNIT, WORKLOAD, OWNER = "pod", "unit", "workload", "owner"
"""Kinds of dependents: the unit of a pod, the workload of a unit, the units of a Workload or an owner."""
PARENT, OWNED, NODE, HOST, GROUP = "parent", "owned", "node", "host", "group"
"""Names of the maps that can be looked up, besides WORKLOAD and OWNER."""
MAX_FINISHED_RUNS = 10_000
"""Finished runs that are kept until `pop_finished_runs`; beyond that the oldest are dropped."""


class Grouping(msgspec.Struct, frozen=True):
    workloads: tuple[Workload, ...]
    """The oldest first."""
    notes: tuple[str, ...] = ()
    """For the user: pods that could not be grouped."""
    any_asks: bool = False
    """Whether any of them asks to be asked before it is preempted, or is asked."""


class WorkloadIndex:
    def __init__(self, unreadable_pods: Container[str] | None = None) -> None:
        """`unreadable_pods`: see `GroupingInputs`; it may change with the pods."""
        tracker = self._tracker = DependencyTracker()
        self._pods: dict[str, Pod] = {}
        self._nodes: TrackedMap[str, Node] = TrackedMap(tracker, NODE)
        self._hostnames: TrackedMap[str, str] = TrackedMap(tracker, HOST)
        self._nodes_by_hostname: dict[str, set[str]] = {}
        """Value of the label → the nodes with it; the first by name counts."""
        self._workloads: TrackedMap[str, WorkloadObject] = TrackedMap(tracker, WORKLOAD)
        self._owners: TrackedMap[OwnerKey, Owner] = TrackedMap(tracker, OWNER)
        self._groups: TrackedMap[tuple[str, str], PodGroup] = TrackedMap(tracker, GROUP)
        self._owned_by: TrackedMap[OwnerKey, str] = TrackedMap(tracker, OWNED)
        self._pods_owned_by: dict[str, str] = {}
        self._claimants: dict[OwnerKey, set[str]] = {}
        """Owner → the Workloads that name it; the last by key counts."""
        self._parents: TrackedMap[OwnerKey, int] = TrackedMap(tracker, PARENT)
        """Owner → how many other owners are below it."""
        self._inputs = GroupingInputs(
            nodes=self._nodes,
            hostnames=self._hostnames,
            workloads=self._workloads,
            pod_groups=self._groups,
            owners=self._owners,
            unreadable_pods=unreadable_pods,
        )
        self._finder = UnitFinder(self._inputs, self._owned_by, self._pods_owned_by, self._parents)
        self._unit_of: dict[str, UnitKey] = {}
        self._members: dict[UnitKey, set[str]] = {}
        self._units_of_object: dict[Dependent, tuple[UnitKey, ...]] = {}
        self._object_count: dict[UnitKey, int] = {}
        """Unit → how many Workloads and owners define it, with or without pods."""
        self._parents_of: dict[OwnerKey, tuple[OwnerKey, ...]] = {}
        self._pods_by_unknown_owner: dict[UnknownOwner, set[str]] = {}
        self._unknown_owners_of: dict[str, tuple[UnknownOwner, ...]] = {}
        self._quotas: tuple[ResourceQuota, ...] = ()
        self._entries: dict[UnitKey, list[tuple[WorkloadSortKey, Workload]]] = {}
        self._workloads_by_name: Counter[str] = Counter()
        self._shared_names = 0
        """Names that several workloads have."""
        self._sort_keys: list[WorkloadSortKey] = []
        self._sorted: list[Workload] = []
        self._units_dated_now: set[UnitKey] = set()
        """Units without a creation time, which count as created at `now`."""
        self._units_with_asks: set[UnitKey] = set()
        self._dirty: dict[Dependent, None] = {}
        self._broken: dict[Dependent, tuple[UnitKey, Exception]] = {}
        """Pods, Workloads and owners whose unit could not be found, with a unit of their own and the error."""
        self._finished_runs: deque[FinishedRun] = deque(maxlen=MAX_FINISHED_RUNS)

    # Input: objects, as they change

    def put_pod(self, key: str, pod: Pod | None) -> None:
        """A pod was added or changed; None: it was deleted."""
        if pod is None:
            self._pods.pop(key, None)
        else:
            self._pods[key] = pod
        self._dirty[POD, key] = None

    def put_node(self, name: str, node: Node | None) -> None:
        known = dict.get(self._nodes, name)
        self._replace(self._nodes, NODE, name, node)
        before = known.labels.get(HOSTNAME_LABEL, name) if known is not None else None
        after = node.labels.get(HOSTNAME_LABEL, name) if node is not None else None
        if before == after:
            return
        if before is not None:
            self._nodes_by_hostname[before].discard(name)
            self._update_hostname(before)
        if after is not None:
            self._nodes_by_hostname.setdefault(after, set()).add(name)
            self._update_hostname(after)

    def _update_hostname(self, hostname: str) -> None:
        node = min(self._nodes_by_hostname[hostname], default=None)
        if node != dict.get(self._hostnames, hostname):
            self._replace(self._hostnames, HOST, hostname, node)

    def put_workload(self, key: str, workload: WorkloadObject | None) -> None:
        known = dict.get(self._workloads, key)
        before, after = _owner_keys(known), _owner_keys(workload)
        for owner_key in before - after:
            self._claimants[owner_key].discard(key)
        for owner_key in after - before:
            self._claimants.setdefault(owner_key, set()).add(key)
        self._replace(self._workloads, WORKLOAD, key, workload)
        self._dirty[WORKLOAD, key] = None
        for owner_key in before ^ after:
            claimants = self._claimants[owner_key]
            self._set_workload_of_owner(owner_key, max(claimants) if claimants else None)
            if not claimants:
                del self._claimants[owner_key]

    def _set_workload_of_owner(self, owner_key: OwnerKey, workload: str | None) -> None:
        """Sets or removes the Workload of an owner. An owner that is a pod affects only its own unit."""
        kind, key = owner_key
        if kind != "Pod":
            self._replace(self._owned_by, OWNED, owner_key, workload)
            return
        self._dirty[POD, key] = None
        if workload is None:
            self._pods_owned_by.pop(key, None)
        else:
            self._pods_owned_by[key] = workload

    def put_owner(self, owner_key: OwnerKey, owner: Owner | None) -> None:
        self._replace(self._owners, OWNER, owner_key, owner)
        self._dirty[OWNER, owner_key] = None

    def put_pod_group(self, group_key: tuple[str, str], group: PodGroup | None) -> None:
        self._replace(self._groups, GROUP, group_key, group)

    def set_cluster_rules(
        self,
        system: QueueSystem,
        limits: Iterable[LimitRange],
        quotas: Iterable[ResourceQuota],
        runtime_classes: Mapping[str, RuntimeClass],
    ) -> None:
        """Sets what affects every workload: queues, flavors, priority classes, and what namespaces and runtimes add."""
        ranges = tuple(sorted(limits, key=_namespaced_name))
        self._inputs = msgspec.structs.replace(
            self._inputs, queue_system=system, limit_ranges=ranges, runtime_classes=runtime_classes
        )
        self.set_quotas(quotas)
        self._dirty.update(dict.fromkeys((UNIT, unit) for unit in self._entries))

    def set_quotas(self, quotas: Iterable[ResourceQuota]) -> None:
        """ResourceQuotas change with every created pod, so no workload depends on them: `grouping` checks them."""
        self._quotas = tuple(sorted(quotas, key=_namespaced_name))

    @property
    def queue_system(self) -> QueueSystem:
        return self._inputs.queue_system

    def _replace(self, entries: dict[Any, Any], name: str, key: Any, value: Any) -> None:
        """Replaces or removes an entry; its dependents have to be computed again."""
        if value is None:
            entries.pop(key, None)
        else:
            entries[key] = value
        self._mark_dependents_dirty((name, key))

    def _mark_dependents_dirty(self, lookup: Lookup) -> None:
        self._dirty.update(dict.fromkeys(self._tracker.dependents_of(lookup)))

    # Output: units and workloads

    def grouping(self, now: int) -> Grouping:
        """All workloads there are: waiting, running, and not submitted yet."""
        if now != self._inputs.now:
            self._inputs = msgspec.structs.replace(self._inputs, now=now)
            self._dirty.update(dict.fromkeys((UNIT, unit) for unit in self._units_dated_now))
        self._finder.set_inputs(self._inputs)
        units = self._dirty_units()
        for unit in units:
            self._entries.setdefault(unit, [])
        # Few changed workloads are inserted into the sorted list; with many, sorting again is faster.
        is_incremental = 8 * len(units) < len(self._sorted)
        try:
            for unit in units:
                self._rebuild_unit(unit, is_incremental)
        except BaseException:
            self._dirty.update(dict.fromkeys((UNIT, unit) for unit in self._entries))
            self._sort_keys, self._sorted = [], []  # half updated: everything is computed again next time
            raise
        if units and not is_incremental:
            entries = sorted(entry for made in self._entries.values() for entry in made)
            self._sort_keys = [sort_key for sort_key, _ in entries]
            self._sorted = [workload for _, workload in entries]
        unique = with_unique_keys(self._sorted, self._sort_keys) if self._shared_names else self._sorted
        workloads = hold_over_resource_quota(unique, self._quotas)
        notes = tuple(unknown_owner_notes(self._pods_by_unknown_owner))
        return Grouping(workloads, notes, any_asks=bool(self._units_with_asks))

    def pop_finished_runs(self) -> list[FinishedRun]:
        """Runs that have succeeded since the last call."""
        found = list(self._finished_runs)
        self._finished_runs.clear()
        return found

    def _dirty_units(self) -> list[UnitKey]:
        """Reassigns changed pods, Workloads and owners to units until only changed units are left."""
        units: dict[UnitKey, None] = {}
        while self._dirty:
            dirty, self._dirty = self._dirty, {}
            for dependent in dirty:
                kind, key = dependent
                if kind == UNIT:
                    units[key] = None
                elif kind == POD:
                    units.update(dict.fromkeys(self._regroup_pod(key)))
                else:
                    units.update(dict.fromkeys(self._reassign_object(dependent)))
        return list(units)

    def _regroup_pod(self, key: str) -> list[UnitKey]:
        pod = self._pods.get(key)
        before, after = self._unit_of.pop(key, None), None
        if before is not None:
            self._members[before].discard(key)
        for name in self._unknown_owners_of.pop(key, ()):
            self._discard_pod_of_unknown_owner(name, key)
        if pod is None:
            self._tracker.forget((POD, key))
            self._broken.pop((POD, key), None)
        else:
            with self._tracker.track((POD, key)):
                after = self._find_unit_of(pod)
            self._unit_of[key] = after
            self._members.setdefault(after, set()).add(key)
            if self._finder.unknown_owners:
                self._unknown_owners_of[key] = tuple(self._finder.unknown_owners)
                for name in self._finder.unknown_owners:
                    self._pods_by_unknown_owner.setdefault(name, set()).add(key)
        return [unit for unit in (before, after) if unit is not None]

    def _discard_pod_of_unknown_owner(self, name: UnknownOwner, key: str) -> None:
        pods = self._pods_by_unknown_owner[name]
        pods.discard(key)
        if not pods:
            del self._pods_by_unknown_owner[name]

    def _find_unit_of(self, pod: Pod) -> UnitKey:
        self._broken.pop((POD, pod.key), None)
        try:
            return self._finder.unit_of(pod)
        except Exception as error:  # whatever it is: it concerns this pod, and must not concern the others
            alone = UnitKey("pod", pod.key, "Pod")
            self._broken[POD, pod.key] = alone, error
            return alone

    def _reassign_object(self, dependent: Dependent) -> list[UnitKey]:
        """Finds the units of a Workload or an owner again; returns those before and after."""
        before = self._units_of_object.pop(dependent, ())
        self._broken.pop(dependent, None)
        with self._tracker.track(dependent):
            try:
                after = self._units_of(dependent)
            except Exception as error:  # whatever it is: it concerns this object, and must not concern the others
                after = (_unit_of_its_own(dependent),)
                self._broken[dependent] = after[0], error
        for unit in before:
            self._object_count[unit] -= 1
        for unit in after:
            self._object_count[unit] = self._object_count.get(unit, 0) + 1
        if after:
            self._units_of_object[dependent] = after
        kind, key = dependent
        if key not in (self._workloads if kind == WORKLOAD else self._owners):
            self._tracker.forget(dependent)  # whatever it looked up: it will be looked at when it comes back
        return [*before, *after]

    def _units_of(self, dependent: Dependent) -> tuple[UnitKey, ...]:
        kind, key = dependent
        if kind == WORKLOAD:
            workload = self._workloads.get(key)
            return () if workload is None else self._finder.units_of_workload(key, workload)
        owner = self._owners.get(key)
        parents = () if owner is None else self._finder.parents_of(owner)
        self._update_parents(key, parents)
        return () if owner is None else self._finder.units_of_owner(key, owner)

    def _update_parents(self, owner_key: OwnerKey, parents: tuple[OwnerKey, ...]) -> None:
        before = self._parents_of.get(owner_key, ())
        if before == parents:
            return
        self._parents_of[owner_key] = parents
        if not parents:
            del self._parents_of[owner_key]
        for change, owners in ((-1, before), (1, parents)):
            for parent in owners:
                count = dict.get(self._parents, parent, 0) + change
                self._replace(self._parents, PARENT, parent, count or None)

    def _rebuild_unit(self, unit: UnitKey, is_incremental: bool) -> None:
        """Builds the workload of a unit again, and others for pods that are being deleted or are too many."""
        if is_incremental:
            for sort_key, _ in self._entries[unit]:
                position = bisect_left(self._sort_keys, sort_key)
                del self._sort_keys[position], self._sorted[position]
        self._units_dated_now.discard(unit)
        self._units_with_asks.discard(unit)
        members = self._members.get(unit, ())
        before = next((workload for sort_key, workload in self._entries[unit] if not sort_key[-1]), None)
        if not members and not self._object_count.get(unit):
            self._remove_unit(unit, before)
            return
        with self._tracker.track((UNIT, unit)):
            pods = [self._pods[key] for key in members]
            built = self._build(_unit_with_pods(unit, sorted(pods, key=_age_key) if len(pods) > 1 else pods))
        if before is not None and (built[0] is None or built[0].admission is None):
            self._record_finished_run(before, unit, [self._pods[key] for key in members])
        parts = [(part, workload) for part, workload in enumerate(built) if workload is not None]
        self._set_entries(unit, [(_sort_key(workload, unit, part), workload) for part, workload in parts])
        for sort_key, workload in self._entries[unit]:
            if self._inputs.now in (workload.created, workload.queued_at):
                self._units_dated_now.add(unit)
            if workload.is_asked or workload.ask_terms is not None:
                self._units_with_asks.add(unit)
            if is_incremental:
                position = bisect_left(self._sort_keys, sort_key)
                self._sort_keys.insert(position, sort_key)
                self._sorted.insert(position, workload)

    def _build(self, unit: Unit) -> tuple[Workload | None, ...]:
        try:
            for broken, error in self._broken.values():
                if broken == unit.key:
                    raise error
            return (
                build_workload(unit, self._inputs),
                build_terminating_workload(unit, self._inputs),
                *build_excess_workloads(unit, self._inputs),
            )
        except Exception as error:  # whatever it is: it concerns this unit, and must not concern the others
            return (broken_workload(unit, error, self._inputs.now),)

    def _remove_unit(self, unit: UnitKey, before: Workload | None) -> None:
        if before is not None:
            self._record_finished_run(before, unit, ())
        self._tracker.forget((UNIT, unit))
        self._members.pop(unit, None)
        self._object_count.pop(unit, None)
        self._set_entries(unit, [])
        del self._entries[unit]

    def _set_entries(self, unit: UnitKey, entries: list[tuple[WorkloadSortKey, Workload]]) -> None:
        for change, workloads in ((-1, self._entries[unit]), (1, entries)):
            for _, workload in workloads:
                count = self._workloads_by_name[workload.key] + change
                self._shared_names += (count > 1) - (count - change > 1)
                self._workloads_by_name[workload.key] = count
                if not count:
                    del self._workloads_by_name[workload.key]
        self._entries[unit] = entries

    def _record_finished_run(self, before: Workload, unit: UnitKey, pods: Sequence[Pod]) -> None:
        """Called when nothing of the unit runs any more; records the run if it has succeeded."""
        run = finished_run(before, unit, pods, self._inputs)
        if run is not None:
            self._finished_runs.append(run)


def _unit_of_its_own(dependent: Dependent) -> UnitKey:
    """The unit of a Workload or an owner, whatever else there is."""
    source, key = dependent
    return UnitKey("workload", key, "Workload") if source == WORKLOAD else UnitKey("owner", key[1], key[0])


def group_workloads(inputs: GroupingInputs) -> Grouping:
    """The workloads of a whole set of objects."""
    index = WorkloadIndex()
    index.set_cluster_rules(inputs.queue_system, inputs.limit_ranges, inputs.resource_quotas, inputs.runtime_classes)
    for node in inputs.nodes.values():
        index.put_node(node.name, node)
    for key, workload in inputs.workloads.items():
        index.put_workload(key, workload)
    for group_key, pod_group in inputs.pod_groups.items():
        index.put_pod_group(group_key, pod_group)
    for owner_key, owner in inputs.owners.items():
        index.put_owner(owner_key, owner)
    for pod in inputs.pods:
        index.put_pod(pod.key, pod)
    return index.grouping(inputs.now)


def _namespaced_name(limits: LimitRange | ResourceQuota) -> tuple[str, str]:
    """Of several that forbid the same the first is named, in whatever order they came."""
    return limits.namespace, limits.metadata.name


def _unit_with_pods(key: UnitKey, pods: Iterable[Pod]) -> Unit:
    unit = Unit(key)
    for pod in pods:
        if not pod.is_terminal:
            unit.pods.append(pod)
        elif pod.status.phase == "Succeeded":
            unit.succeeded += 1
    return unit


def _age_key(pod: Pod) -> tuple[str, str]:
    """Where pods of a unit differ, the oldest counts, in whatever order they came."""
    return pod.metadata.creation_timestamp, pod.key


def _sort_key(workload: Workload, unit: UnitKey, part: int) -> WorkloadSortKey:
    index = -1 if unit.index is None else unit.index
    return workload.created, workload.key, workload.kind, unit.source, index, part


def _owner_keys(workload: WorkloadObject | None) -> set[OwnerKey]:
    if workload is None:
        return set()
    meta = workload.metadata
    return {(owner.kind, sibling_key(meta, owner.name)) for owner in meta.owner_references}
