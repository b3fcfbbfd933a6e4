"""The simulated cluster: all objects as plain data, and the production store that is told of every change.

`player` and `carry` change objects through here; `decide` sees the store's snapshots. What the API server does on its
own when something is created (uid, age, the number behind a priority class) is done here too.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from typing import Any

from windlass.cluster.delta import Assume, Deleted, Put
from windlass.cluster.snapshot import Snapshot
from windlass.cluster.store import ASSIGNED_DEVICES, Store
from windlass.cluster.workloads import Grouping, group_workloads, grouping_inputs
from windlass.model.codec import decode_object
from windlass.model.decision import DeviceGrant
from windlass.model.errors import InputError
from windlass.model.queue import QueueSystem
from windlass.model.run_time_history import FinishedRun, RunTimes, run_time_periods, run_times_from_object
from windlass.model.unstructured import Unstructured
from windlass.model.workload import Workload
from windlass.queueing.run_time_estimates import add_runs
from windlass.simulate.clock import VIRTUAL_EPOCH, virtual_timestamp

RUN_TIME_HISTORY = "RunTimeHistory"
ObjectKey = tuple[str, str, str]
"""Kind, namespace and name."""
CLUSTER_SCOPED_KINDS = frozenset(
    {
        "Node",
        "Namespace",
        "PersistentVolume",
        "StorageClass",
        "PriorityClass",
        "WorkloadPriorityClass",
        "ClusterQueue",
        "Cohort",
        "ResourceFlavor",
        "Topology",
        "Reservation",
    }
)


class SimulatedCluster:
    def __init__(self) -> None:
        self._trees: dict[ObjectKey, Unstructured] = {}
        self._things: dict[ObjectKey, Any] = {}
        self._store = Store()
        self._created = 0
        self.notes: tuple[str, ...] = ()
        """What the last snapshot says about the cluster as a whole."""

    # Reading

    def snapshot(self, now: int) -> Snapshot:
        """The cluster as it is, with what has just ended in the history of its queue."""
        found = self._store.snapshot(VIRTUAL_EPOCH + now)
        runs = self._store.pop_finished_runs()
        for run in runs:
            self._remember(run)
        found = self._store.snapshot(VIRTUAL_EPOCH + now) if runs else found
        self.notes = tuple(found.notes)
        return found

    def _remember(self, run: FinishedRun) -> None:
        namespace, _, name = run.local_queue.partition("/")
        known = self._things.get((RUN_TIME_HISTORY, namespace, name))
        times = run_times_from_object(known) if known is not None else RunTimes()
        metadata = {"name": name, "namespace": namespace}
        periods = run_time_periods(add_runs(times, [run]))
        self.update(
            {
                "apiVersion": "windlass.dev/v1",
                "kind": RUN_TIME_HISTORY,
                "metadata": metadata,
                "periods": periods,
            }
        )

    def grouping(self, now: int) -> tuple[QueueSystem, Grouping]:
        """Queues and workloads as the engine's own grouping sees them."""
        inputs = grouping_inputs(self._things.values(), VIRTUAL_EPOCH + now)
        return inputs.queue_system, group_workloads(inputs)

    def workloads(self, now: int) -> dict[str, Workload]:
        return {workload.key: workload for workload in self.grouping(now)[1].workloads}

    def find(self, kind: str, key: str) -> Unstructured | None:
        """By kind and `namespace/name`, or the name alone where it is cluster-wide."""
        return self._trees.get(_key_of(kind, key))

    def get(self, kind: str, key: str) -> Unstructured:
        found = self.find(kind, key)
        if found is None:
            raise InputError(f"there is no {kind} {key}")
        return found

    def list_kind(self, kind: str) -> Iterator[Unstructured]:
        return (tree for (one, _, _), tree in self._trees.items() if one == kind)

    def decoded(self, kind: str, key: str) -> Any:
        """The object, decoded."""
        return self._things[_key_of(kind, key)]

    def pods_on(self, node: str) -> list[str]:
        return [pod_key(tree) for tree in self.list_kind("Pod") if tree["spec"].get("nodeName") == node]

    def pods_owned_by(self, kind: str, key: str) -> list[str]:
        namespace, _, name = key.partition("/")
        return [
            pod_key(tree)
            for tree in self.list_kind("Pod")
            if tree["metadata"].get("namespace", "default") == namespace
            and any(
                one.get("kind") == kind and one.get("name") == name
                for one in tree["metadata"].get("ownerReferences", ())
            )
        ]

    # Writing

    def create(self, tree: Unstructured, at: int) -> str:
        """As the API server would take it; returns its key."""
        made = copy.deepcopy(tree)
        kind, metadata = made["kind"], made.setdefault("metadata", {})
        if kind not in CLUSTER_SCOPED_KINDS:
            metadata.setdefault("namespace", "default")
        self._created += 1
        metadata.setdefault("uid", f"{self._created:06d}-{metadata['name']}")
        metadata.setdefault("creationTimestamp", virtual_timestamp(at))
        if kind == "Pod":
            self._fill_priority(made)
        key = _key_in(made)
        if key in self._trees:
            raise InputError(f"there is another {kind} {key[2]}")
        self.update(made)
        return key[2] if kind in CLUSTER_SCOPED_KINDS else f"{key[1]}/{key[2]}"

    def _fill_priority(self, pod: Unstructured) -> None:
        spec = pod["spec"]
        name = spec.get("priorityClassName", "")
        classes = {tree["metadata"]["name"]: tree for tree in self.list_kind("PriorityClass")}
        chosen = (
            classes.get(name)
            if name
            else next((one for one in classes.values() if one.get("globalDefault")), None)
        )
        if chosen is not None:
            spec.setdefault("priority", chosen.get("value", 0))
            spec.setdefault("preemptionPolicy", chosen.get("preemptionPolicy", "PreemptLowerPriority"))

    def update(self, tree: Unstructured) -> None:
        """The object is now like this."""
        key = _key_in(tree)
        thing = decode_object(tree)
        self._trees[key], self._things[key] = tree, thing
        self._store.apply([Put(thing)])

    def mark_succeeded(self, pod: str) -> None:
        """The pod is done. Nothing here needs it any more; the store is told as a kubelet would tell."""
        tree = copy.deepcopy(self.get("Pod", pod))
        tree["status"] = {**tree.get("status", {}), "phase": "Succeeded"}
        self.delete("Pod", pod)
        self._store.apply([Put(decode_object(tree))])

    def delete(self, kind: str, key: str) -> None:
        at = _key_of(kind, key)
        self._trees.pop(at, None)
        self._things.pop(at, None)
        self._store.apply([Deleted(kind, key)])

    def bind(self, pod: str, node: str, devices: Sequence[DeviceGrant], at: int) -> None:
        """The pod starts on the node, on these devices."""
        tree = copy.deepcopy(self.get("Pod", pod))
        tree["spec"]["nodeName"] = node
        tree["status"] = {"phase": "Running", "startTime": virtual_timestamp(at)}
        if devices:
            indices = ",".join(str(one.index) for one in devices)
            tree["metadata"].setdefault("annotations", {})[ASSIGNED_DEVICES] = indices
        self._store.apply([Assume(pod, node, tuple(devices))])
        self.update(tree)

    def nominate(self, pod: str, node: str) -> None:
        """The pod waits until others have left the node; or, where no node is named, it doesn't any more."""
        tree = self.get("Pod", pod)
        if tree.get("status", {}).get("nominatedNodeName", "") != node:
            made = copy.deepcopy(tree)
            made.setdefault("status", {})["nominatedNodeName"] = node
            self.update(made)

    def on_decided(self, snapshot: Snapshot) -> None:
        """A decision was made on the snapshot."""
        self._store.mark_decided(snapshot.pods.pending())


def pod_key(tree: Unstructured) -> str:
    metadata = tree["metadata"]
    return f"{metadata.get('namespace', 'default')}/{metadata['name']}"


def namespaced_name(name: str) -> str:
    """`namespace/name` of a name that may stand alone."""
    return name if "/" in name else f"default/{name}"


def _key_in(tree: Unstructured) -> ObjectKey:
    kind, metadata = tree["kind"], tree["metadata"]
    namespace = "" if kind in CLUSTER_SCOPED_KINDS else metadata.get("namespace", "default")
    return kind, namespace, metadata["name"]


def _key_of(kind: str, key: str) -> ObjectKey:
    if kind in CLUSTER_SCOPED_KINDS:
        return kind, "", key
    namespace, _, name = namespaced_name(key).partition("/")
    return kind, namespace, name
