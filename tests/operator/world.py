"""A fleet without a cluster: nodes that load drivers, fail, reset and reboot, and the objects of the operator.

It plays what API server, kubelets, DaemonSets and node agents would do, on a clock that the test advances.
`Operator` in `play.py` decides on it; `judge.py` watches every write.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import msgspec

from windlass.cli.install_node_manifests import NodeInstallOptions, node_manifests
from windlass.model.convert import convert
from windlass.model.names.nvidia import GPU_COUNT_LABEL, GPU_PRODUCT_LABEL, MIG_CONFIG_LABEL, MIG_CONFIG_STATE_LABEL
from windlass.model.names.windlass import (
    AGENT_REVISION_LABEL,
    DRIVER_REVISION_LABEL,
    HELD_DEVICES_ANNOTATION,
    LEAVE_ANNOTATION,
    NODE_REQUEST_ANNOTATION,
)
from windlass.model.node import Taint
from windlass.model.notices import read_leave_request
from windlass.node.operator_link import DeviceFaultReport, NodeAnswer, decode_request
from windlass.operator.canary_jobs import CanaryJob, JobWire, canary_job
from windlass.operator.decide.driver_daemon_set import STACK_LABEL
from windlass.operator.decide.node_facts import DRIVER_VERSION_LABEL
from windlass.operator.decide.owners import DRIVER_COMPONENT
from windlass.operator.kinds.codec import STRUCTS
from windlass.operator.kinds.fleet_change import FleetChange
from windlass.operator.kinds.gpu_node import GPUNode
from windlass.operator.kinds.gpu_repair import GPURepair
from windlass.operator.kinds.gpu_stack import GPUStack
from windlass.operator.observed import (
    AgentTemplate,
    GateReading,
    NodeInfo,
    NodeView,
    Observed,
    RevisionSet,
    RoomQuestion,
    RoomReading,
)
from windlass.operator.pods import PodView
from windlass.operator.queued_work import QueuedWorks
from windlass.operator.writes import (
    ApplyDaemonSet,
    CallTicketHook,
    CreateJob,
    CreateObject,
    DeleteDaemonSet,
    DeleteJob,
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

START = 1_800_000_000
INSTALLED_AGENT = next(
    tree["spec"]["template"] for tree in node_manifests(NodeInstallOptions()) if tree["kind"] == "DaemonSet"
)
AGENT_SECONDS = 10
JOB_SECONDS = 60
LOAD_SECONDS, RESET_SECONDS, REBOOT_SECONDS, VALIDATE_SECONDS = 40, 10, 120, 5


@dataclass
class Fault:
    report: DeviceFaultReport
    heals_by: str = "reset"
    """reset, reboot, or nothing."""


@dataclass
class SimNode:
    name: str
    gpus: int = 8
    labels: dict[str, str] = field(default_factory=dict)
    annotations: dict[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    unschedulable: bool = False
    is_ready: bool = True
    boot: int = 1
    uid: str = ""
    agent: str = ""
    """The version of its agent; empty: the installed one."""
    loaded: str = ""
    loading: str = ""
    has_plugin: bool = True
    bad_versions: frozenset[str] = frozenset()
    """Drivers that never load here."""
    faults: dict[int, Fault] = field(default_factory=dict)
    answer: NodeAnswer | None = None
    handled: str = ""
    condition: str = ""
    version: int = 1

    @property
    def held(self) -> set[int]:
        return {int(part) for part in self.annotations.get(HELD_DEVICES_ANNOTATION, "").split(",") if part}

    @property
    def allocatable(self) -> int:
        is_up = self.loaded and self.is_ready and self.has_plugin
        return self.gpus - len(self.held | self.faults.keys()) if is_up else 0

    def view(self) -> NodeView:
        labels = dict(self.labels)
        if self.loaded:
            labels |= {
                DRIVER_VERSION_LABEL: self.loaded,
                GPU_PRODUCT_LABEL: "NVIDIA-H100-80GB-HBM3",
                GPU_COUNT_LABEL: str(self.gpus),
            }
        return NodeView(
            name=self.name,
            uid=self.uid,
            version=str(self.version),
            labels=labels,
            annotations={**self.annotations, "windlass.dev/devices-layout": "[]"},
            taints=self.taints,
            unschedulable=self.unschedulable,
            is_ready=self.is_ready,
            info=NodeInfo(boot_id=f"boot-{self.boot}", container_runtime_version="containerd://2.4.2"),
            gpu_capacity=self.gpus if self.loaded else 0,
            gpu_allocatable=self.allocatable,
            faults=tuple(fault.report for _, fault in sorted(self.faults.items())),
            held=frozenset(self.held),
            request=decode_request(self.annotations.get(NODE_REQUEST_ANNOTATION, "")),
            answer=self.answer,
            gpu_ready_condition=self.condition,
        )


class World:
    def __init__(self) -> None:
        self.now = START
        self.nodes: dict[str, SimNode] = {}
        self.objects: dict[str, dict[str, Any]] = {kind: {} for kind in STRUCTS}
        self.pods: dict[str, PodView] = {}
        self.daemon_sets: dict[str, str] = {}
        """Their revisions."""
        self.driver_stacks: dict[str, str] = {}
        self.tickets: list[str] = []
        self.readings: Callable[[World, str, str], GateReading | None] = lambda world, change, gate: None
        self.on_loaded: Callable[[World, SimNode], None] = lambda world, node: None
        self.on_agent: Callable[[World, SimNode], None] = lambda world, node: None
        self.agent = AgentTemplate(INSTALLED_AGENT["metadata"]["labels"], INSTALLED_AGENT["spec"])
        self.reschedules = True
        """Whether evicted pods come back on other nodes."""
        self.room: Callable[[RoomQuestion], tuple[str, ...]] | None = None
        """What of the work of a node would not start elsewhere; None: nobody can be asked."""
        self.rooms: dict[str, RoomReading] = {}
        self.questions: list[RoomQuestion] = []
        self.jobs: dict[str, CanaryJob] = {}
        self.job_ends: Callable[[World, str], tuple[str, int]] = lambda world, node: ("Succeeded", JOB_SECONDS)
        """How canary work ends on a node, and after how long."""
        self.sets: Any = None
        """What rolls StatefulSets out, if there are any."""
        self.queue: Any = None
        """What admits work, if anything does (`kueue_play.Kueue`)."""
        self.protected: set[str] = set()
        """Pods that a PodDisruptionBudget keeps."""
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._serial = 0
        self._views: dict[str, tuple[int, NodeView]] = {}

    # what is there

    def add_node(self, name: str, **fields: Any) -> SimNode:
        node = self.nodes[name] = SimNode(name, uid=f"uid-{name}", **fields)
        return node

    def add(self, kind: str, name: str, spec: dict[str, Any]) -> Any:
        self._serial += 1
        metadata = {
            "name": name,
            "uid": f"{kind}-{name}-{self._serial}",
            "resourceVersion": "1",
            "generation": 1,
            "creationTimestamp": f"2027-01-01T00:00:{self._serial % 60:02d}Z",
        }
        obj = self.objects[kind][name] = convert({"metadata": metadata, "spec": spec}, STRUCTS[kind])
        return obj

    def put_spec(self, kind: str, name: str, **fields: Any) -> None:
        """A person changes the spec."""
        known = self.objects[kind][name]
        spec = msgspec.to_builtins(known.spec) | fields
        generation = known.metadata.generation + 1
        metadata = msgspec.structs.replace(
            known.metadata, generation=generation, resource_version=str(int(known.metadata.resource_version) + 1)
        )
        whole = convert({"spec": spec}, STRUCTS[kind])
        self.objects[kind][name] = msgspec.structs.replace(known, spec=whole.spec, metadata=metadata)  # type: ignore[attr-defined]

    def change(self, name: str) -> FleetChange:
        found: FleetChange = self.objects["FleetChange"][name]
        return found

    def repair(self, name: str) -> GPURepair:
        found: GPURepair = self.objects["GPURepair"][name]
        return found

    def gpu_node(self, name: str) -> GPUNode:
        found: GPUNode = self.objects["GPUNode"][name]
        return found

    def stack(self, name: str) -> GPUStack:
        found: GPUStack = self.objects["GPUStack"][name]
        return found

    def observe(self) -> Observed:
        by_node: dict[str, list[PodView]] = {}
        for pod in self.pods.values():
            by_node.setdefault(pod.node, []).append(pod)
        for name, node in self.nodes.items():
            driver = self._driver_pod(node)
            if driver is not None:
                by_node.setdefault(name, []).append(driver)
            by_node.setdefault(name, []).append(self._agent_pod(node))
        readings = {}
        for change in self.objects["FleetChange"].values():
            for gate in change.spec.gates:
                reading = self.readings(self, change.name, gate.name)
                if reading is not None:
                    readings[change.name, gate.name] = reading
        return Observed(
            stacks=tuple(self.objects["GPUStack"].values()),
            nodes={name: self._view(node) for name, node in self.nodes.items()},
            gpu_nodes=dict(self.objects["GPUNode"]),
            changes=tuple(self.objects["FleetChange"].values()),
            repairs=tuple(self.objects["GPURepair"].values()),
            pods={name: tuple(pods) for name, pods in by_node.items()},
            daemon_sets={name: RevisionSet(name, self.driver_stacks[name]) for name in self.daemon_sets},
            agent=self.agent,
            readings=readings,
            rooms=self.rooms if self.room is not None else None,
            stateful_sets=self.sets.seen() if self.sets is not None else {},
            jobs=dict(self.jobs),
            queued=self.queue.seen() if self.queue is not None else QueuedWorks(),
            refusals=dict.fromkeys(self.protected, "Cannot evict pod as it would violate the pod's disruption budget."),
        )

    def ask_for_room(self, question: RoomQuestion) -> None:
        assert self.room is not None
        self.questions.append(question)
        self.rooms = {**self.rooms, question.node: RoomReading(self.now, self.room(question))}

    def _view(self, node: SimNode) -> NodeView:
        known = self._views.get(node.name)
        if known is None or known[0] != node.version:
            known = self._views[node.name] = node.version, node.view()
        return known[1]

    def _driver_pod(self, node: SimNode) -> PodView | None:
        revision = node.labels.get(DRIVER_REVISION_LABEL, "")
        if not revision or revision not in self.daemon_sets.values():
            return None
        labels = {
            "app.kubernetes.io/name": "windlass",
            "app.kubernetes.io/component": DRIVER_COMPONENT,
            DRIVER_REVISION_LABEL: revision,
        }
        is_up = node.loaded == revision
        return PodView(
            key=f"windlass-node/driver-{node.name}",
            node=node.name,
            labels=labels,
            owner_kind="DaemonSet",
            is_ready=is_up,
        )

    def _agent_pod(self, node: SimNode) -> PodView:
        labels = {"app.kubernetes.io/name": "windlass", "app.kubernetes.io/component": "node"}
        labels |= {AGENT_REVISION_LABEL: node.agent} if node.agent else {}
        return PodView(key=f"windlass-node/agent-{node.name}", node=node.name, labels=labels, owner_kind="DaemonSet")

    # what is written

    def apply(self, write: Write) -> bool:
        """Whether it took effect; a write on an old version does not."""
        match write:
            case CreateObject(kind, name, body):
                if name in self.objects[kind]:
                    return False
                self.add(kind, name, body.get("spec", {}))
            case PutStatus(kind, name, version, status):
                known = self.objects[kind][name]
                if known.metadata.resource_version != version:
                    return False
                metadata = msgspec.structs.replace(known.metadata, resource_version=str(int(version) + 1))
                self.objects[kind][name] = msgspec.structs.replace(known, status=status, metadata=metadata)
            case PatchNode():
                return self._patch_node(write)
            case PutNodeCondition(name, status, _, _):
                self.nodes[name].condition = status
                self.nodes[name].version += 1
            case EvictPods(pods, _):
                if self.protected.isdisjoint(key for key, _ in pods):
                    for key, uid in pods:
                        if key in self.pods and self.pods[key].uid == uid:
                            self._evict(key)
                else:
                    return False
            case StopWorkload():
                return bool(self.queue.stop(write))
            case ResumeWorkload():
                return bool(self.queue.resume(write))
            case TellPods(pods, request):
                leave = read_leave_request({LEAVE_ANNOTATION: request or ""})
                for key, uid in pods:
                    if key in self.pods and self.pods[key].uid == uid:
                        self.pods[key] = msgspec.structs.replace(self.pods[key], leave=leave)
            case PatchStatefulSet():
                return bool(self.sets.patch(write))
            case CreateJob(name, body):
                if name in self.jobs:
                    return False
                self._start_job(name, body)
            case DeleteJob(name, _, uid):
                if name in self.jobs and self.jobs[name].uid == uid:
                    del self.jobs[name]
            case ApplyDaemonSet(name, body):
                labels = body["metadata"]["labels"]
                self.daemon_sets.setdefault(name, labels.get(DRIVER_REVISION_LABEL) or labels[AGENT_REVISION_LABEL])
                self.driver_stacks.setdefault(name, labels[STACK_LABEL])
                for node in self.nodes.values():
                    self._reload(node)
            case DeleteDaemonSet(name, _):
                self.daemon_sets.pop(name, None)
            case CallTicketHook(name, key, _, _):
                if key not in self.tickets:
                    self.tickets.append(key)
                known = self.objects["GPURepair"][name]
                status = msgspec.structs.replace(
                    known.status, ticket=msgspec.structs.replace(known.status.ticket, state="Called")
                )
                self.objects["GPURepair"][name] = msgspec.structs.replace(known, status=status)
        return True

    def _start_job(self, name: str, body: dict[str, Any]) -> None:
        metadata = body["metadata"]
        job = canary_job(convert({"metadata": {**metadata, "uid": f"uid-{name}-{self.now}"}}, JobWire))
        self.jobs[name] = job
        state, seconds = self.job_ends(self, job.node)

        def finish() -> None:
            if self.jobs.get(name) == job:
                self.jobs[name] = msgspec.structs.replace(job, state=state, seconds=seconds, message="exit code 1")

        if state:
            self.later(seconds, finish)

    def _patch_node(self, write: PatchNode) -> bool:
        node = self.nodes[write.name]
        if str(node.version) != write.version:
            return False
        for target, changes in ((node.labels, write.labels), (node.annotations, write.annotations)):
            for key, value in changes.items():
                if value is None:
                    target.pop(key, None)
                else:
                    target[key] = value
        if write.taints is not None:
            node.taints = write.taints
        node.version += 1
        if MIG_CONFIG_LABEL in write.labels:
            self.later(LOAD_SECONDS, partial(self._finish_mig, node))
        if AGENT_REVISION_LABEL in write.labels:
            self.later(AGENT_SECONDS, partial(self._finish_agent, node))
        self._reload(node)
        self._obey(node)
        return True

    # what nodes do

    def later(self, seconds: int, act: Callable[[], None]) -> None:
        self._serial += 1
        heapq.heappush(self._events, (self.now + seconds, self._serial, act))

    @property
    def next_event(self) -> int | None:
        return self._events[0][0] if self._events else None

    def advance_to(self, moment: int) -> None:
        while self._events and self._events[0][0] <= moment:
            at, _, act = heapq.heappop(self._events)
            self.now = max(self.now, at)
            act()
        self.now = max(self.now, moment)

    def _reload(self, node: SimNode) -> None:
        """The DaemonSet's pod of another revision unloads the driver, and loads its own."""
        revision = node.labels.get(DRIVER_REVISION_LABEL, "")
        if revision in (node.loaded, node.loading) or revision not in self.daemon_sets.values():
            return
        node.loaded, node.loading = "", revision
        node.version += 1
        assert not any(pod.node == node.name for pod in self.pods.values()), "a driver was exchanged under a pod"

        def finish() -> None:
            if node.loading == revision and node.labels.get(DRIVER_REVISION_LABEL) == revision:
                node.loading = ""
                if revision not in node.bad_versions:
                    node.loaded = revision
                    self.on_loaded(self, node)
                else:
                    node.loading = revision  # for ever
                node.version += 1

        self.later(LOAD_SECONDS, finish)

    def _finish_agent(self, node: SimNode) -> None:
        """The DaemonSet of the chosen version, or the installed one, has its pod there now."""
        wanted = node.labels.get(AGENT_REVISION_LABEL, "")
        if not wanted or wanted in self.daemon_sets.values():
            node.agent = wanted
            node.version += 1
            self.on_agent(self, node)

    def _finish_mig(self, node: SimNode) -> None:
        node.labels[MIG_CONFIG_STATE_LABEL] = "success"
        node.version += 1

    def _obey(self, node: SimNode) -> None:
        """The agent's part."""
        request = decode_request(node.annotations.get(NODE_REQUEST_ANNOTATION, ""))
        if request is None or request.id == node.handled:
            return
        node.handled = request.id
        seconds = {"reset": RESET_SECONDS, "reboot": REBOOT_SECONDS, "validate": VALIDATE_SECONDS}[request.action]

        def finish() -> None:
            if request.action == "reboot":
                node.boot += 1
                self.heal(node.name, "reset", "reboot")
            elif request.action == "reset":
                assert not any(pod.node == node.name and request.device in pod.devices for pod in self.pods.values()), (
                    "a GPU was reset under a pod"
                )
                self.heal(node.name, "reset", device=request.device)
            is_ill = any(request.device in (-1, device) for device in node.faults)
            state = "Failed" if request.action == "validate" and is_ill else "Done"
            node.answer = NodeAnswer(request.id, state)
            node.version += 1

        self.later(seconds, finish)

    def fail_gpu(
        self, name: str, device: int, fault: str = "Xid 79", action: str = "reset", heals_by: str = "reset"
    ) -> None:
        self.fail_gpu_under_work(name, device, fault, action, heals_by)
        for pod in [pod for pod in self.pods.values() if pod.node == name and device in pod.devices]:
            self._evict(pod.key)

    def fail_gpu_under_work(
        self, name: str, device: int, fault: str = "Xid 79", action: str = "reset", heals_by: str = "reset"
    ) -> None:
        """Its pods don't notice."""
        node = self.nodes[name]
        node.faults[device] = Fault(DeviceFaultReport(device, fault, action), heals_by)
        node.version += 1

    def heal(self, name: str, *ways: str, device: int = -1) -> None:
        node = self.nodes[name]
        node.faults = {
            index: fault
            for index, fault in node.faults.items()
            if (ways and fault.heals_by not in ways) or device not in (-1, index)
        }
        node.version += 1

    # pods

    def add_pod(self, key: str, node: str, devices: set[int], gang: str = "", **fields: Any) -> None:
        self.pods[key] = PodView(
            key=key,
            uid=f"uid-{key}-{self.now}",
            node=node,
            gpus=len(devices),
            devices=frozenset(devices),
            gang=gang,
            **fields,
        )

    def _evict(self, key: str) -> None:
        pod = self.pods.pop(key, None)
        if pod is not None and self.reschedules:
            self.later(5, lambda: self.place(pod))

    def place(self, pod: PodView) -> None:
        for node in self.nodes.values():
            if node.taints or node.unschedulable or node.allocatable < pod.gpus:
                continue
            used = {device for other in self.pods.values() if other.node == node.name for device in other.devices}
            free = [d for d in range(node.gpus) if d not in used | node.held | node.faults.keys()]
            if len(free) >= pod.gpus:
                self.add_pod(pod.key, node.name, set(free[: pod.gpus]), pod.gang, owner_uid=pod.owner_uid)
                return
        self.later(30, lambda: self.place(pod))
