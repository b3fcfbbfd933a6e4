"""Judges what is said when a job is stopped since a member found no place: if healthy GPUs would have taken it, the
unhealthy ones are named."""

from __future__ import annotations

from collections.abc import Callable

from tests.worlds.judges.trees import annotations_of, is_deleted, node_of
from tests.worlds.judges.twin import Twin, typed_pod
from tests.worlds.judges.world_state import WorldState

from windlass.model.unstructured import Unstructured

UNHEALTHY = "windlass.dev/unhealthy-devices"


class LostGpuJudge:
    def __init__(self, state: WorldState, wrong: Callable[[str], None], count: Callable[[str], None]) -> None:
        self._state, self._wrong, self._count = state, wrong, count

    def on_evicted(self, key: str, said: str) -> None:
        """`said`: why, in the words of the Workload, which is stopped for being below its minimum."""
        tree = self._state.workloads.get(key)
        if tree is None:
            return
        lost = [pod for pod in self._state.pods_of(tree) if not node_of(pod) and not is_deleted(pod)]
        nodes = [node for pod in lost for node in self._state.nodes if self._would_take(pod, node)]
        if nodes:
            self._count("stopped for a lost GPU")
            if "GPU" not in said:
                self._wrong(f"{key} is stopped, and unhealthy GPUs of {nodes[0]} are not named: {said}")

    def _would_take(self, pod: Unstructured, name: str) -> bool:
        """Whether the node lacks nothing but healthy GPUs, in every state of the last seconds."""
        placed = [other for other in self._state.placed_pods() if node_of(other) == name]
        versions = self._state.versions_of_node(name)
        if not all(annotations_of(version).get(UNHEALTHY) for version in versions):
            return False
        return all(self._lacks_only_health(pod, version, placed) for version in versions)

    def _lacks_only_health(self, pod: Unstructured, node: Unstructured, placed: list[Unstructured]) -> bool:
        name, made = node["metadata"]["name"], typed_pod(pod)
        healthy = Twin([healthy_node(node)], placed)
        return bool(Twin([node], placed).lacks(made, name)) and not healthy.lacks(made, name) | healthy.rules(
            made, name
        )


def healthy_node(node: Unstructured) -> Unstructured:
    """As it would be with all of its GPUs."""
    notes = {key: value for key, value in annotations_of(node).items() if "unhealthy" not in key}
    status = {**node["status"], "allocatable": node["status"]["capacity"]}
    return {**node, "metadata": {**node["metadata"], "annotations": notes}, "status": status}
