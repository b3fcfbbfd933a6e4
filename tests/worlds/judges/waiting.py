"""What waits in a world, as units that start together: Workloads, groups of pods and single pods, with their order."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, partial

from tests.invariants.judge import asked
from tests.invariants.objects import QUEUE
from tests.worlds.judges.gangs import group_minimum, group_of
from tests.worlds.judges.trees import (
    admission,
    annotations_of,
    condition_time,
    conditions,
    created_at,
    is_deleted,
    is_gated,
    key_of,
    labels_of,
    message,
    node_of,
    owner_kind,
    owner_uids,
    seconds,
)
from tests.worlds.judges.twin import once, typed_pod
from tests.worlds.judges.world_state import WorldState, is_finished

from windlass.model.names.windlass import DECLARED_DURATION_ANNOTATION, STOPPED_AT_DURATION_ANNOTATION
from windlass.model.pod import Pod
from windlass.model.times import parse_duration
from windlass.model.unstructured import Unstructured

TOPOLOGY = "kueue.x-k8s.io/podset-"
REQUIRED = "kueue.x-k8s.io/podset-required-topology"
MAX_EXEC_TIME = "kueue.x-k8s.io/max-exec-time-seconds"
QUEUED_BY_EVICTION = ("PodsReadyTimeout", "AdmissionCheck", "DurationExceeded", "NoMatchingWorkload")
"""Reasons of an eviction after which a workload is queued by its time, as in Kueue."""
GANG_OWNERS = ("PyTorchJob", "JobSet", "RayCluster", "LeaderWorkerSet", "TrainJob", "MPIJob")


@dataclass(frozen=True)
class Unit:
    key: str
    queue: str
    """ClusterQueue; empty if it is in none."""
    trees: tuple[Unstructured, ...]
    """Its pods, as they are or will be."""
    priority: int
    since: float
    said: str
    limit: float | None
    """Seconds after which it ends; None if that is not known."""
    topology: str
    """Label of the domain in which all of it must be; empty if it may be anywhere."""

    asks_for_topology: bool = False
    is_stopped: bool = False
    """It was stopped at the end of its declared duration, and would be again."""

    @property
    def order(self) -> tuple[int, float]:
        """Those of the same second are in any order."""
        return -self.priority, self.since

    @cached_property
    def pods(self) -> list[Pod]:
        return [typed_pod(tree) for tree in self.trees]

    @cached_property
    def need(self) -> Counter[str]:
        return sum((asked(tree) for tree in self.trees), Counter())


def waiting_units(state: WorldState) -> list[Unit]:
    units = [*_workload_units(state)]
    covered = {uid for tree in state.workloads.values() for uid in owner_uids(tree)}
    groups: dict[str, list[Unstructured]] = defaultdict(list)
    for pod in state.alive_pods():
        if owner_uids(pod) & covered or owner_kind(pod) in GANG_OWNERS:
            continue
        if group_of(pod):
            groups[group_of(pod)].append(pod)
        elif not node_of(pod) and not is_deleted(pod) and not is_gated(pod):
            units.append(_pod_unit(state, key_of(pod), [pod]))
    for name, pods in groups.items():
        is_whole = len(pods) >= group_minimum(state, pods)
        if is_whole and not any(node_of(pod) or is_deleted(pod) or is_gated(pod) for pod in pods):
            units.append(_pod_unit(state, f"{pods[0]['metadata']['namespace']}/{name}", pods))
    return units


def _workload_units(state: WorldState) -> Iterator[Unit]:
    for key, tree in state.workloads.items():
        if admission(tree) or is_finished(tree) or not tree["spec"].get("active", True) or is_deleted(tree):
            continue
        owner = state.owner_of(tree)
        if owner is not None and is_deleted(owner):
            continue
        if any(node_of(pod) for pod in state.pods_of(tree)):
            continue  # evicted: its pods have not ended yet
        requeue = (tree["status"].get("requeueState") or {}).get("requeueAt") if tree.get("status") else None
        if requeue and seconds(requeue) > state.clock():
            continue
        trees, topology, asks = [], "", False
        for pod_set in tree["spec"]["podSets"]:
            template = pod_set["template"]
            notes = (template.get("metadata") or {}).get("annotations") or {}
            asks = asks or any(note.startswith(TOPOLOGY) for note in notes) or bool(pod_set.get("topologyRequest"))
            topology = notes.get(REQUIRED) or (pod_set.get("topologyRequest") or {}).get("required") or topology
            trees += [once(pod_set, partial(_pod_from, key))] * pod_set["count"]
        yield Unit(
            key,
            state.books.local.get(tree["spec"].get("queueName", ""), ""),
            tuple(trees),
            int(tree["spec"].get("priority", 0)),
            _queued_at(tree),
            message(tree, "QuotaReserved"),
            _limit(owner or tree),
            topology,
            asks,
            is_stopped=any(STOPPED_AT_DURATION_ANNOTATION in annotations_of(found) for found in (tree, owner or tree)),
        )


def _queued_at(tree: Unstructured) -> float:
    """Whoever was preempted, or lost a pod, keeps its place."""
    evicted = next((found for found in conditions(tree) if found["type"] == "Evicted"), None)
    loses_place = evicted is not None and evicted["reason"] in QUEUED_BY_EVICTION
    return condition_time(tree, "Evicted") if loses_place else created_at(tree)


def _pod_unit(state: WorldState, key: str, pods: list[Unstructured]) -> Unit:
    first = pods[0]
    return Unit(
        key,
        state.books.local.get(labels_of(first).get(QUEUE, ""), ""),
        tuple(pods),
        int(first["spec"].get("priority", 0)),
        min(created_at(pod) for pod in pods),
        message(first, "PodScheduled"),
        _limit(first),
        annotations_of(first).get(REQUIRED, ""),
    )


def _limit(tree: Unstructured) -> float | None:
    found = []
    if DECLARED_DURATION_ANNOTATION in annotations_of(tree):
        found.append(float(parse_duration(annotations_of(tree)[DECLARED_DURATION_ANNOTATION])))
    if MAX_EXEC_TIME in labels_of(tree):
        found.append(float(labels_of(tree)[MAX_EXEC_TIME]))
    return min(found, default=None)


def _pod_from(key: str, pod_set: Unstructured) -> Unstructured:
    """A pod that the pod set will have."""
    template = pod_set["template"]
    namespace, _, name = key.partition("/")
    meta = template.get("metadata") or {}
    kept = {field: meta[field] for field in ("labels", "annotations") if meta.get(field)}
    name = f"{name}-{pod_set['name']}"
    return {"metadata": {"name": name, "namespace": namespace, "uid": name, **kept}, "spec": template["spec"]}
