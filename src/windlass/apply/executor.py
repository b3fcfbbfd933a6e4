"""A plan carried out on the live cluster: who leaves, who is bound where, and what those are told who wait.

`scheduler.loop` hands over each plan with the snapshot that it was made on. Binds are assumed in the store before they
are sent, so that the next decision counts them; what became of them comes back as deltas.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Protocol

import prometheus_client

from windlass.apply.admission import AdmissionWriter
from windlass.apply.binder import Binder, BindOutcome, BindResult
from windlass.apply.cluster_cache import ClusterCache
from windlass.apply.conditions import PendingCondition, PodConditionWriter
from windlass.apply.decision_sink import execute_plan
from windlass.apply.evictor import Evictor, Victim
from windlass.apply.messages import SCHEDULING_GATED, WAITING_FOR_VICTIMS, condition_message, condition_reason
from windlass.apply.volume_binding import PodVolumes, bind_pod_volumes, unbound_claims
from windlass.cluster.delta import Assume, Refused
from windlass.cluster.snapshot import Snapshot
from windlass.kube.backoff import Backoff
from windlass.kube.client import KubeClient
from windlass.kube.events import Event, EventRecorder, EventRegarding
from windlass.kube.resources import Resource
from windlass.model.decision import Admit, Bind, Evict, Hold, Reserve
from windlass.model.plan import Plan
from windlass.model.pod import Pod
from windlass.model.refusal import BIND, EVICTION, Refusal
from windlass.model.times import parse_timestamp
from windlass.placement.filters.volume_binding import volumes_to_bind

log = logging.getLogger(__name__)

INITIAL_BACKOFF_SECONDS, MAX_BACKOFF_SECONDS = 1.0, 10.0
"""Seconds that a pod is left alone after its bind was refused; as kube-scheduler's back-off."""
REPORT_INTERVAL_SECONDS = 0.5
"""Seconds between two rounds of telling: verdicts are put into words only when they are read, and that costs time."""
BIND_REFUSED_SECONDS, EVICTION_REFUSED_SECONDS = 30, 60
"""So long decisions reckon with a refusal of the API server, unless what it was about changes before."""
REPORT_BATCH_SIZE = 100
"""Holds that are read before others get their turn on the loop."""


