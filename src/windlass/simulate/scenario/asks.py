"""Asks on the simulated objects: annotations, as `apply.asks` writes them on real ones.

`scenario.executor` calls it with the asks of each plan; the work answers when a moment of the scenario says so
(`answer`), or never.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from windlass.apply.asks import request_of
from windlass.model.decision import Ask, WithdrawAsk, ask_cause
from windlass.model.leaving import Answer, read_request, write
from windlass.model.names.windlass import ASK_ANNOTATION, ASK_ANSWER_ANNOTATION
from windlass.model.times import format_timestamp
from windlass.model.workload import Workload
from windlass.simulate.clock import virtual_timestamp
from windlass.simulate.scenario.object_changes import merge_patch
from windlass.simulate.scenario.outcome import Event
from windlass.simulate.scenario.simulated_cluster import SimulatedCluster

PODS_ONLY = ("Pod", "PodGroup")
PER_RUN = (ASK_ANNOTATION, ASK_ANSWER_ANNOTATION)
"""Annotations of one run: pods that are created again don't have them."""


class SimulatedAsks:
    def __init__(self, cluster: SimulatedCluster) -> None:
        self._cluster = cluster

    def write(self, asks: Sequence[Ask], workloads: Mapping[str, Workload], now: int) -> Iterator[Event]:
        for ask in asks:
            text = write(request_of(ask))
            missing = [key for key in ask.pods if self._annotation(key) != text]
            if missing:
                changes = {ASK_ANNOTATION: text, ASK_ANSWER_ANNOTATION: None}
                self._annotate(missing, workloads.get(ask.workload), changes)
                until = format_timestamp(ask.until)
                yield Event(now, "ask", ask.workload, f"for a checkpoint until {until}, {ask_cause(ask)}")

    def withdraw(
        self, withdrawals: Sequence[WithdrawAsk], workloads: Mapping[str, Workload], now: int
    ) -> Iterator[Event]:
        for withdrawal in withdrawals:
            changes = dict.fromkeys(PER_RUN)
            self._annotate(withdrawal.pods, workloads.get(withdrawal.workload), changes)
            if not withdrawal.has_left:
                yield Event(now, "withdraw", withdrawal.workload, "the ask: it goes on running")

    def answer(self, workload: Workload, now: int) -> Event:
        """The first pod answers for all of them, with a checkpoint of this moment."""
        keys = [key for pod_set in workload.pod_sets for key in pod_set.pod_keys]
        request = read_request(self._cluster.decoded("Pod", key).metadata for key in keys)
        answer = Answer(request.id if request is not None else "", virtual_timestamp(now))
        self._annotate(keys[:1], None, {ASK_ANSWER_ANNOTATION: write(answer)})
        return Event(now, "answer", workload.key, f"with a checkpoint of {answer.checkpoint}")

    def is_asked(self, workload: Workload) -> bool:
        return any(self._annotation(key) for pod_set in workload.pod_sets for key in pod_set.pod_keys)

    def _annotation(self, pod: str) -> str:
        found: str = self._cluster.get("Pod", pod)["metadata"].get("annotations", {}).get(ASK_ANNOTATION, "")
        return found

    def _annotate(self, pods: Iterable[str], workload: Workload | None, changes: Mapping[str, str | None]) -> None:
        targets = [("Pod", key) for key in pods]
        if workload is not None and workload.kind not in PODS_ONLY:
            targets.append((workload.kind, workload.key))
        for kind, key in targets:
            obj = self._cluster.find(kind, key)
            if obj is not None:
                self._cluster.update(merge_patch(obj, {"metadata": {"annotations": dict(changes)}}))
