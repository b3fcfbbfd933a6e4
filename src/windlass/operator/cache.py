"""The objects as the informers show them, and as our own writes have left them, for the next decision.

`operator.controller` hands its `push` to the informers, and `put_answer` the server's answers to writes: a decision
right after a write must see it, even if the watch is behind. An older version never replaces a newer one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import msgspec

from windlass.cluster.delta import Deleted, Delta, Put
from windlass.model.convert import convert
from windlass.model.errors import InputError
from windlass.model.meta import KubeStruct, ObjectMeta
from windlass.model.names.kubernetes import APP_MANAGED_BY_LABEL
from windlass.model.names.windlass import CANARY_LABEL
from windlass.operator.canary_jobs import CanaryJob, JobWire, canary_job
from windlass.operator.decide.driver_daemon_set import STACK_LABEL
from windlass.operator.decide.owners import is_agent
from windlass.operator.kinds.codec import STRUCTS, decode_operator_object
from windlass.operator.kinds.gpu_stack import GPUStackStatus
from windlass.operator.observed import (
    AgentTemplate,
    GateReading,
    Invalid,
    NodeObject,
    NodeView,
    NvidiaDriver,
    Observed,
    RevisionSet,
    RoomReading,
    node_view,
)
from windlass.operator.pods import PodObject, PodView, pod_view
from windlass.operator.queued_work import (
    OwnerLink,
    OwnerWire,
    QueuedWork,
    QueuedWorks,
    WorkloadWire,
    owner_link,
    queued_work,
    queued_works,
)
from windlass.operator.resources import CANARY_NAMESPACE, OWNER_KINDS
from windlass.operator.stateful_sets import StatefulSetView, StatefulSetWire, stateful_set


class _DaemonSet(KubeStruct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: dict[str, Any] = {}


class _NvidiaDriverStatus(KubeStruct, frozen=True):
    state: str = ""


class _NvidiaDriver(KubeStruct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: dict[str, Any] = {}
    status: _NvidiaDriverStatus = _NvidiaDriverStatus()


ANY_AGENT: tuple[str, AgentTemplate | None] = ("", None)
"""None is installed."""


class Ended(msgspec.Struct, frozen=True):
    """A pod that holds nothing on any node."""

    key: str


def decode_observed(raw: bytes | msgspec.Raw, kind: str, api_version: str) -> object:
    """What the operator keeps of an object; `Invalid` if it can't be understood."""
    tree: dict[str, Any] = {"apiVersion": api_version, "kind": kind, **msgspec.json.decode(raw)}
    try:
        return observed_object(tree)
    except InputError as error:
        return _invalid(tree, str(error))


def observed_object(tree: Mapping[str, Any]) -> object:
    """Raises an `InputError` with the field's path."""
    kind = tree.get("kind")
    if kind == "Node":
        return node_view(_converted(tree, NodeObject))
    if kind == "Pod":
        pod = _converted(tree, PodObject)
        return pod_view(pod) or Ended(f"{pod.metadata.namespace or 'default'}/{pod.metadata.name}")
    if kind == "StatefulSet":
        return stateful_set(_converted(tree, StatefulSetWire))
    if kind == "Workload":
        return queued_work(_converted(tree, WorkloadWire), str(tree["apiVersion"]))
    if kind == "Job" and CANARY_LABEL in (tree["metadata"].get("labels") or {}):
        return canary_job(_converted(tree, JobWire))
    if kind in OWNER_KINDS:
        return owner_link(_converted(tree, OwnerWire), str(kind))
    if kind == "DaemonSet":
        return _converted(tree, _DaemonSet)
    if kind == "NVIDIADriver":
        driver = _converted(tree, _NvidiaDriver)
        is_ours = driver.metadata.labels.get(APP_MANAGED_BY_LABEL) == "windlass"
        return NvidiaDriver(driver.metadata.name, driver.metadata.uid, driver.spec, driver.status.state, is_ours)
    return decode_operator_object(tree)


