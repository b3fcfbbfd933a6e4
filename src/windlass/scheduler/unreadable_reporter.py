"""Reports objects that Windlass can't read: log line, metric and event, once per object and problem.

`scheduler.scheduler` calls `report` after every decision. `scheduler.cache` has the objects that could not be decoded;
the snapshot names those with a field that the engine can't read. A pod of ours that could not be decoded also gets its
condition here; the engine holds the others, and `apply.executor` writes theirs.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from windlass.apply.conditions import PendingCondition, PodConditionWriter
from windlass.apply.messages import condition_message, condition_reason
from windlass.cluster.snapshot import Snapshot
from windlass.kube.events import Event, EventRecorder, EventRegarding
from windlass.model.codec import Unreadable
from windlass.model.verdict import Verdict
from windlass.scheduler.cache import SchedulerCache
from windlass.scheduler.metrics import Metrics

log = logging.getLogger(__name__)

MAX_REPORTED = 10_000


class UnreadableReporter:
    def __init__(
        self, cache: SchedulerCache, recorder: EventRecorder, conditions: PodConditionWriter, metrics: Metrics
    ) -> None:
        self._cache, self._recorder, self._conditions, self._metrics = cache, recorder, conditions, metrics
        self._reported: dict[tuple[str, str], tuple[str, str]] = {}
        """Kind and key → uid and problem as reported."""

    def report(self, snapshot: Snapshot, may_write: Callable[[], bool]) -> None:
        """Without `may_write`, objects are only logged and counted."""
        for (kind, key), unreadable in self._cache.unreadable.items():
            regarding = EventRegarding(kind, key, unreadable.uid, unreadable.api_version or "v1")
            self._report(regarding, str(unreadable.error), may_write)
            is_pending_pod = kind == "Pod" and not unreadable.node_name
            if is_pending_pod and may_write() and self._cache.responsibility.covers_unreadable(unreadable):
                self._enqueue_condition(key, unreadable, snapshot)
        for name, problem in snapshot.unreadable.items():
            kind, _, key = name.partition(" ") if " " in name else ("Pod", "", name)
            kind, _, group = kind.partition(".")
            obj = self._cache.pods.get(key) if kind == "Pod" else self._cache.get(kind, key, group)
            if obj is not None:
                self._report(EventRegarding(kind, key, obj.metadata.uid), problem, may_write)

    def _enqueue_condition(self, key: str, unreadable: Unreadable, snapshot: Snapshot) -> None:
        verdict = Verdict(code="INVALID_OBJECT", nodes=snapshot.nodes.size, detail=str(unreadable.error))
        reason, message = condition_reason(verdict), condition_message(verdict)
        self._conditions.enqueue(PendingCondition(key, unreadable.uid, reason, message))

    def _report(self, regarding: EventRegarding, problem: str, may_write: Callable[[], bool]) -> None:
        if self._reported.get((regarding.kind, regarding.key)) == (regarding.uid, problem):
            return
        if len(self._reported) >= MAX_REPORTED:
            self._reported.clear()
        self._reported[regarding.kind, regarding.key] = regarding.uid, problem
        self._metrics.unreadable.labels(regarding.kind).inc()
        log.warning("%s %s can't be read: %s", regarding.kind, regarding.key, problem)
        if may_write():
            self._recorder.record(Event(regarding, "Unreadable", problem, "Reading", "Warning"), droppable=True)
