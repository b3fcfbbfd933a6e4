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

from windlass.apply.admission import Admissions
from windlass.apply.binder import BindEnd, Binder, BindOutcome
from windlass.apply.cache import Cache
from windlass.apply.conditions import ConditionWriter, Waiting
from windlass.apply.evictor import Evictor, Victim
from windlass.apply.execution import carry_out
from windlass.apply.volumes import Wanted, provide_volumes, unbound_claims
from windlass.apply.words import GATED, WAITING_FOR_VICTIMS, condition_message, condition_reason
from windlass.cluster.delta import Assume, Refused
from windlass.cluster.snapshot import Snapshot
from windlass.kube.backoff import Backoff
from windlass.kube.client import KubeClient
from windlass.kube.events import Event, Recorder, Regarding
from windlass.kube.resources import Resource
from windlass.model.decision import Admit, Bind, Evict, Hold, Reserve
from windlass.model.plan import Plan
from windlass.model.pod import Pod
from windlass.model.refusal import BIND, EVICTION, Refusal
from windlass.model.times import seconds_of
from windlass.placement.filters.volumes import volumes_there

log = logging.getLogger(__name__)

FIRST_REST, LONGEST_REST = 1.0, 10.0
"""Seconds that a pod is left alone after its bind was refused; as kube-scheduler's back-off."""
TELL_EVERY = 0.5
"""Seconds between two rounds of telling: verdicts are put into words only when they are read, and that costs time."""
BIND_REFUSED_SECONDS, EVICTION_REFUSED_SECONDS = 30, 60
"""So long decisions reckon with a refusal of the API server, unless what it was about changes before."""
AT_ONCE = 100
"""Holds that are read before others get their turn on the loop."""


class CarrierMetrics(Protocol):
    """What is counted of what was sent; `scheduler.metrics` has these."""

    attempts: prometheus_client.Counter
    binds: prometheus_client.Counter
    refusals: prometheus_client.Counter
    victims: prometheus_client.Counter
    held: prometheus_client.Gauge
    sli: prometheus_client.Histogram


