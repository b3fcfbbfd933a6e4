"""The engine's own filters on any pod: which nodes refuse it, for which reasons, and what is free there.

`why` and `check` build a `FitChecker` from the evidence. No rule is repeated here. Pods made from a template or by a
patch are tried on the same snapshot.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import wraps
from typing import TypeVar

import msgspec
import numpy as np

from windlass import jit
from windlass.cluster.node_state import GEOMETRY
from windlass.cluster.resource_columns import UNADVERTISED
from windlass.engine import EngineCache, EngineConfig
from windlass.model.configuration import Settings
from windlass.model.errors import InputError
from windlass.model.node import Node
from windlass.model.pod import Pod
from windlass.model.reasons import FIRST_RESOURCE_BIT, Reason, insufficient_reason, reason_of_bit
from windlass.model.requests import node_quantities
from windlass.placement.empty_cluster import EmptyCluster
from windlass.placement.explain.gpu_fragmentation import GPU_FULL
from windlass.placement.explain.node_reasons import find_cause, is_made_on_demand
from windlass.placement.filters.prefilter import prefilter_pod, prefilter_template
from windlass.placement.gang import PendingPodSet
from windlass.placement.overlay import Overlay
from windlass.placement.policies import PlacementConfig, make_scoring_rule
from windlass.placement.workload_mix import WorkloadMix
from windlass.planner import snapshot_objects

INTERPRETED_MAX_NODES = 300
"""Up to this number of nodes, plain Python is faster than loading the compiled kernels."""

FIT_CONFIG = EngineConfig(PlacementConfig("best-fit"))


class NodeFit(msgspec.Struct, frozen=True):
    node: str
    reasons: tuple[Reason, ...]
    """Why the node can't take it; empty where it can."""
    shortfall: Mapping[str, int]
    """Resource → missing amount, in base units."""
    shortfall_when_empty: Mapping[str, int]
    """Resource → missing amount if the node were empty."""


