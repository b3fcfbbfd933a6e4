"""What is in no queue and may be evicted for a queued workload, as candidates that queueing can remove.

`placement.decision_pass` hands it to `queueing.admit`. A queued workload that needs a node takes queued victims by the
rules of its queue, and unqueued ones by priority, in one search. They stand on a node outside of the quota tree, since
they free no quota.
"""

from __future__ import annotations

from collections.abc import Sequence

from windlass.model.workload import Workload
from windlass.placement.preemption.context import Preemption
from windlass.placement.preemption.victim_units import Loss, VictimUnit, own_losses
from windlass.placement.workload_pieces import is_above_minimum
from windlass.placement.workload_placer import WorkloadPlacer
from windlass.queueing.quota_node import AdmittedWorkload, QuotaNode


class UnqueuedCandidateFinder:
    """One per pass: what the pass has evicted is no candidate any more."""

    def __init__(self, placer: WorkloadPlacer, preemption: Preemption) -> None:
        self._placer, self._preemption = placer, preemption
        self._outside = QuotaNode("", {}, 0)
        self._known: dict[str, AdmittedWorkload] = {}
        self._costs = _UnitCosts()

    def __call__(self, workload: Workload) -> list[AdmittedWorkload]:
        """Those of lower priority than its pods, if they may preempt."""
        priority = self._preemption.priority_of(workload)
        if is_above_minimum(workload.key) or not self._preemption.may_preempt(priority, workload.preemption_policy):
            return []
        units = self._preemption.freed_resources.units
        evicted = self._preemption.victims
        self._placer.placed_workloads.track_running(
            unit.workload for unit in units if unit.workload is not None and unit.key not in evicted
        )
        found = [self._candidate(unit, units) for unit in units if not unit.is_queued and unit.priority < priority]
        return [candidate for candidate in found if candidate is not None]

    def _candidate(self, unit: VictimUnit, units: Sequence[VictimUnit]) -> AdmittedWorkload | None:
        """None where it is evicted already."""
        known = self._known.get(unit.key)
        if known is not None:
            return known if unit.key in self._outside.admitted else None
        if unit.workload is None or unit.key not in self._placer.placed_workloads:
            return None
        made = AdmittedWorkload(unit.workload, self._outside, {}, unit.started_at)
        made.priority = unit.priority
        nodes = self._preemption.overlay.snapshot.nodes.names
        at = self._preemption.overlay.snapshot.pods.node
        made.assumed_nodes = frozenset(nodes[int(at[row])] for row in unit.rows)
        # Members above its minimum are candidates of their own, and go with it.
        above = [other for other in units if other.key in unit.dependents] if unit.dependents else []
        self._costs.by_key[unit.key] = (own_losses([unit, *above])[unit.key], unit.loss[1])
        made.eviction_costs = self._costs
        made.add_to_tree()
        self._known[unit.key] = made
        return made


class _UnitCosts:
    def __init__(self) -> None:
        self.by_key: dict[str, Loss] = {}

    def of(self, running: AdmittedWorkload) -> Loss:
        return self.by_key[running.key]
