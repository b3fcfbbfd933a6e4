"""The operator's loop: informers, lease, decisions, writes.

`cli.operator` runs it in a cluster, `operator.embedded_thread` in `windlass up`. A replica leads by its own lease;
whatever it was doing when it dies, the next one decides on the objects as they are.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from itertools import groupby

import msgspec

from windlass.kube.client import KubeClient
from windlass.kube.client_config import ClientConfig
from windlass.kube.events import EventRecorder
from windlass.kube.freeze import FREEZE_CONFIG_MAP, OBEYED_ANNOTATION
from windlass.kube.informers import Informers
from windlass.kube.leader_election import LeaderElectionConfig, LeaderElector
from windlass.kube.request_budget import RequestRate
from windlass.kube.write_gate import WriteGate
from windlass.model.labels import matches_selector
from windlass.model.times import parse_timestamp
from windlass.operator.apply import Applier
from windlass.operator.cache import OperatorCache, decode_observed
from windlass.operator.decide import decide
from windlass.operator.gate_readings import ask, fill_query
from windlass.operator.observed import Observed, RoomQuestion
from windlass.operator.resources import CANARY_NAMESPACE, WATCHED_BY_OPERATOR
from windlass.operator.room_readings import read_rooms
from windlass.operator.writes import CallTicketHook, Decision, EvictPods, StopWorkload, Write
from windlass.scheduler.health_server import HealthServer

log = logging.getLogger(__name__)

BATCH_SECONDS = 0.2
"""Changes that come together are one decision."""
GATE_SECONDS = 15
MAX_FAILURE_PAUSE = 30.0
CONCURRENT_WRITES = 16
REPEATED, REPEAT_SECONDS = (EvictPods, StopWorkload, CallTicketHook), 5.0
"""Writes that are decided again until they have succeeded; by themselves they are no reason to decide at once."""
STUCK_SECONDS = 120.0
CONTROLLER = "windlass.dev/operator"


class OperatorOptions(msgspec.Struct, frozen=True, kw_only=True):
    shadow: bool = False
    """Decide and log, but write nothing."""
    leader_elect: bool = True
    lease_namespace: str = "windlass-system"
    lease_name: str = "windlass-operator"
    lease_seconds: float = 15.0
    identity: str = ""
    api_rate: RequestRate = RequestRate()
    """The most that this replica asks of the API server."""
    listen: tuple[str, int] | None = None
    driver_namespace: str = "windlass-node"
    canary_namespace: str = CANARY_NAMESPACE
    prometheus: str = ""
    gate_seconds: int = GATE_SECONDS


class Operator:
    def __init__(self, client: KubeClient, options: OperatorOptions) -> None:
        self._client, self._options = client, options
        self._changed = asyncio.Event()
        self.cache = OperatorCache(options.driver_namespace, self._changed.set, options.canary_namespace)
        self.informers = Informers(client, self.cache.push, WATCHED_BY_OPERATOR, decode=decode_observed)
        self.recorder = EventRecorder(client, options.identity, CONTROLLER)
        client.write_gate = WriteGate(client, options.lease_namespace)
        config = LeaderElectionConfig(
            options.lease_namespace,
            options.lease_name,
            options.identity,
            options.lease_seconds,
            {OBEYED_ANNOTATION: FREEZE_CONFIG_MAP},
        )
        self.leader_elector = LeaderElector(client, config)
        if options.leader_elect:
            client.seconds_to_write = lambda: self.leader_elector.seconds_left
        self.applier = Applier(client, self.cache, self.recorder, self._may_write)
        self._health = HealthServer(self._unhealthy, self._not_ready, lambda: b"")
        self.cache.rooms = {}
        self._asking: asyncio.Task[None] | None = None
        self._decided_at = time.monotonic()
        self._shown: set[str] = set()

    async def run(self, stop: asyncio.Event) -> None:
        """Until `stop` is set; then waits for evictions under way and releases the lease."""
        if self._options.listen is not None:
            await self._health.start(*self._options.listen)
        tasks = [asyncio.create_task(job()) for job in (self.informers.run, self.recorder.run, self._lead)]
        stopped = asyncio.create_task(stop.wait())
        try:
            await asyncio.wait((*tasks, stopped), return_when=asyncio.FIRST_COMPLETED)
            for job in tasks:
                if job.done():
                    job.result()  # none of them returns: this raises its error
        finally:
            tasks[-1].cancel()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(5.0):
                    await self.applier.evictor.drain()
            await self.recorder.drain(2.0)
            if self._options.leader_elect:
                await self.leader_elector.release()
            waiting = (*tasks, stopped, *([self._asking] if self._asking is not None else ()))
            for task in waiting:
                task.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)
            await self._health.stop()

    async def _lead(self) -> None:
        await self.informers.synced.wait()
        log.info("all informers have synced")
        while True:
            if not self._options.leader_elect or self._options.shadow:
                await self._decide_while_leading()
                continue
            await self.leader_elector.acquire()
            renewal = asyncio.create_task(self.leader_elector.renew())
            try:
                # What the previous leader wrote last must be seen before the first decision.
                await self.informers.relist(*(kind.kind for kind in WATCHED_BY_OPERATOR))
                await self._decide_while_leading()
            finally:
                renewal.cancel()
                await asyncio.gather(renewal, return_exceptions=True)

    async def _decide_while_leading(self) -> None:
        failures = 0
        before: tuple[Write, ...] = ()
        self._decided_at = time.monotonic()  # a replica that waited for the lease for hours is not stuck
        while self._may_write() or self._options.shadow:
            self._changed.clear()
            now = int(time.time())
            decision = decide(self.cache.observed(), now)
            self._decided_at = time.monotonic()
            done = await self._carry_out(decision)
            # What is decided once more has had no effect: something else holds it, and haste would not help.
            is_in_vain = bool(decision.writes) and decision.writes == before
            failures = failures + 1 if done < len(decision.writes) or is_in_vain else 0
            before = decision.writes
            await self._read_gates(decision, now)
            self._ask_for_room(decision)
            if failures:
                await asyncio.sleep(min(MAX_FAILURE_PAUSE, BATCH_SECONDS * 2**failures))
            elif all(isinstance(write, REPEATED) for write in decision.writes):
                await self._wait(decision)
            await asyncio.sleep(BATCH_SECONDS)

    async def _carry_out(self, decision: Decision) -> int:
        """How many writes were answered. Those of one kind go out together, and one kind after the other: two writes
        to one object at once would conflict."""
        if self._options.shadow:
            self._show(decision.writes)
            return len(decision.writes)
        slots = asyncio.Semaphore(CONCURRENT_WRITES)

        async def carry_out(write: Write) -> bool:
            async with slots:
                return await self.applier.apply(write)

        answered = 0
        for _, writes in groupby(decision.writes, type):
            answered += sum(await asyncio.gather(*map(carry_out, writes)))
        return answered

    def _show(self, writes: tuple[Write, ...]) -> None:
        """Each once: in the shadow nothing changes, so that the same is decided again."""
        lines = {str(write) for write in writes}
        for line in sorted(lines - self._shown):
            log.info("shadow: would write %s", line)
        self._shown = lines

    async def _wait(self, decision: Decision) -> None:
        """Until something changes, or time alone may change the decision."""
        pause = max(0.0, decision.wake_at - time.time())
        if decision.writes:
            pause = min(pause, REPEAT_SECONDS)
        if decision.gates:
            pause = min(pause, float(self._options.gate_seconds))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(pause):
                await self._changed.wait()

    async def _read_gates(self, decision: Decision, now: int) -> None:
        observed = self.cache.observed()
        due = [
            (change.name, gate, nodes, parse_timestamp(change.status.bake_since))
            for change in observed.changes
            if change.name in decision.gates
            for nodes in [_nodes_of(observed, change.spec.stack)]
            for gate in change.spec.gates
            if now - self._read_at(change.name, gate.name) >= self._options.gate_seconds
        ]
        readings = await asyncio.gather(
            *(
                ask(self._options.prometheus, fill_query(gate.query, nodes, now - since), nodes, now)
                for _, gate, nodes, since in due
            )
        )
        for (change, gate, _, _), reading in zip(due, readings, strict=True):
            self.cache.readings[change, gate.name] = reading
        if due:
            self._changed.set()

    def _ask_for_room(self, decision: Decision) -> None:
        """Beside the loop, since faults don't wait for it; one reading of the cluster at a time."""
        if decision.rooms and (self._asking is None or self._asking.done()):
            self._asking = asyncio.create_task(self._read_rooms(decision.rooms))

    async def _read_rooms(self, questions: tuple[RoomQuestion, ...]) -> None:
        found = await read_rooms(self._client, questions, self._options.lease_namespace)
        self.cache.rooms = {**(self.cache.rooms or {}), **found}
        self._changed.set()

    def _read_at(self, change: str, gate: str) -> int:
        reading = self.cache.readings.get((change, gate))
        return reading.at if reading is not None else 0

    def _may_write(self) -> bool:
        if self._options.shadow:
            return False
        return not self._options.leader_elect or self.leader_elector.is_leader

    def _unhealthy(self) -> str:
        idle = time.monotonic() - self._decided_at
        is_deciding = self._may_write() and self.informers.synced.is_set()
        return f"no decision for {idle:.0f} s" if is_deciding and idle > 300 + STUCK_SECONDS else ""

    def _not_ready(self) -> str:
        return "" if self.informers.synced.is_set() else "informers not synced"


def _nodes_of(observed: Observed, stack: str) -> list[str]:
    found = next((known for known in observed.stacks if known.name == stack), None)
    if found is None:
        return []
    return [name for name, node in observed.nodes.items() if matches_selector(found.spec.nodes, node.labels)]


async def run_operator(config: ClientConfig, options: OperatorOptions, stop: asyncio.Event) -> None:
    async with KubeClient(config, rate=options.api_rate) as client:
        await Operator(client, options).run(stop)
