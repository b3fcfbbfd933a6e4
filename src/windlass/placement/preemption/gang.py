"""Chooses victims for a gang, by priority.

`placement.decision_pass` asks where a gang outside of queues, or a queued workload that has its quota, doesn't fit. In
each domain that the gang may use, its members get nodes one after another, the largest first (`candidates`); that gives
one set of victims per domain. The cheapest of them that holds by every rule is where the search over all units and
domains at once (`queueing.cheapest_victims`) begins.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from windlass.cluster.node_columns import Bools
from windlass.cluster.node_state import Ints
from windlass.model.workload import Workload
from windlass.placement.placed_workloads import WorkloadPods
from windlass.placement.preemption.candidates import Preemptor
from windlass.placement.preemption.context import Preemption
from windlass.placement.preemption.victim_selection import EvictionCost, eviction_cost, unit_costs
from windlass.placement.preemption.victim_units import VictimUnit
from windlass.placement.room_model import build_room
from windlass.placement.workload_placer import WorkloadPlacer
from windlass.queueing.cheapest_victims import Attempt, CheapestVictims, least_gpus_lost
from windlass.queueing.placement_interface import PlacementResult, PodSetChoice

MAX_DOMAINS = 16
"""Domains that are compared, those with most free capacity first."""
MAX_REPRIEVED = 16
"""Up to this many victims, each is checked whether it could stay; with more, only those on other nodes than the
gang."""


class GangPreemption(NamedTuple):
    """The placement of a gang, and the victims that make it possible."""

    result: PlacementResult
    victims: tuple[VictimUnit, ...]
    least_lost: int = 0
    """Milli-GPU-seconds that any victims lose together."""


def preempt_for_gang(
    piece: Workload, choices: tuple[PodSetChoice, ...], placer: WorkloadPlacer, preemption: Preemption
) -> GangPreemption | None:
    """Place the gang and remove its victims; None, and nothing changed, where that is impossible.

    A queued workload never evicts a queued one here: that is up to the preemption rules of its queue.
    """
    if not preemption.may_preempt(preemption.priority_of(piece), piece.preemption_policy):
        return None
    search = _Search(piece, choices, placer, preemption)
    for _ in preemption.budget_attempts():
        found = search.run()
        if found is not None:
            return found
    return None


class _Search:
    def __init__(
        self,
        piece: Workload,
        choices: tuple[PodSetChoice, ...],
        placer: WorkloadPlacer,
        preemption: Preemption,
    ) -> None:
        self._piece, self._choices = piece, choices
        self._placer, self._preemption = placer, preemption
        self._overlay = preemption.overlay
        self._pod_sets, self._tree, _ = placer.pending_pod_sets(piece, choices)
        table, snapshot = self._overlay.table, self._overlay.snapshot
        self._rows = [table.row(pod_set.shape, snapshot, pod_set.pod) for pod_set in self._pod_sets]
        self._priority = preemption.priority_of(piece)
        self._least_lost = 0

    def run(self) -> GangPreemption | None:
        units = self._preemption.freed_resources.units
        evicted = self._preemption.victims
        self._placer.placed_workloads.track_running(
            unit.workload for unit in units if unit.workload is not None and unit.key not in evicted
        )
        placed = self._placer.placed_workloads
        queued = bool(self._piece.queue_name)
        present = [
            unit.key not in self._preemption.victims and unit.key in placed and not (queued and unit.is_queued)
            for unit in units
        ]
        proposals: list[tuple[EvictionCost, int, list[VictimUnit]]] = []
        for domain in self._domains(present):
            self._preemption.begin_search(present)
            victims = self._propose(domain)
            if victims:
                # With its number: of equal costs the domain that came first wins, and units have no order.
                proposals.append((eviction_cost(victims), len(proposals), victims))
        self._preemption.begin_search(present)
        ordered = [victims for _, _, victims in sorted(proposals, key=lambda proposal: proposal[:2])]
        known = next((found for victims in ordered if (found := self._confirm(victims)) is not None), [])
        victims = self._cheapest([unit for unit, here in zip(units, present, strict=True) if here], known)
        result = self._place_without(victims) if victims else None
        return None if result is None else GangPreemption(result, tuple(victims), self._least_lost)

    def _cheapest(self, units: Sequence[VictimUnit], known: list[VictimUnit]) -> list[VictimUnit]:
        """Victims that cost no more than the known ones, by a search over all units and domains at once."""
        units = [unit for unit in units if unit.priority < self._priority]
        by_key = {unit.key: unit for unit in units}
        followers = [[by_key[key] for key in unit.dependents if key in by_key] for unit in units]
        pods = {unit.key: WorkloadPods(list(unit.rows), []) for unit in units}
        parts = [[pods[part.key] for part in (unit, *more)] for unit, more in zip(units, followers, strict=True)]
        room = build_room(self._overlay, self._pod_sets, parts)
        if room is None:
            return known
        costs = unit_costs(units)

        def attempt(numbers: Sequence[int]) -> Attempt[list[VictimUnit]]:
            victims = list(dict.fromkeys(part for n in numbers for part in (units[n], *followers[n])))
            if not self._preemption.permits(victims):
                return Attempt(False)
            before = self._placer.checkpoint()
            fits = self._place_without(victims) is not None
            self._placer.rollback(before)
            return Attempt(True, sum(costs[number] for number in numbers), victims if fits else None)

        search = CheapestVictims(costs, room, (), self._preemption.budget_caps(units), attempt)
        number_of = {unit.key: number for number, unit in enumerate(units)}
        below = {key for unit in known for key in unit.dependents}
        cost = sum(costs[number_of[unit.key]] for unit in known if unit.key not in below)
        found = search.search(known or None, cost)
        self._least_lost = least_gpus_lost(found.cost, found.bound) if found.found is not None else 0
        return found.found or []

    def _preemptor(self, index: int, member: int, domain: Bools | None) -> Preemptor:
        pod_set = self._pod_sets[index]
        left = pod_set.count - member
        pod, row = pod_set.pod_at(member), self._rows[index]
        return Preemptor(pod, pod_set.shape, row, self._priority, left, domain)

    def _domains(self, present: Sequence[bool]) -> list[Bools | None]:
        """Domains that could hold the gang if all present units were evicted; None stands for all nodes."""
        self._preemption.begin_search(present)
        size = self._overlay.snapshot.nodes.size
        domains: list[Bools | None] = [None]
        requests = [pod_set.topology for pod_set in self._pod_sets if pod_set.topology is not None]
        required = next((request.level for request in requests if request.mode == "required"), "")
        if self._tree is not None and required:
            domains = [*self._tree.domains(required, size)]
        found = [
            self._preemption.candidate_finder.potential_nodes(self._preemptor(index, 0, None))
            for index, pod_set in enumerate(self._pod_sets)
            if pod_set.count
        ]
        counts = [pod_set.count for pod_set in self._pod_sets if pod_set.count]
        capacities = [np.where(nodes.feasible, nodes.fits, 0) for nodes in found]
        kept = [
            domain
            for domain in domains
            if all(_within(capacity, domain) >= count for capacity, count in zip(capacities, counts, strict=True))
        ]
        if len(kept) > 1:
            fits_now = np.all(found[0].free >= found[0].request.amounts, axis=1) & found[0].feasible
            # Stable, so that ties stay in the order of the tree.
            kept.sort(key=lambda domain: -_within(fits_now.astype(np.int64), domain))
        return kept[:MAX_DOMAINS]

    def _propose(self, domain: Bools | None) -> list[VictimUnit] | None:
        """The victims if the members get nodes one after another; None where one gets none. Restores the overlay."""
        overlay, preemption = self._overlay, self._preemption
        checkpoint = overlay.checkpoint()
        victims: list[VictimUnit] = []
        sizes = [-pod_set.shape.gpu_milli for pod_set in self._pod_sets]
        order = sorted(range(len(sizes)), key=lambda index: (sizes[index], index))
        steps = [(index, member) for index in order for member in range(self._pod_sets[index].count)]
        complete = all(self._place_member(index, member, domain, victims) for index, member in steps)
        overlay.rollback(checkpoint)
        preemption.mark_restored(victims)
        return victims if complete else None

    def _place_member(self, index: int, member: int, domain: Bools | None, victims: list[VictimUnit]) -> bool:
        overlay, preemptor = self._overlay, self._preemptor(index, member, domain)
        sequence = overlay.snapshot.decided_pods + overlay.checkpoint()
        return self._preemption.place_with_victims(preemptor, sequence, victims) is not None

    # Execution

    def _confirm(self, victims: Sequence[VictimUnit]) -> list[VictimUnit] | None:
        """Those that are needed; None where the gang doesn't fit by every rule. Nothing stays changed."""
        checkpoint = self._placer.checkpoint()
        result = self._place_without(victims)
        needed = self._drop_unneeded(victims, result, checkpoint) if result is not None else None
        self._placer.rollback(checkpoint)
        return needed

    def _drop_unneeded(
        self, victims: Sequence[VictimUnit], result: PlacementResult, checkpoint: int
    ) -> list[VictimUnit]:
        """Drops victims that turn out not to be needed, the most expensive first."""
        kept = list(victims)
        used = {name for pod_set in result.nodes for name in pod_set}
        columns, nodes = self._overlay.snapshot.nodes, self._overlay.snapshot.pods.node
        for unit in sorted(victims, key=lambda victim: victim.eviction_order, reverse=True):
            elsewhere = used.isdisjoint(columns.names[int(nodes[row])] for row in unit.rows)
            if not elsewhere and len(victims) > MAX_REPRIEVED:
                continue
            rest = [victim for victim in kept if victim is not unit and unit.key not in victim.dependents]
            # It depends on another victim that goes anyway, so that it can't stay.
            if len(rest) < len(kept) - 1:
                continue
            self._placer.rollback(checkpoint)
            if self._place_without(rest) is not None:
                kept = rest
        return kept

    def _place_without(self, victims: Sequence[VictimUnit]) -> PlacementResult | None:
        """Remove the victims and place the gang; None, and nothing changed, where it still doesn't fit."""
        checkpoint = self._placer.checkpoint()
        for unit in victims:
            if unit.workload is not None:
                self._placer.remove(unit.workload)
        result = self._placer.place(self._piece, self._choices)
        if result.ok:
            return result
        self._placer.rollback(checkpoint)
        return None


def _within(amounts: Ints, domain: Bools | None) -> int:
    return int(amounts.sum() if domain is None else amounts[domain].sum())