class Carrier:
    def __init__(
        self,
        client: KubeClient,
        cache: Cache,
        recorder: Recorder,
        metrics: CarrierMetrics,
        may_write: Callable[[], bool],
        served: Callable[[str, str], Resource | None],
    ) -> None:
        self._client, self._cache, self._recorder, self._metrics = client, cache, recorder, metrics
        self._may_write = may_write
        self.binder = Binder(client, may_write, self._ended)
        self.evictor = Evictor(client, recorder, may_write, self._metrics.victims.inc, self._eviction_refused)
        self.conditions = ConditionWriter(client, recorder, may_write)
        self.admissions = Admissions(client, cache, may_write, served)
        self._rests: dict[str, Backoff] = {}
        self._codes_seen: set[str] = set()
        self._latest: tuple[Plan, Snapshot, dict[str, str]] | None = None
        self._to_tell = asyncio.Event()
        cache.on_gone = self.forget

    def carry_out(self, plan: Plan, snapshot: Snapshot) -> None:
        """Starts everything that the plan says; returns at once."""
        sink = _LiveSink(self, snapshot, self._overtaken(plan.binds, snapshot))
        carry_out(plan, sink)
        self._latest = plan, snapshot, sink.nominated
        self._to_tell.set()

    async def tell(self) -> None:
        """Tells those that wait why, of the newest plan, now and then: until cancelled."""
        while True:
            await self._to_tell.wait()
            self._to_tell.clear()
            assert self._latest is not None
            plan, snapshot, nominated = self._latest
            self._tell_nominated(nominated, snapshot)
            await self._tell_waiting(plan.holds, _members(snapshot))
            await asyncio.sleep(TELL_EVERY)

    def forget(self, key: str) -> None:
        """The pod is gone."""
        self._rests.pop(key, None)
        self.conditions.forget(key)

    async def settle(self) -> None:
        await self.binder.settle()
        await self.evictor.settle()
        await self.admissions.settle()

    # Binds

    def bind(self, binds: Sequence[Bind], snapshot: Snapshot) -> None:
        """Sends those that can be sent; a pod behind a gate is let through, and bound at a later decision."""
        ready: list[tuple[Bind, Pod]] = []
        for bind in binds:
            pod = self._cache.pods[bind.pod]
            if pod.spec.scheduling_gates:
                self.admissions.lift(pod)
            else:
                ready.append((bind, pod))
        self._cache.assume([Assume(bind.pod, bind.node, bind.devices) for bind, _ in ready])
        for bind, pod in ready:
            self.binder.send(bind, pod.metadata.uid, self._volumes(pod, bind.node, snapshot))

    def _overtaken(self, binds: Sequence[Bind], snapshot: Snapshot) -> set[str]:
        """Pods that can't be bound as decided, since the world moved on meanwhile, each with the whole of its gang."""
        self._cache.take_in()
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
        claims = unbound_claims(pod, self._cache.claim) if pod.spec.volumes else []
        if not claims:
            return None
        there = volumes_there(pod, node, snapshot.facts, snapshot.objects)
        volumes = {claim: snapshot.objects.volumes[name] for claim, name in there.items()}
        wanted = Wanted(node, claims, volumes)
        return functools.partial(provide_volumes, self._client, wanted, self._cache.claim, self._may_write)

    def _ended(self, outcome: BindOutcome) -> None:
        """What became of a bind."""
        key, node = outcome.bind.pod, outcome.bind.node
        self._metrics.binds.labels(outcome.end.value).inc()
        pod = self._cache.pods.get(key)
        if outcome.end is BindEnd.BOUND:
            self._rests.pop(key, None)
            self.conditions.forget(key)
            self._note_bound(key, outcome.uid, node, pod)
            return
        log.info("bind of %s to %s: %s", key, node, outcome.error or outcome.end.value)
        if outcome.refusal:
            until = int(time.time()) + BIND_REFUSED_SECONDS
            self._learn(Refusal(BIND, key, until, outcome.uid, node=node, message=outcome.refusal))
        pause = self._rests.setdefault(key, Backoff(FIRST_REST, LONGEST_REST)).next()
        self._cache.rest(key)
        asyncio.get_running_loop().call_later(pause, self._cache.wake, key)
        if pod is not None and outcome.end is BindEnd.REFUSED:
            profile = pod.spec.scheduler_name
            self._metrics.attempts.labels("error", profile).inc()
            about = Regarding("Pod", key, outcome.uid)
            note = f"binding to {node} failed: {outcome.error}"
            self._recorder.record(
                Event(about, "FailedScheduling", note, "Binding", "Warning"), droppable=True
            )

    def _eviction_refused(self, cause: str, key: str, message: str) -> None:
        until, pod = int(time.time()) + EVICTION_REFUSED_SECONDS, self._cache.pods.get(key)
        if pod is not None:
            uid, budget = pod.metadata.uid, self._cache.budget_of(pod)
            self._learn(
                Refusal(EVICTION, key, until, uid, for_workload=cause, budget=budget, message=message)
            )

    def _learn(self, refusal: Refusal) -> None:
        """The next decision reckons with it."""
        self._metrics.refusals.labels(refusal.kind).inc()
        self._cache.push([Refused(refusal)])

    def _note_bound(self, key: str, uid: str, node: str, pod: Pod | None) -> None:
        note = f"Successfully assigned {key} to {node}"
        self._recorder.record(Event(Regarding("Pod", key, uid), "Scheduled", note, "Binding"))
        if pod is not None:
            self._metrics.attempts.labels("scheduled", pod.spec.scheduler_name).inc()
            waited = time.time() - seconds_of(pod.metadata.creation_timestamp)
            self._metrics.sli.observe(max(0.0, waited))

    # Evictions

    def evict(self, evicts: Sequence[Evict], snapshot: Snapshot) -> None:
        causes: dict[str, list[Victim]] = {}
        workloads = {one.key: one for one in snapshot.workloads} if evicts else {}
        for evict in evicts:
            if self.admissions.is_kueues(evict):
                continue
            pods = [(key, self._cache.pods[key]) for key in evict.pods if key in self._cache.pods]
            leaving = tuple(
                (key, pod.metadata.uid) for key, pod in pods if not pod.metadata.deletion_timestamp
            )
            stop = self.admissions.stopper(evict)
            if leaving or stop is not None:
                note = self.admissions.note_eviction(evict, workloads.get(evict.workload))
                victim = Victim(evict.workload, leaving, evict.reason, stop, note)
                causes.setdefault(evict.for_workload or evict.workload, []).append(victim)
        for cause, victims in causes.items():
            self.evictor.send(cause, victims)

    # Words

    async def _tell_waiting(self, holds: Sequence[Hold], by_workload: Mapping[str, Sequence[str]]) -> None:
        codes: Counter[str] = Counter()
        for index in range(len(holds)):
            if index % AT_ONCE == AT_ONCE - 1:
                await asyncio.sleep(0)
            hold = holds[index]
            self.admissions.tell(hold)
            verdict = hold.verdict
            codes[verdict.code] += 1
            if verdict.code == GATED:
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
        total = snapshot.facts.size
        message = f"0/{total} nodes are available: its place is being cleared of others; it starts when they have gone."
        for key, node in nominated.items():
            self._tell(key, WAITING_FOR_VICTIMS, message, node)

    def _tell(self, key: str, reason: str, message: str, node: str | None = None) -> None:
        pod = self._cache.pods.get(key)
        if pod is None or pod.is_bound or key in self._cache.assumed or not self._cache.is_ours(pod):
            return
        if node is None and pod.status.nominated_node_name:
            node = ""
        self._metrics.attempts.labels("unschedulable", pod.spec.scheduler_name).inc()
        self.conditions.want(Waiting(key, pod.metadata.uid, reason, message, node))


class _LiveSink:
    """One plan on the API server. What is overtaken by what happened meanwhile is left to the next decision."""

    def __init__(self, carrier: Carrier, snapshot: Snapshot, overtaken: set[str]) -> None:
        self._carrier, self._snapshot, self._overtaken = carrier, snapshot, overtaken
        self.nominated: dict[str, str] = {}
        """Pod → node that it waits for."""

    def evict(self, evicts: Sequence[Evict]) -> None:
        self._carrier.evict(evicts, self._snapshot)

    def is_leaving(self, key: str) -> bool:
        return True  # once the watch shows that it has left, no plan names it any more

    def start(self, admits: Sequence[Admit], binds: Sequence[Bind]) -> None:
        self._carrier.admissions.carry_out(admits, self._snapshot)
        self._carrier.bind([bind for bind in binds if bind.pod not in self._overtaken], self._snapshot)

    def nominate(self, binds: Sequence[Bind]) -> None:
        self.nominated = {bind.pod: bind.node for bind in binds if bind.pod not in self._overtaken}

    def reserve(self, reserves: Sequence[Reserve]) -> None:
        """`scheduler.memory` writes where they are."""

    def hold(self, holds: Sequence[Hold]) -> None:
        """They are told now and then, by `tell`."""


def _members(snapshot: Snapshot) -> dict[str, list[str]]:
    """Workload → its pods."""
    return {one.key: [key for part in one.pod_sets for key in part.pods] for one in snapshot.workloads}
