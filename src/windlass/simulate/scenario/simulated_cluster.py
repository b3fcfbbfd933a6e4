"""The simulated cluster: all objects as plain data, and the production store, which gets every change.

`scenario.player` and `scenario.executor` change objects through it; `decide` sees the store's snapshots. It does what
the API server does when an object is created: sets uid, creation time and the priority of its class.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from typing import Any

from windlass.cluster.delta import Assume, Deleted, Nominated, Put
from windlass.cluster.snapshot import Snapshot
from windlass.cluster.store import Store
from windlass.cluster.workloads import Grouping, group_workloads, grouping_inputs
from windlass.model.codec import decode_object
from windlass.model.decision import DeviceGrant, device_indices
from windlass.model.errors import InputError
from windlass.model.names.windlass import DEVICES_ANNOTATION, WINDLASS_API_VERSION
from windlass.model.queue import QueueSystem
from windlass.model.run_time_history import FinishedRun, RunTimes, run_time_fields, run_times_from_object
from windlass.model.unstructured import Unstructured
from windlass.model.workload import Workload
from windlass.queueing.run_time_estimates import add_runs
from windlass.simulate.clock import VIRTUAL_EPOCH, virtual_timestamp

RUN_TIME_HISTORY = "RunTimeHistory"
ObjectKey = tuple[str, str, str]
"""Kind, namespace and name."""
CLUSTER_SCOPED_KINDS = frozenset(
    {
        *("Node", "Namespace", "PersistentVolume", "StorageClass", "PriorityClass", "WorkloadPriorityClass"),
        *("ClusterQueue", "Cohort", "ResourceFlavor", "Topology", "Reservation"),
    }
)


class SimulatedCluster:
    def __init__(self) -> None:
        self._objects: dict[ObjectKey, Unstructured] = {}
        self._decoded: dict[ObjectKey, Any] = {}
        self._store = Store()
        self._created = 0
        self.notes: tuple[str, ...] = ()
        """Notes of the last snapshot."""

    # Reading

    def snapshot(self, now: int) -> Snapshot:
        """Takes a snapshot; runs that have just finished are in the RunTimeHistory of their queue."""
        snapshot = self._store.snapshot(VIRTUAL_EPOCH + now)
        runs = self._store.pop_finished_runs()
        for run in runs:
            self._add_run_time(run)
        snapshot = self._store.snapshot(VIRTUAL_EPOCH + now) if runs else snapshot
        self.notes = tuple(snapshot.notes)
        return snapshot

    def _add_run_time(self, run: FinishedRun) -> None:
        namespace, _, name = run.local_queue.partition("/")
        known = self._decoded.get((RUN_TIME_HISTORY, namespace, name))
        times = run_times_from_object(known) if known is not None else RunTimes()
        history = {"apiVersion": WINDLASS_API_VERSION, "kind": RUN_TIME_HISTORY}
        fields = {"metadata": {"name": name, "namespace": namespace}}
        self.update({**history, **fields, **run_time_fields(add_runs(times, [run]))})

    def grouping(self, now: int) -> tuple[QueueSystem, Grouping]:
        """Queues and workloads as the engine's own grouping sees them."""
        inputs = grouping_inputs(self._decoded.values(), VIRTUAL_EPOCH + now)
        return inputs.queue_system, group_workloads(inputs)

    def workloads(self, now: int) -> dict[str, Workload]:
        return {workload.key: workload for workload in self.grouping(now)[1].workloads}

    def find(self, kind: str, key: str) -> Unstructured | None:
        """By kind and `namespace/name`, or the name alone if the kind is cluster-scoped."""
        return self._objects.get(_parse_key(kind, key))

    def get(self, kind: str, key: str) -> Unstructured:
        obj = self.find(kind, key)
        if obj is None:
            raise InputError(f"there is no {kind} {key}")
        return obj

    def list_kind(self, kind: str) -> Iterator[Unstructured]:
        return (obj for (obj_kind, _, _), obj in self._objects.items() if obj_kind == kind)

    def decoded(self, kind: str, key: str) -> Any:
        return self._decoded[_parse_key(kind, key)]

    def pods_on(self, node: str) -> list[str]:
        return [pod_key(obj) for obj in self.list_kind("Pod") if obj["spec"].get("nodeName") == node]

    def pods_owned_by(self, kind: str, key: str) -> list[str]:
        namespace, _, name = key.partition("/")
        owned = []
        for pod in self.list_kind("Pod"):
            owners = [(owner.get("kind"), owner.get("name")) for owner in pod["metadata"].get("ownerReferences", ())]
            if (kind, name) in owners and pod["metadata"].get("namespace", "default") == namespace:
                owned.append(pod_key(pod))
        return owned

    # Writing

    def create(self, obj: Unstructured, at: int) -> str:
        """Creates the object as the API server would; returns its key."""
        created = copy.deepcopy(obj)
        kind, metadata = created["kind"], created.setdefault("metadata", {})
        if kind not in CLUSTER_SCOPED_KINDS:
            metadata.setdefault("namespace", "default")
        self._created += 1
        metadata.setdefault("uid", f"{self._created:06d}-{metadata['name']}")
        metadata.setdefault("creationTimestamp", virtual_timestamp(at))
        if kind == "Pod":
            self._fill_priority(created)
        key = _key_of_object(created)
        if key in self._objects:
            raise InputError(f"{kind} {key[2]} already exists")
        self.update(created)
        return key[2] if kind in CLUSTER_SCOPED_KINDS else f"{key[1]}/{key[2]}"

    def _fill_priority(self, pod: Unstructured) -> None:
        spec = pod.setdefault("spec", {})
        name = spec.get("priorityClassName", "")
        classes = {obj["metadata"]["name"]: obj for obj in self.list_kind("PriorityClass")}
        default = next((obj for obj in classes.values() if obj.get("globalDefault")), None)
        chosen = classes.get(name) if name else default
        if chosen is not None:
            spec.setdefault("priority", chosen.get("value", 0))
            spec.setdefault("preemptionPolicy", chosen.get("preemptionPolicy", "PreemptLowerPriority"))

    def update(self, obj: Unstructured) -> None:
        key = _key_of_object(obj)
        decoded = decode_object(obj)
        self._objects[key], self._decoded[key] = obj, decoded
        self._store.apply([Put(decoded)])

    def mark_succeeded(self, pod: str) -> None:
        """Removes the pod here, and gives the store its final status as a kubelet would write it."""
        obj = copy.deepcopy(self.get("Pod", pod))
        obj["status"] = {**obj.get("status", {}), "phase": "Succeeded"}
        self.delete("Pod", pod)
        self._store.apply([Put(decode_object(obj))])

    def delete(self, kind: str, key: str) -> None:
        object_key = _parse_key(kind, key)
        self._objects.pop(object_key, None)
        self._decoded.pop(object_key, None)
        self._store.apply([Deleted(kind, key)])

    def bind(self, pod: str, node: str, devices: Sequence[DeviceGrant], at: int) -> None:
        """The pod starts on the node, on these devices."""
        obj = copy.deepcopy(self.get("Pod", pod))
        obj["spec"]["nodeName"] = node
        obj["status"] = {"phase": "Running", "startTime": virtual_timestamp(at)}
        if devices:
            obj["metadata"].setdefault("annotations", {})[DEVICES_ANNOTATION] = device_indices(devices)
        self._store.apply([Assume(pod, node, tuple(devices))])
        self.update(obj)

    def nominate(self, pod: str, node: str) -> None:
        """Sets the pod's nominated node; an empty `node` clears it."""
        obj = self.get("Pod", pod)
        if obj.get("status", {}).get("nominatedNodeName", "") != node:
            nominated = copy.deepcopy(obj)
            nominated.setdefault("status", {})["nominatedNodeName"] = node
            self.update(nominated)

    def nominate_workloads(self, workloads: frozenset[str]) -> None:
        """These wait for their victims to terminate, in place of earlier ones."""
        self._store.apply([Nominated(workloads)])

    def on_decided(self, snapshot: Snapshot) -> None:
        self._store.mark_decided(snapshot.pods.pending())


def pod_key(obj: Unstructured) -> str:
    metadata = obj["metadata"]
    return f"{metadata.get('namespace', 'default')}/{metadata['name']}"


def namespaced_name(name: str) -> str:
    """`namespace/name`; a name without namespace is in `default`."""
    return name if "/" in name else f"default/{name}"


def _key_of_object(obj: Unstructured) -> ObjectKey:
    kind, metadata = obj["kind"], obj["metadata"]
    namespace = "" if kind in CLUSTER_SCOPED_KINDS else metadata.get("namespace", "default")
    return kind, namespace, metadata["name"]


def _parse_key(kind: str, key: str) -> ObjectKey:
    if kind in CLUSTER_SCOPED_KINDS:
        return kind, "", key
    namespace, _, name = namespaced_name(key).partition("/")
    return kind, namespace, name
