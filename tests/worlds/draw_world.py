"""Draws a cluster: its nodes, its queues and how its scheduler is configured.

The objects are made by the builders of `tests.invariants.objects`; the nodes are a Fleet's, as `windlass up` has them.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from random import Random

from tests.invariants.objects import HOSTNAME, cluster_queue, cohort, flavor, local_queue, topology

from windlass.embedded.runtime.fleet_nodes import FleetNode, fleet_nodes
from windlass.model.configuration import Settings
from windlass.model.fleet import Fleet, FleetGpus, FleetPool
from windlass.model.fleet_spec import FleetSpec
from windlass.model.names.windlass import RACK_LABEL
from windlass.model.unstructured import Unstructured

GPU = "nvidia.com/gpu"
POOL_LABEL = "example.com/pool"
GANG_GRACE_SECONDS = 60
PRIORITIES = {"low": 0, "normal": 100, "high": 1000}


@dataclass(frozen=True)
class WorldSpec:
    seed: int
    nodes: list[FleetNode]
    settings: Settings
    objects: list[Unstructured]
    """Queues, flavors, cohorts, topologies and priority classes."""
    queues: tuple[str, ...]
    has_topology: bool
    declares_durations: bool
    """Jobs say how long they run, so that starts are planned."""


def draw_world(seed: int) -> WorldSpec:
    rng = Random(seed)
    pools = _draw_pools(rng)
    names = tuple(f"q{number}" for number in range(rng.randint(1, 4)))
    has_topology = rng.random() < 0.4
    by_pool = len(pools) > 1 and rng.random() < 0.6
    flavors = [pool.name for pool in pools] if by_pool else ["any"]
    objects = [_priority_class(name, value) for name, value in PRIORITIES.items()]
    if has_topology:
        objects.append(topology("racks", [RACK_LABEL, HOSTNAME]))
    for name in flavors:
        labels = {POOL_LABEL: name} if by_pool else {"windlass.dev/world": "yes"} if has_topology else {}
        objects.append(flavor(name, labels, "racks" if has_topology else ""))
    has_parent = rng.random() < 0.3
    objects += [cohort("all", "top" if has_parent else ""), *([cohort("top", "")] if has_parent else [])]
    total = sum(pool.count * pool.gpu_count for pool in pools)
    for name in names:
        queue = draw_queue(rng, name, flavors, total, len(names), in_cohort=rng.random() < 0.8)
        objects += [queue, local_queue(name, name)]
    settings = Settings(
        gang_grace_seconds=GANG_GRACE_SECONDS,
        fair_sharing=rng.random() < 0.25,
        backfill_depth=rng.choice((32, 32, 4, 0)),
    )
    nodes = fleet_nodes(Fleet(FleetSpec(tuple(pools))), time.time())
    return WorldSpec(seed, nodes, settings, objects, names, has_topology, rng.random() < 0.5)


def _draw_pools(rng: Random) -> list[FleetPool]:
    pools = []
    for name, gpus in (("big", 8), ("small", 4))[: rng.choice((1, 2, 2))]:
        pools.append(
            FleetPool(
                name=name,
                count=rng.randint(1, 4),
                gpus=(FleetGpus(model="H100" if name == "big" else "A100-80", count=gpus),),
                cpu=str(rng.choice((32, 64))),
                nodes_per_rack=2,
                labels={POOL_LABEL: name, "windlass.dev/world": "yes"},
            )
        )
    return pools


def draw_queue(rng: Random, name: str, flavors: list[str], total: int, queues: int, *, in_cohort: bool) -> Unstructured:
    """A ClusterQueue with about its part of the cluster, more or less than there is."""
    reclaim = rng.choice(("Never", "LowerPriority", "Any", "Any"))
    cells = {}
    for one in flavors:
        quota: Unstructured = {"nominalQuota": str(rng.randint(0, 2 * max(1, total // (queues * len(flavors)))))}
        if in_cohort and rng.random() < 0.4:
            quota["borrowingLimit"] = str(rng.choice((0, 2, 4)))
        if in_cohort and rng.random() < 0.2:
            quota["lendingLimit"] = str(rng.choice((0, 2)))
        cells[one] = {"cpu": {"nominalQuota": "10000"}, GPU: quota}
    return cluster_queue(
        name,
        cells,
        **({"cohortName": "all"} if in_cohort else {}),
        queueingStrategy=rng.choice(("BestEffortFIFO", "BestEffortFIFO", "StrictFIFO")),
        preemption={
            "withinClusterQueue": rng.choice(("Never", "LowerPriority", "LowerOrNewerEqualPriority")),
            "reclaimWithinCohort": reclaim,
            "borrowWithinCohort": {"policy": "Never" if reclaim == "Never" else rng.choice(("Never", "LowerPriority"))},
        },
        flavorFungibility={
            "whenCanBorrow": rng.choice(("MayStopSearch", "TryNextFlavor")),
            "whenCanPreempt": rng.choice(("MayStopSearch", "TryNextFlavor")),
        },
    )


def _priority_class(name: str, value: int) -> Unstructured:
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": name},
        "value": value,
    }
