"""What Volcano's own tests expect of its queues, written anew from reading them.

Every pod is a PodGroup of its own with Volcano's annotation, unless it names another group. "Evicts" is what has to go
for a pending pod; Volcano would call that pod pipelined. Where Windlass differs is in docs/decisions/0039.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

from windlass.model.codec import decode_object
from windlass.model.configuration import Settings
from windlass.model.plan import Plan
from windlass.model.times import parse_timestamp
from windlass.planner import plan_objects

Json = dict[str, Any]
NOW = "2026-01-01T12:00:00Z"
RESOURCES = ("cpu", "memory", "nvidia.com/gpu")
API = "scheduling.volcano.sh/v1beta1"


def amounts(text: str) -> Json:
    """`2/4Gi/1`: CPU, memory and GPUs; `-` for a resource that is not given."""
    given = zip(RESOURCES, text.split("/"), strict=False)
    return {name: value for name, value in given if value and value != "-"}


class Case(NamedTuple):
    name: str
    nodes: dict[str, str]
    queues: dict[str, Json]
    pods: list[str]
    """`NAME QUEUE AMOUNTS`, then `@NODE` if it runs, `group=…`, `priority=…`, `keep` (not preemptable)."""
    binds: frozenset[str] = frozenset()
    evicts: frozenset[str] = frozenset()


def case(
    name: str, nodes: dict[str, str], queues: dict[str, Json], pods: list[str], binds: str = "", evicts: str = ""
) -> Case:
    return Case(name, nodes, queues, pods, frozenset(binds.split()), frozenset(evicts.split()))


def queue(
    deserved: str = "", capability: str = "", guarantee: str = "", closed: bool = False, **more: Any
) -> tuple[Json, Json]:
    spec = {"weight": 1, **more}
    for field, text in (("deserved", deserved), ("capability", capability)):
        if text:
            spec[field] = amounts(text)
    if guarantee:
        spec["guarantee"] = {"resource": amounts(guarantee)}
    return spec, {"state": "Closed" if closed else "Open"}


def objects(one: Case) -> list[Json]:
    made: list[Json] = []
    for name, room in one.nodes.items():
        all_room = {**amounts(room), "pods": "20"}
        made.append(
            {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
                "status": {"capacity": all_room, "allocatable": all_room},
            }
        )
    for name, (spec, status) in one.queues.items():  # type: ignore[misc]  # a pair, by `queue`
        made.append({"apiVersion": API, "kind": "Queue", "metadata": {"name": name}, "spec": spec, "status": status})
    groups: dict[str, tuple[str, int]] = {}
    for index, line in enumerate(one.pods):
        name, in_queue, asked, *options = line.split()
        given = dict(option.split("=") for option in options if "=" in option)
        group = given.get("group", name)
        groups[group] = (in_queue, groups.get(group, ("", 0))[1] + 1)
        made.append(_pod(name, group, asked, index, options, int(given.get("priority", "0"))))
    for group, (in_queue, size) in groups.items():
        metadata = {"name": group, "namespace": "default", "creationTimestamp": "2026-01-01T00:00:00Z"}
        spec = {"minMember": size, "queue": in_queue}
        made.append({"apiVersion": API, "kind": "PodGroup", "metadata": metadata, "spec": spec})
    return made


def _pod(name: str, group: str, asked: str, index: int, options: list[str], priority: int) -> Json:
    at = next((option[1:] for option in options if option.startswith("@")), "")
    created = f"2026-01-01T00:{index:02}:00Z"
    annotations = {"scheduling.k8s.io/group-name": group}
    if "keep" in options:
        annotations["volcano.sh/preemptable"] = "false"
    requests = {resource: amount for resource, amount in amounts(asked).items() if amount not in ("0", "0Gi")}
    spec: Json = {
        "containers": [{"name": "c", "resources": {"requests": requests, "limits": requests}}],
        "priority": priority,
    }
    status: Json = {"phase": "Pending"}
    if at:
        spec["nodeName"], status = at, {"phase": "Running", "startTime": created}
    metadata = {"name": name, "namespace": "default", "uid": name, "creationTimestamp": created}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {**metadata, "annotations": annotations},
        "spec": spec,
        "status": status,
    }


SMALL = {"n1": "2/4Gi", "n2": "2/4Gi"}
BIG = {"n1": "8/8Gi"}
GPUS = {"n1": "8/8Gi/8"}
TREE = {
    "root": queue(),
    "q1": queue(capability="4/4Gi", parent="root"),
    "q2": queue(capability="4/4Gi", parent="root"),
    "q11": queue(capability="1/1Gi", parent="q1"),
    "q12": queue(capability="3/3Gi", parent="q1"),
}
CASES = [
    case("within its capability", SMALL, {"q": queue(capability="2/2Gi")}, ["a q 1/1Gi @n1", "b q 1/1Gi"], "b"),
    case("above its capability", SMALL, {"q": queue(capability="1500m/1536Mi")}, ["a q 1/1Gi @n1", "b q 1/1Gi"]),
    case(
        "reclaims what it deserves, from what may go",
        SMALL,
        {"q3": queue("2/4Gi"), "q4": queue("2/4Gi")},
        ["a q3 2/4Gi @n1 keep", "b q3 2/4Gi @n2", "c q4 2/4Gi"],
        "c",
        "b",
    ),
    case(
        "reclaims a device though CPU is used up, since it asks for no CPU",
        {"n1": "2/4Gi/10", "n2": "2/4Gi/10"},
        {"q5": queue("2/4Gi/10"), "q6": queue("2/4Gi/10")},
        ["a q5 -/-/10 @n1 keep", "b q5 -/-/10 @n2", "c q6 2/4Gi @n1", "d q6 2/4Gi @n2", "e q6 -/-/10"],
        "e",
        "b",
    ),
    case(
        "the queue of the higher priority first",
        SMALL,
        {
            "q7": queue(capability="2/4Gi", priority=5),
            "q8": queue(capability="2/4Gi", priority=1),
            "q9": queue(capability="2/4Gi", priority=10),
        },
        ["a q7 2/4Gi @n1", "b q8 2/4Gi", "c q9 2/4Gi"],
        "c",
    ),
    case(
        "does not reclaim beyond what it deserves",
        {"n1": "2/4Gi"},
        {"q12": queue("1/2Gi", "4/4Gi"), "q13": queue("0/0", "2/2Gi")},
        ["a q12 1/1Gi @n1", "b q12 1/2Gi", "c q13 1/1Gi @n1"],
    ),
    case(
        "does not reclaim from a queue below what it deserves",
        {"n1": "4/8Gi/4"},
        {"q14": queue("2/4Gi/2"), "q15": queue(), "q16": queue("2/4Gi/2")},
        ["a q14 2/4Gi @n1", "b q15 -/-/1 @n1", "c q16 2/1Gi/1 @n1", "d q16 2/3Gi/1"],
    ),
    case(
        "evicts only what helps",
        {"n1": "4/8Gi/1"},
        {"q17": queue("2/2Gi"), "q18": queue("3/4Gi/1")},
        ["a q17 -/4Gi @n1", "b q17 1 @n1", "c q17 -/-/1 @n1", "d q18 2/4Gi @n1", "e q18 1/-/1"],
        "e",
        "c",
    ),
    case(
        "does not reclaim above its capability",
        {"n1": "8/100Gi", "n2": "8/100Gi"},
        {"q21": queue("8/100Gi", "8/100Gi"), "q22": queue(capability="2/5Gi")},
        ["a q21 7/90Gi @n1", "b q21 2/5Gi", "c q22 2/5Gi @n2"],
    ),
    case(
        "memory above what it deserves, and only CPU asked for",
        {"n1": "3/3Gi", "n2": "3/3Gi"},
        {"q": queue("2/2Gi"), "r": queue("1/1Gi")},
        ["a q 1/2Gi @n1", "b r 1/1Gi @n2", "c q 1"],
        "c",
    ),
    case(
        "CPU above what it deserves, and only memory asked for",
        {"n1": "3/3Gi", "n2": "3/3Gi"},
        {"q": queue("2/2Gi"), "r": queue("1/1Gi")},
        ["a q 2/1Gi @n1", "b r 1/1Gi @n2", "c q -/1Gi"],
        "c",
    ),
    case("more than the capability", BIG, {"q": queue("2/2Gi", "2/2Gi")}, ["a q 3/1Gi"]),
    case("a queue that is closed", BIG, {"q": queue("4/4Gi", closed=True)}, ["a q 1/1Gi"]),
    case("a leaf of the tree", BIG, TREE, ["a q11 1/1Gi"], "a"),
    case("a queue with queues below it takes no work", BIG, TREE, ["a q1 1/1Gi"]),
    case("a leaf above its own capability, below its parent's", BIG, TREE, ["a q11 2/2Gi"]),
    case(
        "a gang within the capability of queue and parent",
        BIG,
        {"q3": queue("4/4Gi", "4/4Gi"), "q31": queue("2/2Gi", "4/4Gi", parent="q3"), "q4": queue("2/2Gi", "4/4Gi")},
        ["a q31 2/2Gi group=g", "b q31 2/2Gi group=g"],
        "a b",
    ),
    case(
        "reclaims from its sibling",
        BIG,
        {
            "q3": queue("4/4Gi", "4/4Gi"),
            "q4": queue("4/4Gi", "4/4Gi"),
            "q31": queue("2/2Gi", "4/4Gi", parent="q3"),
            "q32": queue("2/2Gi", "4/4Gi", parent="q3"),
        },
        ["a q4 4/4Gi @n1", "b q31 2/2Gi @n1 keep", "c q31 2/2Gi @n1", "d q32 2/2Gi"],
        "d",
        "c",
    ),
    case(
        "the parent's capability is used up",
        BIG,
        {
            "q3": queue("4/4Gi", "4/4Gi"),
            "q31": queue("2/2Gi", "4/4Gi", parent="q3"),
            "q32": queue("2/2Gi", "4/4Gi", parent="q3"),
            "q33": queue("0/0", "4/4Gi", parent="q3"),
        },
        ["a q31 2/2Gi @n1 keep", "b q32 2/2Gi @n1", "c q33 3/3Gi"],
    ),
    case(
        "a resource without a capability of its own",
        BIG,
        {"q5": queue(capability="-/4Gi"), "q51": queue(capability="-/2Gi", parent="q5")},
        ["a q51 1"],
        "a",
    ),
    case(
        "the parent's capability holds for its queues together",
        BIG,
        {"q6": queue(capability="2/4Gi"), "q61": queue(parent="q6"), "q62": queue(parent="q6")},
        ["a q61 2/4Gi", "b q62 2/4Gi"],
        "a",
    ),
    case(
        "guarantees that add up to more than the parent has",
        BIG,
        {
            "q7": queue(capability="6/4Gi"),
            "q71": queue(capability="6/4Gi", guarantee="4/3Gi", parent="q7"),
            "q72": queue(capability="6/4Gi", guarantee="4/3Gi", parent="q7"),
        },
        ["a q71 1/1Gi"],
        "a",
    ),
    case(
        "devices in what it deserves",
        GPUS,
        {
            "q8": queue("4/4Gi/8"),
            "q81": queue("2/2Gi/4", parent="q8"),
            "q82": queue("2/2Gi/4", parent="q8"),
        },
        ["a q81 2/2Gi/1"],
        "a",
    ),
    case("a resource of which nothing is deserved", GPUS, {"q9": queue("2/2Gi/0")}, ["a q9 2/2Gi"], "a"),
    case(
        "a root with more than the cluster has",
        BIG,
        {"root": queue(capability="16/16Gi"), "q10": queue(capability="10/4Gi", parent="root")},
        ["a q10 8/4Gi"],
        "a",
    ),
    case(
        "a parent without a capability",
        GPUS,
        {
            "c": queue(parent="root"),
            "c1": queue(capability="4/4Gi/4", parent="c"),
            "c2": queue(capability="4/4Gi/4", parent="c"),
        },
        ["a c1 1/1Gi/4", "b c2 1/1Gi/4"],
        "a b",
    ),
    case(
        "reclaims by the one resource that it deserves",
        {"n1": "16/16Gi/5"},
        {
            "root": queue("16/16Gi/4"),
            "d": queue("-/-/2", parent="root"),
            "d1": queue("-/-/2", parent="d"),
            "d2": queue(parent="d"),
        },
        ["a d2 1/1Gi/2 @n1", "b d2 1/1Gi/2 @n1 keep", "c d1 -/-/2"],
        "c",
        "a",
    ),
    case(
        "reclaims across parents that are above what they deserve",
        {"n1": "16/16Gi/4"},
        {
            "p1": queue("-/-/1", "-/-/2"),
            "p1a": queue("-/-/1", "-/-/2", parent="p1"),
            "p2": queue("-/-/3", "-/-/4"),
            "p2a": queue("-/-/3", "-/-/4", parent="p2"),
        },
        [*(f"r{index} p2a -/-/1 @n1 priority={index}" for index in range(4)), "x p1a -/-/1"],
        "x",
        "r0",
    ),
    case(
        "what is guaranteed is kept free for it",
        BIG,
        {"q": queue(guarantee="4/4Gi"), "r": queue()},
        ["a r 4/4Gi @n1", "b r 1/1Gi", "c q 4/4Gi"],
        "c",
    ),
    case(
        "a queue that is not reclaimable",
        SMALL,
        {"q3": queue("2/4Gi", reclaimable=False), "q4": queue("2/4Gi")},
        ["a q3 2/4Gi @n1", "b q3 2/4Gi @n2", "c q4 2/4Gi"],
    ),
    case(
        "strict order: who waits in front keeps the others",
        {"n1": "4/8Gi"},
        {"q": queue("4/8Gi", dequeueStrategy="fifo")},
        ["a q 3/1Gi @n1", "b q 2/1Gi", "c q 1/1Gi"],
    ),
    case(
        "without it they pass",
        {"n1": "4/8Gi"},
        {"q": queue("4/8Gi", dequeueStrategy="traverse")},
        ["a q 3/1Gi @n1", "b q 2/1Gi", "c q 1/1Gi"],
        "c",
    ),
    case(
        "inside a queue, a higher priority takes the place of a lower one",
        {"n1": "2/4Gi"},
        {"q": queue("2/4Gi")},
        ["a q 2/4Gi @n1 priority=1", "b q 2/4Gi priority=10"],
        "b",
        "a",
    ),
]


def plan_of(one: Case) -> Plan:
    plan, _ = plan_objects([decode_object(obj) for obj in objects(one)], Settings(), parse_timestamp(NOW))
    return plan


@pytest.mark.parametrize("one", CASES, ids=[one.name for one in CASES])
def test_a_case_of_volcanos(one: Case) -> None:
    plan = plan_of(one)
    assert {bind.pod.partition("/")[2] for bind in plan.binds} == one.binds, plan.holds
    assert {pod.partition("/")[2] for evict in plan.evicts for pod in evict.pods} == one.evicts


def test_there_are_thirty() -> None:
    assert len({one.name for one in CASES}) >= 30
