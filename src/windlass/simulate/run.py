"""One run: a trace played through the production store and engine on a virtual clock.

    trace ─► arrivals and ends ─► store ─► snapshot ─► decide ─► plan ─┐
                 ▲                                                      │
                 └────────────── what was placed ends later ◄──────────┘

Called by `simulate.batch`; measured into a `RunResult`. Nothing here decides: it moves the clock, tells the store what
happened, and carries plans out. Traces without times are fed step by step, a step being one percent of the park's
GPUs in demand: nothing leaves, so the result doesn't depend on the steps, and every step is a sample of the curves.
"""

from __future__ import annotations

import heapq
import resource
import time
from collections.abc import Callable, Iterator

import msgspec

from windlass import jit
from windlass.cluster.delta import Assume, Gone, Put
from windlass.cluster.shape import ShapeBook
from windlass.cluster.store import Store
from windlass.cluster.workloads.build import TOTAL_COUNT
from windlass.cluster.workloads.units import KUEUE_GROUP
from windlass.engine import EngineConfig, Memo, decide
from windlass.model.configuration import Settings
from windlass.model.plan import Plan
from windlass.model.pod import Pod
from windlass.placement.mix import WorkloadMix, mix_of
from windlass.placement.policies import POLICIES, PlacementConfig
from windlass.planner import engine_config
from windlass.simulate.measures import Recorder
from windlass.simulate.placements import Explanation, Placement, PlacementWriter
from windlass.simulate.result import RunResult
from windlass.simulate.trace import Job, Trace

__all__ = ["MIXES", "POLICIES", "simulate"]

MIXES = ("declared", "seen")
OnProgress = Callable[[int, int], None]


def simulate(
    trace: Trace,
    policy: str,
    *,
    mix: str = "declared",
    seed: int = 0,
    placements: PlacementWriter | None = None,
    on_progress: OnProgress | None = None,
    explain: str = "",
    without: tuple[str, ...] = (),
    settings: Settings | None = None,
) -> RunResult:
    """Play the trace with a policy. Ctrl-C ends it early with what there is so far.

    `without` leaves terms of the `windlass` policy out, where the mix is declared. Of the settings, all but the policy
    and the seed count.
    """
    run = Run(trace, policy, mix, seed, placements, explain, without, settings)
    warm_up(trace, run.config)
    started = time.perf_counter()
    interrupted = False
    try:
        for done in run.steps():
            if on_progress is not None:
                on_progress(done, len(trace.jobs))
    except KeyboardInterrupt:
        interrupted = True
    seconds = time.perf_counter() - started
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return run.recorder.result(run.store.snapshot(), seconds, peak, interrupted, run.explanation)


def warm_up(trace: Trace, config: EngineConfig) -> None:
    """Load the compiled kernels: start-up, not part of the run."""
    jit.compiled()
    store = Store()
    store.apply(Put(node) for node in trace.nodes[:1])
    store.apply(Put(pod) for job in trace.jobs[:1] for pod in job.pods)
    decide(store.snapshot(), config, 0)


