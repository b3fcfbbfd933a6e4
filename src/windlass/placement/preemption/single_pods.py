"""Places single pods in order, and preempts for those that are refused.

`engine.decide` passes the queue. Runs of it go through the same fast loop as without preemption. At the first pod that
is refused and could fit with victims, everything behind it is rolled back, the pod is placed with its victims, and the
loop goes on behind it, in short runs at first. So a pod never takes capacity that a pod before it needs.
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
from windlass.placement.single_pod_placer import (
    NO_SINGLE_PODS,
    SinglePodPlacer,
    SinglePodResults,
    score_table_rows,
)
from windlass.placement.verdicts import NoNodeFound

RUN_AFTER_PREEMPTION = 16
"""Length of the run after a preemption; it doubles with every run without one."""


def place_single_pods(overlay: Overlay, queue: Ints, preemption: Preemption) -> SinglePodResults:
    """The results of the pods in these rows; victims are removed from the overlay and committed in `preemption`."""
    if not len(queue):
        return NO_SINGLE_PODS
    pods = overlay.snapshot.pods
    if not preemption.may_preempt(int(pods.priority[queue].max()), ""):
        return SinglePodPlacer(overlay, queue).run()
    return _Preempting(overlay, queue, preemption).run()


class _Preempting:
    def __init__(self, overlay: Overlay, queue: Ints, preemption: Preemption) -> None:
        self._overlay, self._queue, self._preemption = overlay, queue, preemption
        self._pods = overlay.snapshot.pods
        entries = len(queue)
        self._node = np.full(entries, -1, dtype=np.int64)
        self._grant = np.zeros(entries, dtype=np.uint64)
        self._failure = np.full(entries, -1, dtype=np.int64)
        self._failures: list[NoNodeFound] = []
        self._rows = score_table_rows(overlay, queue)
        self._held: dict[int, Reason] = {}
        self._cleared: dict[int, list[tuple[int, frozenset[str]]]] = {}
        self._hopeless: set[tuple[int, int]] = set()
        """(row of the score table, priority) for which no victims help, now or later: capacity only shrinks."""

    def run(self) -> SinglePodResults:
        first, end = 0, len(self._queue)
        length = end
        while first < end:
            stop = min(end, first + length)
            checkpoint = self._overlay.checkpoint()
            results = SinglePodPlacer(self._overlay, self._queue[first:stop]).run()
            refused = self._first_preemptor(first, results)
            if refused is None:
                self._keep(first, stop, results)
                first, length = stop, 2 * length
                continue
            placed = results.node[: refused - first] >= 0
            # One step a placed pod, so that exactly those behind the refused pod are undone.
            self._overlay.rollback(checkpoint + int(np.count_nonzero(placed)))
            self._keep(first, refused + 1, results)
            # The next preemptor is often near, and all behind it would be rolled back.
            first, length = refused + 1, RUN_AFTER_PREEMPTION
            preempted = self._preempt(refused)
            # Equal pods would be refused as well, so they skip the fast loop.
            while preempted and first < end and self._is_equal(first, refused):
                preempted = self._preempt(first)
                first += int(preempted)
        return SinglePodResults(self._node, self._grant, self._failure, self._failures, self._held, self._cleared)

    def _keep(self, start: int, end: int, results: SinglePodResults) -> None:
        """Keep the results of these pods from a run that began with the first of them."""
        count, offset = end - start, len(self._failures)
        self._node[start:end] = results.node[:count]
        self._grant[start:end] = results.grant[:count]
        refused = results.failure[:count]
        self._failure[start:end] = np.where(refused >= 0, refused + offset, -1)
        self._failures += results.failures
        self._held |= {start + place: reason for place, reason in results.held.items() if place < count}

    def _first_preemptor(self, first: int, results: SinglePodResults) -> int | None:
        """Position of the first pod that all nodes refused and for which preemption may help."""
        refused = np.flatnonzero((results.node < 0) & (results.failure >= 0)) + first
        return next((position for position in refused.tolist() if self._may_preempt(position)), None)

    def _may_preempt(self, position: int) -> bool:
        preemptor = self._preemptor(position)
        return preemptor is not None and (preemptor.row, preemptor.priority) not in self._hopeless

    def _preemptor(self, position: int) -> Preemptor | None:
        """None where the pod may not preempt, or can't be parsed."""
        row = int(self._queue[position])
        pod, shape = self._pods.objects[row], int(self._pods.shape[row])
        priority = int(self._pods.priority[row])
        policy = preemption_policy(pod, self._overlay.snapshot.queue_system.non_preempting_classes)
        if shape == UNREADABLE or not self._preemption.may_preempt(priority, policy):
            return None
        return Preemptor(pod, self._overlay.snapshot.shapes[shape], int(self._rows[position]), priority)

    def _is_equal(self, position: int, other_position: int) -> bool:
        """Whether both pods have one shape and priority, and may preempt."""
        first, second = self._preemptor(position), self._preemptor(other_position)
        if first is None or second is None:
            return False
        return (first.row, first.priority) == (second.row, second.priority)

    def _preempt(self, position: int) -> bool:
        """Place the pod with victims, if that is possible."""
        preemptor = self._preemptor(position)
        assert preemptor is not None, "only pods that may preempt are asked"
        for _ in self._preemption.budget_attempts():
            checkpoint = self._overlay.checkpoint()
            units: list[VictimUnit] = []
            sequence = self._overlay.snapshot.decided_pods + position
            assumed = self._preemption.place_with_victims(preemptor, sequence, units)
            if assumed is not None:
                self._node[position], self._grant[position] = assumed.node, assumed.grant
                earlier = dict(self._preemption.victims_by_node)
                self._preemption.commit_victims(units, preemptor.pod.key)
                for node, keys in self._preemption.victims_by_node.items():
                    if added := frozenset(keys).difference(earlier.get(node, ())):
                        self._cleared.setdefault(node, []).append((position, added))
                return True
            self._overlay.rollback(checkpoint)
            self._preemption.mark_restored(units)
        if preemptor.pod.key not in self._overlay.snapshot.refusals.binds:  # else only this pod is refused
            self._hopeless.add((preemptor.row, preemptor.priority))
        return False
