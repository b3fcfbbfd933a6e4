"""A world as the judges see it: all objects as they are, and what changed in the last seconds.

`judge.Judge` feeds it with every change. The scheduler sees the world a little late, so that judges ask for every
recent version of a node and for pods that have just gone.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterator

from tests.invariants.judge import Books, Usage
from tests.worlds.judges.trees import ENDED, admission, condition, key_of, node_of, owner_uids

from windlass.model.plan import Plan
from windlass.model.unstructured import Unstructured

QUEUE_KINDS = {
    "clusterqueues": "ClusterQueue",
    "cohorts": "Cohort",
    "resourceflavors": "ResourceFlavor",
    "localqueues": "LocalQueue",
}


class WorldState:
    def __init__(self, clock: Callable[[], float], lag_seconds: float) -> None:
        self.clock, self.lag_seconds = clock, lag_seconds
        """`lag_seconds`: how late the scheduler may know of a change."""
        self.objects: dict[str, dict[str, Unstructured]] = defaultdict(dict)
        self._books: deque[tuple[float, Books]] = deque([(0.0, Books(()))])
        self._nodes: dict[str, deque[tuple[float, Unstructured]]] = defaultdict(deque)
        self._gone: deque[tuple[float, Unstructured]] = deque()
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
            self.objects[kind][key] = {**tree, "kind": QUEUE_KINDS.get(kind, tree.get("kind", ""))}
        if kind == "nodes" and event != "DELETED":
            self._remember(self._nodes[key], tree)
        elif kind in QUEUE_KINDS:
            trees = [found for name in QUEUE_KINDS for found in self.objects[name].values()]
            self._books.append((now, Books(trees)))

    def _remember(self, history: deque[tuple[float, Unstructured]], tree: Unstructured) -> None:
        history.append((self.clock(), tree))
        while len(history) > 1 and history[1][0] < self.clock() - self.lag_seconds:
            history.popleft()

    def count_usage(self) -> Usage:
        """Quota in use now; the usage before is returned."""
        before = self.usage
        held = {key: tree for key, tree in self.workloads.items() if admission(tree) and not is_finished(tree)}
        holding = {key: self._without_ended_pods(tree) for key, tree in held.items()}
        self.usage = self.books.usage(holding, list(self.alive_pods()), self.objects["nodes"])
        return before

    def _without_ended_pods(self, workload: Unstructured) -> Unstructured:
        """Pods that have succeeded, and that no others follow, give their quota back."""
        owners = owner_uids(workload)
        members = [pod for pod in self.pods.values() if owners & owner_uids(pod)]
        if not any(pod["status"].get("phase") == "Succeeded" for pod in members):
            return workload
        found, parts = workload["status"]["admission"], []
        for part in found["podSetAssignments"]:
            mark = "" if len(found["podSetAssignments"]) == 1 else f"-{part['name'][:4]}"
            phases = [pod["status"].get("phase") for pod in members if mark in pod["metadata"]["name"]]
            alive = sum(phase not in ENDED for phase in phases)
            left = max(alive, part["count"] - phases.count("Succeeded"))
            parts.append({**part, "count": min(part["count"], left)})
        return {**workload, "status": {**workload["status"], "admission": {**found, "podSetAssignments": parts}}}

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
        return (pod for pod in self.pods.values() if pod.get("status", {}).get("phase") not in ENDED)

    def placed_pods(self) -> list[Unstructured]:
        return [pod for pod in self.alive_pods() if node_of(pod)]

    def pods_of(self, workload: Unstructured) -> list[Unstructured]:
        owners = owner_uids(workload)
        name = workload["metadata"]["name"]
        return [
            pod
            for pod in self.alive_pods()
            if owners & owner_uids(pod) or pod["metadata"].get("annotations", {}).get("kueue.x-k8s.io/workload") == name
        ]

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


def is_finished(workload: Unstructured) -> bool:
    return condition(workload, "Finished") == "True"
