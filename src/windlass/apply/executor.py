"""Executes a plan on the API server: evictions, admissions, binds, and conditions of pods that wait.

`scheduler.scheduler` calls `execute` with each plan and the snapshot that it was made on. Binds are assumed in the
store before they are sent, so that the next decision counts them; refusals come back to the cache as deltas.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Protocol

import msgspec
import prometheus_client

from windlass.apply.admission import AdmissionWriter
from windlass.apply.asks import AskWriter
from windlass.apply.audit import Auditor, AuditRecord, admission_record, eviction_record
from windlass.apply.binder import Binder, BindOutcome, BindResult
from windlass.apply.cluster_cache import ClusterCache
from windlass.apply.conditions import PendingCondition, PodConditionWriter
from windlass.apply.decision_sink import execute_plan
from windlass.apply.evictor import Evictor, Victim
from windlass.apply.messages import (
    SCHEDULING_GATED,
    WAITING_FOR_PREEMPTION,
    WAITING_FOR_VICTIMS,
    condition_message,
    condition_reason,
    waiting_for_victims_message,
)
from windlass.apply.step_guard import StepGuard
from windlass.apply.volume_binding import PodVolumes, bind_pod_volumes, unbound_claims
from windlass.apply.workload_writer import WorkloadWriter
from windlass.cluster.delta import Assume, Refused
from windlass.cluster.snapshot import Snapshot
from windlass.kube.backoff import Backoff
from windlass.kube.client import KubeClient
from windlass.kube.events import Event, EventRecorder, EventRegarding
from windlass.kube.resources import Resource
from windlass.model.decision import Admit, Ask, Bind, Evict, Hold, Reserve, Resize, WithdrawAsk
from windlass.model.plan import Plan
from windlass.model.pod import Pod
from windlass.model.refusal import BIND, EVICTION, Refusal
from windlass.model.times import parse_timestamp
from windlass.model.workload import Workload
from windlass.placement.filters.volume_binding import volumes_to_bind
from windlass.queueing.outcome import BUDGET_OVERRIDE_BY_REASON

log = logging.getLogger(__name__)

INITIAL_BACKOFF_SECONDS, MAX_BACKOFF_SECONDS = 1.0, 10.0
"""How long a pod is left out of decisions after a failed bind; kube-scheduler's back-off."""
REPORT_INTERVAL_SECONDS = 0.5
"""Pause between two rounds of reporting holds: messages are formatted only then, which takes time."""
BIND_REFUSED_SECONDS, EVICTION_REFUSED_SECONDS = 30, 60
"""How long decisions respect a refusal of the API server, unless the objects concerned change before."""
REPORT_BATCH_SIZE = 100
"""Holds that are reported before other tasks get their turn on the event loop."""


class ExecutorMetrics(Protocol):
    """The metrics that are filled here; `scheduler.metrics` has them."""

    attempts: prometheus_client.Counter
    bugs: prometheus_client.Counter
    binds: prometheus_client.Counter
    refusals: prometheus_client.Counter
    victims: prometheus_client.Counter
    held: prometheus_client.Gauge
    sli: prometheus_client.Histogram


