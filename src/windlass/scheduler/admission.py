"""Admission carried out where no Kueue does it: Jobs get Workloads, are let go when admitted and stopped when evicted.

`scheduler.carry` hands over what was decided. The Workload's status is the record of what a Job holds, so that the next
leader knows it; the Job is unsuspended only after it is written, and suspended only after it is taken back. Where Kueue
is live, only queues that were taken over are touched.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import msgspec

from windlass.apply import kueue
from windlass.apply.evictor import Stop
from windlass.apply.words import condition_message
from windlass.cluster.snapshot import Snapshot
from windlass.cluster.workloads.sets import KUEUE_GATES
from windlass.kube.client import KubeClient
from windlass.kube.errors import ApiError, Conflict, Fenced, NotFound, ServerAway
from windlass.kube.request import Request
from windlass.kube.resources import JOBS, KUEUE, Resource
from windlass.kube.writes import create, lift_gates, patch_status, suspend_job
from windlass.model.decision import Admit, Evict, Hold
from windlass.model.kueue import WorkloadObject, is_finished
from windlass.model.owners.normalise import QUEUE_NAME
from windlass.model.owners.wire import JobObject
from windlass.model.plan import Plan
from windlass.model.pod import Pod
from windlass.model.topology import HOSTNAME
from windlass.scheduler.world import World

log = logging.getLogger(__name__)

AGAIN_SECONDS = 5.0
"""After a write that failed, and between two writes of the same Workload that only change words."""
MOST_REMEMBERED = 1_000


class Admissions:
    def __init__(
        self,
        client: KubeClient,
        world: World,
        may_write: Callable[[], bool],
        workloads: Callable[[], Resource | None],
    ) -> None:
        """`workloads` says in which version the server has the kind, if it has it."""
        self._client, self._world, self._may_write, self._workloads = client, world, may_write, workloads
        self._busy: dict[str, asyncio.Task[None]] = {}
        """What is being written, by name: never twice at once."""
        self._not_before: dict[str, float] = {}

    def carry_out(self, plan: Plan, snapshot: Snapshot) -> None:
        """Starts what the plan means for queued work."""
        if self._workloads() is None:
            return
        self._meet_jobs()
        workloads = {one.key: one for one in snapshot.workloads}
        for admit in plan.admits:
            if admit.kind == "Workload" and not admit.after and self._is_ours(admit.workload):
                self._once(admit.workload, functools.partial(self._admit, admit, workloads[admit.workload]))

    def lift(self, pod: Pod) -> None:
        """The pod was admitted: without Kueue's gates it can be bound at the next decision."""
        kept = [gate.name for gate in pod.spec.scheduling_gates if gate.name not in KUEUE_GATES]
        queue = pod.metadata.labels.get(QUEUE_NAME, "")
        if len(kept) < len(pod.spec.scheduling_gates) and self._decides(pod.metadata.namespace, queue):
            request = lift_gates(pod.key, pod.metadata.uid, kept)
            self._once(f"gates of {pod.key}", functools.partial(self._send, request))

    def stopper(self, evict: Evict) -> Stop | None:
        """How a queued workload is stopped; None where its pods are simply evicted."""
        wire = self._workload(evict.workload)
        if wire is None or not self._is_ours(evict.workload):
            return None
        return functools.partial(self._send_back, evict)

    async def settle(self) -> None:
        while self._busy:
            await asyncio.gather(*self._busy.values(), return_exceptions=True)

    # Jobs and their Workloads

    def _meet_jobs(self) -> None:
        """Jobs that have no Workload yet get one; Workloads whose Job has ended are finished."""
        for job in self._world.queued_jobs():
            if not self._decides(job.metadata.namespace, job.metadata.labels.get(QUEUE_NAME, "")):
                continue
            key = (
                f"{job.metadata.namespace}/{kueue.workload_name('Job', job.metadata.name, job.metadata.uid)}"
            )
            wire = self._workload(key)
            end = _end_of(job)
            if wire is None and not end:
                self._once(key, functools.partial(self._create, job))
            elif wire is not None and end and not is_finished(wire):
                status = functools.partial(kueue.finished_status, wire, end)
                self._once(key, functools.partial(self._patch, key, status))

    async def _create(self, job: JobObject) -> None:
        resource = self._resource()
        # The template as it is written, of which the model keeps only what it reads; by list, which is allowed anyway.
        only = (("fieldSelector", f"metadata.name={job.metadata.name}"),)
        found: Any = msgspec.json.decode(
            await self._client.send(Request("GET", JOBS.within(job.metadata.namespace), only))
        )
        raw = next((one for one in found["items"] or () if one["metadata"]["uid"] == job.metadata.uid), None)
        if raw is None:
            return
        queue = job.metadata.labels[QUEUE_NAME]
        priority = self._world.priority_of(job)
        body = kueue.workload_of_job(raw, resource.version, queue, priority)
        await self._send(create(resource, job.metadata.namespace, body))

    async def _admit(self, admit: Admit, workload: Any) -> None:
        wire = self._workload(admit.workload)
        if wire is None:
            return
        version = self._resource().version
        hosts = self._hostnames()
        status = functools.partial(_admitted, wire, admit, workload, hosts, version)
        await self._patch(admit.workload, status, wire.metadata.resource_version)
        await self._suspend_owner(wire, False)

    async def _send_back(self, evict: Evict) -> None:
        wire = self._workload(evict.workload)
        if wire is None:
            return
        message = f"Preempted to accommodate a workload: {evict.reason}"
        await self._patch(
            evict.workload, functools.partial(kueue.eviction_status, wire, evict.reason, message)
        )
        await self._suspend_owner(wire, True)

    async def _suspend_owner(self, wire: WorkloadObject, suspended: bool) -> None:
        for owner in wire.metadata.owner_references:
            if owner.controller and owner.kind == "Job":
                key = f"{wire.metadata.namespace}/{owner.name}"
                await self._send(suspend_job(key, owner.uid, suspended))

    def tell(self, hold: Hold) -> None:
        """The Workload's own condition says why it waits."""
        wire = self._workload(hold.workload)
        if (
            wire is None
            or not self._is_ours(hold.workload)
            or wire.status.admission is not None
            or is_finished(wire)
        ):
            return
        message = condition_message(hold.verdict)
        if kueue.says(wire, "QuotaReserved", "False", "Pending", message):
            return
        status = functools.partial(kueue.waiting_status, wire, "Pending", message)
        # Only if nothing happened to it meanwhile: what it is told must not undo what it was given.
        write = functools.partial(self._patch, hold.workload, status, wire.metadata.resource_version)
        self._once(hold.workload, write, slowly=True)

    # Who decides

    def _is_ours(self, key: str) -> bool:
        wire = self._workload(key)
        return wire is not None and self._decides(wire.metadata.namespace, wire.spec.queue_name)

    def _decides(self, namespace: str, queue: str) -> bool:
        return not self._world.kueue_is_live or self._world.is_taken_over(namespace or "default", queue)

    # Writing

    def _once(self, name: str, work: Callable[[], Awaitable[None]], *, slowly: bool = False) -> None:
        """Start it, unless the same is under way or has just failed."""
        now = time.monotonic()
        if len(self._not_before) > MOST_REMEMBERED:
            self._not_before = {key: at for key, at in self._not_before.items() if at > now}
        patience = f"words of {name}" if slowly else name
        if name in self._busy or now < self._not_before.get(patience, 0.0) or not self._may_write():
            return
        if slowly:
            self._not_before[patience] = now + AGAIN_SECONDS
        task = asyncio.create_task(self._run(name, work))
        self._busy[name] = task
        task.add_done_callback(lambda _: self._busy.pop(name, None))

    async def _run(self, name: str, work: Callable[[], Awaitable[None]]) -> None:
        try:
            await work()
        except (NotFound, Conflict) as error:
            log.info("%s: %s", name, error)
        except (ApiError, ServerAway, Fenced) as error:
            self._not_before[name] = time.monotonic() + AGAIN_SECONDS
            log.warning("%s: %s", name, error)

    async def _patch(self, key: str, status: Callable[[int], dict[str, Any]], version: str = "") -> None:
        await self._send(patch_status(self._resource(), key, status(int(time.time())), version))

    async def _send(self, request: Request) -> None:
        await self._client.send(request, self._may_write)

    def _resource(self) -> Resource:
        found = self._workloads()
        if found is None:
            raise ServerAway("the Workload kind has gone")
        return found

    def _workload(self, key: str) -> WorkloadObject | None:
        found: WorkloadObject | None = self._world.look("Workload", key, KUEUE)
        return found

    def _hostnames(self) -> dict[str, str]:
        nodes: Iterable[Any] = (self._world.look("Node", name) for name in self._world.nodes)
        return {node.name: node.labels.get(HOSTNAME, node.name) for node in nodes if node is not None}


def _admitted(
    wire: WorkloadObject, admit: Admit, workload: Any, hosts: dict[str, str], version: str, now: int
) -> dict[str, Any]:
    return kueue.admission_status(wire, admit, workload, hosts, version, now)


def _end_of(job: JobObject) -> str:
    """How a Job has ended; empty while it has not."""
    for one in job.status.conditions:
        if one.status == "True" and one.type in ("Complete", "Failed"):
            return "Succeeded" if one.type == "Complete" else "Failed"
    return ""