class ExecutorMetrics(Protocol):
    """What is counted of what was sent; `scheduler.metrics` has these."""

    attempts: prometheus_client.Counter
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
        served: Callable[[str, str], Resource | None],
    ) -> None:
        self._client, self._cache, self._recorder, self._metrics = client, cache, recorder, metrics
        self._may_write = may_write
        self.binder = Binder(client, may_write, self._ended)
        self.evictor = Evictor(client, recorder, may_write, self._metrics.victims.inc, self._eviction_refused)
        self.conditions = PodConditionWriter(client, recorder, may_write)
        self.admissions = AdmissionWriter(client, cache, may_write, served)
        self._rests: dict[str, Backoff] = {}
        self._codes_seen: set[str] = set()
        self._latest: tuple[Plan, Snapshot, dict[str, str]] | None = None
        self._to_tell = asyncio.Event()
        cache.on_pod_deleted = self.forget

    def execute(self, plan: Plan, snapshot: Snapshot) -> None:
        """Starts everything that the plan says; returns at once."""
        sink = _LiveSink(self, snapshot, self._overtaken(plan.binds, snapshot))
        execute_plan(plan, sink)
        self._latest = plan, snapshot, sink.nominated
        self._to_tell.set()

    async def run_reporter(self) -> None:
        """Tells those that wait why, of the newest plan, now and then: until cancelled."""
        while True:
            await self._to_tell.wait()
            self._to_tell.clear()
            assert self._latest is not None
            plan, snapshot, nominated = self._latest
            self._tell_nominated(nominated, snapshot)
            await self._tell_waiting(plan.holds, _members(snapshot))
            await asyncio.sleep(REPORT_INTERVAL_SECONDS)

    def forget(self, key: str) -> None:
        """The pod is gone."""
        self._rests.pop(key, None)
        self.conditions.forget(key)

    async def drain(self) -> None:
        await self.binder.drain()
        await self.evictor.drain()
        await self.admissions.drain()

    # Binds

    def bind(self, binds: Sequence[Bind], snapshot: Snapshot) -> None:
        """Sends those that can be sent; a pod behind a gate is let through, and bound at a later decision."""
        ready: list[tuple[Bind, Pod]] = []
        for bind in binds:
            pod = self._cache.pods[bind.pod]
            if pod.spec.scheduling_gates:
                self.admissions.remove_gates(pod)
            else:
                ready.append((bind, pod))
        self._cache.assume([Assume(bind.pod, bind.node, bind.devices) for bind, _ in ready])
        for bind, pod in ready:
            self.binder.bind(bind, pod.metadata.uid, self._volumes(pod, bind.node, snapshot))

    def _overtaken(self, binds: Sequence[Bind], snapshot: Snapshot) -> set[str]:
        """Pods that can't be bound as decided, since the world moved on meanwhile, each with the whole of its gang."""
        self._cache.drain_inbox()
        stale = {bind.pod for bind in binds if self._is_stale(bind)}
        if not stale:
            return stale
        gangs = (set(keys) for keys in _members(snapshot).values())
        return stale.union(*(keys for keys in gangs if keys & stale))

    def _is_stale(self, bind: Bind) -> bool:
        pod = self._cache.pods.get(bind.pod)
        gone = pod is None or pod.is_bound or bool(pod.metadata.deletion_timestamp)
        return gone or bind.node not in self._cache.nodes

    def _volumes(self, pod: Pod, node: str, snapshot: Snapshot) -> Callable[[], Awaitable[None]] | None:
        claims = unbound_claims(pod, self._cache.persistent_volume_claim) if pod.spec.volumes else []
        if not claims:
            return None
        there = volumes_to_bind(pod, node, snapshot.nodes, snapshot.listers)
        volumes = {claim: snapshot.listers.volumes[name] for claim, name in there.items()}
        wanted = PodVolumes(node, claims, volumes)
        return functools.partial(
            bind_pod_volumes, self._client, wanted, self._cache.persistent_volume_claim, self._may_write
        )

    def _ended(self, outcome: BindOutcome) -> None:
        """What became of a bind."""
        key, node = outcome.bind.pod, outcome.bind.node
        self._metrics.binds.labels(outcome.result.value).inc()
        pod = self._cache.pods.get(key)
        if outcome.result is BindResult.BOUND:
            self._rests.pop(key, None)
            self.conditions.forget(key)
            self._note_bound(key, outcome.uid, node, pod)
            return
        log.info("bind of %s to %s: %s", key, node, outcome.error or outcome.result.value)
        if outcome.refusal:
            until = int(time.time()) + BIND_REFUSED_SECONDS
            self._learn(Refusal(BIND, key, until, outcome.uid, node=node, message=outcome.refusal))
        pause = self._rests.setdefault(key, Backoff(INITIAL_BACKOFF_SECONDS, MAX_BACKOFF_SECONDS)).next()
        self._cache.start_backoff(key)
        asyncio.get_running_loop().call_later(pause, self._cache.end_backoff, key)
        if pod is not None and outcome.result is BindResult.REFUSED:
            profile = pod.spec.scheduler_name
            self._metrics.attempts.labels("error", profile).inc()
            about = EventRegarding("Pod", key, outcome.uid)
            note = f"binding to {node} failed: {outcome.error}"
            self._recorder.record(
                Event(about, "FailedScheduling", note, "Binding", "Warning"), droppable=True
            )

    def _eviction_refused(self, cause: str, key: str, message: str) -> None:
        until, pod = int(time.time()) + EVICTION_REFUSED_SECONDS, self._cache.pods.get(key)
        if pod is not None:
            uid, budget = pod.metadata.uid, self._cache.disruption_budget_of(pod)
            self._learn(
                Refusal(EVICTION, key, until, uid, for_workload=cause, budget=budget, message=message)
            )

    def _learn(self, refusal: Refusal) -> None:
        """The next decision reckons with it."""
        self._metrics.refusals.labels(refusal.kind).inc()
        self._cache.push([Refused(refusal)])

    def _note_bound(self, key: str, uid: str, node: str, pod: Pod | None) -> None:
        note = f"Successfully assigned {key} to {node}"
        self._recorder.record(Event(EventRegarding("Pod", key, uid), "Scheduled", note, "Binding"))
        if pod is not None:
            self._metrics.attempts.labels("scheduled", pod.spec.scheduler_name).inc()
            waited = time.time() - parse_timestamp(pod.metadata.creation_timestamp)
            self._metrics.sli.observe(max(0.0, waited))

    # Evictions

    def evict(self, evicts: Sequence[Evict], snapshot: Snapshot) -> None:
        causes: dict[str, list[Victim]] = {}
        workloads = {one.key: one for one in snapshot.workloads} if evicts else {}
        for evict in evicts:
            if self.admissions.is_left_to_kueue(evict):
                continue
            pods = [(key, self._cache.pods[key]) for key in evict.pods if key in self._cache.pods]
            leaving = tuple(
                (key, pod.metadata.uid) for key, pod in pods if not pod.metadata.deletion_timestamp
            )
            stop = self.admissions.stop_action(evict)
            if leaving or stop is not None:
                note = self.admissions.eviction_record_action(evict, workloads.get(evict.workload))
                victim = Victim(evict.workload, leaving, evict.reason, stop, note)
                causes.setdefault(evict.for_workload or evict.workload, []).append(victim)
        for cause, victims in causes.items():
            self.evictor.evict(cause, victims)

    # Words

    async def _tell_waiting(self, holds: Sequence[Hold], by_workload: Mapping[str, Sequence[str]]) -> None:
        codes: Counter[str] = Counter()
        for index in range(len(holds)):
            if index % REPORT_BATCH_SIZE == REPORT_BATCH_SIZE - 1:
                await asyncio.sleep(0)
            hold = holds[index]
            self.admissions.report_pending(hold)
            verdict = hold.verdict
            codes[verdict.code] += 1
            if verdict.code == SCHEDULING_GATED:
                continue
            reason, message = condition_reason(verdict), condition_message(verdict)
            for key in by_workload.get(hold.workload, (hold.workload,)):
                self._tell(key, reason, message)
        self._count_held(codes)

    def _count_held(self, codes: Mapping[str, int]) -> None:
        """A code that holds nothing any more is shown as 0, not forgotten: graphs need an end."""
        self._codes_seen |= codes.keys()
        for code in self._codes_seen:
            self._metrics.held.labels(code).set(codes.get(code, 0))

    def _tell_nominated(self, nominated: Mapping[str, str], snapshot: Snapshot) -> None:
        total = snapshot.nodes.size
        message = f"0/{total} nodes are available: its place is being cleared of others; it starts when they have gone."
        for key, node in nominated.items():
            self._tell(key, WAITING_FOR_VICTIMS, message, node)

    def _tell(self, key: str, reason: str, message: str, node: str | None = None) -> None:
        pod = self._cache.pods.get(key)
        if (
            pod is None
            or pod.is_bound
            or key in self._cache.assumed
            or not self._cache.is_responsible_for(pod)
        ):
            return
        if node is None and pod.status.nominated_node_name:
            node = ""
        self._metrics.attempts.labels("unschedulable", pod.spec.scheduler_name).inc()
        self.conditions.enqueue(PendingCondition(key, pod.metadata.uid, reason, message, node))


