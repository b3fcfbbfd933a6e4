"""What a decision sees: nodes, pods and the operator's objects, each as it is now, and the answers of gates'
queries.

`operator.cache` builds it from informers, `operator.dump_view` from a dump, tests from worlds of their own. Nodes
and pods are decoded into structs of their own, since the operator reads other fields than placement does.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from windlass.cluster.workloads.workload_attributes import ask_terms_of
from windlass.model.digits import is_digits
from windlass.model.group_membership import GANG_IF_QUEUED_KINDS, GANG_KINDS, group_reference
from windlass.model.leaving import DEFAULT_ASK_SECONDS, MAX_ASK_SECONDS
from windlass.model.meta import KubeStruct, ObjectMeta
from windlass.model.names.nvidia import GPU_RESOURCE, MIG_RESOURCE_PREFIX, SHARED_GPU_RESOURCE
from windlass.model.names.windlass import (
    ALLOCATED_DEVICES_ANNOTATION,
    DEVICE_FAULTS_ANNOTATION,
    DEVICES_ANNOTATION,
    HELD_DEVICES_ANNOTATION,
    NODE_ANSWER_ANNOTATION,
    NODE_REQUEST_ANNOTATION,
)
from windlass.model.node import NodeCondition, Taint
from windlass.model.notices import LeaveRequest, read_leave_request
from windlass.model.pod import Container, RawQuantity
from windlass.node.operator_link import (
    DeviceFaultReport,
    NodeAnswer,
    NodeRequest,
    decode_answer,
    decode_faults,
    decode_request,
)
from windlass.operator.kinds.fleet_change import FleetChange
from windlass.operator.kinds.gpu_node import GPUNode
from windlass.operator.kinds.gpu_repair import GPURepair
from windlass.operator.kinds.gpu_stack import GPUStack, GPUStackStatus

_FINISHED = ("Succeeded", "Failed")


class NodeInfo(KubeStruct, frozen=True):
    boot_id: str = msgspec.field(default="", name="bootID")
    kernel_version: str = ""
    os_image: str = ""
    container_runtime_version: str = ""


class RuntimeHandler(KubeStruct, frozen=True):
    name: str = ""


class NodeTaint(Taint, frozen=True):
    """Whole: the taints of a node are written as one list, and those of others must come back as they were."""

    time_added: str = ""


class _NodeSpec(KubeStruct, frozen=True):
    unschedulable: bool = False
    taints: tuple[NodeTaint, ...] = ()


class _NodeStatus(KubeStruct, frozen=True):
    capacity: dict[str, RawQuantity] = msgspec.field(default_factory=dict)
    allocatable: dict[str, RawQuantity] = msgspec.field(default_factory=dict)
    conditions: tuple[NodeCondition, ...] = ()
    node_info: NodeInfo = NodeInfo()
    runtime_handlers: tuple[RuntimeHandler, ...] = ()


class NodeObject(KubeStruct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: _NodeSpec = _NodeSpec()
    status: _NodeStatus = _NodeStatus()


class NodeView(msgspec.Struct, frozen=True, kw_only=True):
    """One node."""

    name: str
    uid: str = ""
    version: str = ""
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    taints: tuple[Taint, ...] = ()
    unschedulable: bool = False
    is_ready: bool = True
    info: NodeInfo = NodeInfo()
    handlers: frozenset[str] = frozenset()
    gpu_capacity: int = 0
    """Of all GPU resources together."""
    gpu_allocatable: int = 0
    faults: tuple[DeviceFaultReport, ...] = ()
    held: frozenset[int] = frozenset()
    request: NodeRequest | None = None
    answer: NodeAnswer | None = None
    gpu_ready_condition: str = ""
    """The status of the condition that the operator writes."""

    def has_taint(self, key: str) -> bool:
        return any(taint.key == key for taint in self.taints)


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


class GateReading(msgspec.Struct, frozen=True):
    """The answer to a gate's query, asked once for all nodes of the stack."""

    at: int
    values: dict[str, float] = {}
    """By node; a node without a value, or with NaN or infinity, is not here."""
    error: str = ""


class Invalid(msgspec.Struct, frozen=True):
    """An object of ours that can't be understood."""

    kind: str
    name: str
    version: str
    message: str
    phase: str = ""
    generation: int = 0
    status: GPUStackStatus = GPUStackStatus()
    """Of a stack: what was written of it before."""