class PlanExecutor:
    def __init__(
        self,
        client: KubeClient,
        cache: ClusterCache,
        recorder: EventRecorder,
        metrics: ExecutorMetrics,
        may_write: Callable[[], bool],
        resource_for: Callable[[str, str], Resource | None],
        auditor: Auditor | None = None,
    ) -> None:
        self._auditor = auditor or Auditor()
        self._unaudited: dict[str, AuditRecord] = {}
        """Pods of admitted workloads that have no Workload object: the first that is bound records it."""
        self._client, self._cache, self._recorder, self._metrics = client, cache, recorder, metrics
        self._may_write = may_write
        self.binder = Binder(client, may_write, self._on_bind_outcome)
        self.evictor = Evictor(client, recorder, may_write, self._metrics.victims.inc, self._on_eviction_refused)
        self.conditions = PodConditionWriter(client, recorder, may_write)
        self.guard = StepGuard(lambda bug: metrics.bugs.labels(bug).inc())
        writer = WorkloadWriter(client, cache, may_write, resource_for, self.guard)
        self.admissions = AdmissionWriter(cache, writer, self._auditor)
        self.asks = AskWriter(cache, writer, self.admissions, recorder)
        self._backoffs: dict[str, Backoff] = {}
        self._codes_seen: set[str] = set()
        self._latest: tuple[Plan, Snapshot, dict[str, str]] | None = None
        """The newest plan, its snapshot, and its nominated pods with their nodes."""
        self._has_report = asyncio.Event()
        cache.on_pod_deleted = self.forget

    def execute(self, plan: Plan, snapshot: Snapshot) -> None:
        """Starts all writes of the plan; returns without waiting for answers."""
        self._auditor.begin_plan(snapshot.generation)
        sink = _LiveSink(self, snapshot, self._stale_pods(plan.binds, snapshot))
        execute_plan(plan, sink)
        self._latest = plan, snapshot, sink.nominated
        self._has_report.set()

    async def run_reporter(self) -> None:
        """Reports the holds of the newest plan, until cancelled. Plans that come in between are skipped."""
        while True:
            await self._has_report.wait()
            self._has_report.clear()
            assert self._latest is not None
            plan, snapshot, nominated = self._latest
            with self.guard.step("the report of nominated pods"):
                self._report_nominated(nominated, plan, snapshot)
            by_workload = _pods_by_workload(snapshot)
            await self._report_holds(plan.holds, by_workload, _count_workloads(nominated, by_workload))
            await asyncio.sleep(REPORT_INTERVAL_SECONDS)

    def forget(self, key: str) -> None:
        """The pod was deleted."""
        self._backoffs.pop(key, None)
        self.conditions.forget(key)

    async def drain(self) -> None:
        await self.binder.drain()
        await self.evictor.drain()
        await self.admissions.drain()

    # Binds

    def bind(self, binds: Sequence[Bind], snapshot: Snapshot, admits: Sequence[Admit] = ()) -> None:
        """Sends the binds; of a pod with scheduling gates, these are removed first, and a later decision binds it. Pods
        whose admission is not on record yet are left to a later decision, too."""
        ready: list[tuple[Bind, str, Callable[[], Awaitable[None]] | None]] = []
        failed: set[str] = set()
        flavors: Mapping[str, Sequence[str]] | None = None
        above = self.admissions.pods_above_admission({bind.pod for bind in binds}, snapshot)
        for bind in binds:
            if bind.pod in above:
                continue
            with self.guard.step(f"the bind of {bind.pod}"):
                pod = self._cache.pods[bind.pod]
                if pod.spec.scheduling_gates:
                    flavors = self.admissions.flavors_of_pods(admits, binds, snapshot) if flavors is None else flavors
                    self.admissions.remove_gates(pod, flavors.get(bind.pod, ()))
                else:
                    ready.append((bind, pod.metadata.uid, self._pre_bind_action(pod, bind.node, snapshot)))
                continue
            failed.add(bind.pod)
        if failed:
            whole = self._with_gangs(failed, snapshot)
            ready = [start for start in ready if start[0].pod not in whole]
        self._prepare_records({bind.pod for bind, _, _ in ready}, admits, snapshot)
        self._cache.assume([Assume(bind.pod, bind.node, bind.devices) for bind, _, _ in ready])
        for bind, uid, pre_bind in ready:
            self.binder.bind(bind, uid, pre_bind)

    def _prepare_records(self, pods: set[str], admits: Sequence[Admit], snapshot: Snapshot) -> None:
        """Of queued workloads that start without a Workload object."""
        queued = {admit.workload: admit for admit in admits if admit.kind != "Workload" and admit.queue}
        for workload in snapshot.workloads if queued else ():
            keys = [key for pod_set in workload.pod_sets for key in pod_set.pod_keys if key in pods]
            if keys and workload.key in queued:
                record = admission_record(queued[workload.key], self._auditor.plan, keys)
                self._unaudited.update(dict.fromkeys(keys, record))

    def _write_record(self, pod: str) -> None:
        """The pod was bound."""
        record = self._unaudited.get(pod)
        if record is not None:
            self._auditor.write(record)
            for key in record.pods:
                self._unaudited.pop(key, None)

    def _stale_pods(self, binds: Sequence[Bind], snapshot: Snapshot) -> set[str]:
        """Pods that can't be bound as decided since the cluster has changed, each with its whole gang."""
        self._cache.drain_inbox()
        stale = {bind.pod for bind in binds if self._is_stale(bind)}
        return self._with_gangs(stale, snapshot) if stale else stale

    @staticmethod
    def _with_gangs(pods: set[str], snapshot: Snapshot) -> set[str]:
        """The pods and all others of their workloads."""
        gangs = (set(keys) for keys in _pods_by_workload(snapshot).values())
        return pods.union(*(keys for keys in gangs if keys & pods))

    def _is_stale(self, bind: Bind) -> bool:
        pod = self._cache.pods.get(bind.pod)
        if pod is None or pod.is_bound or pod.metadata.deletion_timestamp:
            return True
        return bind.node not in self._cache.nodes

    def _pre_bind_action(self, pod: Pod, node: str, snapshot: Snapshot) -> Callable[[], Awaitable[None]] | None:
        """Binds the pod's volumes; None if all of its claims are bound."""
        get_claim = self._cache.persistent_volume_claim
        claims = unbound_claims(pod, get_claim) if pod.spec.volumes else []
        if not claims:
            return None
        matches = volumes_to_bind(pod, node, snapshot.nodes, snapshot.listers)
        volumes = {claim: snapshot.listers.volumes[name] for claim, name in matches.items()}
        pod_volumes = PodVolumes(node, claims, volumes)
        return functools.partial(bind_pod_volumes, self._client, pod_volumes, get_claim, self._may_write)

    def _on_bind_outcome(self, outcome: BindOutcome) -> None:
        key, node = outcome.bind.pod, outcome.bind.node
        self._metrics.binds.labels(outcome.result.value).inc()
        pod = self._cache.pods.get(key)
        if outcome.result is BindResult.BOUND:
            self._backoffs.pop(key, None)
            self.conditions.forget(key)
            self._write_record(key)
            self._report_bound(key, outcome.uid, node, pod)
            return
        self._unaudited.pop(key, None)
        log.info("bind of %s to %s: %s", key, node, outcome.error or outcome.result.value)
        if outcome.refusal:
            until = int(time.time()) + BIND_REFUSED_SECONDS
            self._add_refusal(Refusal(BIND, key, until, outcome.uid, node=node, message=outcome.refusal))
        pause = self._backoffs.setdefault(key, Backoff(INITIAL_BACKOFF_SECONDS, MAX_BACKOFF_SECONDS)).next()
        self._cache.start_backoff(key)
        asyncio.get_running_loop().call_later(pause, self._cache.end_backoff, key)
        if pod is not None and outcome.result is BindResult.REFUSED:
            self._metrics.attempts.labels("error", pod.spec.scheduler_name).inc()
            regarding = EventRegarding("Pod", key, outcome.uid)
            note = f"binding to {node} failed: {outcome.error}"
            event = Event(regarding, "FailedScheduling", note, "Binding", "Warning")
            self._recorder.record(event, droppable=True)

    def _on_eviction_refused(self, preemptor: str, key: str, message: str) -> None:
        until, pod = int(time.time()) + EVICTION_REFUSED_SECONDS, self._cache.pods.get(key)
        if pod is not None:
            uid, budget = pod.metadata.uid, self._cache.disruption_budget_of(pod)
            self._add_refusal(
                Refusal(EVICTION, key, until, uid, for_workload=preemptor, budget=budget, message=message)
            )

    def _add_refusal(self, refusal: Refusal) -> None:
        """The next decision respects it."""
        self._metrics.refusals.labels(refusal.kind).inc()
        self._cache.push([Refused(refusal)])

    def _report_bound(self, key: str, uid: str, node: str, pod: Pod | None) -> None:
        note = f"Successfully assigned {key} to {node}"
        self._recorder.record(Event(EventRegarding("Pod", key, uid), "Scheduled", note, "Binding"))
        if pod is not None:
            self._metrics.attempts.labels("scheduled", pod.spec.scheduler_name).inc()
            waited = time.time() - parse_timestamp(pod.metadata.creation_timestamp)
            self._metrics.sli.observe(max(0.0, waited))

    # Evictions

    def evict(self, evicts: Sequence[Evict], snapshot: Snapshot) -> None:
        """Starts the evictions, grouped by preemptor: of one preemptor, either all victims are evicted or none."""
        by_preemptor: dict[str, list[Victim]] = {}
        workloads = {workload.key: workload for workload in snapshot.workloads} if evicts else {}
        failed: set[str] = set()
        for evict in evicts:
            preemptor, is_done = evict.for_workload or evict.workload, False
            with self.guard.step(f"the eviction of {evict.workload}"):
                victim = self._victim(evict, workloads.get(evict.workload))
                by_preemptor.setdefault(preemptor, []).extend([victim] if victim is not None else ())
                is_done = True
            failed.update(() if is_done else (preemptor,))
        for preemptor, victims in by_preemptor.items():
            if preemptor not in failed:
                self.evictor.evict(preemptor, victims)

    def _victim(self, evict: Evict, workload: Workload | None) -> Victim | None:
        """None where nothing of it is left to evict, or Kueue stops it."""
        if self.admissions.is_left_to_kueue(evict):
            return None
        pods = [(key, self._cache.pods[key]) for key in evict.pods if key in self._cache.pods]
        to_evict = tuple((key, pod.metadata.uid) for key, pod in pods if not pod.metadata.deletion_timestamp)
        stop = self.admissions.stop_action(evict, workload)
        if not to_evict and stop is None:
            return None
        self.asks.record_eviction(evict, workload)
        count = self.admissions.eviction_record_action(evict, workload)
        record = eviction_record(evict, self._auditor.plan, [key for key, _ in to_evict], workload)

        def on_result(result: str) -> None:
            self._auditor.write(msgspec.structs.replace(record, result=result))

        yields = BUDGET_OVERRIDE_BY_REASON.get(evict.reason, "") in self._cache.settings.budgets_yield_to
        return Victim(evict.workload, to_evict, evict.reason, stop, count, yields, evict.message, on_result)

    def nominate(self, workloads: frozenset[str], nominated: Mapping[str, str]) -> None:
        """Decisions see nominations at once; the reporter writes them to the pods."""
        self._cache.nominate(workloads, nominated)

    # Conditions

    async def _report_holds(
        self, holds: Sequence[Hold], by_workload: Mapping[str, Sequence[str]], waiting_for_victims: int = 0
    ) -> None:
        """`waiting_for_victims`: workloads with nominated pods, which are no holds of the plan and wait, too."""
        codes = Counter({WAITING_FOR_PREEMPTION: waiting_for_victims})
        for index in range(len(holds)):
            if index % REPORT_BATCH_SIZE == REPORT_BATCH_SIZE - 1:
                await asyncio.sleep(0)  # lets other tasks run
            codes[holds[index].verdict.code] += 1
            with self.guard.step(f"the report of {holds[index].workload}"):
                self._report_hold(holds[index], by_workload)
        self._count_held(codes)

    def _report_hold(self, hold: Hold, by_workload: Mapping[str, Sequence[str]]) -> None:
        self.admissions.report_pending(hold)
        verdict = hold.verdict
        reason, message = condition_reason(verdict), condition_message(verdict)
        for key in by_workload.get(hold.workload, (hold.workload,)):
            pod = self._cache.pods.get(key)
            if verdict.code != SCHEDULING_GATED or (pod is not None and not pod.spec.scheduling_gates):
                self._enqueue_condition(key, reason, message)

    def _count_held(self, codes: Mapping[str, int]) -> None:
        """Sets codes that hold nothing any more to 0 instead of leaving their last value."""
        self._codes_seen |= codes.keys()
        for code in self._codes_seen:
            self._metrics.held.labels(code).set(codes.get(code, 0))

    def _report_nominated(self, nominated: Mapping[str, str], plan: Plan, snapshot: Snapshot) -> None:
        asks = {key: ask for ask in plan.asks for key in (ask.workload, *ask.pods)}
        after = {bind.pod: bind.after for bind in plan.binds if bind.after} if asks else {}
        for key, node in nominated.items():
            asked = [asks[victim] for victim in after.get(key, ()) if victim in asks]
            message = waiting_for_victims_message(snapshot.nodes.size, node, max(asked, key=_deadline, default=None))
            self._enqueue_condition(key, WAITING_FOR_VICTIMS, message, node)

    def _enqueue_condition(self, key: str, reason: str, message: str, node: str | None = None) -> None:
        pod = self._cache.pods.get(key)
        if pod is None or pod.is_bound or key in self._cache.assumed:
            return
        if not self._cache.responsibility.covers(pod):
            return
        if node is None and pod.status.nominated_node_name:
            node = ""  # clears the nomination of an earlier decision
        self._metrics.attempts.labels("unschedulable", pod.spec.scheduler_name).inc()
        self.conditions.enqueue(PendingCondition(key, pod.metadata.uid, reason, message, node))


