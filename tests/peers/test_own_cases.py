"""Cases of our own in the manner of the peers' tables, for everybody who hasn't those.

A case is a small cluster and what comes out. Each is decided by every way in: as a dump, through the scheduler's cache,
and on the virtual cluster. An outcome lists what starts (with its node where only one is right), what is evicted, and
the code of what waits.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
from tests.invariants import objects as make
from tests.invariants.objects import EPOCH, GPU, POOL, QUEUE, RACK
from tests.model.kueue_samples import decoded
from tests.peers.test_paths import of_cache, of_dump, planned

from windlass.model.configuration import Settings
from windlass.model.plan import Plan
from windlass.model.priority import resolve_priorities
from windlass.model.unstructured import Unstructured
from windlass.planner import visible_objects
from windlass.simulate.clock import VIRTUAL_EPOCH
from windlass.simulate.scenario.simulated_cluster import SimulatedCluster

NOW = EPOCH + 3600
GROUP_NAME, GROUP_SIZE = "kueue.x-k8s.io/pod-group-name", "kueue.x-k8s.io/pod-group-total-count"
REQUIRED = "kueue.x-k8s.io/podset-required-topology"
ANY_LOWER = {"withinClusterQueue": "LowerPriority", "reclaimWithinCohort": "Any"}


class Outcome(NamedTuple):
    starts: dict[str, str] = {}
    """Pod → node; "" where any node is right."""
    evicted: tuple[str, ...] = ()
    waits: dict[str, str] = {}
    """Pod or workload → code."""


class Case(NamedTuple):
    name: str
    objects: list[Unstructured]
    outcome: Outcome


def node(name: str, gpus: int = 8, rack: str = "r1", pool: str = "a", **more: Any) -> Unstructured:
    return make.node(name, 64, gpus, pool, rack) | more


def pod(
    name: str, gpus: int = 1, *, on: str = "", queue: str = "", priority: int = 0, age: int = 0, **more: Any
) -> Unstructured:
    annotations = more.pop("annotations", {})
    labels = {**more.pop("labels", {}), **({QUEUE: queue} if queue else {})}
    spec = make.pod_spec(1, gpus, priority=priority, **more)
    made = make.pod(name, spec, created=EPOCH + 600 - age, labels=labels, annotations=annotations)
    if on:
        made["spec"]["nodeName"] = on
        made["status"] = {"phase": "Running", "startTime": make.stamp(EPOCH + 600 - age)}
    return made


def gang(name: str, size: int, gpus: int, *, total: int = 0, topology: str = "", **more: Any) -> list[Unstructured]:
    annotations = {GROUP_SIZE: str(total or size), **({REQUIRED: topology} if topology else {})}
    return [
        pod(f"{name}-{index}", gpus, labels={GROUP_NAME: name}, annotations=annotations, **more)
        for index in range(size)
    ]


def queues(
    *names: str, gpus: int = 8, cohort: str = "", levels: tuple[str, ...] = (), **spec: Any
) -> list[Unstructured]:
    """ClusterQueues of one flavor with as many GPUs each, and a LocalQueue of the same name."""
    quota = {"a": {"cpu": {"nominalQuota": "1000"}, GPU: {"nominalQuota": str(gpus)}}}
    if cohort:
        spec["cohortName"] = cohort
    made = [make.flavor("a", {POOL: "a"}, "racks" if levels else "")]
    if levels:
        made.append(make.topology("racks", list(levels)))
    for name in names:
        made += [make.cluster_queue(name, quota, **spec), make.local_queue(name, name)]
    return made


def tainted(name: str, key: str) -> Unstructured:
    return node(name, spec={"taints": [{"key": key, "effect": "NoSchedule"}]})


CASES = [
    Case("a pod that no node is large enough for", [node("n1", 4), node("n2", 4), pod("big", 8)],
         Outcome(waits={"big": "REQUEST_EXCEEDS_CLUSTER"})),
    Case("free GPUs, but not on one node",
         [node("n1"), node("n2"), pod("a", 5, on="n1"), pod("b", 5, on="n2"), pod("c", 6)],
         Outcome(waits={"c": "GPU_FRAGMENTED"})),
    Case("all GPUs are taken", [node("n1"), pod("a", 8, on="n1"), pod("b", 1)], Outcome(waits={"b": "GPU_FULL"})),
    Case("a taint that the pod doesn't tolerate", [tainted("n1", "dedicated"), pod("a", 1)],
         Outcome(waits={"a": "TAINT_NOT_TOLERATED"})),
    Case("a taint that the pod tolerates",
         [tainted("n1", "dedicated"), pod("a", 1, tolerations=[{"key": "dedicated", "operator": "Exists"}])],
         Outcome({"a": "n1"})),
    Case("a selector that one node matches", [node("n1", pool="b"), node("n2"), pod("a", 1, nodeSelector={POOL: "b"})],
         Outcome({"a": "n1"})),
    Case("a higher priority evicts the lower one", [node("n1"), pod("low", 8, on="n1"), pod("high", 8, priority=10)],
         Outcome({"high": "n1"}, evicted=("low",))),
    Case("an equal priority evicts nobody", [node("n1"), pod("low", 8, on="n1"), pod("same", 8)],
         Outcome(waits={"same": "GPU_FULL"})),
    Case("as few victims as will do",
         [node("n1"), node("n2"), *(pod(f"small{i}", 2, on="n1") for i in range(4)), pod("large", 8, on="n2"),
          pod("high", 2, priority=10)],
         Outcome({"high": "n1"}, evicted=("small0",))),
    Case("a gang that fits starts whole", [node("n1"), node("n2"), *gang("ring", 2, 8)],
         Outcome({"ring-0": "", "ring-1": ""})),
    Case("a gang that doesn't fit whole doesn't start",
         [node("n1"), node("n2"), node("n3"), pod("a", 1, on="n2"), pod("b", 1, on="n3"), *gang("ring", 2, 8)],
         Outcome(waits={"ring": "GPU_FRAGMENTED"})),
    Case("a gang with a missing member waits", [node("n1"), *gang("ring", 2, 1, total=3)],
         Outcome(waits={"ring": "GANG_INCOMPLETE"})),
    Case("a large member first, whatever the order of the pods",
         [node("n1", 1), node("n2", 8), *gang("ring", 1, 1, total=2),
          pod("ring-big", 8, labels={GROUP_NAME: "ring"}, annotations={GROUP_SIZE: "2"})],
         Outcome({"ring-0": "n1", "ring-big": "n2"})),
    Case("within its quota", [node("n1"), *queues("q"), pod("a", 8, queue="q")], Outcome({"a": "n1"})),
    Case("over its quota", [node("n1", 16), *queues("q"), pod("a", 9, queue="q")],
         Outcome(waits={"a": "KUEUE_QUOTA_INSUFFICIENT"})),
    Case("a queue that doesn't exist", [node("n1"), pod("a", 1, queue="nowhere")],
         Outcome(waits={"a": "KUEUE_QUEUE_MISSING"})),
    Case("a stopped queue", [node("n1"), *queues("q", stopPolicy="Hold"), pod("a", 1, queue="q")],
         Outcome(waits={"a": "KUEUE_QUEUE_MISSING"})),
    Case("the cohort lends what nobody uses", [node("n1", 16), *queues("q", "r", cohort="c"), pod("a", 12, queue="q")],
         Outcome({"a": "n1"})),
    Case("the owner reclaims what it lent",
         [node("n1", 16), *queues("q", "r", cohort="c", preemption=ANY_LOWER),
          pod("lent", 8, on="n1", queue="q", age=60),
          pod("more", 8, on="n1", queue="q"), pod("own", 8, queue="r")],
         Outcome({"own": "n1"}, evicted=("more",))),
    Case("the owner reclaims a whole node from borrowers that are spread over two",
         [node("n1"), node("n2"), *queues("q", "r", cohort="c", preemption=ANY_LOWER),
          *(pod(f"b{i:02}", 1, on=f"n{1 + i % 2}", queue="q", age=900 - i) for i in range(16)),
          pod("own", 8, queue="r")],
         Outcome({"own": "n2"}, evicted=tuple(f"b{i:02}" for i in range(1, 16, 2)))),
    Case("the higher priority first within a queue",
         [node("n1"), *queues("q"), pod("early", 8, queue="q", age=300), pod("urgent", 8, queue="q", priority=5)],
         Outcome({"urgent": "n1"}, waits={"early": "KUEUE_QUOTA_INSUFFICIENT"})),
    Case("the older one first among equals",
         [node("n1"), *queues("q"), pod("young", 8, queue="q"), pod("old", 8, queue="q", age=300)],
         Outcome({"old": "n1"}, waits={"young": "KUEUE_QUOTA_INSUFFICIENT"})),
    Case("a gang inside one rack",
         [node("n1", rack="r1"), node("n2", rack="r2"), node("n3", rack="r2"),
          *queues("q", gpus=24, levels=(RACK, make.HOSTNAME)), *gang("ring", 2, 8, queue="q", topology=RACK)],
         Outcome({"ring-0": "n2", "ring-1": "n3"})),
    Case("no rack has room for the gang",
         [node("n1", rack="r1"), node("n2", rack="r1"), node("n3", rack="r2"), pod("a", 1, on="n1"),
          *queues("q", gpus=16, levels=(RACK, make.HOSTNAME)),
          *gang("ring", 2, 8, queue="q", topology=RACK)],
         Outcome(waits={"ring": "KUEUE_TOPOLOGY_NOFIT"})),
]  # fmt: skip


def by_dump(trees: list[Unstructured]) -> Plan:
    settings = Settings()
    objects = list(resolve_priorities(visible_objects(decoded(*trees), settings)))
    return planned(of_dump(objects, settings, NOW), settings, NOW)


def by_cache(trees: list[Unstructured]) -> Plan:
    settings = Settings()
    objects = list(resolve_priorities(visible_objects(decoded(*trees), settings)))
    return planned(of_cache(objects, settings, NOW), settings, NOW)


def by_virtual_cluster(trees: list[Unstructured]) -> Plan:
    cluster = SimulatedCluster()
    for tree in trees:
        cluster.update(tree)
    return planned(cluster.snapshot(NOW - VIRTUAL_EPOCH), Settings(), NOW)


def short(name: str) -> str:
    return name.removeprefix(f"{make.NAMESPACE}/")


@pytest.mark.parametrize("decide", [by_dump, by_cache, by_virtual_cluster])
@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_case(case: Case, decide: Any) -> None:
    plan = decide(case.objects)
    starts = {short(bind.pod): bind.node for bind in plan.binds}
    assert starts == {name: place or starts.get(name) for name, place in case.outcome.starts.items()}
    assert sorted(short(evict.workload) for evict in plan.evicts) == sorted(case.outcome.evicted)
    assert {short(hold.workload): hold.verdict.code for hold in plan.holds} == case.outcome.waits
