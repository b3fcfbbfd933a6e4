"""A virtual cluster whose work is nothing but pods: the jobs of a trace, the tasks of a claim.

Subclasses (`simulate.trace_run`, `bench.claims.task_cluster`) are scripts of `simulate.driver` at the same time: they
submit jobs, take ends from the timeline, and keep the account. A job starts when its pods are bound; whoever is
evicted goes at once, whole, loses what it has done and waits again.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Generic, Protocol, TypeVar

import msgspec

from windlass.cluster.delta import Assume, Deleted, Put
from windlass.cluster.snapshot import Snapshot
from windlass.cluster.store import Store
from windlass.model.decision import Admit, Bind, Evict, Hold, Reserve
from windlass.model.pod import Pod
from windlass.simulate.clock import VIRTUAL_EPOCH
from windlass.simulate.timeline import Timeline

EVICTED = "evicted"
ENDS_FIRST = 0
"""Order of ends on the timeline: what fails at the same moment has already ended. Other events have (1, …) and on."""


class JobState(Protocol):
    """What the cluster keeps of a job; whatever else there is belongs to the account."""

    number: int
    """No two jobs of a cluster have the same."""
    unbound_pods: int
    """Pods that are not bound."""
    starts: int

    @property
    def pods(self) -> Sequence[Pod]:
        """As they are handed in."""
        ...


Job = TypeVar("Job", bound=JobState)


class JobEnd(msgspec.Struct, Generic[Job], frozen=True, gc=False):
    """The job is done, unless the start that this belongs to was cut short."""

    job: Job
    start: int


class JobCluster(ABC, Generic[Job]):
    def __init__(self, store: Store) -> None:
        self.store = store
        self.now = 0
        """Of the last decision."""
        self.timeline: Timeline[object] = Timeline()
        self.waiting: dict[int, Job] = {}
        """By number, as is `running`."""
        self.running: dict[int, Job] = {}
        self._of_pod: dict[str, Job] = {}
        """Pod that waits → its job."""
        self._has_evicted = False

    # The account

    @abstractmethod
    def on_started(self, job: Job) -> int | None:
        """All its pods are bound; returns when it will be done, if ever."""

    @abstractmethod
    def on_stopped(self, job: Job, at: int, why: str) -> None:
        """It has lost its place, and will wait again."""

    @abstractmethod
    def on_ended(self, job: Job, at: int) -> None:
        """Its work is done."""

    # What happens

    def submit(self, jobs: Iterable[Job]) -> None:
        puts = []
        for job in jobs:
            pods = job.pods
            job.unbound_pods = len(pods)
            self.waiting[job.number] = job
            for pod in pods:
                self._of_pod[pod.key] = job
                puts.append(Put(pod))
        self.store.apply(puts)

    def drop_waiting(self) -> None:
        """What found no place goes for good."""
        self.store.apply(Deleted("Pod", key) for key in self._of_pod)
        self._of_pod.clear()
        self.waiting.clear()

    def end(self, ending: JobEnd[Job], at: int) -> bool:
        """Whether it has ended: a start that was cut short has no end."""
        job = ending.job
        if ending.start != job.starts or job.number not in self.running:
            return False
        self._leave(job)
        self.on_ended(job, at)
        return True

    def stop_and_resubmit(self, job: Job, at: int, why: str) -> None:
        """Its pods go, and come back to wait."""
        self._leave(job)
        self.on_stopped(job, at, why)
        self.submit([job])

    def _leave(self, job: Job) -> None:
        del self.running[job.number]
        self.store.apply(Deleted("Pod", pod.key) for pod in job.pods)

    # As the driver sees it

    def snapshot(self, now: int) -> Snapshot:
        self.now = now
        return self.store.snapshot(VIRTUAL_EPOCH + now)

    def on_decided(self, snapshot: Snapshot) -> None:
        self.store.mark_decided(snapshot.pods.pending())

    def finish_cycle(self) -> bool:
        return not (self._has_evicted and self.waiting)

    def evict(self, evicts: Sequence[Evict]) -> None:
        self._has_evicted = bool(evicts)
        if not evicts:
            return
        running = {pod.key: job for job in self.running.values() for pod in job.pods}
        victims = [running[key] for evict in evicts for key in evict.pods]
        for job in {job.number: job for job in victims}.values():
            self.stop_and_resubmit(job, self.now, EVICTED)

    def is_terminating(self, key: str) -> bool:
        return False  # whoever is evicted is gone at once

    def start(self, admits: Sequence[Admit], binds: Sequence[Bind]) -> None:
        """An admission changes nothing here: the pods of what is admitted exist, and are bound."""
        self.store.apply(Assume(bind.pod, bind.node, bind.devices) for bind in binds)
        for bind in binds:
            job = self._of_pod.pop(bind.pod)
            job.unbound_pods -= 1
            if not job.unbound_pods:
                self._start(job)

    def _start(self, job: Job) -> None:
        self.running[job.number] = self.waiting.pop(job.number)
        job.starts += 1
        end = self.on_started(job)
        if end is not None:
            self.timeline.push(end, JobEnd(job, job.starts), (ENDS_FIRST, job.number))

    def nominate(self, binds: Sequence[Bind]) -> None:
        assert not binds, "nobody is on its way out"

    def reserve(self, reserves: Sequence[Reserve]) -> None:
        """Room is kept by the next decision as by this one: it finds the same work waiting."""

    def hold(self, holds: Sequence[Hold]) -> None:
        """What waits is tried again at the next moment."""
