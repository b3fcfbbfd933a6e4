"""Keeps room for work whose node goes: what would come after it does not start where it will go.

`placement.notices` calls it with the work that has to leave. It still runs, and so no pass has placed it; the dry runs
say whether it would start elsewhere beside what this decision starts. If not, what this decision starts and what comes
after it in order waits, the last first, if that is enough; and only then. Work for which victims are evicted is not
touched. It lasts as long as the ask does: then the work is pending, in its place in the order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cached_property

import numpy as np
from msgspec.structs import replace

from windlass.model.decision import Hold
from windlass.model.plan import Plan
from windlass.model.reasons import RESERVED_FOR_OTHERS
from windlass.model.verdict import Limit, Verdict
from windlass.model.workload import Workload
from windlass.placement.explain.dry_runs import DryRunBudget, DryRuns
from windlass.placement.explain.post_decision import PostDecisionState
from windlass.placement.workload_pieces import unqueued_sort_key, workload_key


class KeptRoom:
    def __init__(self, make_state: Callable[[], PostDecisionState]) -> None:
        self._make_state = make_state

    @cached_property
    def _state(self) -> PostDecisionState:
        return self._make_state()

    @cached_property
    def _budget(self) -> DryRunBudget:
        """Of all dry runs of the plan."""
        return DryRunBudget(self._state.overlay.snapshot.nodes.size)

    def would_start_elsewhere(self, workload: Workload, without: Iterable[str] = ()) -> bool:
        running = (occupant.workload.key for occupant in self._state.running())
        own = [key for key in running if workload_key(key) == workload.key]
        with np.errstate(over="ignore"):  # the hash function of the kernels overflows on purpose
            return DryRuns(self._state, self._budget).would_start(_as_pending(workload), [*own, *without])

    def keep(self, plan: Plan, workload: Workload) -> Plan:
        """The plan without the starts that would take the room of work that has to leave."""
        # Without starts nothing is looked at: the state of a large cluster takes a while to make.
        later = [*self._starts_after(plan, workload)] if plan.binds or plan.admits else []
        if not later or self.would_start_elsewhere(workload):
            return plan
        for count in range(1, len(later) + 1):
            if self.would_start_elsewhere(workload, [key for key, _ in later[:count]]):
                return self._without(plan, workload, dict(later[:count]))
        return plan

    def _starts_after(self, plan: Plan, workload: Workload) -> Iterator[tuple[str, tuple[str, ...]]]:
        """What this decision starts and what comes after the workload, with its pods; the last in order first."""
        state, place = self._state, unqueued_sort_key(_as_pending(workload))
        free = {bind.pod for bind in plan.binds if not bind.after}
        found: list[tuple[Workload, tuple[str, ...]]] = []
        members: set[str] = set()
        for admit in plan.admits:
            piece = state.pieces.get(admit.workload)
            if piece is not None and not admit.after:
                pods = tuple(key for pod_set in piece.pod_sets for key in pod_set.pod_keys)
                members.update(pods)
                found.append((piece, pods))
        for pod in sorted(free - members):
            piece = state.pending_piece(pod)
            if piece is not None and piece.key == pod and not piece.queue_name:
                found.append((piece, (pod,)))
        later = [(piece, pods) for piece, pods in found if unqueued_sort_key(piece) > place]
        for piece, pods in sorted(later, key=lambda start: unqueued_sort_key(start[0]), reverse=True):
            yield piece.key, pods

    def _without(self, plan: Plan, workload: Workload, starts: dict[str, tuple[str, ...]]) -> Plan:
        pods = {pod for members in starts.values() for pod in members}
        text = f"its room is kept for {workload.key}, which has to leave its node"
        limit = Limit("plan", "room is free, but kept for work that has to leave its node", behind=workload.key)
        nodes = self._state.overlay.snapshot.nodes.size
        verdict = Verdict(RESERVED_FOR_OTHERS.code, nodes, detail=text, limits=(limit,), is_explained=True)
        return replace(
            plan,
            binds=tuple(bind for bind in plan.binds if bind.pod not in pods),
            admits=tuple(admit for admit in plan.admits if admit.workload not in starts),
            holds=(*plan.holds, *(Hold(key, verdict) for key in starts)),
        )


def _as_pending(workload: Workload) -> Workload:
    """As it will be once it has left: without pods."""
    pod_sets = tuple(replace(pod_set, pod_keys=()) for pod_set in workload.pod_sets)
    return replace(workload, admission=None, pod_sets=pod_sets)
