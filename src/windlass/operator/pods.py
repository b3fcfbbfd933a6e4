"""A pod as the operator reads it: what it holds, with whom it goes, and why it does not run.

`operator.cache` decodes pods into these; pods that hold nothing on any node are left out.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from windlass.cluster.workloads.workload_attributes import ask_terms_of
from windlass.model.digits import is_digits
from windlass.model.group_membership import GANG_IF_QUEUED_KINDS, GANG_KINDS, group_reference, workload_name
from windlass.model.leaving import DEFAULT_ASK_SECONDS, MAX_ASK_SECONDS
from windlass.model.meta import KubeStruct, ObjectMeta
from windlass.model.names.nvidia import GPU_RESOURCE, MIG_RESOURCE_PREFIX, SHARED_GPU_RESOURCE
from windlass.model.names.windlass import ALLOCATED_DEVICES_ANNOTATION, DEVICES_ANNOTATION
from windlass.model.notices import LeaveRequest, read_leave_request
from windlass.model.pod import Container, RawQuantity
from windlass.operator.queued_work import controller

_FINISHED = ("Succeeded", "Failed")


class _Waiting(KubeStruct, frozen=True):
    reason: str = ""
    message: str = ""


class _ContainerState(KubeStruct, frozen=True):
    waiting: _Waiting | None = None
    terminated: _Waiting | None = None


class _ContainerStatus(KubeStruct, frozen=True):
    state: _ContainerState = _ContainerState()
    last_state: _ContainerState = _ContainerState()


class _PodCondition(KubeStruct, frozen=True):
    type: str = ""
    status: str = ""


class _SchedulingGroup(KubeStruct, frozen=True):
    pod_group_name: str = ""


class _ResourceClaim(KubeStruct, frozen=True):
    name: str = ""


class _PodSpec(KubeStruct, frozen=True):
    node_name: str = ""
    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    resource_claims: tuple[_ResourceClaim, ...] = ()
    scheduling_group: _SchedulingGroup | None = None


class _PodStatus(KubeStruct, frozen=True):
    phase: str = ""
    reason: str = ""
    conditions: tuple[_PodCondition, ...] = ()
    container_statuses: tuple[_ContainerStatus, ...] = ()
    init_container_statuses: tuple[_ContainerStatus, ...] = ()


class PodObject(KubeStruct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: _PodSpec = _PodSpec()
    status: _PodStatus = _PodStatus()


class PodView(msgspec.Struct, frozen=True, kw_only=True):
    """One pod that is bound to a node and has not ended."""

    key: str
    uid: str = ""
    node: str = ""
    labels: dict[str, str] = {}
    gpus: int = 0
    """GPUs, shares and MIG instances that it asks for."""
    has_claims: bool = False
    """Whether it has resource claims, which may be GPUs: the operator does not read what they hold."""
    devices: frozenset[int] = frozenset()
    """Indices of the GPUs that it holds; empty where the node's agent has not said."""
    owner_kind: str = ""
    owner_uid: str = ""
    workload: str = ""
    """The Kueue Workload that it names."""
    gang: str = ""
    """Pods with the same one are evicted together; empty: it stands alone."""
    is_ready: bool = True
    is_deleting: bool = False
    problem: str = ""
    """The reason why a container waits or has ended: ImagePullBackOff, CrashLoopBackOff."""
    problem_message: str = ""
    ask_seconds: int = 0
    """How long it needs for a checkpoint before it is evicted; 0: it did not opt in to being asked."""
    leave: LeaveRequest | None = None
    """That it was told to leave, and by when."""

    @property
    def holds_gpus(self) -> bool:
        """Whether it has to leave before its GPUs can be touched; agents and drivers themselves don't count."""
        return (self.gpus > 0 or bool(self.devices) or self.has_claims) and self.owner_kind != "DaemonSet"


def pod_view(pod: PodObject) -> PodView | None:
    """None for a pod that holds nothing on any node."""
    metadata = pod.metadata
    if not pod.spec.node_name or pod.status.phase in _FINISHED:
        return None
    owner = controller(metadata.owner_references)
    problem = _problem(pod.status)
    annotations = metadata.annotations
    named = workload_name(metadata.labels, annotations)
    devices = annotations.get(ALLOCATED_DEVICES_ANNOTATION) or annotations.get(DEVICES_ANNOTATION) or ""
    return PodView(
        key=f"{metadata.namespace or 'default'}/{metadata.name}",
        uid=metadata.uid,
        node=pod.spec.node_name,
        labels=metadata.labels,
        gpus=_gpus_of(pod.spec),
        has_claims=bool(pod.spec.resource_claims),
        devices=frozenset(int(part) for part in devices.split(",") if is_digits(part)),
        owner_kind=owner.kind if owner is not None else "",
        owner_uid=owner.uid if owner is not None else "",
        workload=f"{metadata.namespace}/{named}" if named else "",
        gang=_gang(pod),
        is_ready=any(condition.type == "Ready" and condition.status == "True" for condition in pod.status.conditions),
        is_deleting=bool(metadata.deletion_timestamp),
        problem=problem.reason,
        problem_message=problem.message,
        ask_seconds=_ask_seconds(metadata),
        leave=read_leave_request(annotations),
    )


def _ask_seconds(metadata: ObjectMeta) -> int:
    """With the scheduler's usual configuration: the operator does not read that."""
    terms = ask_terms_of([metadata])
    return terms.seconds(DEFAULT_ASK_SECONDS, MAX_ASK_SECONDS) if terms is not None else 0


def _gang(pod: PodObject) -> str:
    metadata, group = pod.metadata, pod.spec.scheduling_group
    found = group_reference(metadata.labels, metadata.annotations, group.pod_group_name if group is not None else "")
    if found is not None:
        return f"{metadata.namespace}/{found.source}/{found.name}"
    for owner in metadata.owner_references:
        kind = (owner.api_version.rpartition("/")[0], owner.kind)
        if owner.controller and kind in GANG_KINDS | GANG_IF_QUEUED_KINDS:
            return f"{metadata.namespace}/{owner.uid}"
    return ""


def _gpus_of(spec: _PodSpec) -> int:
    """The most that it may hold at once; init containers may be sidecars, which stay."""
    containers = sum(count_gpus(container.resources.limits) for container in spec.containers)
    return max(containers, *(count_gpus(container.resources.limits) for container in spec.init_containers), 0)


def count_gpus(amounts: Mapping[str, RawQuantity]) -> int:
    count = 0
    for name, amount in amounts.items():
        if name in (GPU_RESOURCE, SHARED_GPU_RESOURCE) or name.startswith(MIG_RESOURCE_PREFIX):
            text = str(amount)
            count += int(text) if is_digits(text) else 0
    return count


def _problem(status: _PodStatus) -> _Waiting:
    """Of the first container that is not running; what ended it counts before what it waits for."""
    for container in (*status.init_container_statuses, *status.container_statuses):
        ended = container.state.terminated or container.last_state.terminated
        waiting = container.state.waiting
        if waiting is not None and waiting.reason not in ("PodInitializing",):
            if ended is not None and ended.message:
                return _Waiting(reason=waiting.reason, message=ended.message)
            return waiting
        if container.state.terminated is not None and container.state.terminated.reason != "Completed":
            return container.state.terminated
    return _Waiting()
