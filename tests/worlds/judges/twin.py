"""Asks the slow second implementation of `tests.reference` whether a pod may stand on a node, and where a gang fits.

It shares only the structs with the engine. Rules between pods, node selectors, taints, free resources and devices are
all answered from the objects of a `WorldState`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

import msgspec
from tests.invariants.judge import device_list
from tests.worlds.judges.trees import key_of, node_of
from tests.worlds.judges.world_state import WorldState

from reference.cluster import Cluster
from reference.inter_pod import inter_pod_reasons
from reference.node_capacity import GpuDemand, NodeCapacity
from reference.node_filters import node_filter_reasons
from windlass.model.codec import decode_object
from windlass.model.decision import DeviceGrant
from windlass.model.node import Node
from windlass.model.pod import Pod
from windlass.model.unstructured import Unstructured

ALLOCATED = "windlass.dev/allocated-devices"
MAX_TOLD_APART = 16
"""GPUs of one node; of more the scheduler doesn't choose which."""


@lru_cache(maxsize=4096)
def _decoded(key: str, text: bytes) -> Any:
    return decode_object(msgspec.json.decode(text))


def typed(tree: Unstructured, kind: str) -> Any:
    return _decoded(key_of(tree), msgspec.json.encode({**tree, "apiVersion": "v1", "kind": kind}))


def typed_pod(tree: Unstructured) -> Pod:
    found: Pod = typed(tree, "Pod")
    return found


class Twin:
    """The nodes of one moment with the pods on them."""

    def __init__(self, nodes: Sequence[Unstructured], placed: Iterable[Unstructured]) -> None:
        self.nodes: list[Node] = [typed(node, "Node") for node in nodes]
        self.index = {node.metadata.name: at for at, node in enumerate(self.nodes)}
        self.room = [NodeCapacity(node) for node in self.nodes]
        self.cluster = Cluster(self.nodes)
        for pod in placed:
            if node_of(pod) in self.index:
                self.add(typed_pod(pod), node_of(pod), grants_of(pod))

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
        if not grants or len(room.devices) > MAX_TOLD_APART or room.replicas > 1:
            return ""  # of replicas it is not written down how many are of which GPU
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
            self.add(pod, node, self._free_devices(pod, node))
            found[node] = found.get(node, 0) + 1
        return found

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


def twin_now(state: WorldState) -> Twin:
    return Twin([*state.nodes.values()], state.placed_pods())
