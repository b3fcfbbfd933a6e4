"""Judges every bind: the node has the room and the devices, and no rule of the pod, of the node or of other pods is
broken, by the twin of `tests.reference`.

The members of a gang are bound side by side, in any order, and the scheduler sees nodes and deleted pods a little late:
a rule counts as broken only if it was in every state from some seconds before the bind to some seconds after it.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations, islice

from tests.invariants.judge import device_list
from tests.worlds.judges.trees import annotations_of, key_of, node_of
from tests.worlds.judges.twin import Twin, grants_of, twin_of, unbound
from tests.worlds.judges.world_state import WorldState

from windlass.model.unstructured import Unstructured

SETTLE_SECONDS = 10.0
"""After which all pods of one decision are bound."""
MAX_ORDERS = 64
"""Sets of pods that may have been decided on before a pod, of those that were bound at about the same time."""
TIMELESS = {"POD_ANTI_AFFINITY", "EXISTING_ANTI_AFFINITY", "TAINT", "UNSCHEDULABLE", "NODE_AFFINITY", "NODE_NAME"}
"""Rules that pods which are bound later can't make good."""


class BindJudge:
    def __init__(self, state: WorldState, wrong: Callable[[str], None]) -> None:
        self._state, self._wrong = state, wrong
        self._unsettled: dict[str, tuple[float, set[str]]] = {}
        """Pod → until when its rules may become true, and the rules."""
        self._bound_at: dict[str, float] = {}

    def on_bind(self, pod: Unstructured) -> None:
        key, node = key_of(pod), node_of(pod)
        if node not in self._state.nodes:
            return
        self._bound_at[key] = self._state.clock()
        self._check_room(key, pod, node)
        broken = self._broken_rules(pod)
        if broken & TIMELESS:
            self._wrong(f"{key} is bound to {node}, which rules forbid: {sorted(broken & TIMELESS)}")
        elif broken:
            self._unsettled[key] = (self._state.clock() + SETTLE_SECONDS, broken)

    def on_allocated(self, pod: Unstructured) -> None:
        """The kubelet has said which devices it gave. Others than were asked for are its own choice."""
        if {grant.index for grant in grants_of(pod)} == set(device_list(pod)):
            self._check_devices(key_of(pod), pod, node_of(pod))

    def check(self) -> None:
        for key, (until, broken) in list(self._unsettled.items()):
            pod = self._state.pods.get(key)
            if pod is None or not node_of(pod) or not self._broken_rules(pod):
                del self._unsettled[key]
            elif self._state.clock() > until:
                del self._unsettled[key]
                self._wrong(f"{key} is bound to {node_of(pod)}, which rules forbid: {sorted(broken)}")

    def _broken_rules(self, pod: Unstructured) -> set[str]:
        """Of the states of the last seconds, the one that breaks fewest."""
        state, node, key = self._state, node_of(pod), key_of(pod)
        others = [other for other in state.placed_pods() if key_of(other) != key]
        fewest: set[str] | None = None
        for nodes in self._recent_nodes(node):
            for placed in (others, [*others, *state.just_gone()]):
                broken = self._broken_in_every_order(pod, nodes, placed)
                if not broken:
                    return set()
                fewest = broken if fewest is None or len(broken) < len(fewest) else fewest
                if not state.just_gone():
                    break
        return fewest or set()

    def _broken_in_every_order(
        self, pod: Unstructured, nodes: list[Unstructured], placed: list[Unstructured]
    ) -> set[str]:
        """Pods of one decision arrive in another order than they were decided in."""
        broken = twin_of(nodes, placed).rules(unbound(pod), node_of(pod))
        if not broken or broken & TIMELESS:
            return broken
        at = self._bound_at.get(key_of(pod), 0.0)
        together = [
            other for other in placed if abs(self._bound_at.get(key_of(other), -99.0) - at) < SETTLE_SECONDS / 2
        ]
        before = [other for other in placed if other not in together]
        sets = (chosen for size in range(len(together)) for chosen in combinations(together, size))
        for chosen in islice(sets, MAX_ORDERS):
            if not Twin(nodes, [*before, *chosen]).rules(unbound(pod), node_of(pod)):
                return set()
        return broken

    def _recent_nodes(self, node: str) -> list[list[Unstructured]]:
        """All nodes, with the versions of one of them; and all as they were first."""
        state = self._state
        if node not in state.nodes:
            return []
        rest = [tree for name, tree in state.nodes.items() if name != node]
        states = [[version, *rest] for version in state.versions_of_node(node)]
        oldest = [state.versions_of_node(name)[-1] for name in state.nodes]
        return states if all(tree in state.nodes.values() for tree in oldest) else [*states, oldest]

    def _check_room(self, key: str, pod: Unstructured, node: str) -> None:
        others = [other for other in self._state.placed_pods() if key_of(other) != key and node_of(other) == node]
        lacking: set[str] = set()
        for version in self._state.versions_of_node(node):
            lacking = Twin([version], others).lacks(unbound(pod), node)
            if not lacking:
                break
        else:
            self._wrong(f"{key} is bound to {node}, which has no room for it: {sorted(lacking)}")
            return
        self._check_devices(key, pod, node)

    def _check_devices(self, key: str, pod: Unstructured, node: str) -> None:
        others = [other for other in self._state.placed_pods() if key_of(other) != key and node_of(other) == node]
        misuse = ""
        for version in self._state.versions_of_node(node):
            misuse = Twin([version], others).misuse(unbound(pod), node, grants_of(pod))
            if not misuse:
                return
        if misuse:
            self._wrong(f"{key} is given devices that are not free: {misuse} ({annotations_of(pod)})")
