"""The state of preemption in one decision: which units may be evicted, which are evicted already, for which preemptor.

`engine.decide` makes one. `single_pods` evicts for single pods, before and after `placement.decision_pass` evicts for
gangs through its placer. Units are computed only when a pod or gang that may preempt is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property

import msgspec
import numpy as np

from windlass.cluster.pod_accounting import MILLI_PER_GPU
from windlass.model.decision import Admit, Evict
from windlass.model.disruption import Budgets, DisruptionTracker
from windlass.model.pod import Pod
from windlass.model.workload import Workload
from windlass.placement.overlay import AssumedPod, Overlay
from windlass.placement.preemption.candidates import CandidateFinder, Preemptor, permit_all
from windlass.placement.preemption.freed_resources import FreedResources
from windlass.placement.preemption.victim_units import VictimUnit, find_victim_units, own_losses
from windlass.queueing.config import QueueConfig
from windlass.queueing.outcome import BUDGET_OVERRIDE_BY_REASON, PRIORITY
from windlass.queueing.victim_room import Cap

NEVER = "Never"


class Preemption:
    def __init__(self, overlay: Overlay, config: QueueConfig, now: int, *, ignores_annotations: bool = False) -> None:
        """`ignores_annotations`: also units that their owner has excluded from preemption, for a what-if."""
        self.overlay, self._config, self._now = overlay, config, now
        self._ignores_annotations = ignores_annotations
        snapshot = overlay.snapshot
        pods = snapshot.pods
        running = pods.priority[(pods.alive == 1) & (pods.node >= 0)]
        self._lowest_running_priority = int(running.min()) if len(running) else None
        # Reading all pods takes time, and most clusters have no budgets.
        alive = np.flatnonzero(pods.alive) if snapshot.budgets else np.zeros(0, dtype=np.int64)
        self.budgets = Budgets(snapshot.budgets, [pods.objects[row] for row in alive.tolist()])
        self.disruptions = DisruptionTracker(self.budgets)
        self._may_override_budgets = BUDGET_OVERRIDE_BY_REASON[PRIORITY] in config.budgets_yield_to
        self._overrides_budgets = False
        self._removed_in_search: list[VictimUnit] = []
        self._victims: dict[str, tuple[VictimUnit, str]] = {}
        """Key of a unit that is evicted for good → the unit, and the key of its preemptor."""
        self._evicted: set[str] = set()
        """Pods that other parts of the decision have removed from the overlay."""
        self._admitted: frozenset[str] = frozenset()
        self.victims_by_node: dict[int, tuple[str, ...]] = {}
        """Node → workloads that have to terminate before their capacity there is free."""

    def may_preempt(self, priority: int, policy: str) -> bool:
        """Whether its policy allows preemption and any running pod has a lower priority."""
        lowest = self._lowest_running_priority
        return lowest is not None and policy != NEVER and priority > lowest

    @cached_property
    def _highest_waiting_priority(self) -> int:
        snapshot = self.overlay.snapshot
        waiting = snapshot.pods.priority[snapshot.pods.pending()]
        gangs = [workload for workload in snapshot.workloads if workload.admission is None]
        priorities = [self.priority_of(workload) for workload in gangs]
        return max([*priorities, *waiting.tolist()], default=0)

    def priority_of(self, workload: Workload) -> int:
        """The priority that counts for preemption. For a queued workload it is that of its pods: a
        WorkloadPriorityClass counts only within queues."""
        if not workload.queue_name:
            return workload.priority
        system = self.overlay.snapshot.queue_system
        specs = [pod_set.template.spec for pod_set in workload.pod_sets]
        # The lowest of its pods: none of them may evict what it would not outrank alone.
        return min(
            spec.priority or system.priority_classes.get(spec.priority_class_name or system.default_priority_class, 0)
            for spec in specs
        )

    @cached_property
    def freed_resources(self) -> FreedResources:
        units = find_victim_units(
            self.overlay.snapshot,
            self.overlay.pod_rows(),
            self._highest_waiting_priority,
            self._config,
            self._now,
            ignores_annotations=self._ignores_annotations,
        )
        freed = FreedResources(self.overlay.snapshot, units)
        freed.present[:] = [self._is_present(unit) for unit in units]
        return freed

    @cached_property
    def candidate_finder(self) -> CandidateFinder:
        check = self.permits if self.budgets else permit_all
        return CandidateFinder(self.overlay, self.freed_resources, check)

    def permits(self, units: Sequence[VictimUnit]) -> bool:
        """Whether disruption budgets allow to evict these in addition to all that are evicted already."""
        if self._overrides_budgets:
            return True
        names = [name for unit in units if not unit.is_terminating for name in unit.pods]
        others = [name for unit in self._removed_in_search if not unit.is_terminating for name in unit.pods]
        covered = self.budgets.count_by_budget(names)
        return not covered or self.disruptions.allow(covered, self.budgets.count_by_budget(others))

    def budget_caps(self, units: Sequence[VictimUnit]) -> list[Cap]:
        """How many pods of these units each disruption budget lets go, and how many each unit has of them."""
        amounts: dict[int, dict[int, int]] = {}
        for number, unit in enumerate(units if not self._overrides_budgets else ()):
            if not unit.is_terminating:
                for budget, pods in self.budgets.count_by_budget(unit.pods).items():
                    amounts.setdefault(budget, {})[number] = pods
        return [Cap(self.disruptions.left(budget), pods) for budget, pods in amounts.items()]

    def budget_attempts(self) -> Iterable[None]:
        """Iterates once with all disruption budgets respected; then, where the policy allows it, once without them."""
        yield
        if self._may_override_budgets and self.budgets:
            self._overrides_budgets = True
            yield
        self._overrides_budgets = False

    # A search of several steps

    def begin_search(self, present: Iterable[bool] | None = None) -> None:
        """`present`: by unit, whether it is on the overlay; needed where other code than this class removed units."""
        self._removed_in_search = []
        if present is not None:
            self.freed_resources.present[:] = list(present)

    def mark_removed(self, victims: Sequence[VictimUnit]) -> list[VictimUnit]:
        """Mark the victims as removed for the rest of this search. Returns them with their dependents."""
        units = self.candidate_finder.with_dependents(victims)
        for unit in units:
            self.freed_resources.present[unit.number] = False
        self._removed_in_search += units
        return units

    def mark_restored(self, units: Iterable[VictimUnit]) -> None:
        for unit in units:
            self.freed_resources.present[unit.number] = True
        self._removed_in_search = []

    # Gangs: passes that may be rolled back

    def begin_pass(self, dependents: Mapping[str, Iterable[str]]) -> DisruptionTracker | None:
        """Start counting disruptions again, from the victims that are committed; None where there are no budgets."""
        self.disruptions = DisruptionTracker(self.budgets, dependents)
        self.count_disruptions(unit for unit, _ in self._victims.values())
        return self.disruptions if self.budgets else None

    def count_disruptions(self, units: Iterable[VictimUnit]) -> None:
        """Count these units against the disruption budgets."""
        for unit in units:
            if not unit.is_terminating:
                self.disruptions.record(self.budgets.count_by_budget(unit.pods))
        self._removed_in_search = []

    def victim_nodes(self) -> dict[str, set[int]]:
        nodes = self.overlay.snapshot.pods.node
        return {key: {int(nodes[row]) for row in unit.rows} for key, (unit, _) in self._victims.items()}

    def victim_workload(self, key: str) -> Workload:
        """The workload of a unit, as the placer knows it."""
        found = next(unit.workload for unit in self.freed_resources.units if unit.key == key)
        assert found is not None, "gangs preempt only where there are workloads"
        return found

    # Single pods: straight on the overlay

    def place_with_victims(self, preemptor: Preemptor, sequence: int, victims: list[VictimUnit]) -> AssumedPod | None:
        """Assume the pod on a free node, or else with victims: these are removed from the overlay and appended to
        `victims`."""
        node = self.candidate_finder.select_free_node(preemptor, sequence)
        if node < 0:
            candidate = self.candidate_finder.find_candidate(preemptor)
            if candidate is None:
                return None
            node = candidate.node
            victims += self.mark_removed(candidate.victims)
            # Removing victims has changed the node, and `assume` reads the device of the cell.
            self.overlay.refresh(preemptor.row)
        return self.overlay.assume(preemptor.pod, preemptor.row, node)

    def commit_victims(self, units: Iterable[VictimUnit], preemptor: str) -> None:
        """Evict these units for good."""
        nodes = self.overlay.snapshot.pods.node
        units = list(units)
        self.count_disruptions(units)
        for unit in units:
            self._victims[unit.key] = (unit, preemptor)
            self.freed_resources.present[unit.number] = False
            for node in {int(nodes[row]) for row in unit.rows}:
                earlier = self.victims_by_node.get(node, ())
                self.victims_by_node[node] = tuple(dict.fromkeys((*earlier, unit.workload_key)))

    def record_decisions(self, evicts: Iterable[Evict], admits: Iterable[Admit]) -> None:
        """Note what other parts of the decision evicted and admitted: admitted workloads are not evicted at once."""
        # Pods that were terminating anyway are off the overlay without an Evict decision.
        self._evicted |= {pod for evict in evicts for pod in evict.pods}
        self._evicted |= {pod.key for pod in self.overlay.removed_pods()}
        self._admitted = frozenset(admit.workload for admit in admits)
        # A cached property: asking for it here would compute it, and most decisions don't need it.
        if "freed_resources" in self.__dict__:
            self.freed_resources.present[:] = [self._is_present(unit) for unit in self.freed_resources.units]

    def _is_present(self, unit: VictimUnit) -> bool:
        busy = unit.key in self._victims or unit.workload_key in self._admitted
        return not busy and self._evicted.isdisjoint(unit.pods)

    @property
    def victims(self) -> Mapping[str, tuple[VictimUnit, str]]:
        return self._victims

    def evicts(self) -> list[Evict]:
        """One Evict decision per workload, for the first of its preemptors."""
        by_workload: dict[str, list[tuple[VictimUnit, str]]] = {}
        for unit, preemptor in self._victims.values():
            if not unit.is_terminating:
                by_workload.setdefault(unit.workload_key, []).append((unit, preemptor))
        return [
            Evict(
                workload,
                self._bound_pods(unit for unit, _ in evicted),
                evicted[0][1],
                PRIORITY,
                sum(own_losses([unit for unit, _ in evicted]).values()) // MILLI_PER_GPU,
            )
            for workload, evicted in by_workload.items()
        ]

    def _bound_pods(self, units: Iterable[VictimUnit]) -> tuple[str, ...]:
        objects = self.overlay.snapshot.pods.objects
        rows = dict.fromkeys(row for unit in units for row in unit.rows)
        return tuple(objects[row].key for row in rows)


def merge_evictions(evicts: Iterable[Evict]) -> list[Evict]:
    """One Evict decision per workload, where several evict parts of it; the first reason and preemptor remain."""
    merged: dict[str, Evict] = {}
    for evict in evicts:
        earlier = merged.get(evict.workload)
        if earlier is not None:
            pods = tuple(dict.fromkeys((*earlier.pods, *evict.pods)))
            evict = msgspec.structs.replace(earlier, pods=pods)
        merged[evict.workload] = evict
    return list(merged.values())


def preemption_policy(pod: Pod, non_preempting_classes: Iterable[str]) -> str:
    """The preemption policy of a single pod."""
    return NEVER if pod.spec.priority_class_name in non_preempting_classes else pod.spec.preemption_policy