class Run:
    def __init__(
        self,
        trace: Trace,
        policy: str,
        mix: str,
        seed: int,
        placements: PlacementWriter | None,
        explain: str,
        without: tuple[str, ...] = (),
        settings: Settings | None = None,
    ) -> None:
        self.trace = trace
        declared = declared_mix(trace)
        told = msgspec.structs.replace(declared, without=without)
        self.config = msgspec.structs.replace(
            engine_config(settings or Settings()),
            placement=PlacementConfig(policy, seed),
            mix=told if mix == "declared" else None,
            explain=0 if explain else None,
        )
        ranks = {node.name: rank for node, rank in zip(trace.nodes, trace.ranks, strict=False)}
        self.store = Store(ranks)
        self.store.apply(Put(node) for node in trace.nodes)
        self.recorder = Recorder(trace, policy, mix, seed, declared, self.store.snapshot())
        self.explanation: Explanation | None = None
        self._memo = Memo()
        self._placements = placements
        self._explain = explain if not explain or "/" in explain else f"default/{explain}"
        self._running: list[tuple[int, int, Job]] = []
        self._waiting: dict[str, _Waiting] = {}
        """By pod."""
        self._jobs_waiting = 0

    def steps(self) -> Iterator[int]:
        """Play the whole trace; yields how many jobs have arrived after each step."""
        jobs, done = self.trace.jobs, 0
        timed = any(job.arrival or job.duration is not None for job in jobs)
        while done < len(jobs) or self._running:
            if timed:
                now = self._next_moment(done)
                end = done
                while end < len(jobs) and jobs[end].arrival <= now:
                    end += 1
            else:
                now, end = 0, self._next_step(done)
            self._step(now, jobs[done:end])
            done = end
            yield done

    def _next_step(self, done: int) -> int:
        """The next sample of a trace without times, or the next time that the engine learns, whichever is first."""
        step = self.recorder.next_step(done)
        if self.config.mix is not None:
            return step
        return min(step, max(done + 1, self.store.next_lesson))

    def _next_moment(self, done: int) -> int:
        arrival = self.trace.jobs[done].arrival if done < len(self.trace.jobs) else None
        ending = self._running[0][0] if self._running else None
        if arrival is None or (ending is not None and ending < arrival):
            assert ending is not None
            return ending
        return arrival

    def _step(self, now: int, arriving: tuple[Job, ...]) -> None:
        """One moment of the virtual clock: what ends, what comes, what is decided."""
        while self._running and self._running[0][0] <= now:
            _, number, job = heapq.heappop(self._running)
            self.store.apply(Gone("Pod", pod.key) for pod in job.pods)
            self.recorder.ended(number, now)
        self.store.apply([Put(pod) for job in arriving for pod in self._arrive(job, now)])
        if self._waiting:
            self._decide(now)
        self.recorder.sample(now, self.store, self._jobs_waiting)

    def _arrive(self, job: Job, now: int) -> tuple[Pod, ...]:
        waiting = _Waiting(job, self.recorder.arrived(job, now), len(job.pods))
        self._jobs_waiting += 1
        pods = gang_pods(job)
        for pod in pods:
            self._waiting[pod.key] = waiting
        return pods

    def _decide(self, now: int) -> None:
        snapshot = self.store.snapshot()
        plan = decide(snapshot, self.config, now, self._memo)
        self.store.learn(snapshot.pods.pending())
        self.store.apply(Assume(bind.pod, bind.node, bind.devices) for bind in plan.binds)
        for bind in plan.binds:
            self._start(bind.pod, now)
        self._tell(plan, now)
        if not self.trace.retry and self._waiting:
            self.store.apply(Gone("Pod", key) for key in self._waiting)
            self._waiting.clear()
            self._jobs_waiting = 0

    def _tell(self, plan: Plan, now: int) -> None:
        """Hand on what `--placements` and `--explain` asked for."""
        if self._placements is not None:
            for bind in plan.binds:
                self._placements(Placement(bind.pod, bind.node, bind.devices, now))
        if not self._explain:
            return
        found = next((bind for bind in plan.binds if bind.pod == self._explain), None)
        if found is not None:
            placement = Placement(found.pod, found.node, found.devices, now)
            self.explanation = Explanation(found.pod, now, placement=placement)
        elif self._explain in self._waiting:
            namespace = self._explain.partition("/")[0]
            names = {self._explain, f"{namespace}/{self._waiting[self._explain].job.name}"}
            hold = next(hold for hold in plan.holds if hold.workload in names)  # a gang waits as one
            self.explanation = Explanation(self._explain, now, verdict=hold.verdict)

    def _start(self, key: str, now: int) -> None:
        waiting = self._waiting.pop(key)
        waiting.left -= 1
        if waiting.left:
            return
        self._jobs_waiting -= 1
        job = waiting.job
        self.recorder.started(job, waiting.number, now)
        if job.duration is not None:
            heapq.heappush(self._running, (now + job.duration, waiting.number, job))


class _Waiting(msgspec.Struct):
    """A job of which `left` pods have not been placed yet."""

    job: Job
    number: int
    left: int


def declared_mix(trace: Trace) -> WorkloadMix:
    """The trace's declared classes; all its pods where it declares none."""
    book = ShapeBook()
    if trace.declared:
        return mix_of((book.of(each.pod)[0], each.count) for each in trace.declared)
    return mix_of((book.of(pod)[0], 1) for job in trace.jobs for pod in job.pods)


def gang_pods(job: Job) -> tuple[Pod, ...]:
    """The job's pods, marked as a group where there are several."""
    if len(job.pods) == 1:
        return job.pods
    total = str(len(job.pods))
    return tuple(
        msgspec.structs.replace(
            pod,
            metadata=msgspec.structs.replace(
                pod.metadata,
                labels={**pod.metadata.labels, KUEUE_GROUP: job.name},
                annotations={**pod.metadata.annotations, TOTAL_COUNT: total},
            ),
        )
        for pod in job.pods
    )
