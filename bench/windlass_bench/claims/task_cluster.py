"""A cluster on the virtual clock, whose work is evicted and whose machines fail: what the claims are tried on.

Fed by the claims with tasks, nodes, queues and a config, and played by `simulate.driver`; feeds the claims records and,
at fixed intervals, a look at the cluster. Events are taken in at the ticks of a scheduling cycle, as a live loop would
see them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from windlass import jit
from windlass.cluster.delta import Deleted, Put
from windlass.cluster.snapshot import Snapshot
from windlass.cluster.store import Store
from windlass.engine import EngineConfig
from windlass.model.decision import Admit, Bind
from windlass.model.names.windlass import DEVICES_ANNOTATION, LAST_CHECKPOINT_ANNOTATION
from windlass.model.node import Node
from windlass.model.plan import Plan
from windlass.model.pod import Pod, PodStatus
from windlass.simulate.clock import virtual_timestamp
from windlass.simulate.driver import NotConverged, SimulationDriver
from windlass.simulate.job_cluster import ENDS_FIRST, JobCluster, JobEnd
from windlass_bench.claims.tasks import Task, TaskRecord, gpus_of_tasks

FAILED = "failed"
REPAIR, FAIL, SAMPLE = range(ENDS_FIRST + 1, ENDS_FIRST + 4)
"""Of the events of one moment, in this order after the ends."""


class Outage(msgspec.Struct, frozen=True):
    """Nodes that are gone for a while."""

    at: int
    until: int
    nodes: tuple[str, ...]


class TaskClusterSettings(msgspec.Struct, frozen=True):
    config: EngineConfig
    nodes: tuple[Node, ...]
    objects: tuple[object, ...] = ()
    """Queues, flavors and topologies."""
    horizon: int = 0
    tick: int = 1
    """Seconds of a scheduling cycle."""
    outages: tuple[Outage, ...] = ()
    sample_every: int = 0
    """Seconds between two looks; 0: none."""
    evictable: str = ""
    """Tasks of this kind may be evicted: their checkpoints are told to the store."""


OnSample = Callable[[int, "TaskCluster"], None]


class ClusterEvent(msgspec.Struct, frozen=True):
    """On the timeline: nodes fail or come back, or somebody looks."""

    kind: int
    outage: Outage | None = None


class TaskCluster(JobCluster[TaskRecord]):
    """The tasks and outages as a script, and the cluster that they are played on."""

    def __init__(self, settings: TaskClusterSettings, tasks: Iterable[Task], on_sample: OnSample | None = None) -> None:
        jit.compiled()  # a park this small would be decided by interpreted kernels, thousands of times
        super().__init__(Store())
        self._settings, self._on_look = settings, on_sample
        ordered = tuple(sorted(tasks, key=lambda task: (task.arrival, task.name)))
        gpus = gpus_of_tasks(ordered)
        self.records = [TaskRecord(task, gpus[number], number) for number, task in enumerate(ordered)]
        for record in self.records:
            record.pods = _waiting_pods(record)
        self.store.apply([*map(Put, settings.nodes), *map(Put, settings.objects)])
        self._driver = SimulationDriver(self, settings.config)
        self._node = {node.name: node for node in settings.nodes}
        self._binds: dict[str, Bind] = {}
        """Pod → where it goes, of the plan that is being carried out."""
        self._arrived = 0
        self._looks = False
        self._written_checkpoints: dict[int, int] = {}
        """Task → the checkpoint that the store knows of."""
        for outage in settings.outages:
            self._plan_event(outage.at, FAIL, outage)
            self._plan_event(outage.until, REPAIR, outage)
        for at in range(0, settings.horizon + 1, settings.sample_every) if settings.sample_every else ():
            self._plan_event(at, SAMPLE)

    def _plan_event(self, at: int, kind: int, outage: Outage | None = None) -> None:
        self.timeline.push(at, ClusterEvent(kind, outage), (kind, 0))

    @property
    def decisions(self) -> int:
        return self._driver.decisions

    def run(self) -> list[TaskRecord]:
        """Play until the horizon; returns the records with their accounts closed."""
        for _ in self._driver.play(self):
            pass
        for record in self.records[: self._arrived]:
            record.close(self._settings.horizon)
        return self.records[: self._arrived]

    # The script

    def next_event_time(self) -> int | None:
        """The next tick at which something has happened."""
        moments = [] if self.timeline.next_at is None else [self.timeline.next_at]
        if self._arrived < len(self.records):
            moments.append(self.records[self._arrived].task.arrival)
        if not moments:
            return None
        tick = -(-min(moments) // self._settings.tick) * self._settings.tick
        return tick if tick <= self._settings.horizon else None

    def apply_events(self, now: int) -> bool:
        changed = self._take_events(now)
        begin = self._arrived
        while self._arrived < len(self.records) and self.records[self._arrived].task.arrival <= now:
            self._arrived += 1
        self.submit(self.records[begin : self._arrived])
        return bool(self.waiting) and (changed or begin < self._arrived)

    def observe(self, now: int) -> None:
        if self._looks and self._on_look is not None:
            self._on_look(now, self)
        self._looks = False

    def on_not_converged(self, now: int, plan: Plan) -> None:
        raise NotConverged(now, plan)

    def _take_events(self, until: int) -> bool:
        """Whether the cluster is any different afterwards."""
        changed = False
        for at, event in self.timeline.pop_due(until):
            if isinstance(event, JobEnd):
                changed |= self.end(event, at)
                continue
            changed |= self.take_event(event, at)
        return changed

    def take_event(self, event: object, at: int) -> bool:
        """Whether the cluster is any different afterwards."""
        assert isinstance(event, ClusterEvent)
        if event.outage is None:
            self._looks = True
            return False
        self._fail(event.outage, at) if event.kind == FAIL else self._repair(event.outage)
        return True

    def _fail(self, outage: Outage, at: int) -> None:
        lost = set(outage.nodes)
        hit = [run for run in self.running.values() if any(bind.node in lost for bind in run.binds)]
        for record in hit:
            self.stop_and_resubmit(record, at, FAILED)
        self.store.apply(Deleted("Node", name) for name in outage.nodes)

    def _repair(self, outage: Outage) -> None:
        self.store.apply(Put(self._node[name]) for name in outage.nodes)

    # The account

    def start(self, admits: Sequence[Admit], binds: Sequence[Bind]) -> None:
        self._binds = {bind.pod: bind for bind in binds}
        super().start(admits, binds)

    def on_started(self, job: TaskRecord) -> int | None:
        placed = tuple(self._binds[pod.key] for pod in job.pods)
        if self._settings.objects:  # workloads are grouped from pods as the API server shows them
            pairs = zip(job.pods, placed, strict=True)
            self.store.apply(Put(running_pod(pod, bind, self.now)) for pod, bind in pairs)
        return job.start(self.now, placed)

    def on_stopped(self, job: TaskRecord, at: int, why: str) -> None:
        job.stop(at, why, self._settings.horizon)
        job.pods = _waiting_pods(job)
        self._written_checkpoints.pop(job.number, None)

    def on_ended(self, job: TaskRecord, at: int) -> None:
        job.end(at, self._settings.horizon)

    def snapshot(self, now: int) -> Snapshot:
        self._tell_checkpoints(now)
        return super().snapshot(now)

    def _tell_checkpoints(self, now: int) -> None:
        """Where somebody may need room: what the running tasks would have written on their pods by now."""
        kind = self._settings.evictable
        if not kind or all(record.task.kind == kind for record in self.waiting.values()):
            return
        for number, record in self.running.items():
            written = record.last_checkpoint(now) if record.task.kind == kind else None
            if written is None or self._written_checkpoints.get(number) == written:
                continue
            self._written_checkpoints[number] = written
            for pod, bind in zip(record.pods, record.binds, strict=True):
                self.store.apply([Put(running_pod(pod, bind, record.started or 0, written))])


def _waiting_pods(record: TaskRecord) -> tuple[Pod, ...]:
    """The task's pods as their controller makes them: every time others, as old as the task."""
    created = virtual_timestamp(record.task.arrival)
    return tuple(
        msgspec.structs.replace(
            pod,
            metadata=msgspec.structs.replace(
                pod.metadata, uid=f"{pod.metadata.name}-{len(record.stops)}", creation_timestamp=created
            ),
        )
        for pod in record.task.pods
    )


def running_pod(
    pod: Pod, bind: Bind, since: int, checkpoint: int | None = None, more: Mapping[str, str] | None = None
) -> Pod:
    """As the API server shows it; `more`: annotations."""
    annotations = {**pod.metadata.annotations, **(more or {})}
    if bind.devices:
        annotations[DEVICES_ANNOTATION] = ",".join(str(device.index) for device in bind.devices)
    if checkpoint is not None:
        annotations[LAST_CHECKPOINT_ANNOTATION] = virtual_timestamp(checkpoint)
    return msgspec.structs.replace(
        pod,
        metadata=msgspec.structs.replace(pod.metadata, annotations=annotations),
        spec=msgspec.structs.replace(pod.spec, node_name=bind.node),
        status=PodStatus(phase="Running", start_time=virtual_timestamp(since)),
    )