class _LiveSink:
    """Executes one plan on the API server. Binds of stale pods are left to the next decision."""

    def __init__(self, executor: PlanExecutor, snapshot: Snapshot, stale_pods: set[str]) -> None:
        self._executor, self._snapshot, self._stale_pods = executor, snapshot, stale_pods
        self.nominated: dict[str, str] = {}
        """Pod → node whose victims it waits for."""

    def ask(self, asks: Sequence[Ask], withdrawals: Sequence[WithdrawAsk]) -> None:
        self._executor.asks.execute(asks, withdrawals, self._snapshot)

    def evict(self, evicts: Sequence[Evict]) -> None:
        self._executor.evict(evicts, self._snapshot)

    def is_terminating(self, key: str) -> bool:
        return True  # a victim that the watch shows as deleted is in no plan any more

    def resize(self, resizes: Sequence[Resize]) -> None:
        self._executor.admissions.resize(resizes)

    def start(self, admits: Sequence[Admit], binds: Sequence[Bind]) -> None:
        with self._executor.guard.step("admissions"):
            self._executor.admissions.execute(admits, self._snapshot)
        self._executor.bind([bind for bind in binds if bind.pod not in self._stale_pods], self._snapshot, admits)

    def nominate(self, admits: Sequence[Admit], binds: Sequence[Bind]) -> None:
        self.nominated = {bind.pod: bind.node for bind in binds if bind.pod not in self._stale_pods}
        self._executor.nominate(frozenset(admit.workload for admit in admits), self.nominated)

    def reserve(self, reserves: Sequence[Reserve]) -> None:
        """`scheduler.persisted_state` writes their nodes."""

    def hold(self, holds: Sequence[Hold]) -> None:
        """`run_reporter` reports them later."""


def _deadline(ask: Ask) -> int:
    return ask.until


def _pods_by_workload(snapshot: Snapshot) -> dict[str, list[str]]:
    return {
        workload.key: [key for pod_set in workload.pod_sets for key in pod_set.pod_keys]
        for workload in snapshot.workloads
    }


def _count_workloads(pods: Collection[str], by_workload: Mapping[str, Sequence[str]]) -> int:
    """How many workloads these pods are of; a pod in none counts as one."""
    if not pods:
        return 0
    workload_of = {pod: workload for workload, members in by_workload.items() for pod in members}
    return len({workload_of.get(pod, pod) for pod in pods})
