"""The ledger: one state for every GPU at a moment. The states of all GPUs add up to all GPUs, always.

    snapshot ─┐
    samples  ─┼─► build_ledger ─► Ledger: shares of GPUs with state, holder and why ─► sums by team, queue, …
    demand   ─┘

A pure function. `windlass status` and `usage`, the scheduler's metrics and history, and the simulator's recordings all
read it, so that no two of them can show different numbers. GPUs count in thousandths, since they can be shared.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Literal

import msgspec

from windlass.cluster.node_state import HEALTHY, MODEL
from windlass.cluster.snapshot import Snapshot
from windlass.model.names.nvidia import GPU_RESOURCE
from windlass.model.queue import QueueSystem
from windlass.model.rack import rack_of
from windlass.placement.implied_topology import is_node_ready
from windlass.telemetry.activity import (
    COMPUTING,
    DEFAULT_RULES,
    HELD_IDLE,
    SPINNING,
    UNMEASURED,
    ActivityRules,
    GpuSample,
    activity_of,
    can_tell_spinning,
)
from windlass.telemetry.demand import Demand
from windlass.telemetry.gpu_shares import WHOLE_MILLI, shares_by_device
from windlass.telemetry.holders import Holder, HolderIndex

FREE, STRANDED, UNHEALTHY, IN_CHANGE, RESERVED = "free", "stranded", "unhealthy", "in_change", "reserved"
STATES: tuple[str, ...] = (COMPUTING, SPINNING, HELD_IDLE, UNMEASURED, FREE, STRANDED, RESERVED, IN_CHANGE, UNHEALTHY)
"""Every GPU is in exactly one of them; a shared one in parts."""
ALLOCATED_STATES: tuple[str, ...] = (COMPUTING, SPINNING, HELD_IDLE, UNMEASURED)
"""Of GPUs that pods hold. Allocated = busy (computing and spinning) + idle + unmeasured."""
SumsBy = Literal["team", "queue", "user", "job", "model"]
NOBODY = "(nobody)"
"""In sums by holder: GPUs that no pod holds."""
NODE_NOT_READY, DEVICE_UNHEALTHY, NODE_CORDONED = "NODE_NOT_READY", "DEVICE_UNHEALTHY", "NODE_UNSCHEDULABLE"

GpuKey = tuple[str, int]
"""Node and index of a GPU."""
Sums = dict[str, dict[str, int]]
"""Key of the sum → state → milli-GPU."""


class GpuShare(msgspec.Struct, frozen=True, gc=False):
    """A GPU, or the part of a GPU that is in one state for one holder."""

    node: str
    index: int
    model: str
    state: str
    milli: int
    holder: Holder | None = None
    pod: str = ""
    why: str = ""
    """Of stranded, unhealthy and GPUs in change: a code."""


class Ledger(msgspec.Struct, frozen=True):
    at: int
    shares: tuple[GpuShare, ...]
    """By node and index."""
    demand: Demand = Demand()
    spinning_unknown_milli: int = 0
    """Of `computing`: GPUs that don't give what is needed to tell a kernel that only waits from work."""
    quota_milli: dict[str, int] = {}
    """ClusterQueue → milli-GPU of its nominal quota, over all flavors."""
    racks: dict[str, str] = {}
    """Node → its rack; nodes without one are left out."""

    @property
    def total_milli(self) -> int:
        return sum(share.milli for share in self.shares)

    def by_state(self) -> dict[str, int]:
        """Milli-GPU of every state; their sum is `total_milli`."""
        found = dict.fromkeys(STATES, 0)
        for share in self.shares:
            found[share.state] += share.milli
        return found

    def sums(self, by: SumsBy) -> Sums:
        """The same, divided by model or by holder; GPUs without a holder under `(nobody)`."""
        found: Sums = {}
        for share in self.shares:
            states = found.setdefault(sum_key(share, by), dict.fromkeys(STATES, 0))
            states[share.state] += share.milli
        return found

    def why(self, state: str) -> dict[str, int]:
        """Code → milli-GPU, of one state."""
        found: Counter[str] = Counter()
        for share in self.shares:
            if share.state == state:
                found[share.why] += share.milli
        return dict(found.most_common())

    def free_by_model(self) -> dict[str, int]:
        """Milli-GPU that nobody holds and that work, by model: free, stranded and reserved ones."""
        found: Counter[str] = Counter()
        for share in self.shares:
            if share.state in (FREE, STRANDED, RESERVED):
                found[share.model] += share.milli
        return dict(found.most_common())


