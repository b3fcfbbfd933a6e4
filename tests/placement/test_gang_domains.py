"""Topology requests over all pod sets of a gang, over members that come later, and over flavors."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import pytest
from tests.invariants.objects import (
    EPOCH,
    GROUP,
    POOL,
    QUEUE,
    RACK,
    cluster_queue,
    flavor,
    local_queue,
    node,
    pod,
    pod_group,
    pod_set,
    pod_spec,
    topology,
    workload,
)

from windlass.model.codec import decode_object
from windlass.model.configuration import Settings
from windlass.model.decision import Admit, Bind, Hold
from windlass.model.unstructured import Unstructured
from windlass.planner import plan_objects

REQUIRED = {"kueue.x-k8s.io/podset-required-topology": RACK}
PREFERRED = {"kueue.x-k8s.io/podset-preferred-topology": RACK}
QUEUES = [
    topology("racks", [RACK]),
    flavor("gpus", {POOL: "gpus"}, "racks"),
    cluster_queue("queue", {"gpus": {"cpu": {"nominalQuota": "100"}}}),
    local_queue("local", "queue"),
]


def member(name: str, cpus: int, annotations: dict[str, str], **spec: Any) -> Unstructured:
    labels = {GROUP: "gang", QUEUE: "local"}
    return pod(name, pod_spec(cpus, **spec), created=EPOCH, labels=labels, annotations=annotations)


def decisions(*trees: Unstructured) -> list[object]:
    plan, _ = plan_objects([decode_object(tree) for tree in trees], Settings(), EPOCH + 60)
    return list(plan.decisions)


def where(*trees: Unstructured) -> dict[str, str]:
    return {decision.pod: decision.node for decision in decisions(*trees) if isinstance(decision, Bind)}


@pytest.mark.parametrize("order", list(permutations(range(3))))
@pytest.mark.parametrize("annotations", [REQUIRED, PREFERRED])
def test_shapes_of_a_gang_share_a_rack(order: tuple[int, ...], annotations: dict[str, str]) -> None:
    """Rack `a` is the tightest for either shape, and only `b` takes both."""
    nodes = [
        node("a1", 2, 0, "gpus", "a"),
        node("b1", 2, 0, "gpus", "b"),
        node("b2", 4, 0, "gpus", "b"),
        node("c1", 4, 0, "gpus", "c"),
    ]
    gang = [member("large", 4, annotations), member("small", 2, annotations), pod_group("gang", 2, EPOCH)]
    found = where(*nodes, *QUEUES, *(gang[at] for at in order))
    assert found == {"team/large": "b2", "team/small": "b1"}


def test_a_required_rack_that_takes_only_one_shape_each_holds_the_gang() -> None:
    nodes = [node("a1", 2, 0, "gpus", "a"), node("c1", 4, 0, "gpus", "c")]
    gang = [member("large", 4, REQUIRED), member("small", 2, REQUIRED), pod_group("gang", 2, EPOCH)]
    (held,) = decisions(*nodes, *QUEUES, *gang)
    assert isinstance(held, Hold)
    assert held.verdict.code == "KUEUE_TOPOLOGY_NOFIT"
    assert f'topology "racks" has no domain of {RACK} with room for all 2 pods' in held.verdict.detail
    # Where the rack is only preferred, the pods start in different racks.
    preferred = [member("large", 4, PREFERRED), member("small", 2, PREFERRED), pod_group("gang", 2, EPOCH)]
    assert where(*nodes, *QUEUES, *preferred) == {"team/large": "c1", "team/small": "a1"}


@pytest.mark.parametrize(("annotations", "third"), [(REQUIRED, None), (PREFERRED, "a1")])
def test_a_member_above_the_minimum_stays_in_the_required_rack(annotations: dict[str, str], third: str | None) -> None:
    nodes = [node("a1", 4, 0, "gpus", "a"), node("b1", 4, 0, "gpus", "b"), node("b2", 4, 0, "gpus", "b")]
    gang = [*(member(f"m{number}", 4, annotations) for number in range(3)), pod_group("gang", 2, EPOCH)]
    found = where(*nodes, *QUEUES, *gang)
    assert sorted(found.values()) == sorted([*(["b1", "b2"]), *([third] if third else [])])


@pytest.mark.parametrize(("free", "goes"), [("b2", True), ("c1", False)])
def test_a_lost_member_is_replaced_in_the_required_rack(free: str, goes: bool) -> None:
    """A gang of two runs with one; the other pod was made anew."""
    nodes = [node("b1", 4, 0, "gpus", "b"), node(free, 4, 0, "gpus", free[0])]
    runs = member("old", 4, REQUIRED, nodeName="b1")
    runs["status"] = {"phase": "Running"}
    found = where(*nodes, *QUEUES, runs, member("new", 4, REQUIRED), pod_group("gang", 2, EPOCH))
    assert found == ({"team/new": free} if goes else {})


def test_sets_on_flavors_of_different_nodes_are_each_placed_by_their_own() -> None:
    """The driver's flavor has other nodes than the workers', which are too many to try all combinations."""
    nodes = [node("d1", 8, 0, "drivers", "a"), *(node(f"w{i}", 20, 0, "gpus", "b") for i in (1, 2))]
    groups = [
        {"coveredResources": [name], "flavors": [{"name": kind, "resources": [{"name": name, **quota}]}]}
        for name, kind, quota in (
            ("cpu", "gpus", {"nominalQuota": "100"}),
            ("memory", "drivers", {"nominalQuota": "100"}),
        )
    ]
    queue = cluster_queue("queue", {"gpus": {"cpu": {"nominalQuota": "100"}}}, resourceGroups=groups)
    request = {"topologyRequest": {"required": RACK}}
    by_memory = {"containers": [{"name": "main", "resources": {"requests": {"memory": "1"}}}]}
    sets = [pod_set("driver", 1, by_memory, **request), pod_set("workers", 34, pod_spec(1), **request)]
    for parts in (sets, sets[::-1]):
        (admit,) = decisions(
            *nodes,
            topology("racks", [RACK]),
            flavor("gpus", {POOL: "gpus"}, "racks"),
            flavor("drivers", {POOL: "drivers"}, "racks"),
            queue,
            local_queue("local", "queue"),
            workload("job", "local", parts, priority=0, created=EPOCH),
        )
        assert isinstance(admit, Admit)
        where = {pod_set.name: pod_set.nodes for pod_set in admit.pod_sets}
        assert where["driver"] == {"d1": 1}
        assert (set(where["workers"]), sum(where["workers"].values())) == ({"w1", "w2"}, 34)
