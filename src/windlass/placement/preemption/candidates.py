"""A place for one pod, with those who have to go for it: vectors propose, the overlay decides.

`alone` and `together` ask for one pod at a time. Nodes are looked at in the order of their estimated cost; on each the
cheapest units that free enough are taken off, and the pod has to fit then, by every rule. Where vectors don't know all
(shares, instances, rules between pods), units go in order until it fits, and whoever isn't needed comes back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from windlass.cluster.node_columns import Bools
from windlass.cluster.node_state import BLOCKED, Ints
from windlass.cluster.shape import Shape
from windlass.model.pod import Pod
from windlass.placement.overlay import Overlay
from windlass.placement.preemption.freed_resources import FreedResources, RequestVector
from windlass.placement.preemption.victim_selection import eviction_cost, select_victims
from windlass.placement.preemption.victim_units import VictimUnit

MAX_COMPARED_NODES = 12
"""So many nodes, those that look cheapest, are compared by what really has to go there."""
MAX_TRIED_NODES = 256
"""So many nodes are tried on the overlay before the search gives up."""

BudgetCheck = Callable[[Sequence[VictimUnit]], bool]
"""Whether disruption budgets let these go together, beside all who go already."""


def permit_all(units: Sequence[VictimUnit]) -> bool:
    """There are no budgets."""
    return True


class Preemptor(NamedTuple):
    """One pod, or the next of several equal ones."""

    pod: Pod
    shape: Shape
    row: int
    """Of the table."""
    priority: int
    pods_left: int = 1
    """So many like it are to be placed: a node that takes several of them at once may be the cheaper one."""
    allowed_nodes: Bools | None = None


class Candidate(msgspec.Struct, frozen=True):
    node: int
    victims: tuple[VictimUnit, ...]
    pods: int = 1
    """So many of the pods have room there then."""

    @property
    def cost_per_pod(self) -> tuple[object, ...]:
        """What one of the pods costs there."""
        each = [
            (priority, tuple(amount / self.pods for amount in amounts))
            for priority, amounts in eviction_cost(self.victims)
        ]
        return each, sorted((-unit.started_at, unit.uid) for unit in self.victims), self.node


class PotentialNodes(NamedTuple):
    """The nodes as an ask sees them."""

    request: RequestVector
    free: Ints
    entries: Bools
    """Entries of the ground."""
    feasible: Bools
    fits: Ints
    """[node] so many of the pods would fit if everybody went."""


class CandidateFinder:
    """Makes places: what is found has its victims off the overlay; otherwise that is left as it was."""

    def __init__(self, overlay: Overlay, freed_resources: FreedResources, permits: BudgetCheck) -> None:
        self._overlay, self._ground, self._permits = overlay, freed_resources, permits
        self._by_key = {unit.key: unit for unit in freed_resources.units}

    def potential_nodes(self, preemptor: Preemptor) -> PotentialNodes:
        overlay, ground = self._overlay, self._ground
        need = ground.request_vector(preemptor.shape)
        usable = ground.preemptible_entries(preemptor.priority)
        if self._permits is not permit_all and usable.any():
            asked = np.unique(ground.entry_unit[usable]).tolist()
            kept = [number for number in asked if not self._permits([ground.units[number]])]
            usable &= ~np.isin(ground.entry_unit, kept)
        free = ground.free(overlay.state, need)
        most = free + ground.max_freed_by_node(need, usable, len(free))
        fits = np.full(len(free), preemptor.pods_left, dtype=np.int64)
        for column, amount in enumerate(need.amounts.tolist()):
            fits = np.minimum(fits, most[:, column] // amount if amount > 0 else fits)
        feasible = (
            (fits > 0)
            & (overlay.table.cells.static[preemptor.row] == 0)
            & (overlay.state.node_info[:, BLOCKED] == 0)
        )
        if preemptor.allowed_nodes is not None:
            feasible &= preemptor.allowed_nodes
        return PotentialNodes(need, free, usable, feasible, np.maximum(fits, 0))

    def may_help(self, preemptor: Preemptor) -> bool:
        """Whether any node would have enough if everybody of lower priority went."""
        return bool(self.potential_nodes(preemptor).feasible.any())

    def find_candidate(self, preemptor: Preemptor) -> Candidate | None:
        field = self.potential_nodes(preemptor)
        if not field.feasible.any():
            return None
        found: list[Candidate] = []
        unsure: list[int] = []
        further: list[int] = []
        for pods, nodes in self._proposals(preemptor, field):
            for node in nodes[:MAX_COMPARED_NODES]:
                candidate = self._by_vectors(field, node, int(pods[node]))
                if candidate is not None:
                    found.append(candidate)
                else:
                    unsure.append(node)
            further += nodes[MAX_COMPARED_NODES:MAX_TRIED_NODES]
        best = self._cheapest(preemptor, field, found, unsure)
        if best is None:
            tried = (self._by_trying(preemptor, field, node) for node in dict.fromkeys(further))
            best = next((candidate for candidate in tried if candidate is not None), None)
        if best is not None:
            self.remove_victims(best.victims)
        return best

    def _cheapest(
        self, preemptor: Preemptor, field: PotentialNodes, found: Sequence[Candidate], unsure: Sequence[int]
    ) -> Candidate | None:
        """Of the candidates by vectors, and of the nodes about which vectors are unsure: there, units are tried.

        Vectors know nothing of host ports, rules between pods and disruption budgets. A node that they are unsure
        about may still be the one with the cheapest victims, so it has to be compared and not only tried last.
        """
        candidates: list[Candidate] = []
        nodes = dict.fromkeys(unsure)
        for candidate in sorted(found, key=lambda candidate: candidate.cost_per_pod):
            if self._fits(preemptor, candidate.node, candidate.victims, candidate.pods):
                candidates.append(candidate)
                break
            nodes[candidate.node] = None
        tried = (self._by_trying(preemptor, field, node) for node in nodes)
        candidates += [candidate for candidate in tried if candidate is not None]
        return min(candidates, key=lambda candidate: candidate.cost_per_pod, default=None)

    def _proposals(self, ask: Preemptor, field: PotentialNodes) -> Iterator[tuple[Ints, list[int]]]:
        """How many pods a node is to take, and the nodes in order: for one pod, and for as many as each can take."""
        ones = np.ones_like(field.fits)
        for pods in (ones, field.fits) if ask.pods_left > 1 else (ones,):
            wanted = field.request.amounts * np.maximum(pods, 1)[:, None]
            order = self._ground.nodes_by_estimated_cost(
                field.free, wanted, field.request, field.entries, field.feasible
            )
            yield pods, order.tolist()

    def _by_vectors(self, field: PotentialNodes, node: int, pods: int) -> Candidate | None:
        """None where vectors see no lack on the node, or budgets forbid what they propose."""
        units, freed = self._ground.units_on_node(node, field.entries, field.request)
        lacking = field.request.amounts * pods - field.free[node]
        if np.all(lacking <= 0):
            return None
        chosen = select_victims(units, freed, lacking)
        victims = [units[position] for position in chosen] if chosen is not None else []
        if not victims or not self._permits(victims):
            return None
        return Candidate(node, tuple(victims), pods)

    def _by_trying(self, ask: Preemptor, field: PotentialNodes, node: int) -> Candidate | None:
        """Units go in order, ever more of them, until it fits; then those come back that needn't have gone."""
        units, _ = self._ground.units_on_node(node, field.entries, field.request)
        units = self._within_budgets(units)
        count = next((n for n in _doubling(len(units)) if self._fits(ask, node, units[:n], 1)), 0)
        if not count:
            return None
        victims = units[:count]
        for unit in reversed(units[:count]):  # the last one too: the count was doubled, so it may be too many
            rest = [one for one in victims if one is not unit]
            if self._fits(ask, node, rest, 1):
                victims = rest
        return Candidate(node, tuple(victims))

    def _within_budgets(self, units: Sequence[VictimUnit]) -> list[VictimUnit]:
        kept: list[VictimUnit] = []
        for unit in units:
            if self._permits([*kept, unit]):
                kept.append(unit)
        return kept

    def _fits(self, ask: Preemptor, node: int, victims: Sequence[VictimUnit], pods: int) -> bool:
        before = self._overlay.checkpoint()
        fits = self._makes_room(ask, node, victims, pods)
        self._overlay.rollback(before)
        return fits

    def _makes_room(self, ask: Preemptor, node: int, victims: Sequence[VictimUnit], pods: int) -> bool:
        """Whether so many pods fit once the victims are gone; then they are."""
        overlay = self._overlay
        before = overlay.checkpoint()
        self.remove_victims(victims)
        gone = overlay.checkpoint()
        there = 0
        while there < pods and not self._overlay.reasons(ask.pod, ask.row)[node]:
            there += 1
            if there < pods:
                overlay.assume(ask.pod, ask.row, node)
        overlay.rollback(gone if there == pods else before)
        return there == pods

    def select_free_node(self, preemptor: Preemptor, sequence: int) -> int:
        """The node to choose if nobody goes; -1 if there is none."""
        why = self._overlay.reasons(preemptor.pod, preemptor.row)
        feasible = why == 0 if preemptor.allowed_nodes is None else (why == 0) & preemptor.allowed_nodes
        return (
            self._overlay.select_node(preemptor.pod, preemptor.row, why, sequence, preemptor.allowed_nodes)
            if feasible.any()
            else -1
        )

    def remove_victims(self, victims: Sequence[VictimUnit]) -> None:
        """On the overlay, with those whom they drag along."""
        for unit in self.with_dependents(victims):
            for row in unit.rows:
                self._overlay.remove_running(row)

    def with_dependents(self, victims: Sequence[VictimUnit]) -> list[VictimUnit]:
        """The victims and whom they drag along, each once, as far as they are there."""
        names = dict.fromkeys(key for unit in victims for key in (unit.key, *unit.dependents))
        units = [self._by_key[name] for name in names if name in self._by_key]
        return [unit for unit in units if self._ground.present[unit.number]]


def _doubling(most: int) -> Iterator[int]:
    """1, 2, 4 … and the most."""
    count = 1
    while count < most:
        yield count
        count *= 2
    if most:
        yield most
