"""Admission carried out where no Kueue does it: Jobs and their like get Workloads, are let go when admitted and stopped
when evicted; pods that a gate holds back are let through.

`scheduler.carry` hands over what was decided. The Workload's status is the record of what a Job holds, so that the next
leader knows it; the Job is unsuspended only after it is written, and suspended only after it is taken back. Where Kueue
is live, only queues that were taken over are touched.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any

import msgspec

from windlass.apply import kueue
from windlass.apply.evictor import Stop
from windlass.apply.owners import SUSPEND, annotate, end_of, suspend_owner, templates_of
from windlass.apply.words import condition_message
from windlass.cluster.snapshot import Snapshot
from windlass.cluster.workloads.facts import EVICTIONS, REQUEUED_AT
from windlass.cluster.workloads.sets import KUEUE_GATES
from windlass.kube.backoff import Backoff
from windlass.kube.client import KubeClient
from windlass.kube.errors import ApiError, Conflict, Fenced, NotFound, ServerAway
from windlass.kube.request import Request
from windlass.kube.resources import KINDS, KUEUE, Resource
from windlass.kube.writes import create, lift_gates, patch_object, patch_status
from windlass.model.decision import Admit, Evict, Hold
from windlass.model.errors import ClusterUnreachable
from windlass.model.kueue import WorkloadObject, is_finished
from windlass.model.kueue.workload_wire import Condition, WorkloadStatus
from windlass.model.objects import decode_object, name_of
from windlass.model.owners import Owner, OwnerObject, owner_of
from windlass.model.owners.normalise import QUEUE_NAME
from windlass.model.pod import Pod
from windlass.model.times import timestamp_of
from windlass.model.topology import HOSTNAME
from windlass.model.workload import Workload
from windlass.placement.lifetimes import DURATION_EXCEEDED
from windlass.queueing.outcome import QUEUES_OWN
from windlass.scheduler.assumed import AssumedStatus, version_number, with_status
from windlass.scheduler.world import World

log = logging.getLogger(__name__)

AGAIN_SECONDS = 5.0
"""After a write that failed, and between two writes of the same Workload that only change words."""
MOST_REMEMBERED = 1_000
JOBSET = "jobset.x-k8s.io"


Work = Callable[[], Awaitable[object]]
StatusOf = Callable[[WorkloadObject], dict[str, Any]]
"""The status that is to be written, with the conditions that the object has."""


class _Meta(msgspec.Struct, frozen=True, rename="camel"):
    resource_version: str = ""


class _Written(msgspec.Struct, frozen=True):
    metadata: _Meta = _Meta()


_VERSIONS = msgspec.json.Decoder(_Written)


class Admissions:
    def __init__(
        self,
        client: KubeClient,
        world: World,
        may_write: Callable[[], bool],
        served: Callable[[str, str], Resource | None],
    ) -> None:
        """`served` says in which version the server has a kind of an API group, if it has it."""
        self._client, self._world, self._may_write, self._served = client, world, may_write, served
        self._busy: dict[str, asyncio.Task[None]] = {}
        """What is being written, by name: never twice at once."""
        self._not_before: dict[str, float] = {}
        self._in_step: dict[str, tuple[str, str]] = {}
        """Workload → the versions of its owner and of itself that were compared and need nothing more."""
        self._stalled: dict[str, float] = {}
        """Workload → since when its owner is suspended or not, and should be the other."""
        self._versions: dict[str, str] = {}
        """Workload → the version that our last write made; the watch may be behind it."""

    def carry_out(self, admits: Sequence[Admit], snapshot: Snapshot) -> None:
        """Starts what was admitted and waits for nothing, and brings Workloads in step with their owners."""
        if self._served("Workload", KUEUE) is None:
            return
        self._world.take_in()
        self._meet_owners()
        now = [admit for admit in admits if admit.kind == "Workload"]
        workloads = {one.key: one for one in snapshot.workloads} if now else {}
        hosts = self._hostnames() if now else {}
        for admit in now:
            if self._is_ours(admit.workload):
                self._begin_admission(admit, workloads[admit.workload], hosts)

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

    def is_kueues(self, evict: Evict) -> bool:
        """Whether a live Kueue will stop it by itself: it sees the same queues."""
        known = self._workload(evict.workload) is not None
        return known and evict.reason in QUEUES_OWN and not self._is_ours(evict.workload)

    async def settle(self) -> None:
        while self._busy:
            await asyncio.gather(*self._busy.values(), return_exceptions=True)

    def note_eviction(self, evict: Evict, workload: Workload | None) -> Stop | None:
        """How it is written down that a workload had to go which no Workload object stands for; None where nothing
        stands for it but its pods."""
        found = self._object_of(workload) if workload is not None else None
        if workload is None or found is None or self._workload(evict.workload) is not None:
            return None
        resource, key = found
        note = {EVICTIONS: str(workload.evictions + 1)}
        if evict.reason == DURATION_EXCEEDED:
            note = {REQUEUED_AT: timestamp_of(int(time.time()))}
        return functools.partial(self._write, annotate(resource, key, workload.uid, note))

    def _object_of(self, workload: Workload) -> tuple[Resource, str] | None:
        """The group or owner that stands for a workload."""
        keys = (workload.key, workload.key.rpartition("-")[0])  # a LeaderWorkerSet makes several, by number
        for kind in (one for one in KINDS if one.kind == workload.kind):
            resource = self._served(kind.kind, kind.group)
            for key in keys if resource is not None else ():
                thing = self._world.look(kind.kind, key, kind.group)
                if thing is not None and thing.metadata.uid == workload.uid:
                    assert resource is not None
                    return resource, key
        return None

    # Owners and their Workloads

    def _meet_owners(self) -> None:
        """Owners that have no Workload yet get one; Workloads whose owner has ended are finished."""
        self._forget_what_is_gone()
        for wire in self._world.queued_owners():
            metadata = wire.metadata
            if not self._decides(metadata.namespace, metadata.labels.get(QUEUE_NAME, "")):
                continue
            name = kueue.workload_name(wire.KIND, metadata.name, metadata.uid)
            key = self._world.workload_of(wire) or f"{metadata.namespace}/{name}"
            known = self._workload(key)
            end = end_of(wire)
            if known is None and not end:
                self._once(key, functools.partial(self._create, wire))
            elif known is not None and end and not is_finished(known):
                status = kueue.finished_status(known, end, int(time.time()))
                self._once(key, functools.partial(self._patch, key, status))
            elif known is not None and not end and not is_finished(known):
                self._keep_in_step(key, known, wire)

    def _forget_what_is_gone(self) -> None:
        if len(self._in_step) > 2 * len(self._world.things) + MOST_REMEMBERED:
            self._in_step = {
                key: one for key, one in self._in_step.items() if self._workload(key) is not None
            }
            self._stalled = {key: at for key, at in self._stalled.items() if self._workload(key) is not None}
            self._versions = {
                key: one for key, one in self._versions.items() if self._workload(key) is not None
            }

    def _keep_in_step(self, key: str, known: WorkloadObject, wire: OwnerObject) -> None:
        """What waits is described anew when its owner was changed; what was admitted and is stopped is let go, and what
        was evicted and goes on is stopped.

        The second and third mend what a leader that was killed between its two writes has left behind. The second is
        also what Kueue does where somebody stops an admitted Job: to hold one back there is the Workload's
        `spec.active`.
        """
        versions = (wire.metadata.resource_version, known.metadata.resource_version)
        if self._in_step.get(key) == versions:
            return
        owner = owner_of(wire)
        if _contradicts(known, owner):
            if time.monotonic() > self._stalled.setdefault(key, time.monotonic()) + AGAIN_SECONDS:
                self._once(f"owner of {key}", functools.partial(self._mend, key, known, wire), slowly=True)
            return
        self._stalled.pop(key, None)
        if not _is_outdated(known, owner) or self._once(key, functools.partial(self._fit, key, known, wire)):
            self._in_step[key] = versions

    async def _fit(self, key: str, known: WorkloadObject, wire: OwnerObject) -> None:
        """Write the Workload's pod sets and queue as its owner has them now."""
        try:
            group, kind, named = name_of(wire)
            raw = await self._raw(kind, group, named, wire.metadata.uid)
            if raw is None:
                return
            owner = owner_of(wire)
            queue = kueue.WorkloadQueue(
                wire.metadata.labels[QUEUE_NAME], self._world.priority_of(owner), self._resource().version
            )
            made = kueue.workload_of(raw, owner, templates_of(raw), queue)
            spec = {field: made["spec"][field] for field in ("podSets", "queueName", "priority")}
            await self._send(
                patch_object(self._resource(), key, {"spec": spec}, known.metadata.resource_version)
            )
        except ClusterUnreachable:
            self._in_step.pop(key, None)  # the next decision tries again
            raise

    async def _mend(self, key: str, known: WorkloadObject, wire: OwnerObject) -> None:
        """Let an owner go that was admitted, or stop one that was evicted; if that is still so, since one watch may be
        behind the other."""
        raw = await self._raw("Workload", KUEUE, key, known.metadata.uid)
        is_admitted = known.status.admission is not None
        if (
            raw is None
            or bool((raw.get("status") or {}).get("admission")) != is_admitted
            or key in self._busy
        ):
            return
        said, done = ("admitted", "starting") if is_admitted else ("evicted", "stopping")
        log.info("%s was %s and its %s says otherwise: %s it", key, said, wire.KIND, done)
        await self._suspend_owner(known, not is_admitted)

    async def _create(self, wire: OwnerObject) -> None:
        resource = self._resource()
        group, kind, key = name_of(wire)
        raw = await self._raw(kind, group, key, wire.metadata.uid)
        if raw is None:
            return
        owner, source = owner_of(wire), raw
        if (
            not owner.sets
        ):  # a TrainJob's templates stand in the JobSet that is made of it, under the same name
            below: OwnerObject | None = self._world.look("JobSet", wire.key, JOBSET)
            found = await self._raw("JobSet", JOBSET, wire.key, below.metadata.uid) if below else None
            if below is None or found is None or not self._world.makes_our_pods(owner_of(below)):
                return  # when it is there, that is news, and this is asked again
            owner, source = msgspec.structs.replace(owner, sets=owner_of(below).sets), found
        queue = kueue.WorkloadQueue(
            wire.metadata.labels[QUEUE_NAME], self._world.priority_of(owner), resource.version
        )
        body = kueue.workload_of(raw, owner, templates_of(source), queue)
        await self._send(create(resource, wire.metadata.namespace, body))

    async def _raw(self, kind: str, group: str, key: str, uid: str) -> Any:
        """The object as it is written; by list, which is allowed anyway."""
        resource = self._served(kind, group)
        if resource is None:
            return None
        namespace, _, name = key.partition("/")
        only = (("fieldSelector", f"metadata.name={name}"),)
        answer = await self._client.send(Request("GET", resource.within(namespace), only))
        items: Any = msgspec.json.decode(answer)["items"] or ()
        raw = next((one for one in items if one["metadata"]["uid"] == uid), None)
        return None if raw is None else {"apiVersion": resource.api_version, "kind": kind, **raw}

    # Admission and eviction of a Workload: assumed from when they are sent until the watch shows them

    def _begin_admission(self, admit: Admit, workload: Workload, hosts: dict[str, str]) -> None:
        known = self._workload(admit.workload)
        if known is None or not _may_be_admitted(known) or not self._may_begin(admit.workload):
            return  # the world moved on since the decision, or the last try has just failed
        version, now = self._resource().version, int(time.time())

        def status_of(wire: WorkloadObject) -> dict[str, Any]:
            return kueue.admission_status(wire, admit, workload, hosts, version, now)

        status = msgspec.convert(status_of(known), WorkloadStatus)
        shown = with_status(known, status.admission, status.conditions)
        sent = self._world.assume_status(known, shown, admits=True)
        work = functools.partial(self._admit, known, sent, status_of)
        self._begin(admit.workload, functools.partial(self._run, admit.workload, work))

    async def _admit(self, known: WorkloadObject, sent: AssumedStatus, status_of: StatusOf) -> None:
        try:
            self._world.status_written(sent, await self._write_admission(known, status_of))
        except BaseException:
            self._world.forget_status(sent)
            raise
        await self._suspend_owner(known, False)

    async def _write_admission(self, known: WorkloadObject, status_of: StatusOf) -> str:
        """Until the server has said yes or no: what may have happened is neither given up nor done twice. Returns the
        version of the Workload that has it."""
        backoff, pause = Backoff(most=5.0), 0.0
        version = max(known.metadata.resource_version, self._versions.get(known.key, ""), key=version_number)
        while True:
            try:
                return await self._patch(known.key, status_of(known), version)
            except Conflict as error:
                refusal: ApiError | ServerAway = error
            except (ServerAway, ApiError) as error:
                if isinstance(error, ApiError) and error.code < 500:
                    raise
                refusal = error
                await asyncio.sleep(pause)
                pause = backoff.next()
            found = await self._found(known, backoff)
            if found is not None and found.status.admission is not None:
                return found.metadata.resource_version
            if found is None or not _may_be_admitted(found) or found.spec != known.spec:
                raise refusal
            known, version = found, found.metadata.resource_version

    async def _found(self, known: WorkloadObject, backoff: Backoff) -> WorkloadObject | None:
        """The Workload as the server has it; None where it is gone, or can't be read."""
        while True:
            try:
                raw = await self._raw("Workload", KUEUE, known.key, known.metadata.uid)
                break
            except (ServerAway, ApiError) as error:
                if isinstance(error, ApiError) and error.is_final:
                    raise
                await asyncio.sleep(backoff.next())
        found = decode_object(raw) if raw is not None else None
        return found if isinstance(found, WorkloadObject) else None

    async def _send_back(self, evict: Evict) -> None:
        """After what is being written to it: an admission that is under way comes first."""
        await self._begin(evict.workload, functools.partial(self._evict, evict))

    async def _evict(self, evict: Evict) -> None:
        known = self._workload(evict.workload)
        if known is None:
            return
        status = kueue.eviction_status(known, evict.reason, int(time.time()))
        # It holds its quota until the watch says that it has none, and nobody else is evicted in its stead.
        evicted = [one for one in _conditions(status) if one.type == "Evicted"]
        kept = [one for one in known.status.conditions if one.type != "Evicted"]
        shown = with_status(known, known.status.admission, (*kept, *evicted))
        sent = self._world.assume_status(known, shown, admits=False)
        try:
            self._world.status_written(sent, await self._write_eviction(sent, status))
        except BaseException:
            self._world.forget_status(sent)
            raise
        await self._suspend_owner(known, True)

    async def _write_eviction(self, sent: AssumedStatus, status: dict[str, Any]) -> str:
        backoff, pause = Backoff(most=5.0), 0.0
        key = sent.seen.key
        while True:
            try:
                return await self._patch(key, status)
            except (ServerAway, ApiError) as error:
                if isinstance(error, ApiError) and error.code < 500:
                    raise
                log.warning("eviction of %s: %s; asking again", key, error)
                await asyncio.sleep(pause)
                pause = backoff.next()
            if not self._world.is_unconfirmed(sent):
                return ""  # it happened; and what was written since must not be undone

    async def _suspend_owner(self, wire: WorkloadObject, suspended: bool) -> None:
        for owner in wire.metadata.owner_references:
            resource = self._served(owner.kind, owner.api_version.rpartition("/")[0])
            if owner.controller and owner.kind in SUSPEND and resource is not None:
                key = f"{wire.metadata.namespace}/{owner.name}"
                await self._send(suspend_owner(resource, key, owner.uid, suspended))

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
        status = kueue.waiting_status(wire, "Pending", message, int(time.time()))
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

    def _once(self, name: str, work: Work, *, slowly: bool = False) -> bool:
        """Start it, unless the same is under way or has just failed; true if it was started."""
        patience = f"words of {name}" if slowly else name
        if name in self._busy or not self._may_begin(patience):
            return False
        if slowly:
            self._not_before[patience] = time.monotonic() + AGAIN_SECONDS
        self._begin(name, functools.partial(self._run, name, work))
        return True

    def _may_begin(self, patience: str) -> bool:
        now = time.monotonic()
        if len(self._not_before) > MOST_REMEMBERED:
            self._not_before = {key: at for key, at in self._not_before.items() if at > now}
        return now >= self._not_before.get(patience, 0.0) and self._may_write()

    def _begin(self, name: str, work: Work) -> asyncio.Task[None]:
        """After what is being written under the same name."""
        task = asyncio.create_task(_after(self._busy.get(name), work))
        self._busy[name] = task
        task.add_done_callback(lambda _: self._busy.pop(name) if self._busy.get(name) is task else None)
        return task

    async def _run(self, name: str, work: Work) -> None:
        try:
            await work()
        except (NotFound, Conflict) as error:
            log.info("%s: %s", name, error)
        except (ApiError, ServerAway, Fenced) as error:
            self._not_before[name] = time.monotonic() + AGAIN_SECONDS
            log.warning("%s: %s", name, error)

    async def _patch(self, key: str, status: dict[str, Any], version: str = "") -> str:
        """Returns the version that the Workload has now."""
        answer = await self._send(patch_status(self._resource(), key, status, version))
        written = _VERSIONS.decode(answer).metadata.resource_version
        self._versions[key] = written
        return written

    async def _write(self, request: Request) -> None:
        await self._send(request)

    async def _send(self, request: Request) -> bytes:
        return await self._client.send(request, self._may_write)

    def _resource(self) -> Resource:
        found = self._served("Workload", KUEUE)
        if found is None:
            raise ServerAway("the Workload kind has gone")
        return found

    def _workload(self, key: str) -> WorkloadObject | None:
        found: WorkloadObject | None = self._world.look("Workload", key, KUEUE)
        return found

    def _hostnames(self) -> dict[str, str]:
        nodes: Iterable[Any] = (self._world.look("Node", name) for name in self._world.nodes)
        return {node.name: node.labels.get(HOSTNAME, node.name) for node in nodes if node is not None}


def _contradicts(known: WorkloadObject, owner: Owner) -> bool:
    """Whether an admitted Workload's owner is stopped, or an evicted one's goes on."""
    if known.status.admission is not None:
        return owner.suspended and known.spec.active
    return not owner.suspended and known.condition("Evicted") is not None


def _is_outdated(known: WorkloadObject, owner: Owner) -> bool:
    """Whether a Workload of ours that waits says something else than its owner."""
    if known.status.admission is not None or not owner.suspended or not owner.sets:
        return False
    ours = kueue.is_written_by_windlass(known)
    return ours and not kueue.fits_owner(known, owner, owner.metadata.labels.get(QUEUE_NAME, ""))


def _conditions(status: dict[str, Any]) -> tuple[Condition, ...]:
    return msgspec.convert(status, WorkloadStatus).conditions


def _may_be_admitted(wire: WorkloadObject) -> bool:
    return wire.status.admission is None and wire.spec.active and not is_finished(wire)


async def _after(before: asyncio.Task[None] | None, work: Work) -> None:
    if before is not None:
        await asyncio.wait((before,))
    await work()
