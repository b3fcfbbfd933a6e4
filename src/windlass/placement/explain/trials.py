"""Would this request start now? Tried on the decision's own overlay, with quota and planned starts, and undone.

`changes` asks for smaller and looser requests, `relief` for what is there once others have gone. Trials are counted, so
that a plan can be explained in bounded time.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager

from windlass.model.errors import InputError
from windlass.model.workload import Workload
from windlass.placement.explain.aftermath import FEW_NODES, Aftermath
from windlass.placement.timeplan.guard import PlanGuard
from windlass.queueing.assignment import Assignment, Mode
from windlass.queueing.pending import Pending
from windlass.queueing.planner import Planner
from windlass.queueing.site import PlaceResult, PodSetChoice
from windlass.queueing.victims import Rules

MOST_TRIALS = 32
"""Requests that are tried for one hold."""
MOST_PODS = 2048
"""Pods that are placed for one hold, all trials together."""
VISITS, VISITS_OF_MANY = 40_000, 4_000_000
"""Nodes that are looked at for one plan, all trials of all holds together, with few nodes and with many."""

Choices = tuple[PodSetChoice, ...]


class Budget:
    """What may be spent on one plan: counted in nodes looked at, never in seconds."""

    def __init__(self, nodes: int) -> None:
        self.nodes = nodes
        self.left = VISITS if nodes <= FEW_NODES else VISITS_OF_MANY


class Trials:
    """The trials of one hold."""

    def __init__(self, after: Aftermath, budget: Budget | None = None) -> None:
        self.after = after
        self._budget = budget or Budget(after.overlay.snapshot.facts.size)
        after.count_everybody()
        self._planner = Planner(after.room.system, Rules(after.queues, after.now), after.site)
        self._trials, self._pods = 0, 0

    @property
    def are_spent(self) -> bool:
        return self._trials >= MOST_TRIALS or self._pods >= MOST_PODS or self._budget.left <= 0

    def starts(
        self, piece: Workload, without: Collection[str] = (), *, whoever_is_ahead: bool = False
    ) -> bool:
        """Whether quota, planned starts and nodes would let it start now, once those named have gone; or, where that
        is asked for, if nobody's plan stood before it."""
        if self.are_spent:
            return False
        with self._undone():
            try:
                for key in without:
                    self.after.site.remove(self.after.room.workload(key))
                choices = self.choices(piece, without)
                return choices is not None and self._place(piece, choices, whoever_is_ahead).ok
            except InputError:
                return False  # a request that nobody could make

    def choices(self, piece: Workload, without: Collection[str] = ()) -> Choices | None:
        """Flavors by quota as it is now; None where quota doesn't suffice."""
        if not piece.queue:
            return tuple(PodSetChoice(one.name, one.count, {}) for one in piece.pod_sets)
        assignment = self.assignment(piece, without)
        return assignment.choices if assignment is not None and assignment.mode == Mode.FIT else None

    def assignment(self, piece: Workload, without: Collection[str] = ()) -> Assignment | None:
        node = self.after.room.queue_of(piece)
        if node is None:
            return None
        self.after.room.show_quota(self.after.now, (), without)
        return self._planner.nominate(Pending(piece, node, self.after.site)).assignment

    def _place(self, piece: Workload, choices: Choices, whoever_is_ahead: bool) -> PlaceResult:
        self._trials += 1
        self._budget.left -= self._budget.nodes
        self._pods += sum(choice.count for choice in choices)
        if whoever_is_ahead:
            return self.after.site.place(piece, choices)
        guard = PlanGuard(self.after.room, self.after.walls, self.after.turns)
        return guard.place_beside_plans(piece, choices)

    @contextmanager
    def _undone(self) -> Iterator[None]:
        """Everything is as it was afterwards, the rows of the table that only the trial needed included."""
        room, table = self.after.room, self.after.overlay.table
        mark, rows, known = room.mark(), table.rows_in_use(), room.site.remembered()
        try:
            yield
        finally:
            room.rewind(mark)
            table.keep_only(rows)
            room.site.forget(known)
