"""One simulation run: a trace on the virtual clock, through the production store and engine.

`simulate.runner` calls `simulate_trace`, which returns a `RunResult`. The jobs of a trace without times arrive in
steps of one percent of the fleet's GPUs in demand: nothing ends, so the result doesn't depend on the steps, and each
step is a sample of the curves.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import msgspec

from windlass import jit
from windlass.cluster.delta import Put
from windlass.cluster.shape import ShapeRegistry
from windlass.cluster.store import Store
from windlass.engine import EngineConfig, decide
from windlass.model.configuration import Settings
from windlass.model.decision import Admit, Bind, Hold
from windlass.model.names.kueue import KUEUE_POD_GROUP_NAME, POD_GROUP_TOTAL_COUNT_ANNOTATION
from windlass.model.plan import Plan
from windlass.model.pod import Pod
from windlass.placement.policies import POLICIES, PlacementConfig
from windlass.placement.workload_mix import WorkloadMix, mix_of
from windlass.planner import engine_config
from windlass.simulate.driver import NotConverged, SimulationDriver
from windlass.simulate.job_cluster import JobCluster, JobEnd
from windlass.simulate.measures import RunRecorder
from windlass.simulate.placements import Explanation, Placement, PlacementWriter
from windlass.simulate.result import RunResult
from windlass.simulate.trace import Job, Trace

__all__ = ["MIXES", "POLICIES", "simulate_trace"]

MIXES = ("declared", "seen")
OnProgress = Callable[[int, int], None]


def simulate_trace(
    trace: Trace,
    policy: str,
    *,
    mix: str = "declared",
    seed: int = 0,
    placements: PlacementWriter | None = None,
    on_progress: OnProgress = lambda done, total: None,
    explain: str = "",
    without_terms: tuple[str, ...] = (),
    settings: Settings | None = None,
) -> RunResult:
    """Plays the trace with a policy. Ctrl-C ends the run early, with the results so far.

    `without_terms` disables terms of the `windlass` policy, if the mix is declared. Policy and seed of the settings are
    ignored.
    """
    declared = declared_mix(trace)
    expected = msgspec.structs.replace(declared, disabled_terms=without_terms)
    config = msgspec.structs.replace(
        engine_config(settings or Settings()),
        placement=PlacementConfig(policy, seed),
        expected_mix=expected if mix == "declared" else None,
        max_explained_holds=0 if explain else None,
    )
    store = Store({node.name: rank for node, rank in zip(trace.nodes, trace.ranks, strict=False)})
    store.apply(Put(node) for node in trace.nodes)
    recorder, learns = RunRecorder(trace, policy, mix, declared, store.snapshot()), mix != "declared"
    run = TraceRun(trace, store, recorder, learns_mix=learns, placements=placements, explain=explain)
    warm_up(trace, config)
    started = time.perf_counter()
    interrupted = False
    try:
        for _ in SimulationDriver(run, config).play(run):
            on_progress(run.arrived_jobs, len(trace.jobs))
    except KeyboardInterrupt:
        interrupted = True
    seconds = time.perf_counter() - started
    return recorder.result(store.snapshot(), seconds, interrupted, run.explanation)


def warm_up(trace: Trace, config: EngineConfig) -> None:
    """Compiles or loads the kernels, so that this isn't measured as part of the run."""
    jit.compiled()
    store = Store()
    store.apply(Put(node) for node in trace.nodes[:1])
    store.apply(Put(pod) for job in trace.jobs[:1] for pod in job.pods)
    decide(store.snapshot(), config, 0)


class TraceJob(msgspec.Struct, gc=False):
    """A job that has arrived, with its state in the cluster."""

    job: Job
    number: int
    pods: tuple[Pod, ...]
    unbound_pods: int = 0
    starts: int = 0


