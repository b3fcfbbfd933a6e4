"""Judges lost members: one that comes in place of a lost pod of an admitted Workload gets a node, if single pods of
lower priority that may be evicted stand in its way.

Only what is certain counts: victims in no queue, without an owner or a budget, on a node that nothing leaves and that
is cleared for nothing else; members without a topology, of which none may be missing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tests.worlds.judges.gangs import group_of
from tests.worlds.judges.trees import (
    admission,
    condition,
    is_deleted,
    is_gated,
    key_of,
    labels_of,
    node_of,
    owner_uids,
)
from tests.worlds.judges.twin import Twin, typed_pod
from tests.worlds.judges.waiting import QUEUE, TOPOLOGY
from tests.worlds.judges.world_state import WorldState, is_finished, is_guarded

from windlass.model.unstructured import Unstructured

UNCERTAIN = (TOPOLOGY, "topologyRequest", "minCount")
"""In pod sets whose members may wait for a domain, or be missing."""


class LostMemberJudge:
    def __init__(
        self, state: WorldState, wrong: Callable[[str], None], count: Callable[[str], None], patience: float
    ) -> None:
        self._state, self._wrong, self._count, self._patience = state, wrong, count, patience
        self._since: dict[str, float] = {}

    def disturb(self) -> None:
        self._since.clear()

    def check(self) -> None:
        now, found = self._state.clock(), dict(self._placeable_members())
        for key, node in found.items():
            if key not in self._since:
                self._count("lost members for which others can go")
            late = now - self._since.setdefault(key, now)
            if late > self._patience:
                self._wrong(
                    f"{key}, a lost member, waits for {late:.0f} s although pods of lower priority could go: {node}"
                )
                self._since[key] = now + 10_000  # said once
        self._since = {key: since for key, since in self._since.items() if key in found}

    def _placeable_members(self) -> Iterator[tuple[str, str]]:
        """Members without a node, each with a node on which lower priorities could make room."""
        for tree in self._state.workloads.values():
            goes_on = admission(tree) and not is_finished(tree) and condition(tree, "Evicted") != "True"
            if not goes_on or any(word in str(tree["spec"]["podSets"]) for word in UNCERTAIN):
                continue
            pods = self._state.pods_of(tree)
            if any(node_of(pod) for pod in pods) and len(pods) <= _held_pods(tree):
                for pod in pods:
                    if not node_of(pod) and not is_deleted(pod) and not is_gated(pod):
                        node = self._node_with_victims(pod, int(tree["spec"].get("priority", 0)))
                        if node:
                            yield key_of(pod), node

    def _node_with_victims(self, pod: Unstructured, priority: int) -> str:
        """`priority`: of its Workload, which may differ from the pod's."""
        state, member = self._state, typed_pod(pod)
        priority = min(priority, int(pod["spec"].get("priority", 0)))
        if pod["spec"].get("priorityClassName") == "polite":
            return ""
        nominated = {other["status"].get("nominatedNodeName", "") for other in state.alive_pods() if not node_of(other)}
        for name in state.nodes.keys() - nominated:
            here = [other for other in state.placed_pods() if node_of(other) == name]
            kept = [other for other in here if not self._may_go(other, priority)]
            if len(kept) == len(here) or any(is_deleted(other) for other in here):
                continue
            others = [other for other in state.placed_pods() if node_of(other) != name]
            twin = Twin([*state.nodes.values()], [*others, *kept])
            if not twin.lacks(member, name) and not twin.rules(member, name):
                return name
        return ""

    def _may_go(self, victim: Unstructured, priority: int) -> bool:
        is_lower = int(victim["spec"].get("priority", 0)) < priority
        is_single = not owner_uids(victim) and not group_of(victim) and QUEUE not in labels_of(victim)
        return is_lower and is_single and not is_guarded(self._state, victim)


def _held_pods(tree: Unstructured) -> int:
    return sum(part["count"] for part in admission(tree)["podSetAssignments"])  # type: ignore[index]
