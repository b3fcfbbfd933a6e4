"""What waits for GPUs, by the cause that binds it, and which free GPUs nothing that waits can use.

    plan, advisor ─► find_demand ─► Demand ─► `ledger`, `bottleneck`

The causes are those of the plan's own verdicts, and the nodes that refuse are those of the decision's own table, so
that the ledger can't disagree with what the owners are told. Call it before the next decision uses the table.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping

import msgspec
import numpy as np

from windlass.cluster.node_state import DEV_END, DEV_FIRST, FREE_MILLI, HEALTHY, MODEL, USED_SLICES
from windlass.cluster.pod_table import UNREADABLE
from windlass.cluster.shape import Shape, make_shape
from windlass.cluster.snapshot import Snapshot
from windlass.model.decision import Hold, Reserve
from windlass.model.errors import InputError
from windlass.model.plan import Plan
from windlass.model.pod import Pod
from windlass.placement.explain.advisor import Advisor
from windlass.placement.explain.cause import cause_rank
from windlass.placement.explain.gpu_fragmentation import GPU_FRAGMENTED, GPU_FULL
from windlass.placement.explain.pod_set_feasibility import nodes_limited_by_capacity
from windlass.placement.verdicts import bits_of, reason_of
from windlass.queueing.placement_interface import PodSetChoice
from windlass.telemetry.gpu_shares import shape_milli
from windlass.telemetry.holders import NO_QUEUE, Holder, HolderIndex

RESERVATION_PREFIX = "reservation/"


class WaitingWork(msgspec.Struct, frozen=True, gc=False):
    """A workload that is held and asks for GPUs."""

    workload: str
    holder: Holder
    cause: str
    """The code of its verdict."""
    milli: int
    """Milli-GPU of its pods that have no node."""
    since: int = 0
    """Since when it waits, in seconds; 0 where that is not known."""
    models: tuple[str, ...] = ()
    """Models of the nodes that it may use, sorted; empty where that is all of them or none."""


class Demand(msgspec.Struct, frozen=True):
    waiting: tuple[WaitingWork, ...] = ()
    stranded: dict[str, str] = {}
    """Node whose free GPUs nothing that waits could use now → the code of what excludes most of it."""
    reserved_milli: dict[str, int] = {}
    """Node → milli-GPU that are kept there for planned starts and reservations."""
    lost_gpu_seconds: dict[str, int] = {}
    """Queue → GPU-seconds of work that the evictions of this plan lose."""


class _Request(msgspec.Struct, frozen=True):
    """Pods of one shape that wait."""

    pod: Pod
    shape: Shape
    count: int


def find_demand(snapshot: Snapshot, plan: Plan, advisor: Advisor | None) -> Demand:
    """`advisor` is that of the same decision; None where there was nothing to decide."""
    holders = HolderIndex(snapshot)
    if advisor is None or not plan.holds:
        return Demand(lost_gpu_seconds=_lost(plan, snapshot, holders))
    reader = _HoldReader(snapshot, advisor, holders)
    with np.errstate(over="ignore"):  # the kernels' hashes overflow on purpose
        waiting = tuple(found for hold in plan.holds if (found := reader.read(hold)) is not None)
        stranded = reader.stranded_nodes()
    reserved: Counter[str] = Counter()
    for reserve in plan.reserves:
        reserved.update(_reserved(reserve, snapshot))
    return Demand(waiting, stranded, dict(reserved), _lost(plan, snapshot, holders))


class _HoldReader:
    def __init__(self, snapshot: Snapshot, advisor: Advisor, holders: HolderIndex) -> None:
        self._snapshot, self._holders = snapshot, holders
        self._advisor, self._overlay = advisor, advisor.overlay
        self._pod_rows = self._overlay.pod_rows()
        self._workloads = {workload.key: workload for workload in snapshot.workloads}
        self._models_by_shape: dict[bytes, tuple[str, ...]] = {}
        self._waiting_by_shape: dict[bytes, tuple[_Request, int]] = {}
        """Shape → a pod of it, and milli-GPU that wait in pods of that shape."""

    def read(self, hold: Hold) -> WaitingWork | None:
        """None where it asks for no GPUs, or can't be read."""
        try:
            requests = [request for request in self._requests(hold.workload) if request.count]
        except InputError:
            return None
        milli, models = 0, set[str]()
        for request in requests:
            amount = request.count * shape_milli(request.shape, self._snapshot)
            if not amount:
                continue
            milli += amount
            known = self._waiting_by_shape.get(request.shape.key)
            self._waiting_by_shape[request.shape.key] = (request, amount + (known[1] if known else 0))
            models.update(self._models(request))
        if not milli:
            return None
        workload = self._workloads.get(hold.workload)
        pod = requests[0].pod
        holder = self._holders.of_workload(workload) if workload is not None else self._holders.of_pod(pod)
        row = self._pod_rows.get(hold.workload)
        created = int(self._snapshot.pods.created[row]) if row is not None else 0
        since = workload.queued_at or workload.created if workload is not None else created
        return WaitingWork(hold.workload, holder, hold.verdict.code, milli, since, tuple(sorted(models)))

    def stranded_nodes(self) -> dict[str, str]:
        """Nodes with free GPUs on which no pod that waits fits."""
        if not self._waiting_by_shape:
            return {}
        free = self._nodes_with_free_gpus()
        excluded: dict[int, Counter[str]] = defaultdict(Counter)
        for request, milli in self._waiting_by_shape.values():
            row = self._overlay.table.row(request.shape, self._snapshot, request.pod)
            reasons = self._overlay.reasons(request.pod, row)
            free = free[reasons[free] != 0]
            codes_by_mask = {mask: self._code(request.shape, mask) for mask in set(reasons[free].tolist())}
            for node in free.tolist():
                excluded[node][codes_by_mask[int(reasons[node])]] += milli
        names = self._snapshot.nodes.names
        return {
            names[node]: max(excluded[node], key=lambda code: (excluded[node][code], code)) for node in free.tolist()
        }

    def _requests(self, key: str) -> Iterator[_Request]:
        row, snapshot = self._pod_rows.get(key), self._snapshot
        if row is not None and key not in self._workloads:  # most holds: no need to ask the placer
            shape = int(snapshot.pods.shape[row])
            if shape != UNREADABLE:
                yield _Request(snapshot.pods.objects[row], snapshot.shapes[shape], 1)
            return
        state = self._advisor.post_decision()
        piece = state.pending_piece(key)
        if piece is None:
            return
        choices = tuple(PodSetChoice(pod_set.name, pod_set.count, {}) for pod_set in piece.pod_sets)
        for pending in state.placer.pending_pod_sets(piece, choices)[0]:
            yield _Request(pending.pod, pending.shape, pending.count)

    def _models(self, request: _Request) -> tuple[str, ...]:
        """Models of the nodes that nothing but lack of capacity excludes; empty where these are all, or none."""
        found = self._models_by_shape.get(request.shape.key)
        if found is None:
            found = self._models_by_shape[request.shape.key] = self._find_models(request)
        return found

    def _find_models(self, request: _Request) -> tuple[str, ...]:
        state, codes = self._snapshot.node_state, self._snapshot.gpu_models
        row = self._overlay.table.row(request.shape, self._snapshot, request.pod)
        counts = state.node_info[:, DEV_END] - state.node_info[:, DEV_FIRST]
        eligible = np.repeat(nodes_limited_by_capacity(self._overlay, row), counts)
        allowed = codes.mask(request.shape.gpu.models if request.shape.gpu is not None else ())
        models = {int(code) for code in state.device_info[eligible, MODEL] if allowed >> max(int(code), 0) & 1}
        everywhere = set(map(int, state.device_info[:, MODEL]))
        return tuple(sorted(codes.names[code] for code in models)) if models and models != everywhere else ()

    def _nodes_with_free_gpus(self) -> np.ndarray:
        state = self._overlay.state
        free = (state.device_occupancy[:, FREE_MILLI] > 0) | (
            (state.device_occupancy[:, USED_SLICES] == 0) & (state.device_info[:, HEALTHY] == 1)
        )
        sums = np.concatenate([[0], np.cumsum(free)])
        return np.flatnonzero(sums[state.node_info[:, DEV_END]] > sums[state.node_info[:, DEV_FIRST]])

    @staticmethod
    def _code(shape: Shape, mask: int) -> str:
        """What excludes the node: a rule before a resource, since no end of other work removes it."""
        codes = {reason_of(shape, bit).code for bit in bits_of(mask)}
        codes = {GPU_FRAGMENTED if code == GPU_FULL else code for code in codes}  # it has free GPUs, too few of them
        return min(codes, key=lambda code: (cause_rank(code), code))