class TraceRun(JobCluster[TraceJob]):
    """The trace as a script for the driver, and the cluster that it is played on."""

    def __init__(
        self,
        trace: Trace,
        store: Store,
        recorder: RunRecorder,
        *,
        learns_mix: bool,
        placements: PlacementWriter | None = None,
        explain: str = "",
    ) -> None:
        """`learns_mix`: steps of a trace without times also end where the engine updates its workload mix."""
        super().__init__(store)
        self.arrived_jobs = 0
        self.explanation: Explanation | None = None
        self._trace, self._recorder = trace, recorder
        self._learns_mix, self._placements = learns_mix, placements
        self._explain = explain if not explain or "/" in explain else f"default/{explain}"
        self._timed = any(job.arrival or job.duration is not None for job in trace.jobs)

    # The script

    def next_event_time(self) -> int | None:
        jobs, ending = self._trace.jobs, self.timeline.next_at
        arrival = jobs[self.arrived_jobs].arrival if self.arrived_jobs < len(jobs) else None
        if arrival is None or (ending is not None and ending < arrival):
            return ending
        return arrival

    def apply_events(self, now: int) -> bool:
        for at, event in self.timeline.pop_due(now):
            assert isinstance(event, JobEnd)
            self.end(event, at)
        begin, self.arrived_jobs = self.arrived_jobs, self._arrived_by(now)
        arriving = self._trace.jobs[begin : self.arrived_jobs]
        self.submit([TraceJob(job, self._recorder.arrived(job, now), gang_pods(job)) for job in arriving])
        return bool(self.waiting)

    def _arrived_by(self, now: int) -> int:
        """Number of jobs that have arrived by now; without times, by the end of the next step."""
        jobs, count = self._trace.jobs, self.arrived_jobs
        if not self._timed:
            step = self._recorder.next_step_end(count)
            return min(step, max(count + 1, self.store.next_mix_update)) if self._learns_mix else step
        while count < len(jobs) and jobs[count].arrival <= now:
            count += 1
        return count

    def observe(self, now: int) -> None:
        if not self._trace.retry and self.waiting:
            self.drop_waiting()
        self._recorder.sample(now, self.store, len(self.waiting))

    def on_not_converged(self, now: int, plan: Plan) -> None:
        raise NotConverged(now, plan)

    # Measures

    def on_started(self, job: TraceJob) -> int | None:
        self._recorder.started(job.job, job.number, self.now)
        return None if job.job.duration is None else self.now + job.job.duration

    def on_stopped(self, job: TraceJob, at: int, why: str) -> None:
        self._recorder.stopped(job.job, job.number, at)

    def on_ended(self, job: TraceJob, at: int) -> None:
        self._recorder.ended(job.number, at)

    # For `--placements` and `--explain`

    def start(self, admits: Sequence[Admit], binds: Sequence[Bind]) -> None:
        super().start(admits, binds)
        if self._placements is not None:
            for bind in binds:
                self._placements(Placement(bind.pod, bind.node, bind.devices, self.now))
        found = next((bind for bind in binds if bind.pod == self._explain), None) if self._explain else None
        if found is not None:
            placement = Placement(found.pod, found.node, found.devices, self.now)
            self.explanation = Explanation(found.pod, self.now, placement=placement)

    def hold(self, holds: Sequence[Hold]) -> None:
        waiting = self._job_of_pending_pod.get(self._explain) if self._explain else None
        if waiting is not None:
            namespace = self._explain.partition("/")[0]
            names = {self._explain, f"{namespace}/{waiting.job.name}"}
            hold = next((hold for hold in holds if hold.workload in names), None)  # a gang has one hold
            if hold is not None:  # a pod that this plan evicts has no hold until the next decision
                self.explanation = Explanation(self._explain, self.now, verdict=hold.verdict)


def declared_mix(trace: Trace) -> WorkloadMix:
    """The trace's declared classes; all of its pods if it declares none."""
    registry = ShapeRegistry()
    if trace.declared:
        return mix_of((registry.intern(shape.pod)[0], shape.count) for shape in trace.declared)
    return mix_of((registry.intern(pod)[0], 1) for job in trace.jobs for pod in job.pods)


def gang_pods(job: Job) -> tuple[Pod, ...]:
    """The job's pods; several get Kueue's pod-group label and annotation."""
    if len(job.pods) == 1:
        return job.pods
    pods = []
    for pod in job.pods:
        labels = {**pod.metadata.labels, KUEUE_POD_GROUP_NAME: job.name}
        annotations = {**pod.metadata.annotations, POD_GROUP_TOTAL_COUNT_ANNOTATION: str(len(job.pods))}
        metadata = msgspec.structs.replace(pod.metadata, labels=labels, annotations=annotations)
        pods.append(msgspec.structs.replace(pod, metadata=metadata))
    return tuple(pods)
