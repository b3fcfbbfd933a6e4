"""Measures in which packing and spreading differ: stranded GPUs, neighbours on a GPU, and the cost of a failure.

`simulate.measures` calls `trade_offs` with the fullest moment of a run (its end, if nothing ends); the numbers are part
of its result. The amount of allocated GPUs hardly differs between packing and spreading.
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
from windlass.model.group_membership import group_of_pod
from windlass.model.names.windlass import RACK_LABEL
from windlass.model.pod import Pod
from windlass.simulate.interference import MPS, expected_slowdown

BUSY_FRACTION = 0.5
"""Assumed fraction of the time for which a pod on a shared GPU is active."""


class TradeOffs(msgspec.Struct, frozen=True):
    """At the fullest moment of a run, or at its end if no job ends."""

    stranded_gpus: float
    """Free GPUs on nodes in use, which no pod that needs a whole node can use."""
    shared_gpus: int
    """GPUs with more than one pod."""
    slowdown_mean: float
    """Slowdown of pods with a share of a GPU, by the interference model (MPS, each pod active half of the time)."""
    slowdown_p99: float
    node_jobs: float
    """Jobs that the failure of a node in use stops, on average."""
    rack_jobs: float | None
    """The same for a rack; null if nodes have no rack."""
    node_gpu_hours: float | None
    """GPU-hours of work lost by the failure of a node in use, on average, since no trace has checkpoints; null without
    times."""


def trade_offs(snapshot: Snapshot, since: Mapping[str, int] | None = None, now: int = 0) -> TradeOffs:
    """`since`: pod → second of its start, if the trace has times."""
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
        job = job_of(pod)
        jobs.setdefault(job, set()).add(node)
        if since is not None:
            gpus = sum(grant.milli for grant in grants) / 1000
            at_risk[job] = at_risk.get(job, 0.0) + gpus * (now - since.get(pod.key, now)) / 3600
    slowdowns = _slowdowns(tenants.values())
    used = set().union(*jobs.values()) if jobs else set()
    racks = [node.labels.get(RACK_LABEL, "") for node in snapshot.nodes.objects]
    lost = sum(hours * len(jobs[job]) for job, hours in at_risk.items())
    return TradeOffs(
        stranded_gpus=_stranded(snapshot, used),
        shared_gpus=sum(pods > 1 for pods in tenants.values()),
        slowdown_mean=fmean(slowdowns) if slowdowns else 1.0,
        slowdown_p99=slowdowns[math.ceil(len(slowdowns) * 0.99) - 1] if slowdowns else 1.0,
        node_jobs=sum(map(len, jobs.values())) / max(1, len(used)),  # a job counts once for each of its nodes
        rack_jobs=_rack_jobs(jobs, racks) if all(racks) and racks else None,
        node_gpu_hours=None if since is None else lost / max(1, len(used)),
    )


def job_of(pod: Pod) -> str:
    group = group_of_pod(pod)
    if group is None:
        return pod.key
    return f"{pod.metadata.namespace or 'default'}/{group.name}#{group.source}"


def _stranded(snapshot: Snapshot, used: set[int]) -> float:
    state = snapshot.node_state
    free = state.device_occupancy[:, FREE_MILLI]
    devices = [slice(*state.node_info[node, [DEV_FIRST, DEV_END]].tolist()) for node in used]
    return sum(int(free[of_node].sum()) for of_node in devices) / 1000


def _slowdowns(tenants: Iterable[int]) -> list[float]:
    """Slowdown of every pod with a share, in rising order; `tenants` are the pods on each shared GPU."""
    gpus_by_tenants = Counter(tenants)
    slowdowns = {count: expected_slowdown(MPS, [BUSY_FRACTION] * count)[0] for count in gpus_by_tenants}
    return [slowdowns[count] for count in sorted(gpus_by_tenants) for _ in range(count * gpus_by_tenants[count])]


def _rack_jobs(jobs: Mapping[str, set[int]], racks: Sequence[str]) -> float:
    by_job = [{racks[node] for node in nodes} for nodes in jobs.values()]
    used = set().union(*by_job) if by_job else set()
    return sum(map(len, by_job)) / len(used) if used else 0.0
