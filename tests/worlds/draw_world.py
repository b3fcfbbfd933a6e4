"""Draws a cluster: its nodes, its queues and how its scheduler is configured.

The objects are made by the builders of `tests.invariants.objects`; the nodes are a Fleet's, as `windlass up` has them.
"""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field
from random import Random

from tests.invariants.objects import HOSTNAME, cluster_queue, cohort, flavor, local_queue, topology
from tests.worlds.themes import ALL_THEMES, POOL_WEIGHTS, THEMES, Theme

from windlass.embedded.runtime.fleet_nodes import FleetNode, fleet_nodes
from windlass.model.configuration import Settings
from windlass.model.fleet import Fleet, FleetGpus, FleetPool, FleetSharing
from windlass.model.fleet_spec import FleetSpec
from windlass.model.names.windlass import BLOCK_LABEL, DEVICES_LAYOUT_ANNOTATION, RACK_LABEL
from windlass.model.unstructured import Unstructured

GPU, MIG = "nvidia.com/gpu", "nvidia.com/mig-3g.40gb"
POOL_LABEL = "example.com/pool"
WORLD_LABEL = "windlass.dev/world"
SPECIAL_KEY = "example.com/special"
"""Of taints that come and go, and of tolerations."""
GANG_GRACE_SECONDS, READY_SECONDS = 60, 60
PRIORITIES = {"low": 0, "normal": 100, "high": 1000, "polite": 500}
"""`polite` preempts nothing."""
MANY_GPUS = 32
"""Of a node without labels of GPU Feature Discovery: vGPU or time-slicing that nothing describes."""


@dataclass(frozen=True)
class WorldSpec:
    seed: int
    nodes: list[FleetNode]
    fleet: Fleet
    settings: Settings
    objects: list[Unstructured]
    """Queues, flavors, cohorts, topologies and priority classes."""
    queues: tuple[str, ...]
    has_topology: bool
    declares_durations: bool
    """Jobs say how long they run, so that starts are planned."""
    pace: float
    """Seconds between happenings are multiplied by it, and so are run times: worlds in real time are hastier."""
    theme: Theme
    drawn: Counter[str] = field(default_factory=Counter)
    """What this world has: kinds of nodes, policies, limits."""

    @property
    def resources(self) -> list[str]:
        return sorted({name for node in self.nodes for name in node.tree["status"]["capacity"] if "nvidia.com" in name})


