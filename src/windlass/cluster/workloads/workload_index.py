"""The workloads of a cluster, kept up to date: a change of one object works out again what had read it, and no more.

The store's `AuxiliaryObjects` puts objects in as they change and asks for the grouping at every snapshot; `group`
fills one for a whole set of objects. It keeps what `units` and `build` found together with what they looked up
(`reads`), so that a book that has seen many changes equals one that was filled just now.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from windlass.cluster.workloads.build_workload import build_terminating_workload, build_workload
from windlass.cluster.workloads.dependency_tracking import DependencyTracker, Dependent, Lookup, TrackedMap
from windlass.cluster.workloads.finished_runs import finished_run
from windlass.cluster.workloads.grouping_inputs import HOSTNAME, GroupingInputs
from windlass.cluster.workloads.resource_quota_holds import hold_over_resource_quota
from windlass.cluster.workloads.units import (
    OwnerKey,
    Unit,
    UnitFinder,
    UnitKey,
    UnknownOwner,
    sibling_key,
    ungrouped_notes,
)
from windlass.model.kueue import WorkloadObject
from windlass.model.namespace_limits import LimitRange, ResourceQuota
from windlass.model.node import Node
from windlass.model.owners import Owner
from windlass.model.pod import Pod
from windlass.model.pod_group import PodGroup
from windlass.model.queue import QueueSystem
from windlass.model.run_time_history import FinishedRun
from windlass.model.workload import Workload

POD, UNIT, WORKLOAD, OWNER = "pod", "unit", "workload", "owner"
"""Kinds of readers: which unit a pod is in, a unit's workload, what a Workload or an owner stands for."""
PARENT, OWNED, NODE, HOST, GROUP = "parent", "owned", "node", "host", "group"
"""Beside WORKLOAD and OWNER, what can be looked up."""
MAX_FINISHED_RUNS = 10_000
"""Finished runs that are kept for whoever asks for them; the oldest go first."""
_KEEPS_NAME = {"Workload": 0, "Pod": 1}
WorkloadSortKey = tuple[int, str, str, str, int, int]
"""Oldest first, then by key, kind, source, gang and part."""


class Grouping(msgspec.Struct, frozen=True):
    workloads: tuple[Workload, ...]
    """The oldest first."""
    notes: tuple[str, ...] = ()
    """What could not be grouped and is said instead of guessed."""


