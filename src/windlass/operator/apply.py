"""Carries the operator's writes out: the only place of this room that changes anything in a cluster.

`operator.controller` calls `apply` with each write of a decision. A conflict or an object that is gone means that
the world moved on, and the next decision sees it. Evictions go through `apply.evictor`: a dry run of all, then all
of them.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

import aiohttp
import msgspec

from windlass.apply.evictor import Evictor, Victim
from windlass.apply.kueue import NODE_MAINTENANCE
from windlass.apply.owners import annotate
from windlass.kube.client import KubeClient
from windlass.kube.errors import ApiError, Conflict, NotFound, NotSent, ServerUnavailable
from windlass.kube.events import Event, EventRecorder, EventRegarding
from windlass.kube.request import MERGE_PATCH, STRATEGIC_PATCH, Request
from windlass.kube.resources import NODES, PODS, Resource
from windlass.model.meta import ObjectMeta
from windlass.model.names.windlass import LEAVE_ANNOTATION, OPERATOR_API_VERSION, STOPPED_FOR_ANNOTATION
from windlass.model.times import format_timestamp
from windlass.operator.cache import OperatorCache
from windlass.operator.kinds.codec import status_tree
from windlass.operator.kinds.gpu_repair import GPURepair, Ticket
from windlass.operator.kinds.reasons import REASONS, Reason
from windlass.operator.observed import GPU_READY_CONDITION
from windlass.operator.resources import DAEMON_SETS, JOBS, NVIDIA_DRIVERS, OPERATOR_RESOURCES, STATEFUL_SETS
from windlass.operator.writes import (
    ApplyDaemonSet,
    CallTicketHook,
    CreateJob,
    CreateNvidiaDriver,
    CreateObject,
    DeleteDaemonSet,
    DeleteJob,
    DeleteNvidiaDriver,
    EvictPods,
    PatchNode,
    PatchStatefulSet,
    PutNodeCondition,
    PutStatus,
    ResumeWorkload,
    StopWorkload,
    TellPods,
    Write,
)

log = logging.getLogger(__name__)

FIELD_MANAGER = "windlass-operator"
MANAGED_BY = (("fieldManager", FIELD_MANAGER),)
HOOK_SECONDS, HOOK_RETRY_SECONDS = 30.0, 60.0
MAX_REFERENCE = 200


class Applier:
    def __init__(
        self, client: KubeClient, cache: OperatorCache, recorder: EventRecorder, may_write: Callable[[], bool]
    ) -> None:
        self._client, self._cache, self._recorder, self._may_write = client, cache, recorder, may_write
        self._hook_not_before: dict[str, float] = {}
        self.evictor = Evictor(client, recorder, may_write, lambda count: None, self._on_refused)

    async def apply(self, write: Write) -> bool:
        """Whether the server answered; where the world has moved on, that is an answer too."""
        try:
            await self._apply(write)
        except NotFound as error:
            # Of what is created, the kind or the namespace is missing.
            is_lost = isinstance(write, CreateObject | ApplyDaemonSet | CreateJob | CreateNvidiaDriver)
            self._forget(write)
            log.log(logging.WARNING if is_lost else logging.INFO, "%s: %s", type(write).__name__, error)
            return not is_lost
        except Conflict as error:
            log.info("%s: %s", type(write).__name__, error)
        except (ApiError, ServerUnavailable, aiohttp.ClientError, TimeoutError) as error:
            log.warning("%s: %s", type(write).__name__, error)
            return False
        except NotSent:
            return False
        return True

    def _forget(self, write: Write) -> None:
        if isinstance(write, PutStatus):
            self._cache.forget(write.kind, write.name, write.version)
        elif isinstance(write, PatchNode):
            self._cache.forget("Node", write.name, write.version)

    async def _apply(self, write: Write) -> None:
        match write:
            case CreateObject(kind, name, body):
                resource = OPERATOR_RESOURCES[kind]
                tree = {"apiVersion": OPERATOR_API_VERSION, "kind": kind, **body}
                answer = await self._send(Request("POST", resource.collection, MANAGED_BY, tree))
                self._cache.put_answer(kind, OPERATOR_API_VERSION, answer)
                log.info("created %s %s", kind, name)
            case PutStatus(kind, name, version, status):
                await self._put_status(kind, name, version, status_tree(status))
                self._report(write)
            case PatchNode():
                answer = await self._send(patch_node(write))
                self._cache.put_answer("Node", "v1", answer)
                log.info("patched node %s: %s", write.name, _shown(write))
            case PutNodeCondition():
                answer = await self._send(put_condition(write, time.time()))
                self._cache.put_answer("Node", "v1", answer)
            case EvictPods(pods, reason):
                self._evict(pods, reason)
            case StopWorkload():
                self._stop(write)
            case ResumeWorkload(key, uid, api_version):
                await self._set_active(_workloads(api_version), key, uid, is_active=True, stopped_for=None)
                log.info("activated Workload %s", key)
            case TellPods(pods, request):
                for key, uid in pods:
                    await self._send(annotate(PODS, key, uid, {LEAVE_ANNOTATION: request}))
            case ApplyDaemonSet(name, body):
                path = DAEMON_SETS.namespace_collection(body["metadata"]["namespace"])
                answer = await self._send(Request("POST", path, MANAGED_BY, body))
                self._cache.put_answer("DaemonSet", "apps/v1", answer)
                log.info("created DaemonSet %s", name)
            case DeleteDaemonSet(name, uid):
                key = f"{self._cache.observed().namespace}/{name}"
                body = {"preconditions": {"uid": uid}, "propagationPolicy": "Background"}
                await self._send(Request("DELETE", DAEMON_SETS.path(key), body=body))
                log.info("deleted DaemonSet %s", name)
            case PatchStatefulSet():
                answer = await self._send(patch_stateful_set(write))
                self._cache.put_answer("StatefulSet", "apps/v1", answer)
                log.info("StatefulSet %s: %s from pod %d on", write.key, write.image, write.partition)
            case CreateJob(name, body):
                path = JOBS.namespace_collection(body["metadata"]["namespace"])
                answer = await self._send(Request("POST", path, MANAGED_BY, body))
                self._cache.put_answer("Job", "batch/v1", answer)
                log.info("created Job %s", name)
            case DeleteJob(name, namespace, uid):
                body = {"preconditions": {"uid": uid}, "propagationPolicy": "Background"}
                await self._send(Request("DELETE", JOBS.path(f"{namespace}/{name}"), body=body))
                log.info("deleted Job %s", name)
            case CreateNvidiaDriver(name, body):
                answer = await self._send(Request("POST", NVIDIA_DRIVERS.collection, MANAGED_BY, body))
                self._cache.put_answer("NVIDIADriver", NVIDIA_DRIVERS.api_version, answer)
                log.info("created NVIDIADriver %s", name)
            case DeleteNvidiaDriver(name, uid):
                body = {"preconditions": {"uid": uid}}
                await self._send(Request("DELETE", NVIDIA_DRIVERS.path(name), body=body))
                log.info("deleted NVIDIADriver %s", name)
            case CallTicketHook():
                await self._call_hook(write)

    async def _send(self, request: Request) -> bytes:
        return await self._client.send(request, self._may_write)

    async def _put_status(self, kind: str, name: str, version: str, status: dict[str, Any]) -> None:
        """The whole status: a merge would keep what is no longer said."""
        resource = OPERATOR_RESOURCES[kind]
        metadata = {"name": name, "resourceVersion": version}
        tree = {"apiVersion": OPERATOR_API_VERSION, "kind": kind, "metadata": metadata, "status": status}
        answer = await self._send(Request("PUT", resource.path(name, "status"), MANAGED_BY, tree))
        self._cache.put_answer(kind, OPERATOR_API_VERSION, answer)

    def _evict(self, pods: tuple[tuple[str, str], ...], reason: str) -> None:
        victim = Victim(workload=pods[0][0], pods=pods, reason=NODE_MAINTENANCE, detail=reason)
        self.evictor.evict(f"{reason}/{pods[0][0]}", [victim])

    def _stop(self, write: StopWorkload) -> None:
        async def stop() -> None:
            resource = _workloads(write.api_version)
            await self._set_active(resource, write.key, write.uid, is_active=False, stopped_for=write.reason)
            log.info("deactivated Workload %s for %s", write.key, write.reason)

        victim = Victim(write.key, write.pods, NODE_MAINTENANCE, stop=stop, detail=write.reason)
        self.evictor.evict(f"{write.reason}/{write.key}", [victim])

    async def _set_active(
        self, resource: Resource, key: str, uid: str, *, is_active: bool, stopped_for: str | None
    ) -> None:
        metadata = {"uid": uid, "annotations": {STOPPED_FOR_ANNOTATION: stopped_for}}
        body = {"metadata": metadata, "spec": {"active": is_active}}
        answer = await self._send(Request("PATCH", resource.path(key), MANAGED_BY, body, MERGE_PATCH))
        self._cache.put_answer("Workload", resource.api_version, answer)

    def _on_refused(self, preemptor: str, pod: str, message: str) -> None:
        self._cache.refusals[pod] = message

    def _report(self, write: PutStatus) -> None:
        """An event for each phase or reason that a person should hear of."""
        known = self._cache.find(write.kind, write.name)
        event = report_event(write, known.metadata if known is not None else ObjectMeta(name=write.name))
        if event is not None:
            self._recorder.record(event, droppable=True)
            log.info("%s %s: %s (%s)", write.kind, write.name, event.note, event.reason)

    async def _call_hook(self, write: CallTicketHook) -> None:
        if not self._may_write() or time.monotonic() < self._hook_not_before.get(write.key, 0.0):
            return
        self._hook_not_before[write.key] = time.monotonic() + HOOK_RETRY_SECONDS
        headers = {"Idempotency-Key": write.key}
        timeout = aiohttp.ClientTimeout(HOOK_SECONDS)
        async with (
            aiohttp.ClientSession(timeout=timeout) as session,
            session.post(write.url, json=write.body, headers=headers) as response,
        ):
            answer = (await response.text())[:MAX_REFERENCE]
            if response.status >= 300:
                log.warning("the ticket hook answered %d for repair %s: %s", response.status, write.repair, answer)
                return
        known: GPURepair | None = self._cache.find("GPURepair", write.repair)
        ticket = Ticket(state="Called", at=format_timestamp(int(time.time())), reference=answer)
        if known is not None:
            status = msgspec.structs.replace(known.status, ticket=ticket)
            version = known.metadata.resource_version
            await self._put_status("GPURepair", write.repair, version, status_tree(status))


def _workloads(api_version: str) -> Resource:
    group, _, version = api_version.partition("/")
    return Resource("Workload", "workloads", group, version)


def report_event(write: PutStatus, metadata: ObjectMeta) -> Event | None:
    """What happened, until when it may last, and what follows then; None if there is nothing to say."""
    status: Any = write.status
    phase, message = getattr(status, "phase", ""), getattr(status, "message", "")
    reason, deadline = getattr(status, "reason", ""), getattr(status, "deadline", "")
    if not phase or not reason:
        return None
    is_warning = phase in ("RollingBack", "RolledBack", "Failed", "Refused", "Held", "Ticket")
    # Without the uid `kubectl describe` doesn't show the event.
    regarding = EventRegarding(write.kind, write.name, metadata.uid, OPERATOR_API_VERSION)
    after = REASONS[Reason(reason)].after
    ends = f" (until {deadline}" + (f"; then {after})" if after else ")") if deadline else ""
    note = f"{phase}: {message}".rstrip(": ") + ends
    return Event(regarding, reason, note, phase, "Warning" if is_warning else "Normal")


def patch_node(write: PatchNode) -> Request:
    """Only if nothing has changed the node meanwhile: its taints are one list, which holds those of others too."""
    metadata: dict[str, Any] = {"resourceVersion": write.version}
    metadata |= {"labels": write.labels} if write.labels else {}
    metadata |= {"annotations": write.annotations} if write.annotations else {}
    body: dict[str, Any] = {"metadata": metadata}
    if write.taints is not None:
        body["spec"] = {"taints": msgspec.to_builtins(write.taints)}
    return Request("PATCH", NODES.path(write.name), MANAGED_BY, body, MERGE_PATCH)


def patch_stateful_set(write: PatchStatefulSet) -> Request:
    """In one write: the image alone would reach every pod."""
    containers = [{"name": write.container, "image": write.image}]
    spec = {
        "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": write.partition}},
        "template": {"spec": {"containers": containers}},
    }
    body = {"metadata": {"resourceVersion": write.version}, "spec": spec}
    return Request("PATCH", STATEFUL_SETS.path(write.key), MANAGED_BY, body, STRATEGIC_PATCH)


def put_condition(write: PutNodeCondition, now: float) -> Request:
    at = format_timestamp(int(now))
    condition = {
        "type": GPU_READY_CONDITION,
        "status": write.status,
        "reason": write.reason,
        "message": write.message,
        "lastTransitionTime": at,
        "lastHeartbeatTime": at,
    }
    path = NODES.path(write.name, "status")
    return Request("PATCH", path, MANAGED_BY, {"status": {"conditions": [condition]}}, STRATEGIC_PATCH)


def _shown(write: PatchNode) -> str:
    taints = f"taints {[taint.key for taint in write.taints]}" if write.taints is not None else ""
    return ", ".join(part for part in (str(write.labels or ""), str(write.annotations or ""), taints) if part)
