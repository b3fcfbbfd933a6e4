"""Finds the running pods that may be moved, what moving them loses, and which nodes they may go to.

`defrag.planner`, `proactive` and `explain.move_offers` call `find_movable_pods`. A pod may be moved if a controller
creates it again and no annotation forbids it. A gang that stops without one member loses the work of all members, once,
however many of them move.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec
import numpy as np

from windlass.cluster.node_columns import Bools, NodeColumns
from windlass.cluster.pod_table import UNREADABLE
from windlass.cluster.shape import Shape
from windlass.cluster.snapshot import Snapshot
from windlass.model.decision import DeviceGrant
from windlass.model.digits import is_digits
from windlass.model.disruption import PodDisruptionBudget, disruptions_allowed
from windlass.model.pod import Pod
from windlass.model.times import parse_timestamp
from windlass.model.workload import PodSet, Workload
from windlass.placement.defrag.types import GangLoss, MovablePod, MovablePods
from windlass.placement.implied_topology import is_node_ready
from windlass.queueing.config import QueueConfig

SAFE_TO_EVICT = "cluster-autoscaler.kubernetes.io/safe-to-evict"
DO_NOT_DISRUPT = "karpenter.sh/do-not-disrupt"
BOUND_TO_NODES = frozenset({"DaemonSet", "Node"})
"""Controllers that create the pod again on the same node."""
_SLICES = 7
"""Compute slices of a GPU in MIG mode."""


class MoveCosts(msgspec.Struct, frozen=True):
    """What the loss of a move is computed from."""

    now: int
    config: QueueConfig = QueueConfig()


def is_movable(pod: Pod) -> bool:
    """Whether its controller would create it again and no annotation forbids eviction."""
    meta = pod.metadata
    controller = next((owner for owner in meta.owner_references if owner.controller), None)
    if controller is None or controller.kind in BOUND_TO_NODES or meta.deletion_timestamp:
        return False
    return meta.annotations.get(SAFE_TO_EVICT) != "false" and DO_NOT_DISRUPT not in meta.annotations


def find_movable_pods(
    snapshot: Snapshot,
    workloads: Iterable[Workload],
    budgets: Sequence[PodDisruptionBudget],
    costs: MoveCosts,
    excluded: frozenset[str] = frozenset(),
) -> MovablePods:
    """All pods that may be moved now. Pods in `excluded` have been moved or evicted already; they use up budgets."""
    return _Finder(snapshot, workloads, budgets, costs).find(excluded)


class _Finder:
    def __init__(
        self,
        snapshot: Snapshot,
        workloads: Iterable[Workload],
        budgets: Sequence[PodDisruptionBudget],
        costs: MoveCosts,
    ) -> None:
        self._snapshot, self._budgets, self._costs = snapshot, budgets, costs
        pods = snapshot.pods
        alive = np.flatnonzero(pods.alive).tolist()
        self._rows = {pods.objects[row].key: row for row in alive}
        self._objects = [pods.objects[row] for row in alive]
        self._workload_of_pod = {
            key: (workload, pod_set)
            for workload in workloads
            for pod_set in workload.pod_sets
            for key in pod_set.pod_keys
        }
        ready = [is_node_ready(node) for node in snapshot.nodes.objects]
        self._ready: Bools = np.array(ready, dtype=np.bool_)
        self._gang_loss_index: dict[str, int] = {}
        self._gang_loss_totals: list[tuple[str, int]] = []

    def find(self, excluded: frozenset[str]) -> MovablePods:
        pods = self._snapshot.pods
        moved = [pod for pod in self._objects if pod.key in excluded]
        allowances = tuple(
            max(0, disruptions_allowed(budget, self._objects) - sum(budget.covers(pod) for pod in moved))
            for budget in self._budgets
        )
        found: list[MovablePod] = []
        for row in np.flatnonzero((pods.alive == 1) & (pods.node >= 0)).tolist():
            pod = pods.objects[row]
            if pod.key in excluded or not is_movable(pod) or int(pods.shape[row]) == UNREADABLE:
                continue
            covering = tuple(i for i, budget in enumerate(self._budgets) if budget.covers(pod))
            # The API server refuses to evict a pod that more than one budget covers.
            if len(covering) > 1 or any(not allowances[i] for i in covering) or self._is_too_young(pod):
                continue
            found.append(self._movable(len(found), pod, row, covering))
        on_node: dict[int, list[int]] = {}
        for movable in found:
            on_node.setdefault(movable.node, []).append(movable.number)
        return MovablePods(
            tuple(found),
            self._gang_losses(found),
            allowances,
            {node: tuple(numbers) for node, numbers in on_node.items()},
        )

    def _is_too_young(self, pod: Pod) -> bool:
        seconds = self._costs.config.min_run_seconds
        return bool(seconds) and self._costs.now - _started_at(pod) < seconds

    def _movable(self, number: int, pod: Pod, row: int, covering: tuple[int, ...]) -> MovablePod:
        pods = self._snapshot.pods
        shape, grants = self._snapshot.shapes[int(pods.shape[row])], pods.grants[row]
        workload, pod_set = self._workload_of_pod.get(pod.key, (None, None))
        gang_loss = self._gang_loss_of(workload)
        restart = held_gpu_milli(shape, grants) * self._restart_seconds(workload)
        return MovablePod(
            number=number,
            pod=pod,
            pod_row=row,
            shape=shape,
            grants=grants,
            node=int(pods.node[row]),
            loss=0 if gang_loss >= 0 else self._loss(row, workload),
            restart_loss=restart,
            gang_loss=gang_loss,
            budgets=covering,
            allowed=self._allowed(int(pods.node[row]), workload, pod_set),
            may_change_device=shape.gpu is not None and (bool(shape.gpu.profile) or shape.gpu.milli < 1000),
        )

    # Losses

    def _restart_seconds(self, workload: Workload | None) -> int:
        """Seconds that one more restart costs."""
        return self._lost_seconds(0, workload)

    def _lost_seconds(self, elapsed: int, workload: Workload | None) -> int:
        admission = workload.admission if workload is not None else None
        queue = admission.cluster_queue if admission is not None else ""
        declared = workload.restart_seconds if workload is not None else None
        return self._costs.config.seconds_lost(elapsed, declared, queue)

    def _loss(self, row: int, workload: Workload | None) -> int:
        """Milli-GPU-seconds since the last checkpoint or the start, plus the restart."""
        pods, costs = self._snapshot.pods, self._costs
        checkpoint = workload.checkpoint_at if workload is not None else 0
        since = max(checkpoint, _started_at(pods.objects[row]))
        elapsed = 0 if workload is not None and workload.is_asked else costs.now - since
        seconds = self._lost_seconds(elapsed, workload)
        return held_gpu_milli(self._snapshot.shapes[int(pods.shape[row])], pods.grants[row]) * seconds

    def _gang_loss_of(self, workload: Workload | None) -> int:
        """Index of the gang's loss, where moving one member stops the others; -1 where it doesn't."""
        if workload is None or not workload.all_or_nothing:
            return -1
        index = self._gang_loss_index.get(workload.key)
        if index is None:
            index = self._gang_loss_index[workload.key] = self._add_gang_loss(workload)
        return index

    def _add_gang_loss(self, workload: Workload) -> int:
        pods = self._snapshot.pods
        keys = (key for pod_set in workload.pod_sets for key in pod_set.pod_keys)
        rows = [self._rows[key] for key in keys if key in self._rows]
        running = [row for row in rows if int(pods.node[row]) >= 0 and int(pods.shape[row]) != UNREADABLE]
        minimum = sum(pod_set.count for pod_set in workload.pod_sets)
        if workload.min_pods is not None:
            minimum = min(minimum, workload.min_pods)
        if len(running) < 2 or len(running) > minimum:
            return -1  # a single pod, or enough others for the gang to go on
        self._gang_loss_totals.append((workload.key, sum(self._loss(row, workload) for row in running)))
        return len(self._gang_loss_totals) - 1

    def _gang_losses(self, found: Sequence[MovablePod]) -> tuple[GangLoss, ...]:
        pods = [0] * len(self._gang_loss_totals)
        for movable in found:
            if movable.gang_loss >= 0:
                pods[movable.gang_loss] += 1
        return tuple(
            GangLoss(key, loss, loss // max(1, count))
            for (key, loss), count in zip(self._gang_loss_totals, pods, strict=True)
        )

    # Allowed nodes

    def _allowed(self, node: int, workload: Workload | None, pod_set: PodSet | None) -> Bools | None:
        mask = None if self._ready.all() else self._ready
        if workload is None or pod_set is None:
            return mask
        columns = self._snapshot.nodes
        for labels in self._flavor_labels(workload, pod_set, columns.names[node]):
            mask = _and(mask, columns.matching_labels(labels))
        request = pod_set.topology
        if request is not None:
            levels = [request.level] if request.mode == "required" else []
            for level in [*levels, request.slice_level]:
                if level:
                    mask = _and(mask, _same_domain(columns, self._levels_to(level), node))
        return mask

    def _flavor_labels(self, workload: Workload, pod_set: PodSet, node: str) -> list[dict[str, str]]:
        """Node labels of the flavors that the pod uses: on other nodes it would use other quota."""
        assignments = [
            assignment
            for assignment in (workload.admission.assignments if workload.admission else ())
            if assignment.name == pod_set.name
        ]
        here = next(
            (assignment for assignment in assignments if node in assignment.nodes),
            assignments[0] if assignments else None,
        )
        names = dict.fromkeys(here.flavors.values()) if here is not None else {}
        flavors = self._snapshot.queue_system.flavors
        return [flavors[name].node_labels for name in names if name in flavors and flavors[name].node_labels]

    def _levels_to(self, level: str) -> tuple[str, ...]:
        """The level and all wider ones: two racks in different zones may have the same name."""
        for topology in self._snapshot.queue_system.topologies.values():
            if level in topology.levels:
                return topology.levels[: topology.levels.index(level) + 1]
        return (level,)


def held_gpu_milli(shape: Shape, grants: tuple[DeviceGrant, ...]) -> int:
    """Thousandths of GPUs that the pod holds; a MIG instance counts by its compute slices."""
    gpu = shape.gpu
    if gpu is None:
        return 0
    if gpu.profile:
        slices = gpu.profile.partition("g")[0]
        return gpu.count * 1000 * (int(slices) if is_digits(slices) else _SLICES) // _SLICES
    return sum(grant.milli for grant in grants) or shape.gpu_milli


def _started_at(pod: Pod) -> int:
    return parse_timestamp(pod.status.start_time) or parse_timestamp(pod.metadata.creation_timestamp)


def _and(first: Bools | None, second: Bools) -> Bools:
    return second if first is None else first & second


def _same_domain(columns: NodeColumns, levels: Iterable[str], node: int) -> Bools:
    """Nodes that share the node's value of every level."""
    same: Bools = np.ones(columns.size, dtype=np.bool_)
    for level in levels:
        codes = columns.label(level).codes
        same &= codes == codes[node]
    return same
