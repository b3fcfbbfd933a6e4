"""Counts planned starts that were kept, and those that were not, with why.

`scheduler.scheduler` shows it every plan that is executed. What counts is the first start that a waiting workload was
told: it is kept if the workload starts by then; before is as good. What is deleted while it waits counts as neither. In
memory: a new leader begins with what is planned when it takes over.
"""

from __future__ import annotations

import msgspec
from prometheus_client import Counter

from windlass.model.plan import Plan

TOLERANCE_SECONDS = 15
"""A start that is due is decided with the next tick of the loop."""
KEPT, LATE = "kept", "late"
MOVED, UNKNOWN, OVERDUE = "moved", "unknown", "overdue"
"""Why a start was late: it was planned for later meanwhile; there was no planned start any more, since the end of
something is not known; or neither, and it did not start all the same."""


class _Promise(msgspec.Struct):
    start: int
    reason: str = ""
    """Why it can't be kept any more; empty: it can."""


class PlannedStartRecord:
    def __init__(self, counter: Counter) -> None:
        """`counter` has the labels result and reason."""
        self._counter = counter
        self._promises: dict[str, _Promise] = {}

    def observe(self, plan: Plan, now: int) -> None:
        started = {admit.workload for admit in plan.admits if not admit.after}
        started |= {bind.pod for bind in plan.binds if not bind.after}
        held = {hold.workload for hold in plan.holds}
        # Also what is admitted once its victims have ended.
        waiting = held | {admit.workload for admit in plan.admits}
        planned = {reserve.workload: reserve.start for reserve in plan.reserves}
        for key, promise in list(self._promises.items()):
            if key in started:
                is_kept = now <= promise.start + TOLERANCE_SECONDS
                result, reason = (KEPT, "") if is_kept else (LATE, promise.reason or OVERDUE)
                self._counter.labels(result, reason).inc()
            if key in started or key not in waiting:
                del self._promises[key]
            elif key in held and key not in planned:
                promise.reason = promise.reason or UNKNOWN
            elif planned.get(key, 0) > promise.start + TOLERANCE_SECONDS:
                promise.reason = promise.reason or MOVED
        for key in planned.keys() & held:
            self._promises.setdefault(key, _Promise(planned[key]))
