"""Kueue's performance configurations as decision work on a virtual clock.

Feeds `engine.tasks`. Workloads are made, run and end at the published times; whenever something happened the
engine decides, at no cost in virtual time. Each workload is the pods that Kueue's `pod` integration would see, so every
one of them is also placed on a node. What is counted is the processor time of store, snapshot and `decide`.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from heapq import heappop, heappush

import msgspec

from windlass.cluster.delta import Assume, Deleted, Delta, Put
from windlass.cluster.store import Store
from windlass.engine import EngineCache, EngineConfig, decide
from windlass.model.names.kubernetes import HOSTNAME_LABEL
from windlass.model.names.kueue import (
    KUEUE_POD_GROUP_NAME,
    POD_GROUP_TOTAL_COUNT_ANNOTATION,
    PREFERRED_TOPOLOGY_ANNOTATION,
    QUEUE_NAME_LABEL,
    REQUIRED_TOPOLOGY_ANNOTATION,
    SLICE_REQUIRED_TOPOLOGY_ANNOTATION,
    SLICE_SIZE_ANNOTATION,
)
from windlass.model.pod import Pod
from windlass_bench.engine import synthetic_objects as synthetic

EPOCH = 1_767_225_600
"""2026-01-01, in seconds."""
PREEMPTION_POLICY = {"withinClusterQueue": "LowerPriority", "reclaimWithinCohort": "Any"}


class WorkloadSet(msgspec.Struct, frozen=True):
    """Workloads of one queue that are alike."""

    name: str
    count: int
    every_ms: int
    runs_ms: int
    priority: int
    cpu: str
    """Of each pod."""
    pods: int = 1
    required: int = 0
    """How many of `count` require one rack; the next `preferred` prefer one; the rest come in slices."""
    preferred: int = 0
    slice_size: int = 0


BASELINE = (
    WorkloadSet("small", 350, 100, 200, 50, "1"),
    WorkloadSet("medium", 100, 500, 500, 100, "5"),
    WorkloadSet("large", 50, 1200, 1000, 200, "20"),
)
LARGE_SCALE = (
    WorkloadSet("small", 35, 60, 150, 50, "1"),
    WorkloadSet("medium", 11, 300, 350, 100, "5"),
    WorkloadSet("large", 4, 700, 700, 200, "20"),
)
TOPOLOGY = (
    WorkloadSet("small", 350, 100, 200, 50, "500m", 2, 120, 120, 1),
    WorkloadSet("medium", 100, 500, 500, 100, "1250m", 4, 34, 33, 2),
    WorkloadSet("large", 50, 1200, 1000, 200, "2500m", 8, 17, 17, 4),
)


class PerformanceConfiguration(msgspec.Struct, frozen=True):
    cohorts: int
    queues_a_cohort: int
    sets: tuple[WorkloadSet, ...]
    racks: int
    hosts_a_rack: int
    topology: bool = False

    @property
    def queues(self) -> int:
        return self.cohorts * self.queues_a_cohort

    @property
    def nodes(self) -> int:
        return self.racks * self.hosts_a_rack


class PerformanceResult(msgspec.Struct):
    """What came of it."""

    workloads: int = 0
    decisions: int = 0
    cpu_s: float = 0.0
    makespan_ms: int = 0
    evictions: int = 0
    cpu_ms_used: int = 0
    """milli-CPU times milliseconds of finished work, for the mean use of quota."""
    slowest_s: float = 0.0
    """Of the single decisions."""
    waited_ms: dict[str, list[int]] = msgspec.field(default_factory=dict)
    """Set → of each admission, the time since the workload came."""


class _Work:
    """One workload on its way."""

    __slots__ = ("kind", "number", "pods", "run", "since")

    def __init__(self, number: int, kind: WorkloadSet, pods: list[Pod]) -> None:
        self.number, self.kind, self.pods = number, kind, pods
        self.since = 0
        self.run = 0
        """How often it was started; an end that belongs to an earlier start is void."""


def run_configuration(configuration: PerformanceConfiguration) -> PerformanceResult:
    return _Run(configuration).play()


class _Run:
    def __init__(self, configuration: PerformanceConfiguration) -> None:
        self._configuration = configuration
        self._events: list[tuple[int, int, int, int, _Work]] = []
        """Time, 0 for an end and 1 for an arrival, the work's number and run, the work."""
        self._by_pod: dict[str, _Work] = {}
        self._played = PerformanceResult()
        self._store, self._memo = Store(), EngineCache()
        self._store.apply(map(Put, _cluster(configuration)))
        self._arrivals()

    def _arrivals(self) -> None:
        number = 0
        for queue in range(self._configuration.queues):
            for kind in self._configuration.sets:
                templates = {mode: _template(f"q{queue:04}", kind, mode) for mode in _modes(kind)}
                for i in range(kind.count):
                    name = f"q{queue:04}-{kind.name}-{i:04}"
                    mode = _mode(kind, i)
                    number += 1
                    work = _Work(number, kind, _pods(name, templates[mode], kind.pods))
                    heappush(self._events, (i * kind.every_ms, 1, number, 0, work))
        self._played.workloads = number

    def play(self) -> PerformanceResult:
        while self._events:
            now = self._events[0][0]
            deltas: list[Delta] = []
            while self._events and self._events[0][0] == now:
                _, is_arrival, _, run, work = heappop(self._events)
                if is_arrival:
                    work.since = now
                    deltas += map(Put, work.pods)
                    self._by_pod.update((pod.key, work) for pod in work.pods)
                elif run == work.run:
                    deltas += [Deleted("Pod", pod.key) for pod in work.pods]
                    self._played.cpu_ms_used += work.kind.runs_ms * work.kind.pods * _milli(work.kind.cpu)
            self._decide(now, deltas)
            self._played.makespan_ms = now
        return self._played

    def _decide(self, now: int, deltas: Sequence[Delta]) -> None:
        """Until nothing changes: what was evicted makes room at once."""
        while True:
            seconds = EPOCH + now // 1000
            started = time.process_time()
            self._store.apply(deltas)
            plan = decide(self._store.snapshot(seconds), EngineConfig(), seconds, self._memo)
            took = time.process_time() - started
            self._played.cpu_s += took
            self._played.decisions += 1
            self._played.slowest_s = max(self._played.slowest_s, took)
            deltas = [Assume(bind.pod, bind.node, bind.devices) for bind in plan.binds if not bind.after]
            for work in dict.fromkeys(self._by_pod[delta.pod] for delta in deltas if isinstance(delta, Assume)):
                work.run += 1
                self._played.waited_ms.setdefault(work.kind.name, []).append(now - work.since)
                heappush(self._events, (now + work.kind.runs_ms, 0, work.number, work.run, work))
            for evict in plan.evicts:
                work = self._by_pod[evict.pods[0]]
                work.run += 1
                work.since = now
                self._played.evictions += 1
                deltas += [Deleted("Pod", pod.key) for pod in work.pods]
                deltas += map(Put, work.pods)
            if not plan.evicts:
                self._store.apply(deltas)
                return