class AgentTemplate(msgspec.Struct, frozen=True):
    """The node agent as it is installed."""

    labels: dict[str, str]
    """Of its pods."""
    pod: dict[str, Any]
    """Their spec."""


class RevisionSet(msgspec.Struct, frozen=True):
    """A DaemonSet of driver containers or of a version of the agent."""

    uid: str
    stack: str


class NvidiaDriver(msgspec.Struct, frozen=True):
    """An NVIDIADriver of NVIDIA's operator: what it brings to the nodes that it selects."""

    name: str
    uid: str
    spec: dict[str, Any]
    state: str = ""
    """ready, notReady, disabled or ignored."""
    is_ours: bool = False

    @property
    def is_default(self) -> bool:
        """Whether it is for all nodes that no other one selects."""
        return self.spec.get("default") is True

    @property
    def version(self) -> str:
        return str(self.spec.get("version") or "")


class Observed(msgspec.Struct, frozen=True, kw_only=True):
    stacks: tuple[GPUStack, ...] = ()
    nodes: Mapping[str, NodeView] = {}
    gpu_nodes: Mapping[str, GPUNode] = {}
    changes: tuple[FleetChange, ...] = ()
    repairs: tuple[GPURepair, ...] = ()
    pods: Mapping[str, tuple[PodView, ...]] = {}
    """By node."""
    daemon_sets: Mapping[str, RevisionSet] = {}
    """By name: those that the operator has made."""
    agent: AgentTemplate | None = None
    nvidia_drivers: Mapping[str, NvidiaDriver] = {}
    """By name; none where NVIDIA's operator is not there."""
    readings: Mapping[tuple[str, str], GateReading] = {}
    """By change and gate."""
    refusals: Mapping[str, str] = {}
    """Pod → why the API server refused its eviction last time."""
    invalid: tuple[Invalid, ...] = ()
    namespace: str = "windlass-node"
    """Where driver containers run."""


def node_view(node: NodeObject) -> NodeView:
    metadata, status = node.metadata, node.status
    annotations = metadata.annotations
    conditions = {condition.type: condition.status for condition in status.conditions}
    held = (part for part in annotations.get(HELD_DEVICES_ANNOTATION, "").split(",") if is_digits(part))
    return NodeView(
        name=metadata.name,
        uid=metadata.uid,
        version=metadata.resource_version,
        labels=metadata.labels,
        annotations=annotations,
        taints=node.spec.taints,
        unschedulable=node.spec.unschedulable,
        is_ready=conditions.get("Ready") == "True",
        info=status.node_info,
        handlers=frozenset(handler.name for handler in status.runtime_handlers),
        gpu_capacity=_gpus(status.capacity),
        gpu_allocatable=_gpus(status.allocatable),
        faults=decode_faults(annotations.get(DEVICE_FAULTS_ANNOTATION, "")),
        held=frozenset(map(int, held)),
        request=decode_request(annotations.get(NODE_REQUEST_ANNOTATION, "")),
        answer=decode_answer(annotations.get(NODE_ANSWER_ANNOTATION, "")),
        gpu_ready_condition=conditions.get(GPU_READY_CONDITION, ""),
    )


def pod_view(pod: PodObject) -> PodView | None:
    """None for a pod that holds nothing on any node."""
    metadata = pod.metadata
    if not pod.spec.node_name or pod.status.phase in _FINISHED:
        return None
    owner = next((reference for reference in metadata.owner_references if reference.controller), None)
    problem = _problem(pod.status)
    annotations = metadata.annotations
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
        gang=_gang(pod),
        is_ready=any(condition.type == "Ready" and condition.status == "True" for condition in pod.status.conditions),
        is_deleting=bool(metadata.deletion_timestamp),
        problem=problem.reason,
        problem_message=problem.message,
        ask_seconds=_ask_seconds(metadata),
        leave=read_leave_request(annotations),
    )


GPU_READY_CONDITION = "windlass.dev/GPUReady"


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
    containers = sum(_gpus(container.resources.limits) for container in spec.containers)
    return max(containers, *(_gpus(container.resources.limits) for container in spec.init_containers), 0)


def _gpus(amounts: Mapping[str, RawQuantity]) -> int:
    count = 0
    for name, amount in amounts.items():
        if name in (GPU_RESOURCE, SHARED_GPU_RESOURCE) or name.startswith(MIG_RESOURCE_PREFIX):
            text = str(amount)
            count += int(text) if text.isascii() and text.isdigit() else 0
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
