"""Claim: placement by workload class beats one rule for all.

A day-and-night mixture of services, training and experiments (`mixture`) on 32 nodes in 8 racks, with failing nodes and
racks, placed by the engine: everything packed, everything spread, everything in balance, or each class by its own rule
(services spread, training and experiments packed, training near together). Every hour of the virtual clock asks what
the loss of each node and of each rack would hit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean

import msgspec

from windlass.engine import EngineConfig
from windlass.model.configuration import WorkloadClass
from windlass.model.meta import LabelSelector
from windlass.model.names.windlass import RACK_LABEL
from windlass.placement.decision_context import GangSettings
from windlass.placement.policies import PlacementConfig
from windlass.placement.timeplan.run_limits import PlannedStartSettings
from windlass.queueing.config import QueueConfig
from windlass.simulate.interference import MPS, expected_slowdown
from windlass_bench.claims.claim import FAILS, HOLDS, PARTLY, Claim, OnProgress, percentile
from windlass_bench.claims.mixture import (
    APP,
    HOUR,
    KINDS,
    SERVICE,
    TIER,
    TRAINING,
    WorkloadMixture,
    draw_outages,
    draw_tasks,
)
from windlass_bench.claims.parks import rack_fleet
from windlass_bench.claims.queues import QueueSpec, queue_objects
from windlass_bench.claims.spread import free_gpus_by_node
from windlass_bench.claims.task_cluster import FAILED, TaskCluster, TaskClusterSettings
from windlass_bench.claims.tasks import TaskRecord, waits_of
from windlass_bench.section import Column, Row, Section, columns

CLAIM = "Use a placement policy per workload class rather than one global rule."
BUSY = 0.5
"""Part of the time that a replica is at work, for the interference model."""
WARM_UP_HOURS = 6
PER_CLASS = "by class, replicas apart"

COLUMNS = (
    Column("rule", "rule"),
    *columns("{:.1f}", allocated_pct="GPU-time, %", stranded_gpus="GPUs stranded"),
    *columns("{:,.0f}", training_p99_s="training waits, p99 s", experiment_p99_s="experiments, p99 s"),
    Column("service_p99_s", "replicas, p99 s", "{:,.0f}"),
    Column("node_hit", "jobs hit by a node", "{:.2f}"),
    Column("rack_hit", "by a rack", "{:.1f}"),
    Column("node_halved", "services halved by a node", "{:.3f}"),
    Column("rack_halved", "by a rack", "{:.2f}"),
    Column("reschedule_gpu_h", "rescheduling, GPU-h a failure", "{:.1f}"),
    *columns("{:.2f}", slowdown_mean="replicas slowed, ×", slowdown_p99="p99, ×"),
)


class PlacementRule(msgspec.Struct, frozen=True):
    name: str
    policy: str
    classes: tuple[WorkloadClass, ...] = ()
    prefer_rack: bool = False
    """Training asks for one rack, where it can have it."""
    spread_replicas: bool = False
    """The replicas of a service are kept apart."""


def _class(kind: str, strategy: str) -> WorkloadClass:
    return WorkloadClass(name=kind, selector=LabelSelector(match_labels={TIER: kind}), strategy=strategy)


RULES = (
    PlacementRule("pack all", "windlass"),
    PlacementRule("spread all", "spread"),
    PlacementRule("balance all", "windlass", tuple(_class(kind, "balanced") for kind in KINDS)),
    PlacementRule("by class, services spread", "windlass", (_class(SERVICE, "spread"),), prefer_rack=True),
    PlacementRule(PER_CLASS, "windlass", prefer_rack=True, spread_replicas=True),
)
QUICK = WorkloadMixture(
    nodes=16,
    nodes_per_rack=4,
    days=1,
    services=8,
    training_pct=35,
    node_failures=3,
    rack_failures=1,
    tick=300,
)


class Sample(msgspec.Struct, frozen=True):
    stranded: float
    node_hit: float
    rack_hit: float
    node_halved: float
    rack_halved: float
    slowdowns: tuple[float, ...]


def check_classes(mixture: WorkloadMixture, seed: int, on_progress: OnProgress) -> Claim:
    rows = []
    for done, rule in enumerate(RULES):
        on_progress(done / len(RULES))
        rows.append(_row(rule, mixture, *play(mixture, rule, seed)))
    return Claim(
        "classes",
        CLAIM,
        _found(rows),
        _verdict(rows),
        _conditions(rows),
        (
            Section(
                "classes",
                f"Services, training and experiments on {mixture.nodes} nodes of 8 GPUs, {mixture.days} days",
                COLUMNS,
                rows,
                note="Stranded: free GPUs on nodes that are not wholly free, which is what training needs. Hit and "
                "halved: means over all nodes or racks and all hours; halved services lose at least half of "
                f"their replicas. Rescheduling: work undone, restarts and waiting after {mixture.node_failures} node "
                f"and {mixture.rack_failures} rack failures. Slowed: by neighbours on the same GPU, from the model.",
            ),
        ),
    )


def play(mixture: WorkloadMixture, rule: PlacementRule, seed: int) -> tuple[list[Sample], list[TaskRecord]]:
    nodes = rack_fleet(mixture.nodes, mixture.nodes_per_rack)
    rack_of = {node.name: node.labels[RACK_LABEL] for node in nodes}
    looks: list[Sample] = []
    settings = TaskClusterSettings(
        config=EngineConfig(
            PlacementConfig(rule.policy),
            classes=rule.classes,
            queues=QueueConfig(ignore_undeclared=True),
            gangs=GangSettings(planned_starts=PlannedStartSettings(depth=0)),
        ),
        nodes=nodes,
        objects=queue_objects([QueueSpec(TRAINING, mixture.gpus)], topology=rule.prefer_rack),
        horizon=mixture.horizon,
        tick=mixture.tick,
        outages=draw_outages(mixture, nodes, seed),
        sample_every=HOUR,
    )

    def look(now: int, stage: TaskCluster) -> None:
        if now >= WARM_UP_HOURS * HOUR:
            free = free_gpus_by_node(stage.snapshot(now))
            looks.append(take_sample(stage.running.values(), rack_of, free))

    return looks, TaskCluster(settings, draw_tasks(mixture, seed, rule.prefer_rack, rule.spread_replicas), look).run()


def take_sample(running: Iterable[TaskRecord], rack_of: Mapping[str, str], free: Sequence[float]) -> Sample:
    """What there is to see at one moment."""
    records = list(running)
    nodes = {name: {name} for name in rack_of}
    racks: dict[str, set[str]] = {}
    for name, rack in rack_of.items():
        racks.setdefault(rack, set()).add(name)
    places = [({bind.node for bind in record.binds}, record) for record in records]
    replicas = [(record.task.pods[0].metadata.labels[APP], where) for where, record in _of(places, SERVICE)]
    return Sample(
        stranded=sum(gpus for gpus in free if gpus < 8),
        node_hit=_hit(places, nodes.values()),
        rack_hit=_hit(places, racks.values()),
        node_halved=_halved(replicas, nodes.values()),
        rack_halved=_halved(replicas, racks.values()),
        slowdowns=_slowdowns(record for _, record in _of(places, SERVICE)),
    )


Places = Sequence[tuple[set[str], TaskRecord]]


def _of(places: Places, kind: str) -> list[tuple[set[str], TaskRecord]]:
    return [(where, record) for where, record in places if record.task.kind == kind]


def _hit(places: Places, domains: Iterable[set[str]]) -> float:
    """Jobs (services aside) that the loss of a domain stops, on average over the domains."""
    jobs = [where for where, record in places if record.task.kind != SERVICE]
    return fmean(sum(not where.isdisjoint(lost) for where in jobs) for lost in domains)


def _halved(replicas: Sequence[tuple[str, set[str]]], domains: Iterable[set[str]]) -> float:
    """Services that lose at least half of their replicas with a domain, on average over the domains."""
    there = Counter(app for app, _ in replicas)

    def halved(lost: set[str]) -> int:
        gone = Counter(app for app, where in replicas if not where.isdisjoint(lost))
        return sum(2 * many >= there[app] for app, many in gone.items())

    return fmean(map(halved, domains))


def _slowdowns(replicas: Iterable[TaskRecord]) -> tuple[float, ...]:
    """Of each replica, by those on the same GPU."""
    tenants = Counter((bind.node, bind.devices[0].index) for record in replicas for bind in record.binds)
    of = {many: expected_slowdown(MPS, [BUSY] * many)[0] for many in set(tenants.values())}
    return tuple(of[many] for many in tenants.values() for _ in range(many))


def _row(rule: PlacementRule, mixture: WorkloadMixture, looks: Sequence[Sample], records: Sequence[TaskRecord]) -> Row:
    waits = {kind: waits_of(records, kind, mixture.horizon) for kind in KINDS}
    failures = mixture.node_failures + mixture.rack_failures
    hit = [record for record in records if any(why == FAILED for _, why in record.stops)]
    cost = sum(record.gpus * (record.lost + record.restarting + _waited_again(record)) for record in hit)
    return {
        "rule": rule.name,
        "allocated_pct": 100 * sum(record.gpus * record.held for record in records) / (mixture.gpus * mixture.horizon),
        "stranded_gpus": fmean(look.stranded for look in looks),
        **{f"{kind}_p99_s": percentile(waits[kind], 99) for kind in KINDS},
        **{f"{kind}_wait_s": fmean(waits[kind]) for kind in KINDS},
        "node_hit": fmean(look.node_hit for look in looks),
        "rack_hit": fmean(look.rack_hit for look in looks),
        "node_halved": fmean(look.node_halved for look in looks),
        "rack_halved": fmean(look.rack_halved for look in looks),
        "stopped_jobs": len(hit),
        "reschedule_gpu_h": cost / 3600 / max(1, failures),
        "slowdown_mean": fmean(value for look in looks for value in look.slowdowns),
        "slowdown_p99": percentile((value for look in looks for value in look.slowdowns), 99),
    }


def _waited_again(record: TaskRecord) -> int:
    return record.waited - (record.wait or 0)


# What it comes to


def _named(rows: Sequence[Row], name: str) -> Row:
    return next(row for row in rows if row["rule"] == name)


def _found(rows: Sequence[Row]) -> str:
    pack, spread, own = (_named(rows, name) for name in ("pack all", "spread all", PER_CLASS))
    return (
        f"Stranded GPUs: {pack['stranded_gpus']:.0f} packed, {spread['stranded_gpus']:.0f} spread, "
        f"{own['stranded_gpus']:.0f} by class; training waits {pack['training_p99_s']:,.0f}, "
        f"{spread['training_p99_s']:,.0f} and {own['training_p99_s']:,.0f} s at the 99th percentile. A lost rack "
        f"halves {pack['rack_halved']:.1f}, {spread['rack_halved']:.1f} and {own['rack_halved']:.1f} services, a lost "
        f"node {pack['node_halved']:.2f}, {spread['node_halved']:.2f} and {own['node_halved']:.2f}."
    )


def _verdict(rows: Sequence[Row]) -> str:
    """Better than packing where failures count, better than spreading where room counts."""
    pack, spread, own = (_named(rows, name) for name in ("pack all", "spread all", PER_CLASS))
    safer = own["rack_halved"] < pack["rack_halved"] and own["node_halved"] < pack["node_halved"]
    roomier = own["stranded_gpus"] < spread["stranded_gpus"] and own["training_p99_s"] < spread["training_p99_s"]
    if not (safer and roomier):
        return PARTLY if safer or roomier else FAILS
    return HOLDS if own["stranded_gpus"] <= pack["stranded_gpus"] else PARTLY


def _conditions(rows: Sequence[Row]) -> tuple[str, ...]:
    pack, own = _named(rows, "pack all"), _named(rows, PER_CLASS)
    naive = _named(rows, "by class, services spread")
    return (
        f"Which rule a class gets matters more than that it has one. Services spread pod by pod put a replica on every "
        f"node and strand {naive['stranded_gpus']:.0f} GPUs (training p99 {naive['training_p99_s']:,.0f} s); services "
        f"packed, with each one's own replicas kept apart by rack and node, strand {own['stranded_gpus']:.0f}.",
        f"Packing everything is best for whole nodes ({pack['stranded_gpus']:.0f} stranded) and is the right single "
        "rule where nothing that runs has replicas to lose together.",
        f"Rescheduling costs {pack['reschedule_gpu_h']:.1f} GPU-hours a failure packed, {own['reschedule_gpu_h']:.1f} "
        "by class: undone work of training (a checkpoint every ten minutes) and experiments (none), restarts, waiting.",
        f"Neighbours on a GPU slow replicas by {own['slowdown_mean']:.2f} on average (from the model, each at work "
        "half of the time): the rules hardly differ, since a share goes to the tightest device of its node in all.",
    )