def _milli(cpu: str) -> int:
    return int(cpu[:-1]) if cpu.endswith("m") else 1000 * int(cpu)


def _cluster(configuration: PerformanceConfiguration) -> list[object]:
    nodes = synthetic.cpu_nodes(1, configuration.racks, configuration.hosts_a_rack)
    queues = [
        synthetic.cluster_queue(
            f"q{number:04}",
            {"cpu": "20"},
            borrowing="100",
            cohortName=f"cohort-{number % configuration.cohorts}",
            preemption=PREEMPTION_POLICY,
        )
        for number in range(configuration.queues)
    ]
    levels = (synthetic.BLOCK, synthetic.RACK, HOSTNAME_LABEL) if configuration.topology else ()
    return [*nodes, *synthetic.queue_objects(queues, topology=levels)]


def _mode(kind: WorkloadSet, number: int) -> str:
    if not kind.slice_size:
        return ""
    if number < kind.required:
        return "required"
    return "preferred" if number < kind.required + kind.preferred else "slices"


def _modes(kind: WorkloadSet) -> tuple[str, ...]:
    return ("required", "preferred", "slices") if kind.slice_size else ("",)


def _template(queue: str, kind: WorkloadSet, mode: str) -> Pod:
    annotations = {POD_GROUP_TOTAL_COUNT_ANNOTATION: str(kind.pods)} if kind.pods > 1 else {}
    if mode:
        annotations[REQUIRED_TOPOLOGY_ANNOTATION if mode == "required" else PREFERRED_TOPOLOGY_ANNOTATION] = (
            synthetic.RACK
        )
    if mode == "slices":
        annotations |= {
            SLICE_REQUIRED_TOPOLOGY_ANNOTATION: HOSTNAME_LABEL,
            SLICE_SIZE_ANNOTATION: str(kind.slice_size),
        }
    labels = {QUEUE_NAME_LABEL: queue}
    return synthetic.pod_template({"cpu": kind.cpu}, labels=labels, annotations=annotations, priority=kind.priority)


def _pods(name: str, template: Pod, count: int) -> list[Pod]:
    if count == 1:
        return [synthetic.make_pod(template, name)]
    labels = {**template.metadata.labels, KUEUE_POD_GROUP_NAME: name}
    return [synthetic.make_pod(template, f"{name}-{member}", labels=labels) for member in range(count)]
