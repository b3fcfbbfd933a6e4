"""Objects that Windlass can't read: told to whoever owns them, once for each and what is wrong with it.

`scheduler.cache` keeps those that could not be decoded, the snapshot names those of which the engine can't read
something; `scheduler.scheduler` has them told after each decision. All of them get an event and count in a metric. A
pod of ours that could not even be decoded has its condition from here; the engine holds every other.
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

MOST_REMEMBERED = 10_000


class UnreadableReporter:
    def __init__(
        self, cache: SchedulerCache, recorder: EventRecorder, conditions: PodConditionWriter, metrics: Metrics
    ) -> None:
        self._world, self._recorder, self._conditions, self._metrics = cache, recorder, conditions, metrics
        self._told: dict[tuple[str, str], tuple[str, str]] = {}
        """Kind and key → uid and what is wrong, as it was told."""

    def report(self, snapshot: Snapshot, may_write: Callable[[], bool]) -> None:
        """Of all there are now; without the right to write they are only logged and counted."""
        for (kind, key), odd in self._world.unreadable.items():
            about = EventRegarding(kind, key, odd.uid, odd.api_version or "v1")
            self._tell(about, str(odd.error), may_write)
            if (
                kind == "Pod"
                and not odd.node_name
                and may_write()
                and self._world.is_responsible_for_unreadable(odd)
            ):
                self._hold(key, odd, snapshot)
        for name, why in snapshot.unreadable.items():
            kind, _, key = name.partition(" ") if " " in name else ("Pod", "", name)
            found = self._world.pods.get(key) if kind == "Pod" else self._world.get(kind, key)
            if found is not None:
                self._tell(EventRegarding(kind, key, found.metadata.uid), why, may_write)

    def _hold(self, key: str, odd: Unreadable, snapshot: Snapshot) -> None:
        verdict = Verdict(code="INVALID_OBJECT", nodes=snapshot.nodes.size, detail=str(odd.error))
        reason, message = condition_reason(verdict), condition_message(verdict)
        self._conditions.enqueue(PendingCondition(key, odd.uid, reason, message))

    def _tell(self, about: EventRegarding, why: str, may_write: Callable[[], bool]) -> None:
        if self._told.get((about.kind, about.key)) == (about.uid, why):
            return
        if len(self._told) >= MOST_REMEMBERED:
            self._told.clear()
        self._told[about.kind, about.key] = about.uid, why
        self._metrics.unreadable.labels(about.kind).inc()
        log.warning("%s %s can't be read: %s", about.kind, about.key, why)
        if may_write():
            self._recorder.record(Event(about, "Unreadable", why, "Reading", "Warning"), droppable=True)