def draw_world(seed: int, *, pace: float = 1.0, small: bool = False) -> WorldSpec:
    """`small`: one that a real server plays within half a minute."""
    rng, drawn = Random(seed), Counter[str]()
    theme = rng.choice(THEMES if small else ALL_THEMES)  # first, as in `theme_of`
    drawn[f"theme: {theme.name}"] += 1
    pools = _draw_pools(rng, drawn, theme, 1 if small else theme.most_pools)
    names = tuple(f"q{number}" for number in range(rng.randint(theme.fewest_queues, 2 if small else theme.most_queues)))
    has_topology = rng.random() < 0.4
    by_pool = len(pools) > 1 and rng.random() < theme.by_pool
    flavors = [pool.name for pool in pools] if by_pool else ["any"]
    objects = [_priority_class(name, value) for name, value in PRIORITIES.items()]
    if has_topology:
        objects.append(topology("racks", [BLOCK_LABEL, RACK_LABEL, HOSTNAME]))
    for name in flavors:
        labels = {POOL_LABEL: name} if by_pool else {WORLD_LABEL: "yes"} if has_topology else {}
        made = flavor(name, labels, "racks" if has_topology else "")
        if rng.random() < 0.25:
            made["spec"]["tolerations"] = [{"key": SPECIAL_KEY, "operator": "Exists"}]
            drawn["flavor with tolerations"] += 1
        objects.append(made)
    total = sum(pool.count * max(1, pool.gpu_count) for pool in pools)
    objects += _draw_cohorts(rng, drawn, flavors, total)
    if rng.random() < theme.cpu_group:
        # Sometimes with labels that contradict those of other pools' flavors: only one of them goes together with it.
        is_of_pool = by_pool and rng.random() < 0.5
        labels = {POOL_LABEL: pools[0].name} if is_of_pool else {WORLD_LABEL: "yes"} if has_topology else {}
        objects.append(flavor("cpus", labels, "racks" if has_topology else ""))
        drawn["world with contradicting flavors"] += is_of_pool
    has_cpu_group = any(tree["metadata"]["name"] == "cpus" for tree in objects)
    for name in names:
        shape = QueueShape(name, tuple(flavors), total, len(names), has_cpu_group, theme)
        queue = draw_queue(rng, shape, in_cohort=theme.guaranteed or rng.random() < 0.8)
        objects += [queue, local_queue(name, name)]
        _count_queue(queue, drawn)
    settings = Settings(
        gang_grace_seconds=GANG_GRACE_SECONDS,
        fair_sharing=rng.random() < (0.1 if theme.guaranteed else 0.25),
        backfill_depth=rng.choice((32, 32, 4, 0)),
        ready_seconds=READY_SECONDS if rng.random() < theme.ready else None,
        requeue_base_seconds=10,
        requeue_limit=rng.choice((None, 3)),
    )
    drawn.update(
        {
            "world with topology": has_topology,
            "world with flavors by pool": by_pool,
            "world with fair sharing": settings.fair_sharing,
            "world with several resource groups": has_cpu_group,
            "world with waitForPodsReady": settings.ready_seconds is not None,
        }
    )
    fleet = Fleet(spec=FleetSpec(tuple(pools)))
    nodes = [_unlabelled(node) for node in fleet_nodes(fleet, time.time())]
    declares = rng.random() < theme.durations
    return WorldSpec(seed, nodes, fleet, settings, objects, names, has_topology, declares, pace, theme, +drawn)


# Nodes


def _draw_pools(rng: Random, drawn: Counter[str], theme: Theme, most: int) -> list[FleetPool]:
    weights = [POOL_WEIGHTS[kind] for kind in theme.pools]
    kinds = rng.choices(theme.pools, weights, k=rng.randint(min(theme.fewest_pools, most), most))
    pools = []
    for number, kind in enumerate(dict.fromkeys(kinds)):
        drawn[f"nodes: {kind}"] += 1
        made = FleetPool(
            name=kind,
            count=rng.randint(theme.fewest_nodes, theme.most_nodes) if kind in ("big", "small") else rng.randint(1, 2),
            gpus=(_GPUS[kind],),
            cpu=str(rng.choice((32, 64))),
            ephemeral_storage="1000Gi",
            mig_strategy="single" if kind == "single-mig" else "mixed",
            sharing=FleetSharing(strategy="time-slicing", replicas=4) if kind == "sliced" else None,
            nodes_per_rack=2,
            block=f"b{number % 2}",
            labels={POOL_LABEL: kind, WORLD_LABEL: "yes"},
        )
        pools.append(made)
    return pools


_GPUS = {
    "big": FleetGpus(model="H100", count=8),
    "small": FleetGpus(model="A100-80", count=4),
    "mixed-mig": FleetGpus(model="H100", count=2, mig=("3g.40gb", "3g.40gb")),
    "single-mig": FleetGpus(model="A100-80", count=1, mig=("1g.10gb",) * 7),
    "sliced": FleetGpus(model="T4", count=2),
    "bare": FleetGpus(model="L40S", count=8),
}


def _unlabelled(node: FleetNode) -> FleetNode:
    """A node of the pool `bare` without the labels of GPU Feature Discovery, and with more GPUs than machines have."""
    meta, status = node.tree["metadata"], node.tree["status"]
    if meta["labels"].get(POOL_LABEL) != "bare":
        return node
    labels = {key: value for key, value in meta["labels"].items() if not key.startswith("nvidia.com/")}
    notes = {key: value for key, value in meta["annotations"].items() if key != DEVICES_LAYOUT_ANNOTATION}
    amounts = {**status["capacity"], GPU: str(MANY_GPUS)}
    tree = {
        **node.tree,
        "metadata": {**meta, "labels": labels, "annotations": notes},
        "status": {**status, "capacity": amounts, "allocatable": dict(amounts)},
    }
    return FleetNode(tree, node.mig_instances)