class _LiveSink:
    """One plan on the API server. What is overtaken by what happened meanwhile is left to the next decision."""

    def __init__(self, carrier: PlanExecutor, snapshot: Snapshot, overtaken: set[str]) -> None:
        self._carrier, self._snapshot, self._overtaken = carrier, snapshot, overtaken
        self.nominated: dict[str, str] = {}
        """Pod → node that it waits for."""

    def evict(self, evicts: Sequence[Evict]) -> None:
        self._carrier.evict(evicts, self._snapshot)

    def is_terminating(self, key: str) -> bool:
        return True  # once the watch shows that it has left, no plan names it any more

    def start(self, admits: Sequence[Admit], binds: Sequence[Bind]) -> None:
        self._carrier.admissions.execute(admits, self._snapshot)
        self._carrier.bind([bind for bind in binds if bind.pod not in self._overtaken], self._snapshot)

    def nominate(self, binds: Sequence[Bind]) -> None:
        self.nominated = {bind.pod: bind.node for bind in binds if bind.pod not in self._overtaken}

    def reserve(self, reserves: Sequence[Reserve]) -> None:
        """`scheduler.persisted_state` writes where they are."""

    def hold(self, holds: Sequence[Hold]) -> None:
        """They are told now and then, by `tell`."""


def _members(snapshot: Snapshot) -> dict[str, list[str]]:
    """Workload → its pods."""
    return {one.key: [key for part in one.pod_sets for key in part.pod_keys] for one in snapshot.workloads}
