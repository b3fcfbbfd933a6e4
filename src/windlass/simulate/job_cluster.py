"""A virtual cluster for jobs that are only pods: the jobs of a trace, the tasks of a claim.

Its subclasses (`simulate.trace_run`, `bench.claims.task_cluster`) are also the scripts of `simulate.driver`: they
submit jobs, take ends from the timeline, and measure. A job starts when all of its pods are bound. An evicted job stops
at once and as a whole, loses its progress and is pending again.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Generic, Protocol, TypeVar

import msgspec

from windlass.cluster.delta import Assume, Deleted, Put
from windlass.cluster.snapshot import Snapshot
from windlass.cluster.store import Store
from windlass.model.decision import Admit, Ask, Bind, Evict, Hold, Reserve, Resize, WithdrawAsk
from windlass.model.pod import Pod
from windlass.simulate.clock import VIRTUAL_EPOCH
from windlass.simulate.timeline import Timeline

EVICTED = "evicted"
ENDS_FIRST = 0
"""Order of ends on the timeline, before failures at the same moment; other events have (1, …) and higher."""


class JobState(Protocol):
    """What the cluster needs of a job; subclasses add what they measure."""

    number: int
    """Unique in a cluster."""
    unbound_pods: int
    starts: int
    """How often the job has started; an end belongs to one start."""

    @property
    def pods(self) -> Sequence[Pod]: ...


Job = TypeVar("Job", bound=JobState)


class JobEnd(msgspec.Struct, Generic[Job], frozen=True, gc=False):
    """On the timeline: the job ends, unless it was stopped since this start."""

    job: Job
    start: int


class JobCluster(ABC, Generic[Job]):
    def __init__(self, store: Store) -> None:
        self.store = store
        self.now = 0
        """Time of the last decision."""
        self.timeline: Timeline[object] = Timeline()
        self.waiting: dict[int, Job] = {}
        """By number, as is `running`."""
        self.running: dict[int, Job] = {}
        self._job_of_pending_pod: dict[str, Job] = {}
        self._has_evicted = False

    # Measured by subclasses

    @abstractmethod
    def on_started(self, job: Job) -> int | None:
        """All pods of the job are bound; returns the time of its end, or None if it never ends."""

    @abstractmethod
    def on_stopped(self, job: Job, at: int, why: str) -> None:
        """The job was evicted or its node has failed; it is pending again."""

    @abstractmethod
    def on_ended(self, job: Job, at: int) -> None:
        """The job has completed."""

    # Events

    def submit(self, jobs: Iterable[Job]) -> None:
        puts = []
        for job in jobs:
            pods = job.pods
            job.unbound_pods = len(pods)
            self.waiting[job.number] = job
            for pod in pods:
                self._job_of_pending_pod[pod.key] = job
                puts.append(Put(pod))
        self.store.apply(puts)

    def drop_waiting(self) -> None:
        """Deletes the jobs that wait, for traces without retry."""
        self.store.apply(Deleted("Pod", key) for key in self._job_of_pending_pod)
        self._job_of_pending_pod.clear()
        self.waiting.clear()

    def end(self, job_end: JobEnd[Job], at: int) -> bool:
        """Ends the job; false if it was stopped since the start that this end belongs to."""
        job = job_end.job
        if job_end.start != job.starts or job.number not in self.running:
            return False
        self._remove_running(job)
        self.on_ended(job, at)
        return True

    def stop_and_resubmit(self, job: Job, at: int, why: str) -> None:
        """Deletes the job's pods and submits them again as pending."""
        self._remove_running(job)
        self.on_stopped(job, at, why)
        self.submit([job])

    def _remove_running(self, job: Job) -> None:
        del self.running[job.number]
        self.store.apply(Deleted("Pod", pod.key) for pod in job.pods)

    # Called by the driver

    def snapshot(self, now: int) -> Snapshot:
        self.now = now
        return self.store.snapshot(VIRTUAL_EPOCH + now)

    def on_decided(self, snapshot: Snapshot) -> None:
        self.store.mark_decided(snapshot.pods.pending())

    def finish_cycle(self) -> bool:
        return not (self._has_evicted and self.waiting)

    def ask(self, asks: Sequence[Ask], withdrawals: Sequence[WithdrawAsk]) -> None:
        raise AssertionError("jobs of a trace don't ask to be asked")

    def evict(self, evicts: Sequence[Evict]) -> None:
        self._has_evicted = bool(evicts)
        if not evicts:
            return
        running = {pod.key: job for job in self.running.values() for pod in job.pods}
        victims = [running[key] for evict in evicts for key in evict.pods]
        for job in {job.number: job for job in victims}.values():
            self.stop_and_resubmit(job, self.now, EVICTED)

    def is_terminating(self, key: str) -> bool:
        return False  # evicted jobs stop at once

    def resize(self, resizes: Sequence[Resize]) -> None:
        assert not resizes, "jobs keep their size"

    def start(self, admits: Sequence[Admit], binds: Sequence[Bind]) -> None:
        """Admissions change nothing: the pods exist already, and the plan binds them."""
        self.store.apply(Assume(bind.pod, bind.node, bind.devices) for bind in binds)
        for bind in binds:
            job = self._job_of_pending_pod.pop(bind.pod)
            job.unbound_pods -= 1
            if not job.unbound_pods:
                self._start(job)

    def _start(self, job: Job) -> None:
        self.running[job.number] = self.waiting.pop(job.number)
        job.starts += 1
        end = self.on_started(job)
        if end is not None:
            self.timeline.push(end, JobEnd(job, job.starts), (ENDS_FIRST, job.number))

    def nominate(self, admits: Sequence[Admit], binds: Sequence[Bind]) -> None:
        assert not [*admits, *binds], "no pod is ever terminating"

    def reserve(self, reserves: Sequence[Reserve]) -> None:
        """Nothing to keep: the next decision sees the same pending jobs and plans the same."""

    def hold(self, holds: Sequence[Hold]) -> None:
        """Jobs that wait are decided on again at the next moment."""
