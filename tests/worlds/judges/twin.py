"""Asks the slow second implementation of `tests.reference` whether a pod may stand on a node, and where a gang fits.

It shares only the structs with the engine. Rules between pods, node selectors, taints, free resources and devices are
all answered from the objects of a `WorldState`.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from msgspec.structs import replace
from tests.invariants.judge import device_list
from tests.worlds.judges.trees import node_of
from tests.worlds.judges.world_state import WorldState

from reference.cluster import Cluster
from reference.inter_pod import inter_pod_reasons
from reference.node_capacity import GpuDemand, NodeCapacity, requests_of
from reference.node_filters import node_filter_reasons
from windlass.model.codec import decode_object
from windlass.model.decision import DeviceGrant
from windlass.model.node import Node
from windlass.model.pod import Pod
from windlass.model.unstructured import Unstructured

ALLOCATED = "windlass.dev/allocated-devices"
MAX_TOLD_APART = 16
"""GPUs of one node; of more the scheduler doesn't choose which."""


_known: dict[int, tuple[Unstructured, Any]] = {}
"""Trees are never changed in place: by the identity of the tree, which is kept."""
MAX_KNOWN = 8192


def once(tree: Unstructured, make: Callable[[Unstructured], Any]) -> Any:
    """What is made of a tree, made once."""
    found = _known.get(id(tree))
    if found is None:
        if len(_known) > MAX_KNOWN:
            _known.clear()
        found = _known[id(tree)] = (tree, make(tree))
    return found[1]


def typed_pod(tree: Unstructured) -> Pod:
    found: Pod = once(tree, lambda pod: decode_object({**pod, "apiVersion": "v1", "kind": "Pod"}))
    return found


def unbound(tree: Unstructured) -> Pod:
    """The pod as it was before it was bound."""
    pod = typed_pod(tree)
    return replace(pod, spec=replace(pod.spec, node_name=""))


def _empty_node(tree: Unstructured) -> tuple[Node, NodeCapacity]:
    node = decode_object({**tree, "apiVersion": "v1", "kind": "Node"})
    return node, NodeCapacity(node)


