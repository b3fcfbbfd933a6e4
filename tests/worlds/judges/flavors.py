"""Judges flavors: a pod runs on nodes of the flavor that it is charged to, with the flavor's node labels and
tolerations.

Flavors are edited while workloads run: any version since the admission may be the one that was used.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator

from tests.worlds.judges.trees import admission, condition_time, created_at, key_of, labels_of, node_of, owner_uids
from tests.worlds.judges.world_state import WorldState, is_finished

from windlass.model.unstructured import Unstructured


class FlavorJudge:
    def __init__(self, state: WorldState, wrong: Callable[[str], None]) -> None:
        self._state, self._wrong = state, wrong
        self._versions: dict[str, deque[tuple[float, Unstructured]]] = {}
        """Flavor → since when it has been so."""
        self._suspended: set[str] = set()
        """Owners (UID) that were suspended once: others have made their pods by themselves."""

    def on_flavor(self, event: str, tree: Unstructured) -> None:
        if event != "DELETED":
            versions = self._versions.setdefault(key_of(tree), deque(maxlen=20))
            versions.append((self._state.clock(), tree["spec"]))

    def on_job(self, tree: Unstructured) -> None:
        if tree["spec"].get("suspend"):
            self._suspended.add(tree["metadata"]["uid"])

    def on_bind(self, pod: Unstructured) -> None:
        workload = self._workload_of(pod)
        node = self._state.nodes.get(node_of(pod))
        if workload is None or node is None or not owner_uids(workload) & self._suspended:
            return
        reserved_at = condition_time(workload, "QuotaReserved")
        if created_at(pod) < reserved_at:
            return
        since = reserved_at - self._state.lag_seconds
        for name in _flavors_of_all_pods(workload):
            versions = [*self._versions_since(name, since)]
            places = [*self._state.versions_of_node(node_of(pod)), node]
            if not any(_fits_labels(spec, place) for spec in versions for place in places):
                self._wrong(
                    f"{key_of(pod)} is charged to flavor {name} and bound to {node_of(pod)}, which is another's"
                )
            elif not any(_has_flavor(pod, spec) for spec in versions):
                self._wrong(f"{key_of(pod)} is bound without the node labels or tolerations of its flavor {name}")

    def _versions_since(self, name: str, since: float) -> Iterator[Unstructured]:
        versions = [*self._versions.get(name, ())]
        for number, (_, spec) in enumerate(versions):
            is_last = number + 1 == len(versions)
            if is_last or versions[number + 1][0] >= since:
                yield spec

    def _workload_of(self, pod: Unstructured) -> Unstructured | None:
        for tree in self._state.workloads.values():
            if admission(tree) and not is_finished(tree) and owner_uids(tree) & owner_uids(pod):
                return tree
        return None


def _flavors_of_all_pods(workload: Unstructured) -> set[str]:
    """Flavors that every pod set has: which set a pod belongs to doesn't matter then."""
    parts = [set(part.get("flavors", {}).values()) for part in admission(workload)["podSetAssignments"]]  # type: ignore[index]
    return set.intersection(*parts) if parts else set()


def _fits_labels(spec: Unstructured, node: Unstructured) -> bool:
    return bool((spec.get("nodeLabels") or {}).items() <= labels_of(node).items())


def _has_flavor(pod: Unstructured, flavor: Unstructured) -> bool:
    selector, tolerations = pod["spec"].get("nodeSelector") or {}, pod["spec"].get("tolerations") or ()
    wanted = [toleration["key"] for toleration in flavor.get("tolerations") or ()]
    has_labels = (flavor.get("nodeLabels") or {}).items() <= selector.items()
    return has_labels and all(any(found.get("key") == key for found in tolerations) for key in wanted)