# Queues


@dataclass(frozen=True)
class QueueShape:
    name: str
    flavors: tuple[str, ...]
    total: int
    """GPUs of the cluster."""
    queues: int
    has_cpu_group: bool = False
    """CPUs are in a resource group of their own."""
    theme: Theme = THEMES[0]


def _draw_cohorts(rng: Random, drawn: Counter[str], flavors: list[str], total: int) -> list[Unstructured]:
    has_parent = rng.random() < 0.4
    made = [cohort("all", "top" if has_parent else ""), *([cohort("top", "")] if has_parent else [])]
    drawn["cohort tree"] += has_parent
    if rng.random() < 0.3:
        quota: Unstructured = {"name": GPU, "nominalQuota": str(rng.randint(0, max(1, total // 2)))}
        if has_parent and rng.random() < 0.5:
            quota["borrowingLimit"] = str(rng.choice((0, 4)))
        if has_parent and rng.random() < 0.5:
            quota["lendingLimit"] = str(rng.choice((0, 4)))
        group = {"coveredResources": [GPU], "flavors": [{"name": flavors[0], "resources": [quota]}]}
        made[0]["spec"]["resourceGroups"] = [group]
        drawn["cohort with quota of its own"] += 1
    return made


def draw_queue(rng: Random, shape: QueueShape, *, in_cohort: bool) -> Unstructured:
    """A ClusterQueue with about its part of the cluster, more or less than there is."""
    reclaim = "Any" if shape.theme.guaranteed else rng.choice(("Never", "LowerPriority", "Any", "Any"))
    cells = {}
    part = int(shape.theme.quota * max(1, shape.total // (shape.queues * len(shape.flavors))))
    for name in shape.flavors:
        nominal = 0 if rng.random() < shape.theme.borrows_all else rng.randint(part // 3, part)
        quota: Unstructured = {"nominalQuota": str(nominal)}
        if in_cohort and not shape.theme.guaranteed and rng.random() < 0.4:
            quota["borrowingLimit"] = str(rng.choice((0, 2, 4)))
        if in_cohort and not shape.theme.guaranteed and rng.random() < 0.2:
            quota["lendingLimit"] = str(rng.choice((0, 2)))
        cells[name] = {GPU: quota, MIG: {"nominalQuota": "4"}}
        if not shape.has_cpu_group:
            cells[name]["cpu"] = {"nominalQuota": "10000"}
    made = cluster_queue(
        shape.name,
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
        fairSharing={"weight": rng.choice(("1", "1", "2", "0"))},
    )
    if shape.has_cpu_group:
        cpus = {"name": "cpus", "resources": [{"name": "cpu", "nominalQuota": str(rng.choice((20, 10000)))}]}
        made["spec"]["resourceGroups"].append({"coveredResources": ["cpu"], "flavors": [cpus]})
    return made


def _count_queue(queue: Unstructured, drawn: Counter[str]) -> None:
    spec = queue["spec"]
    drawn[f"queue: {spec['queueingStrategy']}"] += 1
    for field_name, value in spec["preemption"].items():
        drawn[f"queue: {field_name} {value if isinstance(value, str) else value['policy']}"] += 1
    for limit in ("borrowingLimit", "lendingLimit"):
        drawn[f"queue: {limit}"] += limit in str(spec["resourceGroups"])
    drawn["queue: in no cohort"] += "cohortName" not in spec


def _priority_class(name: str, value: int) -> Unstructured:
    policy = "Never" if name == "polite" else "PreemptLowerPriority"
    meta = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}}
    return {**meta, "value": value, "preemptionPolicy": policy}