def _invalid(tree: Mapping[str, Any], message: str) -> Invalid:
    metadata, status = tree["metadata"], tree.get("status") or {}
    known = GPUStackStatus()
    if tree["kind"] == "GPUStack":
        with suppress(InputError):  # the status may be what can't be understood
            known = _converted(status, GPUStackStatus)
    return Invalid(
        tree["kind"],
        metadata["name"],
        metadata.get("resourceVersion", ""),
        message,
        str(status.get("phase", "")),
        metadata.get("generation", 0),
        known,
    )


def _converted(tree: Mapping[str, Any], struct: type[Any]) -> Any:
    return convert(tree, struct)


class OperatorCache:
    def __init__(
        self,
        namespace: str,
        on_change: Callable[[], None] = lambda: None,
        canary_namespace: str = CANARY_NAMESPACE,
    ) -> None:
        self._namespace, self._on_change, self._canary_namespace = namespace, on_change, canary_namespace
        self._nodes: dict[str, NodeView] = {}
        self._pods: dict[str, PodView] = {}
        self._pods_by_node: dict[str, dict[str, PodView]] = {}
        self._objects: dict[str, dict[str, Any]] = {kind: {} for kind in STRUCTS}
        self._daemon_sets: dict[str, RevisionSet] = {}
        self._agent = ANY_AGENT
        self._nvidia_drivers: dict[str, NvidiaDriver] = {}
        self._stateful_sets: dict[str, StatefulSetView] = {}
        self._jobs: dict[str, CanaryJob] = {}
        self._works: dict[str, QueuedWork] = {}
        self._owners: dict[tuple[str, str], OwnerLink] = {}
        self._queued: QueuedWorks | None = None
        self._invalid: dict[tuple[str, str], Invalid] = {}
        self.readings: dict[tuple[str, str], GateReading] = {}
        self.rooms: dict[str, RoomReading] | None = None
        self.refusals: dict[str, str] = {}

    def push(self, deltas: Sequence[Delta]) -> None:
        """What the informers say."""
        for delta in deltas:
            if isinstance(delta, Deleted):
                self._delete(delta.kind, delta.key)
            elif isinstance(delta, Put):
                self._put(delta.object)
        if deltas:
            self._on_change()

    def put_answer(self, kind: str, api_version: str, body: bytes) -> None:
        """The object in the server's answer to a write."""
        self._put(decode_observed(body, kind, api_version))

    def observed(self) -> Observed:
        objects = self._objects
        if self._queued is None:
            self._queued = queued_works(self._works, self._owners)
        return Observed(
            stacks=tuple(objects["GPUStack"][name] for name in sorted(objects["GPUStack"])),
            nodes=dict(self._nodes),
            gpu_nodes=dict(objects["GPUNode"]),
            changes=tuple(objects["FleetChange"][name] for name in sorted(objects["FleetChange"])),
            repairs=tuple(objects["GPURepair"][name] for name in sorted(objects["GPURepair"])),
            pods={node: tuple(pods.values()) for node, pods in self._pods_by_node.items() if pods},
            daemon_sets=dict(self._daemon_sets),
            agent=self._agent[1],
            nvidia_drivers=dict(self._nvidia_drivers),
            readings=dict(self.readings),
            queued=self._queued,
            rooms=dict(self.rooms) if self.rooms is not None else None,
            refusals=dict(self.refusals),
            invalid=tuple(self._invalid.values()),
            stateful_sets=dict(self._stateful_sets),
            jobs=dict(self._jobs),
            canary_namespace=self._canary_namespace,
            namespace=self._namespace,
        )

    def find(self, kind: str, name: str) -> Any:
        """An object of ours, or None."""
        return self._objects[kind].get(name)

    def forget(self, kind: str, name: str, version: str) -> None:
        """The server does not have it any more: the answer to an earlier write may have come after its deletion."""
        known = self._nodes.get(name) if kind == "Node" else self._objects[kind].get(name)
        if known is not None and _version(known) == version:
            self._delete(kind, name)

    def _put(self, obj: object) -> None:
        if isinstance(obj, Invalid):
            self._invalid[obj.kind, obj.name] = obj
            if obj.kind in self._objects:
                self._objects[obj.kind].pop(obj.name, None)
        elif isinstance(obj, NodeView):
            if _is_newer(obj.version, self._nodes.get(obj.name)):
                self._nodes[obj.name] = obj
        elif isinstance(obj, PodView):
            self._forget_pod(obj.key)
            self._pods[obj.key] = obj
            self._pods_by_node.setdefault(obj.node, {})[obj.key] = obj
        elif isinstance(obj, Ended):
            self._forget_pod(obj.key)
        elif isinstance(obj, _DaemonSet):
            self._put_daemon_set(obj)
        elif isinstance(obj, QueuedWork):
            if _is_newer(obj.version, self._works.get(obj.key)):
                self._works[obj.key], self._queued = obj, None
        elif isinstance(obj, StatefulSetView):
            if _is_newer(obj.version, self._stateful_sets.get(obj.key)):
                self._stateful_sets[obj.key] = obj
        elif isinstance(obj, CanaryJob):
            if obj.namespace == self._canary_namespace:
                self._jobs[obj.name] = obj
        elif isinstance(obj, OwnerLink):
            if obj.owner:  # most have none, and are no way to anything
                self._owners[obj.kind, obj.key], self._queued = obj, None
        elif isinstance(obj, NvidiaDriver):
            self._nvidia_drivers[obj.name] = obj
        else:
            self._put_ours(obj)

    def _put_daemon_set(self, obj: _DaemonSet) -> None:
        metadata = obj.metadata
        if metadata.namespace != self._namespace:
            return
        if STACK_LABEL in metadata.labels:
            self._daemon_sets[metadata.name] = RevisionSet(metadata.uid, metadata.labels[STACK_LABEL])
        elif is_agent(metadata.labels):
            template = obj.spec.get("template") or {}
            labels = (template.get("metadata") or {}).get("labels") or {}
            self._agent = metadata.name, AgentTemplate(labels, template.get("spec") or {})

    def _put_ours(self, obj: Any) -> None:
        kind, name = type(obj).__name__, obj.metadata.name
        self._invalid.pop((kind, name), None)
        known = self._objects[kind].get(name)
        if _is_newer(obj.metadata.resource_version, known):
            self._objects[kind][name] = obj

    def _forget_pod(self, key: str) -> None:
        known = self._pods.pop(key, None)
        if known is not None:
            self._pods_by_node[known.node].pop(key, None)
        self.refusals.pop(key, None)

    def _delete(self, kind: str, key: str) -> None:
        if kind == "Node":
            self._nodes.pop(key, None)
        elif kind == "Pod":
            self._forget_pod(key)
        elif kind == "DaemonSet":
            namespace, _, name = key.rpartition("/")
            if namespace == self._namespace:
                self._daemon_sets.pop(name, None)
                self._agent = ANY_AGENT if self._agent[0] == name else self._agent
        elif kind == "NVIDIADriver":
            self._nvidia_drivers.pop(key, None)
        elif kind == "StatefulSet":
            self._stateful_sets.pop(key, None)
        elif kind == "Workload":
            self._works.pop(key, None)
            self._queued = None
        elif kind == "Job" and key.partition("/")[0] == self._canary_namespace:
            self._jobs.pop(key.partition("/")[2], None)
        elif (kind, key) in self._owners:
            del self._owners[kind, key]
            self._queued = None
        elif kind in self._objects:
            self._objects[kind].pop(key, None)
            self._invalid.pop((kind, key), None)


def _version(known: Any) -> str:
    return str(
        known.version if isinstance(known, NodeView | QueuedWork | StatefulSetView) else known.metadata.resource_version
    )


def _is_newer(version: str, known: Any) -> bool:
    """Versions are numbers that grow; where one is not, the newer message counts."""
    if known is None:
        return True
    old = _version(known)
    return not (version.isdigit() and old.isdigit()) or int(version) >= int(old)