def sum_key(share: GpuShare, by: SumsBy) -> str:
    if by == "model":
        return share.model
    return NOBODY if share.holder is None else str(getattr(share.holder, by))


def build_ledger(
    snapshot: Snapshot,
    samples: Mapping[GpuKey, GpuSample],
    demand: Demand,
    now: int,
    rules: ActivityRules = DEFAULT_RULES,
) -> Ledger:
    builder = _Builder(snapshot, samples, demand, now, rules)
    shares = tuple(share for row in range(snapshot.nodes.size) for share in builder.node_shares(row))
    racks = {node.name: rack for node in snapshot.nodes.objects if (rack := rack_of(node.labels))}
    return Ledger(now, shares, demand, builder.spinning_unknown_milli, _gpu_quotas(snapshot.queue_system), racks)


def _gpu_quotas(queues: QueueSystem) -> dict[str, int]:
    """Quota of whole GPUs and their shares; instances have resources of their own, which don't add up with it."""
    found: dict[str, int] = {}
    for name, queue in queues.queues.items():
        quotas = (flavor.quotas for group in queue.resource_groups for flavor in group.flavors)
        amounts = [quota[GPU_RESOURCE].nominal for quota in quotas if GPU_RESOURCE in quota]
        if amounts:
            found[name] = sum(amounts)
    return found


class _Builder:
    def __init__(
        self,
        snapshot: Snapshot,
        samples: Mapping[GpuKey, GpuSample],
        demand: Demand,
        now: int,
        rules: ActivityRules,
    ) -> None:
        self._snapshot, self._samples, self._demand = snapshot, samples, demand
        self._now, self._rules = now, rules
        self._holders = HolderIndex(snapshot)
        self._held = shares_by_device(snapshot)
        self.spinning_unknown_milli = 0

    def node_shares(self, row: int) -> Iterator[GpuShare]:
        node = self._snapshot.nodes.objects[row]
        state, models = self._snapshot.node_state, self._snapshot.gpu_models.names
        reserved = self._demand.reserved_milli.get(node.name, 0)
        unused, why = self._unused_state(row)
        for index, device in enumerate(state.devices(row)):
            is_healthy = bool(state.device_info[device, HEALTHY])
            made = GpuShare(node.name, index, models[int(state.device_info[device, MODEL])], unused, 0, why=why)
            left = WHOLE_MILLI
            for share in self._held.get(device, ()):
                yield self._held_share(made, share.pod_row, share.milli, is_healthy)
                left -= share.milli
            if not left:
                continue
            if not is_healthy:
                yield _changed(made, UNHEALTHY, left, DEVICE_UNHEALTHY)
                continue
            kept = min(left, reserved) if unused in (FREE, STRANDED) else 0
            if kept:
                yield _changed(made, RESERVED, kept)
                reserved -= kept
            if left > kept:
                yield _changed(made, unused, left - kept, why)

    def _unused_state(self, row: int) -> tuple[str, str]:
        """(state, why) of healthy GPUs of the node that no pod holds."""
        node = self._snapshot.nodes.objects[row]
        if not is_node_ready(node):
            return UNHEALTHY, NODE_NOT_READY
        if node.spec.unschedulable:
            return IN_CHANGE, NODE_CORDONED
        code = self._demand.stranded.get(node.name, "")
        return (STRANDED, code) if code else (FREE, "")

    def _held_share(self, gpu: GpuShare, pod_row: int, milli: int, is_healthy: bool) -> GpuShare:
        pod = self._snapshot.pods.objects[pod_row]
        holder = self._holders.of_pod(pod)
        sample = self._samples.get((gpu.node, gpu.index))
        state: str = activity_of(sample, self._now, self._rules)
        if not is_healthy:
            state = UNHEALTHY  # whatever it still does: it is nobody's to use, and nobody's to pay
        elif state == COMPUTING and sample is not None and not can_tell_spinning(sample):
            self.spinning_unknown_milli += milli
        why = "" if is_healthy else DEVICE_UNHEALTHY
        return msgspec.structs.replace(gpu, state=state, milli=milli, holder=holder, pod=pod.key, why=why)


def _changed(gpu: GpuShare, state: str, milli: int, why: str = "") -> GpuShare:
    return msgspec.structs.replace(gpu, state=state, milli=milli, why=why)
