"""A cluster on the virtual clock, whose work is evicted and whose machines fail: the claims' driver.

    arrivals, ends, failures ─► store ─► snapshot ─► decide ─► plan ─┐
            ▲                                                        │
            └───────────────── started, stopped, sent back ◄─────────┘

Fed by the claims with tasks, nodes, queues and a config; feeds them records and, at fixed intervals, a look at the
cluster. Nothing here decides. Events are taken in at the ticks of a scheduling cycle, as a live loop would see them.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable

import msgspec

from windlass import jit
from windlass.bench.claims.tasks import Record, Task, gpus_of_tasks
from windlass.cluster.delta import Assume, Gone, Put
from windlass.cluster.snapshot import Snapshot
from windlass.cluster.store import WISHED_DEVICES, Store
from windlass.engine import EngineConfig, Memo, decide
from windlass.model.decision import Bind
from windlass.model.node import Node
from windlass.model.plan import Plan
from windlass.model.pod import Pod, PodStatus
from windlass.model.times import timestamp_of

START = 1_767_225_600
"""2026-01-01T00:00:00Z: the instant of second 0."""
LAST_CHECKPOINT = "windlass.dev/last-checkpoint"
MOST_ROUNDS = 20
"""Rounds of decide and carry-out at one tick; a system that comes to rest needs a few."""
EVICTED, FAILED = "evicted", "failed"
END, REPAIR, FAIL, LOOK = range(4)
"""Kinds of events. Of those at one moment ends come first, so that what fails then has already ended."""


class Outage(msgspec.Struct, frozen=True):
    """Nodes that are gone for a while."""

    at: int
    until: int
    nodes: tuple[str, ...]


class Settings(msgspec.Struct, frozen=True):
    config: EngineConfig
    nodes: tuple[Node, ...]
    objects: tuple[object, ...] = ()
    """Queues, flavors and topologies."""
    horizon: int = 0
    tick: int = 1
    """Seconds of a scheduling cycle."""
    outages: tuple[Outage, ...] = ()
    look_every: int = 0
    """Seconds between two looks; 0: none."""
    evictable: str = ""
    """Tasks of this kind may be evicted: their checkpoints are told to the store."""


OnLook = Callable[[int, "Stage"], None]


class Ending(msgspec.Struct, frozen=True):
    """A run that began then is over, unless it was cut short."""

    record: Record
    started: int


Event = Ending | Outage | None


class Stage:
    def __init__(self, settings: Settings, tasks: Iterable[Task], on_look: OnLook | None = None) -> None:
        jit.compiled()  # a park this small would be decided by interpreted kernels, thousands of times
        self._settings, self._on_look = settings, on_look
        ordered = tuple(sorted(tasks, key=lambda task: (task.arrival, task.name)))
        self.records = [
            Record(task, gpus) for task, gpus in zip(ordered, gpus_of_tasks(ordered), strict=True)
        ]
        self.waiting: dict[str, Record] = {}
        """Task name → its record; likewise `running`."""
        self.running: dict[str, Record] = {}
        self.decisions = 0
        self._store, self._memo = Store(), Memo()
        self._store.apply([*map(Put, settings.nodes), *map(Put, settings.objects)])
        self._record_of = {pod.key: record for record in self.records for pod in record.task.pods}
        self._node = {node.name: node for node in settings.nodes}
        self._told: dict[str, int] = {}
        """Task name → the checkpoint that the store knows of."""
        self._events: list[tuple[int, int, int, Event]] = []
        self._pushed = 0
        for outage in settings.outages:
            self._push(outage.at, FAIL, outage)
            self._push(outage.until, REPAIR, outage)
        for at in range(0, settings.horizon + 1, settings.look_every) if settings.look_every else ():
            self._push(at, LOOK, None)

    def run(self) -> list[Record]:
        """Play until the horizon; returns the records with their accounts closed."""
        arriving, horizon = 0, self._settings.horizon
        while (tick := self._next_tick(arriving)) is not None and tick <= horizon:
            looks, changed = self._take_events(tick)
            begin = arriving
            while arriving < len(self.records) and self.records[arriving].task.arrival <= tick:
                arriving += 1
            self._arrive(self.records[begin:arriving])
            if self.waiting and (changed or begin < arriving):
                self._settle(tick)
            if looks and self._on_look is not None:
                self._on_look(tick, self)
        for record in self.records[:arriving]:
            record.close(horizon)
        return self.records[:arriving]

    def snapshot(self, now: int) -> Snapshot:
        return self._store.snapshot(START + now)

    # The clock

    def _push(self, at: int, kind: int, event: Event) -> None:
        self._pushed += 1  # events of one kind and moment come in the order in which they were made
        heapq.heappush(self._events, (at, kind, self._pushed, event))

    def _next_tick(self, arriving: int) -> int | None:
        moments = [self._events[0][0]] if self._events else []
        if arriving < len(self.records):
            moments.append(self.records[arriving].task.arrival)
        return -(-min(moments) // self._settings.tick) * self._settings.tick if moments else None

    def _take_events(self, until: int) -> tuple[bool, bool]:
        """Whether a look is due, and whether the cluster is any different."""
        looks = changed = False
        while self._events and self._events[0][0] <= until:
            at, kind, _, event = heapq.heappop(self._events)
            if isinstance(event, Ending):
                if event.record.started == event.started:
                    self._end(event.record, at)
                    changed = True
            elif isinstance(event, Outage):
                self._fail(event, at) if kind == FAIL else self._repair(event)
                changed = True
            else:
                looks = True
        return looks, changed

    # What happens

    def _arrive(self, records: Iterable[Record]) -> None:
        for record in records:
            self.waiting[record.task.name] = record
            self._store.apply(Put(_waiting_pod(pod, record)) for pod in record.task.pods)

    def _end(self, record: Record, now: int) -> None:
        record.end(now, self._settings.horizon)
        del self.running[record.task.name]
        self._store.apply(Gone("Pod", pod.key) for pod in record.task.pods)

    def _stop(self, record: Record, now: int, why: str) -> None:
        """Its pods go, and come back to wait."""
        record.stop(now, why, self._settings.horizon)
        del self.running[record.task.name]
        self._told.pop(record.task.name, None)
        self._store.apply(Gone("Pod", pod.key) for pod in record.task.pods)
        self._arrive([record])

    def _fail(self, outage: Outage, now: int) -> None:
        lost = set(outage.nodes)
        hit = [one for one in self.running.values() if any(bind.node in lost for bind in one.binds)]
        for record in hit:
            self._stop(record, now, FAILED)
        self._store.apply(Gone("Node", name) for name in outage.nodes)

    def _repair(self, outage: Outage) -> None:
        self._store.apply(Put(self._node[name]) for name in outage.nodes)

    # Deciding, and carrying it out

    def _settle(self, now: int) -> None:
        """Decide and carry out until nothing changes any more."""
        for _ in range(MOST_ROUNDS):
            self._tell_checkpoints(now)
            snapshot = self.snapshot(now)
            plan = decide(snapshot, self._settings.config, START + now, self._memo)
            self._store.learn(snapshot.pods.pending())
            self.decisions += 1
            self._carry(plan, now)
            if not plan.evicts or not self.waiting:
                return
        raise AssertionError(f"no rest after {MOST_ROUNDS} rounds at second {now}")

    def _carry(self, plan: Plan, now: int) -> None:
        for record in {id(one): one for one in map(self._record_of.__getitem__, _evicted(plan))}.values():
            self._stop(record, now, EVICTED)
        by_task: dict[str, list[Bind]] = {}
        for bind in plan.binds:
            by_task.setdefault(self._record_of[bind.pod].task.name, []).append(bind)
        for name, binds in by_task.items():
            self._start(self.waiting.pop(name), binds, now)

    def _start(self, record: Record, binds: Iterable[Bind], now: int) -> None:
        by_pod = {bind.pod: bind for bind in binds}
        placed = tuple(by_pod[pod.key] for pod in record.task.pods)
        end = record.start(now, placed)
        self.running[record.task.name] = record
        if end is not None:
            self._push(end, END, Ending(record, now))
        self._store.apply(Assume(bind.pod, bind.node, bind.devices) for bind in placed)
        if self._settings.objects:  # workloads are grouped from pods as the API server shows them
            pairs = zip(record.task.pods, placed, strict=True)
            self._store.apply(Put(_running_pod(pod, record, bind, now)) for pod, bind in pairs)

    def _tell_checkpoints(self, now: int) -> None:
        """Where somebody may need room: what the running tasks would have written on their pods by now."""
        kind = self._settings.evictable
        if not kind or all(record.task.kind == kind for record in self.waiting.values()):
            return
        for name, record in self.running.items():
            written = record.last_checkpoint(now) if record.task.kind == kind else None
            if written is None or self._told.get(name) == written:
                continue
            self._told[name] = written
            for pod, bind in zip(record.task.pods, record.binds, strict=True):
                self._store.apply([Put(_running_pod(pod, record, bind, record.started or 0, written))])


def _evicted(plan: Plan) -> list[str]:
    return [pod for evict in plan.evicts for pod in evict.pods]


def _waiting_pod(pod: Pod, record: Record) -> Pod:
    created = timestamp_of(START + record.task.arrival)
    metadata = msgspec.structs.replace(
        pod.metadata, uid=f"{pod.metadata.name}-{len(record.stops)}", creation_timestamp=created
    )
    return msgspec.structs.replace(pod, metadata=metadata)


def _running_pod(pod: Pod, record: Record, bind: Bind, since: int, checkpoint: int | None = None) -> Pod:
    made = _waiting_pod(pod, record)
    annotations = {**pod.metadata.annotations}
    if bind.devices:
        annotations[WISHED_DEVICES] = ",".join(str(one.index) for one in bind.devices)
    if checkpoint is not None:
        annotations[LAST_CHECKPOINT] = timestamp_of(START + checkpoint)
    return msgspec.structs.replace(
        made,
        metadata=msgspec.structs.replace(made.metadata, annotations=annotations),
        spec=msgspec.structs.replace(pod.spec, node_name=bind.node),
        status=PodStatus(phase="Running", start_time=timestamp_of(START + since)),
    )