class WorkloadIndex:
    def __init__(self) -> None:
        reads = self._reads = DependencyTracker()
        self._pods: dict[str, Pod] = {}
        self._nodes: TrackedMap[str, Node] = TrackedMap(reads, NODE)
        self._hostnames: TrackedMap[str, str] = TrackedMap(reads, HOST)
        self._workloads: TrackedMap[str, WorkloadObject] = TrackedMap(reads, WORKLOAD)
        self._owners: TrackedMap[OwnerKey, Owner] = TrackedMap(reads, OWNER)
        self._groups: TrackedMap[tuple[str, str], PodGroup] = TrackedMap(reads, GROUP)
        self._owned_by: TrackedMap[OwnerKey, str] = TrackedMap(reads, OWNED)
        self._pods_owned_by: dict[str, str] = {}
        self._claims: dict[OwnerKey, set[str]] = {}
        """Owner → the Workloads that name it; the last by key stands for it."""
        self._parents: TrackedMap[OwnerKey, int] = TrackedMap(reads, PARENT)
        """Owner → how many are below it."""
        self._inputs = GroupingInputs(
            nodes=self._nodes,
            hostnames=self._hostnames,
            workloads=self._workloads,
            pod_groups=self._groups,
            owners=self._owners,
        )
        self._finder = UnitFinder(self._inputs, self._owned_by, self._pods_owned_by, self._parents)
        self._unit_of: dict[str, UnitKey] = {}
        self._members: dict[UnitKey, set[str]] = {}
        self._stands_for: dict[Dependent, tuple[UnitKey, ...]] = {}
        self._podless: dict[UnitKey, int] = {}
        """Unit → how many Workloads and owners stand for it."""
        self._parents_of: dict[OwnerKey, tuple[OwnerKey, ...]] = {}
        self._ungrouped: dict[UnknownOwner, set[str]] = {}
        self._ungrouped_of: dict[str, tuple[UnknownOwner, ...]] = {}
        self._quotas: tuple[ResourceQuota, ...] = ()
        self._made: dict[UnitKey, list[tuple[WorkloadSortKey, Workload]]] = {}
        self._ranks: list[WorkloadSortKey] = []
        self._sorted: list[Workload] = []
        self._undated: set[UnitKey] = set()
        """Units that are as old as the moment of asking: nobody has dated them."""
        self._dirty: dict[Dependent, None] = {}
        self._templates: list[Pod] = []
        self._runs: deque[FinishedRun] = deque(maxlen=MAX_FINISHED_RUNS)

    # What there is

    def put_pod(self, key: str, pod: Pod | None) -> None:
        """A pod came, changed, or is gone (None)."""
        if pod is None:
            self._pods.pop(key, None)
        else:
            self._pods[key] = pod
        self._dirty[POD, key] = None

    def put_node(self, name: str, node: Node | None) -> None:
        known = dict.get(self._nodes, name)
        self._replace(self._nodes, NODE, name, node)
        before = known.labels.get(HOSTNAME, name) if known is not None else None
        after = node.labels.get(HOSTNAME, name) if node is not None else None
        if before != after:
            if before is not None and dict.get(self._hostnames, before) == name:
                self._replace(self._hostnames, HOST, before, None)
            if after is not None:
                self._replace(self._hostnames, HOST, after, name)

    def put_workload(self, key: str, workload: WorkloadObject | None) -> None:
        known = dict.get(self._workloads, key)
        before, after = _owners_named(known), _owners_named(workload)
        for named in before - after:
            self._claims[named].discard(key)
        for named in after - before:
            self._claims.setdefault(named, set()).add(key)
        self._replace(self._workloads, WORKLOAD, key, workload)
        self._dirty[WORKLOAD, key] = None
        for named in before ^ after:
            claimants = self._claims[named]
            self._set_owner(named, max(claimants) if claimants else None)

    def _set_owner(self, named: OwnerKey, workload: str | None) -> None:
        """The Workload that stands for an owner. A pod that is one is looked up once, by itself."""
        kind, key = named
        if kind != "Pod":
            self._replace(self._owned_by, OWNED, named, workload)
            return
        self._dirty[POD, key] = None
        if workload is None:
            self._pods_owned_by.pop(key, None)
        else:
            self._pods_owned_by[key] = workload

    def put_owner(self, named: OwnerKey, owner: Owner | None) -> None:
        self._replace(self._owners, OWNER, named, owner)
        self._dirty[OWNER, named] = None

    def put_pod_group(self, named: tuple[str, str], group: PodGroup | None) -> None:
        self._replace(self._groups, GROUP, named, group)

    def set_cluster_rules(
        self, system: QueueSystem, limits: Iterable[LimitRange], quotas: Iterable[ResourceQuota]
    ) -> None:
        """What bears on every workload: queues, flavors, priority classes, and the namespaces' rules."""
        self._inputs = msgspec.structs.replace(self._inputs, queue_system=system, limit_ranges=tuple(limits))
        self.set_quotas(quotas)
        self._dirty.update(dict.fromkeys((UNIT, unit) for unit in self._made))

    def set_quotas(self, quotas: Iterable[ResourceQuota]) -> None:
        """They change with every pod that is made, and no workload is worked out anew for that."""
        self._quotas = tuple(quotas)

    @property
    def queue_system(self) -> QueueSystem:
        return self._inputs.queue_system

    def _replace(self, things: dict[Any, Any], name: str, key: Any, thing: Any) -> None:
        """Whoever looked it up has to look again."""
        if thing is None:
            things.pop(key, None)
        else:
            things[key] = thing
        self._touch((name, key))

    def _touch(self, name: Lookup) -> None:
        self._dirty.update(dict.fromkeys(self._reads.dependents_of(name)))

    # What follows from it

    def grouping(self, now: int) -> Grouping:
        """All workloads there are: waiting, running, and not submitted yet."""
        if now != self._inputs.now:
            self._inputs = msgspec.structs.replace(self._inputs, now=now)
            self._dirty.update(dict.fromkeys((UNIT, unit) for unit in self._undated))
        self._finder.set_inputs(self._inputs)
        units = self._dirty_units()
        for unit in units:
            self._made.setdefault(unit, [])
        few = 8 * len(units) < len(self._sorted)
        try:
            for unit in units:
                self._make(unit, few)
        except BaseException:
            self._dirty.update(dict.fromkeys((UNIT, unit) for unit in self._made))
            self._ranks, self._sorted = [], []  # half done: all of it is worked out again
            raise
        if units and not few:
            entries = sorted(entry for made in self._made.values() for entry in made)
            self._ranks, self._sorted = [rank for rank, _ in entries], [one for _, one in entries]
        workloads = hold_over_resource_quota(_of_different_names(self._sorted), self._quotas)
        return Grouping(workloads, tuple(ungrouped_notes(self._ungrouped)))

    def pop_new_templates(self) -> list[Pod]:
        """Templates of pods that don't exist yet, of the workloads that were worked out since the last time."""
        found, self._templates = self._templates, []
        return found

    def pop_finished_runs(self) -> list[FinishedRun]:
        """Runs that have come to a good end since the last time."""
        found = list(self._runs)
        self._runs.clear()
        return found

    def _dirty_units(self) -> list[UnitKey]:
        """Pods and owners are looked up again until only units are left."""
        units: dict[UnitKey, None] = {}
        while self._dirty:
            dirty, self._dirty = self._dirty, {}
            for reader in dirty:
                kind, key = reader
                if kind == UNIT:
                    units[key] = None
                elif kind == POD:
                    units.update(dict.fromkeys(self._regroup_pod(key)))
                else:
                    units.update(dict.fromkeys(self._stand_again(reader)))
        return list(units)

    def _regroup_pod(self, key: str) -> list[UnitKey]:
        pod = self._pods.get(key)
        before, after = self._unit_of.pop(key, None), None
        if before is not None:
            self._members[before].discard(key)
        for name in self._ungrouped_of.pop(key, ()):
            self._ungrouped[name].discard(key)
        if pod is None:
            self._reads.forget((POD, key))
        else:
            with self._reads.track((POD, key)):
                after = self._finder.unit_of(pod)
            self._unit_of[key] = after
            self._members.setdefault(after, set()).add(key)
            if self._finder.ungrouped:
                self._ungrouped_of[key] = tuple(self._finder.ungrouped)
                for name in self._finder.ungrouped:
                    self._ungrouped.setdefault(name, set()).add(key)
        return [unit for unit in (before, after) if unit is not None]

    def _stand_again(self, reader: Dependent) -> list[UnitKey]:
        """Which units a Workload or an owner stands for."""
        before = self._stands_for.pop(reader, ())
        with self._reads.track(reader):
            after = self._units_of(reader)
        for unit in before:
            self._podless[unit] -= 1
        for unit in after:
            self._podless[unit] = self._podless.get(unit, 0) + 1
        if after:
            self._stands_for[reader] = after
        return [*before, *after]

    def _units_of(self, reader: Dependent) -> tuple[UnitKey, ...]:
        kind, key = reader
        if kind == WORKLOAD:
            workload = self._workloads.get(key)
            return () if workload is None else self._finder.units_of_workload(key, workload)
        owner = self._owners.get(key)
        parents = () if owner is None else self._finder.parents_of(owner)
        self._note_parents(key, parents)
        return () if owner is None else self._finder.units_of_owner(key, owner)

    def _note_parents(self, named: OwnerKey, parents: tuple[OwnerKey, ...]) -> None:
        before = self._parents_of.get(named, ())
        if before == parents:
            return
        self._parents_of[named] = parents
        for change, above in ((-1, before), (1, parents)):
            for parent in above:
                count = dict.get(self._parents, parent, 0) + change
                self._replace(self._parents, PARENT, parent, count or None)

    def _make(self, unit: UnitKey, insert: bool) -> None:
        """The workload of a unit, or the two where a part of it is leaving."""
        if insert:
            for rank, _ in self._made[unit]:
                at = bisect_left(self._ranks, rank)
                del self._ranks[at], self._sorted[at]
        self._undated.discard(unit)
        members = self._members.get(unit, ())
        before = next((one for rank, one in self._made[unit] if not rank[-1]), None)
        if not members and not self._podless.get(unit):
            if before is not None:
                self._note_end(before, unit, ())
            self._reads.forget((UNIT, unit))
            self._members.pop(unit, None)
            self._podless.pop(unit, None)
            del self._made[unit]
            return
        with self._reads.track((UNIT, unit)):
            pods = _unit(unit, sorted((self._pods[key] for key in members), key=_age))
            found = (build_workload(pods, self._inputs), build_terminating_workload(pods, self._inputs))
        if before is not None and (found[0] is None or found[0].admission is None):
            self._note_end(before, unit, [self._pods[key] for key in members])
        self._made[unit] = [
            (_rank(one, unit, part), one) for part, one in enumerate(found) if one is not None
        ]
        for rank, one in self._made[unit]:
            if self._inputs.now in (one.created, one.queued_at):
                self._undated.add(unit)
            self._templates += [each.template for each in one.pod_sets if not each.pod_keys]
            if insert:
                at = bisect_left(self._ranks, rank)
                self._ranks.insert(at, rank)
                self._sorted.insert(at, one)

    def _note_end(self, before: Workload, unit: UnitKey, pods: Sequence[Pod]) -> None:
        """Nothing of the unit runs any more: perhaps it has run to its end."""
        run = finished_run(before, unit, pods, self._inputs)
        if run is not None:
            self._runs.append(run)


