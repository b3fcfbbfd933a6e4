"""Finds a node and victims for one pod: resource vectors propose candidates, the overlay confirms them.

`single_pods` and `gang` ask for one pod at a time, through `context.Preemption`. Nodes come in the order of their
estimated cost. On each, the cheapest units that free enough are removed from the overlay, and the pod has to fit by
every rule. Where vectors don't know everything (GPU shares, MIG instances, inter-pod rules), units are removed in order
until the pod fits, and units that turn out not to be needed are restored.
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
"""Nodes with the lowest estimated cost that are compared by their real victims."""
MAX_TRIED_NODES = 256
"""Nodes that are tried on the overlay before the search gives up."""

BudgetCheck = Callable[[Sequence[VictimUnit]], bool]
"""Whether disruption budgets allow to evict these units in addition to all that are evicted already."""


def permit_all(units: Sequence[VictimUnit]) -> bool:
    """The check where there are no budgets."""
    return True


class Preemptor(NamedTuple):
    """The pod for which victims are chosen, or the next of several equal pods."""

    pod: Pod
    shape: Shape
    row: int
    """Row of the score table."""
    priority: int
    pods_left: int = 1
    """Equal pods that are still to be placed: a node that takes several of them may be cheaper per pod."""
    allowed_nodes: Bools | None = None


class Candidate(msgspec.Struct, frozen=True):
    node: int
    victims: tuple[VictimUnit, ...]
    pods: int = 1
    """Pods that fit on the node without the victims."""

    @property
    def cost_per_pod(self) -> tuple[object, ...]:
        """The sort key: eviction cost per pod, then the victims that started last, then the node."""
        costs = [
            (priority, tuple(amount / self.pods for amount in amounts))
            for priority, amounts in eviction_cost(self.victims)
        ]
        return costs, sorted((-unit.started_at, unit.uid) for unit in self.victims), self.node


class PotentialNodes(NamedTuple):
    """The nodes as a preemptor sees them."""

    request: RequestVector
    free: Ints
    entries: Bools
    """Entries of `FreedResources` (unit and node) that may be evicted."""
    feasible: Bools
    fits: Ints
    """[node] pods that would fit if all of these were evicted."""


class CandidateFinder:
    """Removes the victims of what it finds from the overlay; where it finds nothing, the overlay is unchanged."""

    def __init__(self, overlay: Overlay, freed_resources: FreedResources, permits: BudgetCheck) -> None:
        self._overlay, self._freed, self._permits = overlay, freed_resources, permits
        self._by_key = {unit.key: unit for unit in freed_resources.units}

    def potential_nodes(self, preemptor: Preemptor) -> PotentialNodes:
        """The nodes that could take the pod if all units that may be evicted for it were."""
        overlay, freed = self._overlay, self._freed
        request = freed.request_vector(preemptor.shape)
        usable = freed.preemptible_entries(preemptor.priority)
        # Each unit alone: what budgets forbid alone can't be part of any set. Sets are checked when they are found.
        if self._permits is not permit_all and usable.any():
            units = np.unique(freed.entry_unit[usable]).tolist()
            blocked = [number for number in units if not self._permits([freed.units[number]])]
            usable &= ~np.isin(freed.entry_unit, blocked)
        free = freed.free(overlay.state, request)
        max_free = free + freed.max_freed_by_node(request, usable, len(free))
        fits = np.full(len(free), preemptor.pods_left, dtype=np.int64)
        for column, amount in enumerate(request.amounts.tolist()):
            fits = np.minimum(fits, max_free[:, column] // amount if amount > 0 else fits)
        feasible = (fits > 0) & (overlay.table.static(preemptor.row) == 0) & (overlay.state.node_info[:, BLOCKED] == 0)
        if preemptor.allowed_nodes is not None:
            feasible &= preemptor.allowed_nodes
        return PotentialNodes(request, free, usable, feasible, np.maximum(fits, 0))

    def may_help(self, preemptor: Preemptor) -> bool:
        """Whether any node would have enough if all units were evicted that budgets and priorities allow."""
        return bool(self.potential_nodes(preemptor).feasible.any())

    def find_candidate(self, preemptor: Preemptor) -> Candidate | None:
        """The cheapest candidate that was found, its victims removed from the overlay; None where there is none."""
        potential = self.potential_nodes(preemptor)
        if not potential.feasible.any():
            return None
        found: list[Candidate] = []
        unsure: list[int] = []
        further: list[int] = []
        for pods, nodes in self._proposals(preemptor, potential):
            for node in nodes[:MAX_COMPARED_NODES]:
                candidate = self._candidate_by_vectors(potential, node, int(pods[node]))
                if candidate is not None:
                    found.append(candidate)
                else:
                    unsure.append(node)
            # Tried one by one only if none of the cheapest nodes works, and then the first that fits is taken.
            further += nodes[MAX_COMPARED_NODES:MAX_TRIED_NODES]
        best = self._cheapest(preemptor, potential, found, unsure)
        if best is None:
            tried = (self._candidate_by_trying(preemptor, potential, node) for node in dict.fromkeys(further))
            best = next((candidate for candidate in tried if candidate is not None), None)
        if best is not None:
            self.remove_victims(best.victims)
        return best

    def _cheapest(
        self,
        preemptor: Preemptor,
        potential: PotentialNodes,
        found: Sequence[Candidate],
        unsure: Sequence[int],
    ) -> Candidate | None:
        """The cheapest of the candidates by vectors and of the nodes where vectors found none.

        Vectors don't know host ports, inter-pod rules and disruption budgets. A node without a candidate by vectors may
        still have the cheapest victims, so units are tried there and compared.
        """
        candidates: list[Candidate] = []
        nodes = dict.fromkeys(unsure)
        for candidate in sorted(found, key=lambda candidate: candidate.cost_per_pod):
            if self._fits(preemptor, candidate.node, candidate.victims, candidate.pods):
                candidates.append(candidate)
                break
            # Vectors were too hopeful here: a rule that they don't know needs other victims.
            nodes[candidate.node] = None
        tried = (self._candidate_by_trying(preemptor, potential, node) for node in nodes)
        candidates += [candidate for candidate in tried if candidate is not None]
        return min(candidates, key=lambda candidate: candidate.cost_per_pod, default=None)

    def _proposals(self, preemptor: Preemptor, potential: PotentialNodes) -> Iterator[tuple[Ints, list[int]]]:
        """(pods by node, nodes in order of cost): once for one pod per node, once for as many as each node takes."""
        ones = np.ones_like(potential.fits)
        # A large victim may be cheap for several pods and dear for one, so both ways are proposed.
        for pods in (ones, potential.fits) if preemptor.pods_left > 1 else (ones,):
            wanted = potential.request.amounts * np.maximum(pods, 1)[:, None]
            order = self._freed.nodes_by_estimated_cost(
                potential.free, wanted, potential.request, potential.entries, potential.feasible
            )
            yield pods, order.tolist()

    def _candidate_by_vectors(self, potential: PotentialNodes, node: int, pods: int) -> Candidate | None:
        """None where vectors see nothing lacking on the node, or budgets forbid the victims."""
        units, freed = self._freed.units_on_node(node, potential.entries, potential.request)
        lacking = potential.request.amounts * pods - potential.free[node]
        if np.all(lacking <= 0):
            return None
        chosen = select_victims(units, freed, lacking)
        victims = [units[position] for position in chosen] if chosen is not None else []
        if not victims or not self._permits(victims):
            return None
        return Candidate(node, tuple(victims), pods)

    def _candidate_by_trying(self, preemptor: Preemptor, potential: PotentialNodes, node: int) -> Candidate | None:
        """Removes more and more units in order until the pod fits; then drops those that are not needed."""
        units, _ = self._freed.units_on_node(node, potential.entries, potential.request)
        units = self._within_budgets(units)
        count = next((n for n in _doubling(len(units)) if self._fits(preemptor, node, units[:n], 1)), 0)
        if not count:
            return None
        victims = units[:count]
        for unit in reversed(units[:count]):  # with the last one: the count was doubled, and may be too large
            rest = [other for other in victims if other is not unit]
            if self._fits(preemptor, node, rest, 1):
                victims = rest
        return Candidate(node, tuple(victims))

    def _within_budgets(self, units: Sequence[VictimUnit]) -> list[VictimUnit]:
        kept: list[VictimUnit] = []
        for unit in units:
            if self._permits([*kept, unit]):
                kept.append(unit)
        return kept

    def _fits(self, preemptor: Preemptor, node: int, victims: Sequence[VictimUnit], pods: int) -> bool:
        checkpoint = self._overlay.checkpoint()
        fits = self._makes_room(preemptor, node, victims, pods)
        self._overlay.rollback(checkpoint)
        return fits

    def _makes_room(self, preemptor: Preemptor, node: int, victims: Sequence[VictimUnit], pods: int) -> bool:
        """Whether so many pods fit without the victims; if so, the victims stay removed."""
        overlay = self._overlay
        checkpoint = overlay.checkpoint()
        self.remove_victims(victims)
        without_victims = overlay.checkpoint()
        fitting = 0
        while fitting < pods and not self._overlay.reasons(preemptor.pod, preemptor.row)[node]:
            fitting += 1
            if fitting < pods:
                overlay.assume(preemptor.pod, preemptor.row, node)
        # The assumed pods go either way: the caller places the pod itself.
        overlay.rollback(without_victims if fitting == pods else checkpoint)
        return fitting == pods

    def select_free_node(self, preemptor: Preemptor, sequence: int) -> int:
        """The node to choose without any eviction; -1 if there is none."""
        reasons = self._overlay.reasons(preemptor.pod, preemptor.row)
        allowed = preemptor.allowed_nodes
        if not (reasons == 0 if allowed is None else (reasons == 0) & allowed).any():
            return -1
        return self._overlay.select_node(preemptor.pod, preemptor.row, reasons, sequence, allowed)

    def remove_victims(self, victims: Sequence[VictimUnit]) -> None:
        """Remove the victims and their dependents from the overlay."""
        for unit in self.with_dependents(victims):
            for row in unit.rows:
                self._overlay.remove_running(row)

    def with_dependents(self, victims: Sequence[VictimUnit]) -> list[VictimUnit]:
        """The victims and their dependents, each once, as far as they are present."""
        names = dict.fromkeys(key for unit in victims for key in (unit.key, *unit.dependents))
        units = [self._by_key[name] for name in names if name in self._by_key]
        return [unit for unit in units if self._freed.present[unit.number]]


def _doubling(most: int) -> Iterator[int]:
    """1, 2, 4, … and `most`."""
    count = 1
    while count < most:
        yield count
        count *= 2
    if most:
        yield most
