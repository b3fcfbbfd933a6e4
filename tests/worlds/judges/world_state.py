"""A world as the judges see it: all objects as they are, and what changed in the last seconds.

`judge.Judge` feeds it with every change. The scheduler sees the world a little late, so that judges ask for every
recent version of a node and for pods that have just gone. Trees are never changed in place: what is computed from one
is kept for as long as the object stays the same.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterator

from tests.invariants.judge import Books, Cell, Usage
from tests.invariants.objects import QUEUE
from tests.worlds.judges.trees import (
    ENDED,
    admission,
    annotations_of,
    condition,
    key_of,
    labels_of,
    node_of,
    owner_uids,
)

from windlass.model.plan import Plan
from windlass.model.unstructured import Unstructured

QUEUE_KINDS = {
    "clusterqueues": "ClusterQueue",
    "cohorts": "Cohort",
    "resourceflavors": "ResourceFlavor",
    "localqueues": "LocalQueue",
}
OWNER_KINDS = ("jobs", "pytorchjobs", "jobsets", "rayclusters")
WORKLOAD_ANNOTATION = "kueue.x-k8s.io/workload"
PREEMPTABLE = "volcano.sh/preemptable"


class WorldState:
    def __init__(self, clock: Callable[[], float], lag_seconds: float) -> None:
        self.clock, self.lag_seconds = clock, lag_seconds
        """`lag_seconds`: how late the scheduler may know of a change."""
        self.objects: dict[str, dict[str, Unstructured]] = defaultdict(dict)
        self.version = 0
        """Counts the changes that judges can see: heartbeats of nodes are none."""
        self._books: deque[tuple[float, Books]] = deque([(0.0, Books(()))])
        self._nodes: dict[str, deque[tuple[float, Unstructured]]] = defaultdict(deque)
        self._gone: deque[tuple[float, Unstructured]] = deque()
        self._owners: dict[str, Unstructured] = {}
        self._pods_by_owner: dict[str, dict[str, Unstructured]] = defaultdict(dict)
        self._alive: dict[str, Unstructured] = {}
        self._placed: dict[str, Unstructured] = {}
        self._queued: dict[str, Unstructured] = {}
        """Pods that name their queue themselves, on nodes."""
        self._usage_of: dict[str, tuple[tuple[object, ...], Usage]] = {}
        self.usage: Usage = {}
        self.plan: Plan | None = None
        """The newest plan that was carried out, where it can be seen."""

    # Changes

    def apply(self, kind: str, event: str, tree: Unstructured) -> None:
        now, key = self.clock(), key_of(tree)
        if event == "DELETED":
            self.objects[kind].pop(key, None)
            if kind == "pods":
                self._gone.append((now, tree))
        else:
            tree = {**tree, "kind": QUEUE_KINDS.get(kind, tree.get("kind", ""))}
            self.objects[kind][key] = tree
        self.version += 1
        if kind == "nodes" and event != "DELETED":
            self.version -= not self._remember(self._nodes[key], tree)
        elif kind == "pods":
            self._index_pod(key, event, tree)
        elif kind in OWNER_KINDS:
            self._owners[tree["metadata"]["uid"]] = tree
            if event == "DELETED":
                del self._owners[tree["metadata"]["uid"]]
        elif kind in QUEUE_KINDS:
            trees = [found for name in QUEUE_KINDS for found in self.objects[name].values()]
            self._books.append((now, Books(trees)))

    def _remember(self, history: deque[tuple[float, Unstructured]], tree: Unstructured) -> bool:
        """Whether it differs from the last version in more than its heartbeat."""
        is_new = not history or _decisive(history[-1][1]) != _decisive(tree)
        if is_new:
            history.append((self.clock(), tree))
        else:
            history[-1] = (history[-1][0], tree)
        return is_new

    def _index_pod(self, key: str, event: str, tree: Unstructured) -> None:
        is_alive = event != "DELETED" and (tree.get("status") or {}).get("phase") not in ENDED
        is_placed = is_alive and bool(node_of(tree))
        _set(self._alive, key, tree, is_alive)
        _set(self._placed, key, tree, is_placed)
        _set(self._queued, key, tree, is_placed and QUEUE in labels_of(tree))
        for uid in owner_uids(tree):
            _set(self._pods_by_owner[uid], key, tree, event != "DELETED")

    # Quota

    def count_usage(self) -> Usage:
        """Quota in use now; the usage before is returned."""
        before, self.usage = self.usage, {}
        for key, tree in self.workloads.items():
            if admission(tree) and not is_finished(tree):
                self._add(self._usage_of_workload(key, tree))
        self._add(self.books.usage({}, self._queued.values(), self.nodes))
        return before

    def _add(self, usage: Usage) -> None:
        for queue, cells in usage.items():
            total: Counter[Cell] = self.usage.setdefault(queue, Counter())
            for cell, amount in cells.items():
                total[cell] += amount

    def _usage_of_workload(self, key: str, tree: Unstructured) -> Usage:
        owners = owner_uids(tree)
        members = [pod for uid in owners for pod in self._pods_by_owner[uid].values()]
        jobs = [self._owners[uid] for uid in owners if uid in self._owners]
        basis = (id(self.books), id(tree), *map(id, members), *map(id, jobs))
        known = self._usage_of.get(key)
        if known is None or known[0] != basis:
            holding = _without_ended_pods(_without_reclaimable_pods(tree), members, jobs)
            known = self._usage_of[key] = (basis, self.books.usage({key: holding}, (), {}))
        return known[1]

    # As it is now

    @property
    def pods(self) -> dict[str, Unstructured]:
        return self.objects["pods"]

    @property
    def workloads(self) -> dict[str, Unstructured]:
        return self.objects["workloads"]

    @property
    def nodes(self) -> dict[str, Unstructured]:
        return self.objects["nodes"]

    @property
    def books(self) -> Books:
        return self._books[-1][1]

    def alive_pods(self) -> Iterator[Unstructured]:
        return iter([*self._alive.values()])

    def placed_pods(self) -> list[Unstructured]:
        return [*self._placed.values()]

    def owner_of(self, tree: Unstructured) -> Unstructured | None:
        """The Job, PyTorchJob, JobSet or RayCluster that owns it."""
        return next((self._owners[uid] for uid in owner_uids(tree) if uid in self._owners), None)

    def pods_of(self, workload: Unstructured) -> list[Unstructured]:
        """Its pods that have not ended."""
        owned = [pod for uid in owner_uids(workload) for pod in self._pods_by_owner[uid].values()]
        found = [pod for pod in owned if (pod.get("status") or {}).get("phase") not in ENDED]
        if found:
            return found
        name = workload["metadata"]["name"]
        return [pod for pod in self._alive.values() if annotations_of(pod).get(WORKLOAD_ANNOTATION) == name]

    # A little earlier

    def recent_books(self) -> list[Books]:
        while len(self._books) > 1 and self._books[1][0] < self.clock() - self.lag_seconds:
            self._books.popleft()
        return [books for _, books in self._books]

    def versions_of_node(self, name: str) -> list[Unstructured]:
        """As it was at any moment of the last seconds, the newest first."""
        history = self._nodes[name]
        while len(history) > 1 and history[1][0] < self.clock() - self.lag_seconds:
            history.popleft()
        return [tree for _, tree in reversed(history)]

    def just_gone(self) -> list[Unstructured]:
        """Pods that were deleted in the last seconds."""
        while self._gone and self._gone[0][0] < self.clock() - self.lag_seconds:
            self._gone.popleft()
        return [pod for _, pod in self._gone if node_of(pod)]


def _set(index: dict[str, Unstructured], key: str, tree: Unstructured, is_in: bool) -> None:
    if is_in:
        index[key] = tree
    else:
        index.pop(key, None)


def _decisive(node: Unstructured) -> tuple[object, ...]:
    """What judges read of a node."""
    meta, status = node["metadata"], node["status"]
    return (
        meta.get("labels"),
        meta.get("annotations"),
        node.get("spec"),
        status.get("allocatable"),
        status.get("capacity"),
    )


def _without_reclaimable_pods(workload: Unstructured) -> Unstructured:
    """What was given back is not held; `judges.sizes` says whether it was right to give it back."""
    given_back = {part["name"]: part["count"] for part in workload["status"].get("reclaimablePods") or ()}
    if not given_back:
        return workload
    declared = {part["name"]: part["count"] for part in workload["spec"]["podSets"]}
    found = workload["status"]["admission"]
    parts = [
        {**part, "count": min(part["count"], declared[part["name"]] - given_back.get(part["name"], 0))}
        for part in found["podSetAssignments"]
    ]
    return {**workload, "status": {**workload["status"], "admission": {**found, "podSetAssignments": parts}}}


def _without_ended_pods(
    workload: Unstructured, members: list[Unstructured], owners: list[Unstructured]
) -> Unstructured:
    """Pods that have succeeded, and that no others follow, give their quota back."""
    if not any(pod["status"].get("phase") == "Succeeded" for pod in members):
        return workload
    spare = sum(_completions_beyond_parallelism(owner) for owner in owners)
    found, parts = workload["status"]["admission"], []
    for part in found["podSetAssignments"]:
        mark = "" if len(found["podSetAssignments"]) == 1 else f"-{part['name'][:4]}"
        phases = [pod["status"].get("phase") for pod in members if mark in pod["metadata"]["name"]]
        alive = sum(phase not in ENDED for phase in phases)
        left = max(alive, part["count"] + spare - phases.count("Succeeded"))
        parts.append({**part, "count": min(part["count"], left)})
    return {**workload, "status": {**workload["status"], "admission": {**found, "podSetAssignments": parts}}}


def _completions_beyond_parallelism(owner: Unstructured) -> int:
    spec = owner["spec"]
    if spec.get("completions") is None or "parallelism" not in spec:
        return 0
    return max(0, int(spec["completions"]) - int(spec["parallelism"]))


def is_finished(workload: Unstructured) -> bool:
    return condition(workload, "Finished") == "True"


def is_guarded(state: WorldState, tree: Unstructured) -> bool:
    """Whether its Job, its Workload or itself says that it must not be preempted."""
    owner = state.owner_of(tree)
    owners = [owner] if owner is not None else []
    return any(annotations_of(found).get(PREEMPTABLE) == "false" for found in (tree, *owners))