def _lost(plan: Plan, snapshot: Snapshot, holders: HolderIndex) -> dict[str, int]:
    workloads = {workload.key: workload for workload in snapshot.workloads}
    lost: Counter[str] = Counter()
    for evict in (evict for evict in plan.evicts if not evict.after):
        workload = workloads.get(evict.workload)
        lost[holders.of_workload(workload).queue if workload is not None else NO_QUEUE] += evict.lost_gpu_seconds
    return {queue: seconds for queue, seconds in lost.items() if seconds}


def _reserved(reserve: Reserve, snapshot: Snapshot) -> Mapping[str, int]:
    """Node → milli-GPU that the reserve keeps."""
    each = _milli_per_pod(reserve.workload, snapshot)
    return {node: pods * each for node, pods in reserve.nodes.items() if each}


def _milli_per_pod(key: str, snapshot: Snapshot) -> int:
    """The mean over the pods of the workload, or of the calendar reservation."""
    if key.startswith(RESERVATION_PREFIX):
        return sum(_milli_of(found.template, snapshot) for found in snapshot.reservations if found.key == key)
    workload = next((found for found in snapshot.workloads if found.key == key), None)
    if workload is None:
        return next((_milli_of(pod, snapshot) for pod in snapshot.pods.objects if pod.key == key), 0)
    total = sum(pod_set.count * _milli_of(pod_set.template, snapshot) for pod_set in workload.pod_sets)
    return total // max(1, sum(pod_set.count for pod_set in workload.pod_sets))


def _milli_of(pod: Pod, snapshot: Snapshot) -> int:
    try:
        return shape_milli(make_shape(pod), snapshot)
    except InputError:
        return 0
