"""What a decision sees: nodes, pods and the operator's objects, each as it is now, and the answers of gates'
queries.

`operator.cache` builds it from informers, `operator.dump_view` from a dump, tests from worlds of their own. Nodes
and pods are decoded into structs of their own, since the operator reads other fields than placement does.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from windlass.model.meta import KubeStruct, ObjectMeta
from windlass.model.names.windlass import (
    DEVICE_FAULTS_ANNOTATION,
    NODE_ANSWER_ANNOTATION,
    NODE_REQUEST_ANNOTATION,
)
from windlass.model.node import NodeCondition, Taint
from windlass.model.pod import RawQuantity
from windlass.model.repair_state import held_devices
from windlass.node.operator_link import (
    DeviceFaultReport,
    NodeAnswer,
    NodeRequest,
    decode_answer,
    decode_faults,
    decode_request,
)
from windlass.operator.canary_jobs import CanaryJob
from windlass.operator.kinds.fleet_change import FleetChange
from windlass.operator.kinds.gpu_node import GPUNode
from windlass.operator.kinds.gpu_repair import GPURepair
from windlass.operator.kinds.gpu_stack import GPUStack, GPUStackStatus
from windlass.operator.pods import PodView, count_gpus
from windlass.operator.queued_work import QueuedWorks
from windlass.operator.stateful_sets import StatefulSetView

GPU_READY_CONDITION = "windlass.dev/GPUReady"
"""Of nodes; the operator writes it, and others may wait for it."""


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


class GateReading(msgspec.Struct, frozen=True):
    """The answer to a gate's query, asked once for all nodes of the stack."""

    at: int
    values: dict[str, float] = {}
    """By node; a node without a value, or with NaN or infinity, is not here."""
    error: str = ""


class RoomQuestion(msgspec.Struct, frozen=True):
    """What a drain of a node would stop, on whatever nodes."""

    node: str
    works: tuple[str, ...] = ()
    """Workloads that a queue has admitted."""
    pods_of_works: tuple[str, ...] = ()
    pods: tuple[str, ...] = ()
    """Pods that belong to none of them."""


class RoomReading(msgspec.Struct, frozen=True):
    """The engine's answer."""

    at: int
    without: tuple[str, ...] = ()
    """What would not start elsewhere."""
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
    rooms: Mapping[str, RoomReading] | None = None
    """By node; None: the engine can't be asked."""
    queued: QueuedWorks = QueuedWorks()
    refusals: Mapping[str, str] = {}
    """Pod → why the API server refused its eviction last time."""
    invalid: tuple[Invalid, ...] = ()
    stateful_sets: Mapping[str, StatefulSetView] = {}
    jobs: Mapping[str, CanaryJob] = {}
    """Of canary work, by name."""
    canary_namespace: str = "windlass-canary"
    namespace: str = "windlass-node"
    """Where driver containers run."""


def node_view(node: NodeObject) -> NodeView:
    metadata, status = node.metadata, node.status
    annotations = metadata.annotations
    conditions = {condition.type: condition.status for condition in status.conditions}
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
        gpu_capacity=count_gpus(status.capacity),
        gpu_allocatable=count_gpus(status.allocatable),
        faults=decode_faults(annotations.get(DEVICE_FAULTS_ANNOTATION, "")),
        held=held_devices(annotations),
        request=decode_request(annotations.get(NODE_REQUEST_ANNOTATION, "")),
        answer=decode_answer(annotations.get(NODE_ANSWER_ANNOTATION, "")),
        gpu_ready_condition=conditions.get(GPU_READY_CONDITION, ""),
    )