class Twin:
    """The nodes of one moment with the pods on them."""

    def __init__(self, nodes: Sequence[Unstructured], placed: Iterable[Unstructured]) -> None:
        known = [once(node, _empty_node) for node in nodes]
        self.nodes: list[Node] = [node for node, _ in known]
        self.index = {node.metadata.name: at for at, node in enumerate(self.nodes)}
        self.room = [room.copy() for _, room in known]
        self.cluster = Cluster(self.nodes)
        for pod in placed:
            if node_of(pod) in self.index:
                self.add(typed_pod(pod), node_of(pod), grants_of(pod))

    def copy(self) -> Twin:
        made = copy.copy(self)
        made.room = [room.copy() for room in self.room]
        made.cluster = Cluster(self.nodes, [*self.cluster.placed])
        return made

    def add(self, pod: Pod, node: str, grants: Sequence[DeviceGrant]) -> None:
        at = self.index[node]
        self.room[at].charge(pod, _with_amounts(self.room[at], pod, grants))
        self.cluster.placed.append((pod, at))

    def rules(self, pod: Pod, node: str) -> set[str]:
        """Rules about nodes and other pods that forbid it."""
        at = self.index[node]
        return node_filter_reasons(pod, self.nodes[at], self.cluster) | inter_pod_reasons(pod, at, self.cluster)

    def lacks(self, pod: Pod, node: str) -> set[str]:
        """Resources and devices that are not free."""
        return self.room[self.index[node]].reasons(pod)

    def misuse(self, pod: Pod, node: str, grants: Sequence[DeviceGrant]) -> str:
        """What is wrong with the devices that the pod was given there; empty if nothing is."""
        room = self.room[self.index[node]]
        if not grants or len(room.devices) > MAX_TOLD_APART:
            return ""
        if any(grant.index >= len(room.devices) for grant in grants):
            return f"{node} has no such GPUs: {[grant.index for grant in grants]}"
        demand = GpuDemand(pod)
        for grant in _with_amounts(room, pod, grants) if not demand.profile else ():
            device = room.devices[grant.index]
            if not device.healthy:
                return f"GPU {grant.index} of {node} is unhealthy"
            if device.free < grant.milli:
                return f"GPU {grant.index} of {node} has {device.free} of {grant.milli} thousandths free"
        return ""

    def place(self, pods: Sequence[Pod], names: Sequence[str]) -> dict[str, int] | None:
        """Some legal placement of all these pods on the named nodes, found by taking the first node for each."""
        found: dict[str, int] = {}
        for pod in pods:
            node = next((name for name in names if not self.lacks(pod, name) and not self.rules(pod, name)), None)
            if node is None:
                return None
            self._take(pod, node, found)
        return found

    def place_mixed(self, pods: Sequence[Pod], names: Sequence[str]) -> dict[str, int] | None:
        """A legal placement of pods of two shapes, if there is one: node after node, the most pods of the second shape
        for every number of the first."""
        small, large = _two_shapes(pods)
        if not small or not large:
            return None
        best: dict[int, tuple[int, tuple[int, ...]]] = {0: (0, ())}
        """Pods of the first shape → the most of the second, and how many of the first each node has."""
        for name in names:
            fits = self._fit_pairs(small[0], large[0], name, len(small))
            after: dict[int, tuple[int, tuple[int, ...]]] = {}
            for count, (others, path) in best.items():
                for here, more in enumerate(fits):
                    if count + here <= len(small) and after.get(count + here, (-1, ()))[0] < others + more:
                        after[count + here] = (others + more, (*path, here))
            best = after
        most, path = best.get(len(small), (0, ()))
        return self._take_mixed(small, large, names, path) if most >= len(large) else None

    def _fit_pairs(self, small: Pod, large: Pod, name: str, most: int) -> list[int]:
        """How many of the large ones fit beside 0, 1, 2 … of the small ones, by amounts alone."""
        if self.rules(small, name) or self.rules(large, name):
            return [0]
        free = self.room[self.index[name]].free
        first, second = requests_of(small), requests_of(large)
        found = []
        for count in range(most + 1):
            left = {key: free.get(key, 0) - count * first.get(key, 0) for key in {*first, *second}}
            if min(left.values()) < 0:
                break
            found.append(min(left[key] // amount for key, amount in second.items()))
        return found

    def _take_mixed(
        self, small: list[Pod], large: list[Pod], names: Sequence[str], path: Sequence[int]
    ) -> dict[str, int] | None:
        found: dict[str, int] = {}
        for name, count in zip(names, path, strict=True):
            for pods, most in ((small, count), (large, len(large))):
                for _ in range(min(most, len(pods))):
                    if not self.lacks(pods[-1], name):
                        self._take(pods.pop(), name, found)
        return None if small or large else found

    def _take(self, pod: Pod, node: str, found: dict[str, int]) -> None:
        self.add(pod, node, self._free_devices(pod, node))
        found[node] = found.get(node, 0) + 1

    def _free_devices(self, pod: Pod, node: str) -> list[DeviceGrant]:
        room, demand = self.room[self.index[node]], GpuDemand(pod)
        if demand.profile or not demand.count or len(room.devices) > MAX_TOLD_APART:
            return []
        chosen: list[DeviceGrant] = []
        left = demand.count
        for at, device in enumerate(room.devices):
            if left and device.healthy and demand.allows(device):
                copies = min(left, room.copies(demand, device, device.free))
                if copies:
                    chosen.append(DeviceGrant(at, copies * room.need(demand, device)))
                    left -= copies
        return chosen


def has_two_shapes(pods: Sequence[Pod]) -> bool:
    return bool(_two_shapes(pods)[0])


def _two_shapes(pods: Sequence[Pod]) -> tuple[list[Pod], list[Pod]]:
    """The pods by what they ask for, the more numerous first; empty if there are not two shapes, or rules between
    pods."""
    shapes: dict[tuple[tuple[str, int], ...], list[Pod]] = {}
    for pod in pods:
        shapes.setdefault(tuple(sorted(requests_of(pod).items())), []).append(pod)
    if len(shapes) != 2 or any(pod.spec.affinity or pod.spec.topology_spread_constraints for pod in pods):
        return [], []
    first, second = sorted(shapes.values(), key=len, reverse=True)
    return first, second


def grants_of(pod: Unstructured) -> list[DeviceGrant]:
    """What the kubelet says, else what the scheduler asked for; the amounts are not written down."""
    notes = pod["metadata"].get("annotations") or {}
    text = notes.get(ALLOCATED)
    indices = [int(part) for part in text.split(",") if part] if text else device_list(pod)
    return [DeviceGrant(index, 0) for index in indices]


def _with_amounts(room: NodeCapacity, pod: Pod, grants: Sequence[DeviceGrant]) -> list[DeviceGrant]:
    demand = GpuDemand(pod)
    if demand.profile:
        return []
    made: dict[int, int] = {}
    for grant in grants:
        if grant.index < len(room.devices):
            amount = grant.milli or room.need(demand, room.devices[grant.index])
            made[grant.index] = made.get(grant.index, 0) + amount
    return [DeviceGrant(index, milli) for index, milli in made.items()]


_twins: dict[tuple[tuple[int, ...], tuple[int, ...]], tuple[object, Twin]] = {}
"""By the identity of the trees, which are kept."""
MAX_TWINS = 8


def twin_of(nodes: Sequence[Unstructured], placed: Sequence[Unstructured]) -> Twin:
    """A twin to ask and not to change, made once: many questions are about the same moment."""
    key = (tuple(map(id, nodes)), tuple(map(id, placed)))
    found = _twins.get(key)
    if found is None:
        if len(_twins) >= MAX_TWINS:
            del _twins[next(iter(_twins))]
        found = _twins[key] = ((nodes, placed), Twin(nodes, placed))
    return found[1]


def twin_now(state: WorldState) -> Twin:
    """To ask and not to change."""
    return twin_of([*state.nodes.values()], state.placed_pods())
