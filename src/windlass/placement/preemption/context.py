"""Preemption by priority in one decision: who may go, who goes already and for whom.

`engine.decide` makes one; `alone` takes units off the overlay for lone pods, before and after `placement.decision_pass`
does so for gangs on its site. Units are found, and spread over nodes, only once somebody is refused who may preempt.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property

import msgspec
import numpy as np

from windlass.model.decision import Admit, Evict
from windlass.model.disruption import Budgets, DisruptionTracker
from windlass.model.pod import Pod
from windlass.model.workload import Workload
from windlass.placement.overlay import AssumedPod, Overlay
from windlass.placement.preemption.candidates import CandidateFinder, Preemptor, permit_all
from windlass.placement.preemption.freed_resources import FreedResources
from windlass.placement.preemption.victim_units import VictimUnit, find_victim_units
from windlass.queueing.config import QueueConfig
from windlass.queueing.outcome import BUDGET_OVERRIDE_BY_REASON, PRIORITY

NEVER = "Never"


class Preemption:
    def __init__(self, overlay: Overlay, config: QueueConfig, now: int) -> None:
        self.overlay, self._config, self._now = overlay, config, now
        snapshot = overlay.snapshot
        pods = snapshot.pods
        running = pods.priority[(pods.alive == 1) & (pods.node >= 0)]
        self._lowest = int(running.min()) if len(running) else None
        alive = np.flatnonzero(pods.alive) if snapshot.budgets else np.zeros(0, dtype=np.int64)
        self.budgets = Budgets(snapshot.budgets, [pods.objects[row] for row in alive.tolist()])
        self.disruptions = DisruptionTracker(self.budgets)
        self._yields = BUDGET_OVERRIDE_BY_REASON[PRIORITY] in config.budgets_yield_to
        self._yielding = False
        self._besides: list[VictimUnit] = []
        self._gone: dict[str, tuple[VictimUnit, str]] = {}
        """Unit → for whom it goes."""
        self._evicted: set[str] = set()
        """Pods that others have taken off the overlay."""
        self._admitted: frozenset[str] = frozenset()
        self.victims_by_node: dict[int, tuple[str, ...]] = {}
        """Node → workloads that have to be gone before their room there is free."""

    def may_preempt(self, priority: int, policy: str) -> bool:
        """Whether anybody of lower priority runs at all."""
        return self._lowest is not None and policy != NEVER and priority > self._lowest

    @cached_property
    def _top(self) -> int:
        """The highest priority that waits."""
        snapshot = self.overlay.snapshot
        waiting = snapshot.pods.priority[snapshot.pods.pending()]
        gangs = [one for one in snapshot.workloads if one.admission is None]
        asked = [self.priority_of(one) for one in gangs]
        return max([*asked, *waiting.tolist()], default=0)

    def priority_of(self, workload: Workload) -> int:
        """By which it may have the place of others. In a queue that is its pods' own: a WorkloadPriorityClass counts
        among those who queue, and nowhere else."""
        if not workload.queue_name:
            return workload.priority
        system = self.overlay.snapshot.queue_system
        specs = [one.template.spec for one in workload.pod_sets]
        return min(
            spec.priority
            or system.priority_classes.get(spec.priority_class_name or system.default_priority_class, 0)
            for spec in specs
        )

    @cached_property
    def freed_resources(self) -> FreedResources:
        units = find_victim_units(
            self.overlay.snapshot, self.overlay.pod_rows(), self._top, self._config, self._now
        )
        made = FreedResources(self.overlay.snapshot, units)
        made.present[:] = [self._is_there(unit) for unit in units]
        return made

    @cached_property
    def candidate_finder(self) -> CandidateFinder:
        return CandidateFinder(
            self.overlay, self.freed_resources, self._permits if self.budgets else permit_all
        )

    def _permits(self, units: Sequence[VictimUnit]) -> bool:
        if self._yielding:
            return True
        names = [name for unit in units if not unit.is_terminating for name in unit.pods]
        others = [name for unit in self._besides if not unit.is_terminating for name in unit.pods]
        covered = self.budgets.count_by_budget(names)
        return not covered or self.disruptions.allow(covered, self.budgets.count_by_budget(others))

    def budget_attempts(self) -> Iterable[None]:
        """Once with every budget honoured; then, where the policy says so, with none."""
        yield
        if self._yields and self.budgets:
            self._yielding = True
            yield
        self._yielding = False

    # A search that takes several steps

    def begin_search(self, present: Iterable[bool] | None = None) -> None:
        """`there`: which units are on the overlay, in their order, where not this class has taken them off."""
        self._besides = []
        if present is not None:
            self.freed_resources.present[:] = list(present)

    def mark_removed(self, victims: Sequence[VictimUnit]) -> list[VictimUnit]:
        """For now: what is chosen next is chosen besides them. Returns them with whom they drag along."""
        all_of = self.candidate_finder.with_dependents(victims)
        for unit in all_of:
            self.freed_resources.present[unit.number] = False
        self._besides += all_of
        return all_of

    def mark_restored(self, units: Iterable[VictimUnit]) -> None:
        for unit in units:
            self.freed_resources.present[unit.number] = True
        self._besides = []

    # Gangs, on a site, in passes that may be undone

    def begin_pass(self, dependents: Mapping[str, Iterable[str]]) -> DisruptionTracker | None:
        """Those who go by now are those who go for good; nothing where there are no budgets."""
        self.disruptions = DisruptionTracker(self.budgets, dependents)
        self.count_disruptions(unit for unit, _ in self._gone.values())
        return self.disruptions if self.budgets else None

    def count_disruptions(self, units: Iterable[VictimUnit]) -> None:
        """They go, as far as budgets are concerned."""
        for unit in units:
            if not unit.is_terminating:
                self.disruptions.record(self.budgets.count_by_budget(unit.pods))
        self._besides = []

    def victim_nodes(self) -> dict[str, set[int]]:
        nodes = self.overlay.snapshot.pods.node
        return {key: {int(nodes[row]) for row in unit.rows} for key, (unit, _) in self._gone.items()}

    def victim_workload(self, key: str) -> Workload:
        """A unit, as the site knows it."""
        found = next(unit.workload for unit in self.freed_resources.units if unit.key == key)
        assert found is not None, "sites are for clusters with workloads"
        return found

    # Lone pods, straight on the overlay

    def place_with_victims(
        self, preemptor: Preemptor, sequence: int, victims: list[VictimUnit]
    ) -> AssumedPod | None:
        """The pod on a node, with nobody gone or with somebody: those are added to `victims`, and off the overlay."""
        node = self.candidate_finder.select_free_node(preemptor, sequence)
        if node < 0:
            slot = self.candidate_finder.find_candidate(preemptor)
            if slot is None:
                return None
            node = slot.node
            victims += self.mark_removed(slot.victims)
            self.overlay.refresh(preemptor.row)
        return self.overlay.assume(preemptor.pod, preemptor.row, node)

    def commit_victims(self, units: Iterable[VictimUnit], for_: str) -> None:
        """They are to go for good."""
        nodes = self.overlay.snapshot.pods.node
        units = list(units)
        self.count_disruptions(units)
        for unit in units:
            self._gone[unit.key] = (unit, for_)
            self.freed_resources.present[unit.number] = False
            for node in {int(nodes[row]) for row in unit.rows}:
                known = self.victims_by_node.get(node, ())
                self.victims_by_node[node] = tuple(dict.fromkeys((*known, unit.workload_key)))

    def record_decisions(self, evicts: Iterable[Evict], admits: Iterable[Admit]) -> None:
        """Others have taken these off the overlay; and who is just being completed is not stopped at once."""
        # What was leaving anyway is off the overlay, and told to nobody again.
        self._evicted |= {pod for evict in evicts for pod in evict.pods}
        self._evicted |= {pod.key for pod in self.overlay.removed_pods()}
        self._admitted = frozenset(admit.workload for admit in admits)
        if "freed_resources" in self.__dict__:
            self.freed_resources.present[:] = [self._is_there(unit) for unit in self.freed_resources.units]

    def _is_there(self, unit: VictimUnit) -> bool:
        busy = unit.key in self._gone or unit.workload_key in self._admitted
        return not busy and self._evicted.isdisjoint(unit.pods)

    @property
    def victims(self) -> Mapping[str, tuple[VictimUnit, str]]:
        return self._gone

    def evicts(self) -> list[Evict]:
        """One decision a workload, for the first of those who need the room."""
        by_whole: dict[str, list[tuple[VictimUnit, str]]] = {}
        for unit, for_ in self._gone.values():
            if not unit.is_terminating:
                by_whole.setdefault(unit.workload_key, []).append((unit, for_))
        return [
            Evict(whole, self._bound_pods(unit for unit, _ in parts), parts[0][1], PRIORITY)
            for whole, parts in by_whole.items()
        ]

    def _bound_pods(self, units: Iterable[VictimUnit]) -> tuple[str, ...]:
        objects = self.overlay.snapshot.pods.objects
        rows = dict.fromkeys(row for unit in units for row in unit.rows)
        return tuple(objects[row].key for row in rows)


def merge_evictions(evicts: Iterable[Evict]) -> list[Evict]:
    """One decision a workload, where several have reasons to evict parts of it; the first reason is the one told."""
    found: dict[str, Evict] = {}
    for evict in evicts:
        known = found.get(evict.workload)
        if known is not None:
            pods = tuple(dict.fromkeys((*known.pods, *evict.pods)))
            evict = msgspec.structs.replace(known, pods=pods)
        found[evict.workload] = evict
    return list(found.values())


def preemption_policy(pod: Pod, non_preempting_classes: Iterable[str]) -> str:
    """Of a lone pod; `never` are the classes that don't preempt."""
    return NEVER if pod.spec.priority_class_name in non_preempting_classes else pod.spec.preemption_policy