def group_workloads(inputs: GroupingInputs) -> Grouping:
    """The grouping of a whole set of objects."""
    book = WorkloadIndex()
    book.set_cluster_rules(inputs.queue_system, inputs.limit_ranges, inputs.resource_quotas)
    for node in inputs.nodes.values():
        book.put_node(node.name, node)
    for key, workload in inputs.workloads.items():
        book.put_workload(key, workload)
    for api, pod_group in inputs.pod_groups.items():
        book.put_pod_group(api, pod_group)
    for named, owner in inputs.owners.items():
        book.put_owner(named, owner)
    for pod in inputs.pods:
        book.put_pod(pod.key, pod)
    return book.grouping(inputs.now)


def _unit(key: UnitKey, pods: Iterable[Pod]) -> Unit:
    unit = Unit(key)
    for pod in pods:
        if not pod.is_terminal:
            unit.pods.append(pod)
        elif pod.status.phase == "Succeeded":
            unit.succeeded += 1
    return unit


def _age(pod: Pod) -> tuple[str, str]:
    """The oldest pod of a unit speaks for all of it where they differ, whichever came first."""
    return pod.metadata.creation_timestamp, pod.key


def _of_different_names(workloads: list[Workload]) -> Sequence[Workload]:
    """Decisions are told by `namespace/name`. Where several kinds have one name, the Workload object or the pod keeps
    it, since it is looked up by that; the others have their kind behind it."""
    named: dict[str, Workload] = {}
    doubles = [one for one in workloads if named.setdefault(one.key, one) is not one]
    if not doubles:
        return workloads
    for one in doubles:
        if _KEEPS_NAME.get(one.kind, 2) < _KEEPS_NAME.get(named[one.key].kind, 2):
            named[one.key] = one
    return [
        one if named[one.key] is one else msgspec.structs.replace(one, key=f"{one.key}.{one.kind.lower()}")
        for one in workloads
    ]


def _rank(workload: Workload, unit: UnitKey, part: int) -> WorkloadSortKey:
    index = -1 if unit.index is None else unit.index
    return workload.created, workload.key, workload.kind, unit.source, index, part


def _owners_named(workload: WorkloadObject | None) -> set[OwnerKey]:
    if workload is None:
        return set()
    return {
        (one.kind, sibling_key(workload.metadata, one.name)) for one in workload.metadata.owner_references
    }
