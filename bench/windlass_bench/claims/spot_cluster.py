"""A cluster whose spot nodes are taken away after a notice: what the claim about spot nodes is tried on.

On the notice the node is tainted as AWS' termination handler does; the engine asks what has opted in, and evicts it
when it has answered. What is still there at the end is killed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from windlass.apply.asks import request_of
from windlass.cluster.delta import Put
from windlass.model.decision import Ask, WithdrawAsk
from windlass.model.leaving import Answer, write
from windlass.model.names.windlass import ASK_ANNOTATION, ASK_ANSWER_ANNOTATION
from windlass.model.node import Node, Taint
from windlass.simulate.clock import virtual_timestamp
from windlass_bench.claims.task_cluster import SAMPLE, Outage, TaskCluster, TaskClusterSettings, running_pod
from windlass_bench.claims.tasks import Task, TaskRecord

NOTICE, ANSWER = SAMPLE + 1, SAMPLE + 2
SPOT_TAINT = Taint("aws-node-termination-handler/spot-itn", "NoSchedule", "itn")


class Notice(msgspec.Struct, frozen=True):
    """On the timeline: a node announces that it goes."""

    node: str


class Answered(msgspec.Struct, frozen=True):
    """On the timeline: the run that was asked has written its checkpoint."""

    record: TaskRecord
    start: int
    ask: Ask
    began: int


class SpotCluster(TaskCluster):
    def __init__(
        self, settings: TaskClusterSettings, tasks: Iterable[Task], notice_seconds: int, write_seconds: int
    ) -> None:
        super().__init__(settings, tasks)
        self._write_seconds = write_seconds
        self._nodes: dict[str, Node] = {node.name: node for node in settings.nodes}
        self._asked: set[str] = set()
        self.gpu_seconds: dict[str, float] = {}
        """Node → how long its GPUs were held."""
        for outage in settings.outages:
            self._plan_notice(outage, notice_seconds)

    def _plan_notice(self, outage: Outage, notice_seconds: int) -> None:
        for name in outage.nodes:
            self.timeline.push(max(0, outage.at - notice_seconds), Notice(name), (NOTICE, 0))

    def apply_events(self, now: int) -> bool:
        has_news = bool(self.timeline.next_at is not None and self.timeline.next_at <= now)
        return super().apply_events(now) or has_news

    def take_event(self, event: object, at: int) -> bool:
        if isinstance(event, Notice):
            node = self._nodes[event.node]
            spec = msgspec.structs.replace(node.spec, taints=(SPOT_TAINT,))
            self.store.apply([Put(msgspec.structs.replace(node, spec=spec))])
            return True
        if isinstance(event, Answered):
            return self._answer(event, at)
        return super().take_event(event, at)

    def ask(self, asks: Sequence[Ask], withdrawals: Sequence[WithdrawAsk]) -> None:
        running = {pod.key: record for record in self.running.values() for pod in record.pods}
        for ask in asks:
            record = running[ask.pods[0]]
            if ask.id in self._asked:
                continue
            self._asked.add(ask.id)
            self._annotate(record, {ASK_ANNOTATION: write(request_of(ask))})
            event = Answered(record, record.starts, ask, self.now)
            self.timeline.push(self.now + self._write_seconds, event, (ANSWER, record.number))

    def _answer(self, event: Answered, at: int) -> bool:
        record = event.record
        if record.starts != event.start or record.number not in self.running:
            return False
        record.write_checkpoint(event.began)
        answer = Answer(event.ask.id, virtual_timestamp(event.began))
        self._annotate(record, {ASK_ANNOTATION: write(request_of(event.ask)), ASK_ANSWER_ANNOTATION: write(answer)})
        return True

    def _annotate(self, record: TaskRecord, annotations: dict[str, str]) -> None:
        pairs = zip(record.pods, record.binds, strict=True)
        since = record.started or 0
        self.store.apply(Put(running_pod(pod, bind, since, more=annotations)) for pod, bind in pairs)

    # What it costs

    def on_stopped(self, job: TaskRecord, at: int, why: str) -> None:
        self._charge(job, at)
        super().on_stopped(job, at, why)

    def on_ended(self, job: TaskRecord, at: int) -> None:
        self._charge(job, at)
        super().on_ended(job, at)

    def charge_running(self) -> None:
        """At the horizon."""
        for record in self.running.values():
            self._charge(record, self._settings.horizon)

    def _charge(self, record: TaskRecord, at: int) -> None:
        if record.started is None:
            return
        horizon = self._settings.horizon
        held = max(0, min(at, horizon) - min(record.started, horizon))
        for bind in record.binds:
            self.gpu_seconds[bind.node] = self.gpu_seconds.get(bind.node, 0.0) + held * len(bind.devices)