class FitChecker:
    def __init__(self, objects: Sequence[object], now: int, settings: Settings | None = None) -> None:
        self.snapshot = snapshot_objects(objects, settings or Settings(), now)
        table = EngineCache().score_table(self.snapshot, FIT_CONFIG, WorkloadMix())
        rule = make_scoring_rule(FIT_CONFIG.placement, self.snapshot.node_state)
        with np.errstate(over="ignore"):  # the kernels' hashes overflow on purpose
            self._overlay = Overlay(
                self.snapshot, table, rule, jit.kernels(self.snapshot.nodes.size <= INTERPRETED_MAX_NODES)
            )
        self._pods = frozenset(self.snapshot.pods.keys)
        self._total = {node.name: capacity_and_allocatable(node)[1] for node in self.snapshot.nodes.objects}

    def hold_reason(self, pod: Pod) -> Reason | None:
        """Why the pod, or a pod of this template, is held before the filters run; None if it is not."""
        return (prefilter_pod if pod.key in self._pods else prefilter_template)(pod, self.snapshot.listers)

    def node_fits(self, pod: Pod) -> list[NodeFit]:
        """One entry per node. Raises `InputError` for an invalid pod."""
        why, requests = self._why(pod)
        masks = why.tolist()
        reasons = {mask: _reasons(mask, requests) for mask in set(masks)}
        columns = [
            (name, amount, self._overlay.state.free[:, self.snapshot.resources.column(name)].tolist())
            for name, amount in requests
        ]
        fits = []
        for row, (name, mask) in enumerate(zip(self.snapshot.nodes.names, masks, strict=True)):
            total = self._total[name]
            short = {what: amount - free[row] for what, amount, free in columns if amount > free[row]}
            too_small = {what: amount - total.get(what, 0) for what, amount in requests if amount > total.get(what, 0)}
            fits.append(NodeFit(name, reasons[mask], short, too_small))
        return fits

    def feasible_nodes(self, pod: Pod) -> list[str]:
        why, _ = self._why(pod)
        names = self.snapshot.nodes.names
        return [names[row] for row in np.flatnonzero(why == 0).tolist()]

    def cause_code(self, pod: Pod, count: int = 1) -> str:
        """The engine's cause where `count` such pods do not fit together."""
        self._row(pod)  # raises if no node of the cluster knows a resource
        part = PendingPodSet("main", count, pod, self.snapshot.shapes.intern(pod)[0])
        everywhere = np.ones(self.snapshot.nodes.size, dtype=np.bool_)
        with np.errstate(over="ignore"):
            empty = EmptyCluster(self._overlay)
            return find_cause(self._overlay, [part], everywhere, GPU_FULL, empty)

    def count_placeable(self, pods: Iterable[Pod]) -> int:
        """How many of the pods, in order, fit together. The overlay is rolled back."""
        before = self._overlay.checkpoint()
        count = 0
        with np.errstate(over="ignore"):
            for pod in pods:
                if not self._place(pod):
                    break
                count += 1
            self._overlay.rollback(before)
        return count

    def node_fits_after(self, placed: Iterable[Pod], pod: Pod) -> list[NodeFit]:
        """As `node_fits`, once other pods are placed. The overlay is rolled back."""
        before = self._overlay.checkpoint()
        with np.errstate(over="ignore"):
            for other in placed:
                self._place(other)
            found = self.node_fits(pod)
            self._overlay.rollback(before)
        return found

    def pods_holding(self, resources: Collection[str]) -> Iterator[tuple[str, str, int]]:
        """(pod, node, amount) of every bound pod that requests one of the resources."""
        pods, shapes = self.snapshot.pods, self.snapshot.shapes
        names = self.snapshot.nodes.names
        amounts = [
            sum(amount for name, amount in shapes[number].requests if name in resources)
            for number in range(len(shapes))
        ]
        for row in np.flatnonzero((pods.node >= 0) & (pods.alive == 1) & (pods.shape >= 0)).tolist():
            amount = amounts[int(pods.shape[row])]
            if amount:
                yield pods.objects[row].key, names[int(pods.node[row])], amount

    def free(self, node: str, resource: str) -> int:
        """Allocatable minus the requests of the node's pods; 0 for a resource that no node has."""
        row, column = self.snapshot.nodes.index[node], self.snapshot.resources.column(resource)
        free = self._overlay.state.free
        return int(free[row, column]) if column < free.shape[1] else 0

    def _place(self, pod: Pod) -> bool:
        if self.hold_reason(pod) is not None:
            return False
        row = self._row(pod)
        why = self._overlay.reasons(pod, row)
        node = self._overlay.select_node(pod, row, why, 0)
        if node < 0:
            return False
        self._overlay.assume(pod, row, node)
        return True

    def _row(self, pod: Pod) -> int:
        shape, _ = self.snapshot.shapes.intern(pod)
        makes_instances = bool((self.snapshot.node_state.device_info[:, GEOMETRY] >= 0).any())
        unadvertised = [
            name
            for name, _ in shape.requests
            if self.snapshot.resources.column(name) == UNADVERTISED
            and not (makes_instances and is_made_on_demand(shape, name))
        ]
        if unadvertised and pod.key not in self._pods:
            message = f"no node advertises {unadvertised[0]}"
            raise InputError(message, object=f"Pod {pod.key}", code="RESOURCE_NAME_MISMATCH")
        return self._overlay.table.row(shape, self.snapshot)

    def _why(self, pod: Pod) -> tuple[np.ndarray, tuple[tuple[str, int], ...]]:
        row = self._row(pod)
        with np.errstate(over="ignore"):
            why = self._overlay.reasons(pod, row)
        return why, self.snapshot.shapes.intern(pod)[0].requests


Found = TypeVar("Found")
MAX_REMEMBERED = 10_000


def once_per_node(find: Callable[[Node], Found]) -> Callable[[Node], Found]:
    """Remembers what was found: an answer asks for it a dozen times, and nodes are frozen, but can't be hashed."""
    known: dict[int, tuple[Node, Found]] = {}

    @wraps(find)
    def remembered(node: Node) -> Found:
        entry = known.get(id(node))
        if entry is not None and entry[0] is node:
            return entry[1]
        if len(known) >= MAX_REMEMBERED:
            known.clear()
        known[id(node)] = (node, found := find(node))
        return found

    return remembered


@once_per_node
def capacity_and_allocatable(node: Node) -> tuple[Mapping[str, int], Mapping[str, int]]:
    """(capacity, allocatable); empty for an invalid node, which the filters refuse for that."""
    try:
        return node_quantities(node)
    except InputError:
        return {}, {}


def _reasons(mask: int, requests: tuple[tuple[str, int], ...]) -> tuple[Reason, ...]:
    return tuple(_reason(bit, requests) for bit in range(64) if mask >> bit & 1)


def _reason(bit: int, requests: tuple[tuple[str, int], ...]) -> Reason:
    if bit >= FIRST_RESOURCE_BIT:
        return insufficient_reason(requests[bit - FIRST_RESOURCE_BIT][0])
    return reason_of_bit(bit)
