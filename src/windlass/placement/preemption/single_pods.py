"""Lone pods in order, of which a refused one may take the place of others.

`engine.decide` hands over the queue. Runs of it go through the same fast loop as without preemption. At the first pod
that is refused and could have a place if others went, everything behind it is undone, it gets its place, and the loop
goes on behind it, in short runs at first: so a pod of lower rank never takes what one before it needs.
"""

from __future__ import annotations

import numpy as np

from windlass.cluster.node_state import Ints
from windlass.cluster.pod_table import UNREADABLE
from windlass.model.reasons import Reason
from windlass.placement.overlay import Overlay
from windlass.placement.preemption.candidates import Preemptor
from windlass.placement.preemption.context import Preemption, preemption_policy
from windlass.placement.preemption.victim_units import VictimUnit
from windlass.placement.single_pod_placer import SinglePodPlacer, SinglePodResults, score_table_rows
from windlass.placement.verdicts import Refusal

RUN_AFTER_PREEMPTION = 16
"""Pods after one that has preempted; doubled for every run without another."""


def place_single_pods(overlay: Overlay, queue: Ints, preemption: Preemption) -> SinglePodResults:
    """What became of the pods in these rows; victims are off the overlay and settled with `preemption`."""
    pods = overlay.snapshot.pods
    if not len(queue) or not preemption.may_preempt(int(pods.priority[queue].max()), ""):
        return SinglePodPlacer(overlay, queue).run()
    return _Preempting(overlay, queue, preemption).run()


class _Preempting:
    def __init__(self, overlay: Overlay, queue: Ints, preemption: Preemption) -> None:
        self._overlay, self._queue, self._preemption = overlay, queue, preemption
        self._pods = overlay.snapshot.pods
        entries = len(queue)
        self._node = np.full(entries, -1, dtype=np.int64)
        self._grant = np.zeros(entries, dtype=np.uint64)
        self._refusal = np.full(entries, -1, dtype=np.int64)
        self._refusals: list[Refusal] = []
        self._rows = score_table_rows(overlay, queue)
        self._held: dict[int, Reason] = {}
        self._cleared: dict[int, list[tuple[int, frozenset[str]]]] = {}
        self._hopeless: set[tuple[int, int]] = set()
        """(table row, priority) for which nobody who could go would help; room only gets less."""

    def run(self) -> SinglePodResults:
        first, end = 0, len(self._queue)
        length = end
        while first < end:
            stop = min(end, first + length)
            before = self._overlay.checkpoint()
            part = SinglePodPlacer(self._overlay, self._queue[first:stop]).run()
            turned = self._first_that_may(first, part)
            if turned is None:
                self._keep(first, stop, part)
                first, length = stop, 2 * length
                continue
            placed = part.node[: turned - first] >= 0
            self._overlay.rollback(before + int(np.count_nonzero(placed)))
            self._keep(first, turned + 1, part)
            first, length = turned + 1, RUN_AFTER_PREEMPTION
            found = self._preempt(turned)
            # What is like it would be refused as well: no need to ask all nodes first.
            while found and first < end and self._is_like(first, turned):
                found = self._preempt(first)
                first += int(found)
        return SinglePodResults(
            self._node, self._grant, self._refusal, self._refusals, self._held, self._cleared
        )

    def _keep(self, start: int, end: int, part: SinglePodResults) -> None:
        """What became of these pods in a run that began with the first of them."""
        count, known = end - start, len(self._refusals)
        self._node[start:end] = part.node[:count]
        self._grant[start:end] = part.grant[:count]
        refused = part.refusal[:count]
        self._refusal[start:end] = np.where(refused >= 0, refused + known, -1)
        self._refusals += part.refusals
        self._held.update({start + at: held for at, held in part.held.items() if at < count})

    def _first_that_may(self, first: int, part: SinglePodResults) -> int | None:
        """The first pod that was refused by all nodes, and may preempt, and to which it could help."""
        refused = np.flatnonzero((part.node < 0) & (part.refusal >= 0)) + first
        return next((at for at in refused.tolist() if self._may(at)), None)

    def _may(self, at: int) -> bool:
        ask = self._ask(at)
        return ask is not None and (ask.row, ask.priority) not in self._hopeless

    def _ask(self, at: int) -> Preemptor | None:
        """None where the pod may not preempt, or can't be read."""
        row = int(self._queue[at])
        pod, number, priority = (
            self._pods.objects[row],
            int(self._pods.shape[row]),
            int(self._pods.priority[row]),
        )
        policy = preemption_policy(pod, self._overlay.snapshot.queue_system.non_preempting_classes)
        if number == UNREADABLE or not self._preemption.may_preempt(priority, policy):
            return None
        return Preemptor(pod, self._overlay.snapshot.shapes[number], int(self._rows[at]), priority)

    def _is_like(self, at: int, other: int) -> bool:
        """Two pods of one shape and priority, both of which may preempt."""
        mine, theirs = self._ask(at), self._ask(other)
        if mine is None or theirs is None:
            return False
        return (mine.row, mine.priority) == (theirs.row, theirs.priority)

    def _preempt(self, at: int) -> bool:
        """A place at the cost of others, if there is one."""
        ask = self._ask(at)
        assert ask is not None, "only pods that may preempt are asked"
        for _ in self._preemption.budget_attempts():
            before = self._overlay.checkpoint()
            units: list[VictimUnit] = []
            placing = self._preemption.place_with_victims(
                ask, self._overlay.snapshot.decided_pods + at, units
            )
            if placing is not None:
                self._node[at], self._grant[at] = placing.node, placing.grant
                known = dict(self._preemption.victims_by_node)
                self._preemption.commit_victims(units, ask.pod.key)
                for node, keys in self._preemption.victims_by_node.items():
                    if fresh := frozenset(keys).difference(known.get(node, ())):
                        self._cleared.setdefault(node, []).append((at, fresh))
                return True
            self._overlay.rollback(before)
            self._preemption.mark_restored(units)
        if ask.pod.key not in self._overlay.snapshot.refusals.binds:  # nodes refuse it that take its like
            self._hopeless.add((ask.row, ask.priority))
        return False
