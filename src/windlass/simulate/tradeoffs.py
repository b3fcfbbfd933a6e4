"""What a placement trades: room for whole nodes against blast radius, neighbours on a GPU, and the cost of a failure.

`simulate.measures` hands in the fullest moment of a run (the end, where nothing leaves); the numbers are part of its
result. Pack and spread, for all or by class, differ in these and hardly in how much is allocated.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean

import msgspec
import numpy as np

from windlass.cluster.node_state import DEV_END, DEV_FIRST, FREE_MILLI
from windlass.cluster.snapshot import Snapshot
from windlass.cluster.workloads.units import KUEUE_GROUP
from windlass.model.pod import Pod
from windlass.model.topology import RACK
from windlass.simulate.interference import MPS, expected_slowdown

BUSY_FRACTION = 0.5
"""Part of the time that a pod on a shared GPU is taken to be at work."""


class TradeOffs(msgspec.Struct, frozen=True):
    """At the fullest moment of a run, or at its end where nothing leaves."""

    stranded_gpus: float
    """Free GPUs on nodes that hold something: nothing that needs a whole node can use them."""
    shared_gpus: int
    """GPUs with more than one pod."""
    slowdown_mean: float
    """Times as long as alone that work takes on GPUs given in shares, by the interference model (MPS, each pod at work
    half of the time)."""
    slowdown_p99: float
    node_jobs: float
    """Jobs that the loss of a node in use stops, on average."""
    rack_jobs: float | None
    """The same of a rack; null where nodes have no rack."""
    node_gpu_hours: float | None
    """GPU-hours of work that the loss of a node in use undoes on average, since no trace has checkpoints; null without
    times."""


def trade_offs(snapshot: Snapshot, since: Mapping[str, int] | None = None, now: int = 0) -> TradeOffs:
    """`since`: pod → second of its start, where the trace has times."""
    pods = snapshot.pods
    bound = np.flatnonzero((pods.alive == 1) & (pods.node >= 0)).tolist()
    nodes = pods.node.tolist()
    tenants: Counter[tuple[int, int]] = Counter()
    jobs: dict[str, set[int]] = {}
    """Job → its nodes."""
    at_risk: dict[str, float] = {}
    for row in bound:
        grants, node, pod = pods.grants[row], nodes[row], pods.objects[row]
        tenants.update((node, grant.index) for grant in grants if grant.milli < 1000 and not grant.profile)
        job = _job_of(pod)
        jobs.setdefault(job, set()).add(node)
        if since is not None:
            gpus = sum(grant.milli for grant in grants) / 1000
            at_risk[job] = at_risk.get(job, 0.0) + gpus * (now - since.get(pod.key, now)) / 3600
    slowdowns = _slowdowns(tenants.values())
    used = set().union(*jobs.values()) if jobs else set()
    racks = [node.labels.get(RACK, "") for node in snapshot.nodes.objects]
    return TradeOffs(
        stranded_gpus=_stranded(snapshot, used),
        shared_gpus=sum(many > 1 for many in tenants.values()),
        slowdown_mean=fmean(slowdowns) if slowdowns else 1.0,
        slowdown_p99=slowdowns[math.ceil(len(slowdowns) * 0.99) - 1] if slowdowns else 1.0,
        node_jobs=sum(map(len, jobs.values())) / max(1, len(used)),  # a job is hit by each node that it is on
        rack_jobs=_rack_jobs(jobs, racks) if all(racks) and racks else None,
        node_gpu_hours=(
            sum(at_risk[job] * len(where) for job, where in jobs.items()) / max(1, len(used))
            if since is not None
            else None
        ),
    )


def _job_of(pod: Pod) -> str:
    group = pod.metadata.labels.get(KUEUE_GROUP, "")
    return f"{pod.metadata.namespace or 'default'}/{group}#gang" if group else pod.key


def _stranded(snapshot: Snapshot, used: set[int]) -> float:
    state = snapshot.node_state
    free = state.device_occupancy[:, FREE_MILLI]
    return (
        sum(
            int(free[int(state.node_info[node, DEV_FIRST]) : int(state.node_info[node, DEV_END])].sum())
            for node in used
        )
        / 1000
    )


def _slowdowns(tenants: Iterable[int]) -> list[float]:
    """Of every pod that has a share, in rising order."""
    counts = Counter(tenants)
    found = {many: expected_slowdown(MPS, [BUSY_FRACTION] * many)[0] for many in counts}
    return [found[many] for many in sorted(counts) for _ in range(many * counts[many])]


def _rack_jobs(jobs: Mapping[str, set[int]], racks: Sequence[str]) -> float:
    by_job = [{racks[node] for node in where} for where in jobs.values()]
    used = set().union(*by_job) if by_job else set()
    return sum(map(len, by_job)) / len(used) if used else 0.0
