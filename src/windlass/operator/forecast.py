"""Plays a fleet change ahead, with the operator's own decisions, on the objects as they are: which nodes, when, whom
it evicts.

`windlass plan change` prints it. Every node is taken to come up again after `node_seconds`, every gate to pass, and
evicted pods to stay away: what it shows is order, time and disturbance, not whether the change is good.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import TypeVar

import msgspec

from windlass.model.names.kubernetes import APP_COMPONENT_LABEL, APP_NAME_LABEL
from windlass.model.names.nvidia import MIG_CONFIG_LABEL, MIG_CONFIG_STATE_LABEL
from windlass.model.names.windlass import AGENT_REVISION_LABEL, DRIVER_REVISION_LABEL, LEAVE_ANNOTATION
from windlass.model.notices import read_leave_request
from windlass.operator.decide import decide
from windlass.operator.decide.driver_daemon_set import STACK_LABEL
from windlass.operator.decide.gpu_operator import NVIDIA_OWNER_LABEL, nvidia_driver_name
from windlass.operator.decide.image_change import REVISION_LABEL, ordinal
from windlass.operator.decide.node_facts import DRIVER_VERSION_LABEL
from windlass.operator.decide.owners import DRIVER_COMPONENT, is_agent_pod, is_our_driver_pod
from windlass.operator.kinds.base import Metadata
from windlass.operator.kinds.fleet_change import FleetChange, FleetChangeStatus, Gate, has_ratio
from windlass.operator.kinds.gpu_node import GPUNode
from windlass.operator.kinds.gpu_stack import GPUStack
from windlass.operator.observed import GateReading, NodeView, NvidiaDriver, Observed, RevisionSet
from windlass.operator.pods import PodView
from windlass.operator.writes import (
    ApplyDaemonSet,
    CreateNvidiaDriver,
    CreateObject,
    EvictPods,
    PatchNode,
    PatchStatefulSet,
    PutNodeCondition,
    PutStatus,
    StopWorkload,
    TellPods,
    Write,
)

T = TypeVar("T", GPUNode, FleetChange, GPUStack)
MAX_DECISIONS = 200_000
SETTLE_SECONDS = 2 * 3600
LONGEST_SECONDS = 90 * 24 * 3600


class TakenNode(msgspec.Struct, frozen=True, rename="camel"):
    wave: int
    node: str
    seconds: int
    """Since the start of the change."""
    evicted: tuple[str, ...]
    gpus: int
    """That the evicted pods held."""


class Forecast(msgspec.Struct, frozen=True, rename="camel"):
    phase: str
    message: str
    seconds: int
    taken: tuple[TakenNode, ...]
    most_unavailable: int
    not_ready: tuple[str, ...]
    """Nodes that are not ready for GPU work, and are therefore left out."""


def forecast(observed: Observed, change: FleetChange, now: int, node_seconds: int = 300) -> Forecast:
    return _Player(observed, now, node_seconds).play(change)


class _Player:
    """The objects, and what nodes do with them."""

    def __init__(self, observed: Observed, now: int, node_seconds: int) -> None:
        self.now, self._node_seconds = now, node_seconds
        self._nodes = dict(observed.nodes)
        pods = (pod for pods in observed.pods.values() for pod in pods)
        # Those of drivers and agents are played.
        self._pods = {pod.key: pod for pod in pods if not is_our_driver_pod(pod) and not is_agent_pod(pod)}
        self._gpu_nodes = dict(observed.gpu_nodes)
        self._stacks = {stack.name: stack for stack in observed.stacks}
        self._changes = {change.name: change for change in observed.changes if change.is_final}
        self._repairs = observed.repairs
        self._daemon_sets, self._agent = dict(observed.daemon_sets), observed.agent
        self._stateful_sets = dict(observed.stateful_sets)
        self._nvidia_drivers, self._queued = dict(observed.nvidia_drivers), observed.queued
        self._gpus = {name: node.gpu_allocatable for name, node in observed.nodes.items()}
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._serial = 0
        self._taken: dict[str, TakenNode] = {}
        self.most_unavailable = 0

    def play(self, change: FleetChange) -> Forecast:
        self._run(lambda: self._all_ready(change.spec.stack), SETTLE_SECONDS)
        not_ready = tuple(sorted(name for name in self._names(change.spec.stack) if not self._is_ready(name)))
        began = self.now
        gates = tuple(Gate(name=gate.name, query="1", max_ratio=2.0) for gate in change.spec.gates if has_ratio(gate))
        canary = msgspec.structs.replace(change.spec.canary, work=None)
        spec = msgspec.structs.replace(
            change.spec, canary=canary, gates=gates, fault_rate=None, command=None, paused=False
        )
        metadata = Metadata(name=change.name, uid=f"forecast-{change.name}", resource_version="1", generation=1)
        self._changes[change.name] = FleetChange(metadata=metadata, spec=spec, status=FleetChangeStatus())
        self._run(lambda: self._changes[change.name].is_final, LONGEST_SECONDS)
        status = self._changes[change.name].status
        taken = tuple(msgspec.structs.replace(found, seconds=found.seconds - began) for found in self._taken.values())
        return Forecast(
            phase=status.phase,
            message=status.message,
            seconds=self.now - began,
            taken=tuple(sorted(taken, key=lambda found: (found.wave, found.seconds, found.node))),
            most_unavailable=self.most_unavailable,
            not_ready=not_ready,
        )

    def _run(self, until: Callable[[], bool], seconds: int) -> None:
        end = self.now + seconds
        for _ in range(MAX_DECISIONS):
            if until() or self.now >= end:
                return
            decision = decide(self._observed(), self.now)
            for write in decision.writes:
                self._apply(write)
            if not decision.writes:
                due = self._events[0][0] if self._events else end
                self._advance(max(self.now + 1, min(decision.wake_at, due, end)))

    def _advance(self, moment: int) -> None:
        while self._events and self._events[0][0] <= moment:
            self.now = max(self.now, self._events[0][0])
            heapq.heappop(self._events)[2]()
        self.now = max(self.now, moment)

    def _observed(self) -> Observed:
        pods: dict[str, list[PodView]] = {}
        for pod in self._pods.values():
            pods.setdefault(pod.node, []).append(pod)
        for node in self._nodes.values():
            driver = _driver_pod(node)
            if driver is not None:
                pods.setdefault(node.name, []).append(driver)
            if AGENT_REVISION_LABEL in node.labels:
                pods.setdefault(node.name, []).append(_agent_pod(node))
        return Observed(
            stacks=tuple(self._stacks.values()),
            nodes=self._nodes,
            gpu_nodes=self._gpu_nodes,
            changes=tuple(self._changes.values()),
            repairs=self._repairs,
            pods={name: tuple(found) for name, found in pods.items()},
            daemon_sets=self._daemon_sets,
            agent=self._agent,
            nvidia_drivers=self._nvidia_drivers,
            queued=self._queued,
            stateful_sets=self._stateful_sets,
            readings=self._readings(),
        )

    def _readings(self) -> dict[tuple[str, str], GateReading]:
        """The same value on every node: gates pass where so few nodes can show anything at all."""
        same = GateReading(self.now, dict.fromkeys(self._nodes, 1.0))
        return {
            (change.name, gate.name): same
            for change in self._changes.values()
            if not change.is_final
            for gate in change.spec.gates
        }

    def _apply(self, write: Write) -> None:
        match write:
            case CreateObject("GPUNode", name, _):
                self._gpu_nodes[name] = GPUNode(metadata=Metadata(name=name, resource_version="1"))
            case PutStatus("GPUNode", name, _, status):
                self._gpu_nodes[name] = _with_status(self._gpu_nodes[name], status)
            case PutStatus("FleetChange", name, _, status):
                self._changes[name] = _with_status(self._changes[name], status)
            case PutStatus("GPUStack", name, _, status):
                self._stacks[name] = _with_status(self._stacks[name], status)
                self.most_unavailable = max(self.most_unavailable, status.unavailable)  # type: ignore[union-attr]
            case PatchNode():
                self._patch(write)
            case PutNodeCondition(name, status, _, _):
                self._nodes[name] = msgspec.structs.replace(self._nodes[name], gpu_ready_condition=status)
            case EvictPods(pods, _):
                self._evict([key for key, _ in pods])
            case StopWorkload(_, _, _, pods, _):
                self._evict([key for key, _ in pods])
            case PatchStatefulSet():
                self._roll_out(write)
            case TellPods(pods, request):
                self._tell([key for key, _ in pods], request)
            case ApplyDaemonSet(name, body):
                self._daemon_sets[name] = RevisionSet(name, body["metadata"]["labels"][STACK_LABEL])
            case CreateNvidiaDriver(name, body):
                self._nvidia_drivers[name] = NvidiaDriver(name, name, body["spec"], is_ours=True)
            case _:
                pass  # repairs are not part of the question

    def _patch(self, write: PatchNode) -> None:
        node = self._nodes[write.name]
        labels = _merged(node.labels, write.labels)
        self._nodes[write.name] = msgspec.structs.replace(
            node,
            labels=labels,
            annotations=_merged(node.annotations, write.annotations),
            taints=node.taints if write.taints is None else write.taints,
        )
        if write.labels.keys() & {DRIVER_REVISION_LABEL, MIG_CONFIG_LABEL, AGENT_REVISION_LABEL}:
            self._reload(write.name, labels)

    def _reload(self, name: str, labels: dict[str, str]) -> None:
        """The node works on it for a while, and comes up."""
        node = self._nodes[name]
        revision = labels.get(DRIVER_REVISION_LABEL, "")
        if revision and labels.get(DRIVER_VERSION_LABEL) != revision:
            without = {key: value for key, value in labels.items() if key != DRIVER_VERSION_LABEL}
            self._nodes[name] = msgspec.structs.replace(node, labels=without, gpu_allocatable=0)
        record = self._gpu_nodes[name].status.change if name in self._gpu_nodes else None
        if record is not None and not record.result:
            known = self._taken.get(name)
            gone = (known.evicted, known.gpus) if known is not None else ((), 0)
            self._taken[name] = TakenNode(record.wave, name, self.now, *gone)

        def finish() -> None:
            now = self._nodes[name]
            up = dict(now.labels)
            if revision:
                up[DRIVER_VERSION_LABEL] = revision
            if revision and NVIDIA_OWNER_LABEL in up:
                up[NVIDIA_OWNER_LABEL] = nvidia_driver_name(revision)
            if MIG_CONFIG_LABEL in up:
                up[MIG_CONFIG_STATE_LABEL] = "success"
            gpus = self._gpus[name] or 1
            self._nodes[name] = msgspec.structs.replace(now, labels=up, gpu_allocatable=gpus, gpu_capacity=gpus)

        self._later(self._node_seconds, finish)

    def _roll_out(self, write: PatchStatefulSet) -> None:
        """Pod after pod, the last one first, down to the partition."""
        known = self._stateful_sets[write.key]
        changed = known.replicas - write.partition
        found = self._stateful_sets[write.key] = msgspec.structs.replace(
            known, images={**known.images, write.container: write.image}, partition=write.partition, is_seen=False
        )

        def finish() -> None:
            revision = f"{write.container}={write.image}"
            self._stateful_sets[write.key] = msgspec.structs.replace(
                found, revision=revision, updated=changed, ready=found.replicas, is_seen=True
            )
            for key, pod in self._pods.items():
                if pod.owner_uid == found.uid and ordinal(pod) >= write.partition:
                    labels = {**pod.labels, REVISION_LABEL: revision}
                    self._pods[key] = msgspec.structs.replace(pod, labels=labels)

        self._later(self._node_seconds * max(1, changed), finish)

    def _later(self, seconds: int, act: Callable[[], None]) -> None:
        self._serial += 1
        heapq.heappush(self._events, (self.now + seconds, self._serial, act))

    def _evict(self, keys: list[str]) -> None:
        for key in keys:
            pod = self._pods.pop(key, None)
            if pod is not None:
                known = self._taken.get(pod.node, TakenNode(0, pod.node, self.now, (), 0))
                evicted, gpus = (*known.evicted, key), known.gpus + pod.gpus
                self._taken[pod.node] = msgspec.structs.replace(known, evicted=evicted, gpus=gpus)

    def _tell(self, keys: list[str], request: str | None) -> None:
        leave = read_leave_request({LEAVE_ANNOTATION: request or ""})
        for key in keys:
            if key in self._pods:
                self._pods[key] = msgspec.structs.replace(self._pods[key], leave=leave)

    def _names(self, stack: str) -> list[str]:
        return [name for name, node in self._gpu_nodes.items() if node.status.stack == stack]

    def _is_ready(self, name: str) -> bool:
        return self._gpu_nodes[name].status.phase == "Ready"

    def _all_ready(self, stack: str) -> bool:
        names = self._names(stack)
        return bool(names) and all(map(self._is_ready, names))


def _driver_pod(node: NodeView) -> PodView | None:
    revision = node.labels.get(DRIVER_REVISION_LABEL, "")
    if not revision:
        return None
    labels = {APP_NAME_LABEL: "windlass", APP_COMPONENT_LABEL: DRIVER_COMPONENT, DRIVER_REVISION_LABEL: revision}
    is_up = node.labels.get(DRIVER_VERSION_LABEL) == revision
    key = f"windlass-node/driver-{node.name}"
    return PodView(key=key, node=node.name, labels=labels, owner_kind="DaemonSet", is_ready=is_up)


def _agent_pod(node: NodeView) -> PodView:
    labels = {APP_NAME_LABEL: "windlass", APP_COMPONENT_LABEL: "node"}
    labels[AGENT_REVISION_LABEL] = node.labels[AGENT_REVISION_LABEL]
    return PodView(key=f"windlass-node/agent-{node.name}", node=node.name, labels=labels, owner_kind="DaemonSet")


def _merged(known: dict[str, str], changes: dict[str, str | None]) -> dict[str, str]:
    merged = {**known, **changes}
    return {key: value for key, value in merged.items() if value is not None}


def _with_status(obj: T, status: object) -> T:
    metadata = obj.metadata
    version = str(int(metadata.resource_version or "0") + 1)
    return msgspec.structs.replace(
        obj, status=status, metadata=msgspec.structs.replace(metadata, resource_version=version)
    )
