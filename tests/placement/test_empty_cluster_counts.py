"""How many pods empty nodes would take, and what can never fit."""

from __future__ import annotations

import pytest
from tests.placement.offices import make_overlay

from reference.park import A100, gpu_node, layout_node, mig_node, node, pod
from windlass.cluster.shape import make_shape
from windlass.model.names.kubernetes import HOSTNAME_LABEL, ZONE_LABEL
from windlass.model.names.windlass import RACK_LABEL
from windlass.model.node import Node, Taint
from windlass.model.pod import Pod
from windlass.model.workload import TopologyRequest
from windlass.placement.empty_cluster import UNLIMITED, EmptyCluster, NeverFits
from windlass.placement.gang import PendingPodSet
from windlass.placement.topology import DomainTree

BUSY = pod("busy", 2, cpu="4", on="n0")
LOST = Taint("node.kubernetes.io/unreachable", "NoExecute")
STAYS = Taint("team", "NoSchedule", "blue")
SOFT = Taint("team", "PreferNoSchedule", "blue")


def one(template: Pod, count: int = 1, request: TopologyRequest | None = None, **more: object) -> PendingPodSet:
    return PendingPodSet("main", count, template, make_shape(template), request, **more)  # type: ignore[arg-type]


def counts(nodes: list[Node], template: Pod) -> list[int]:
    return EmptyCluster(make_overlay(*nodes, BUSY)).pods_per_empty_node(one(template)).tolist()


@pytest.mark.parametrize(
    ("template", "most"),
    [
        (pod("t", 2, cpu="1"), [4, 2]),
        (pod("t", 3, cpu="1"), [2, 1]),
        (pod("t", 1, cpu="6"), [2, 2]),
        (pod("t", cpu="0"), [110, 110]),
        (pod("t", cpu="5"), [3, 3]),
        (pod("t", cpu="17"), [0, 0]),
        (pod("t", share="0.5", cpu="0"), [16, 8]),
        (pod("t", share="0.4", cpu="0"), [16, 8]),
        (pod("t", share="0.25", cpu="0"), [32, 16]),
        (pod("t", share="0.5", devices=2, cpu="0"), [8, 4]),
        (pod("t", memory_mib=100, cpu="0"), [110, 110]),
        (pod("t", memory_mib=100, devices=5, cpu="0"), [110, 0]),
        (pod("t", 1, models=[A100], cpu="1"), [0, 4]),
        (pod("t", asks={"example.com/nic": "1"}), [0, 0]),
        (pod("t", asks={"example.com/nic": "0"}), [16, 16]),
    ],
)
def test_how_many_pods_an_empty_node_takes(template: Pod, most: list[int]) -> None:
    assert counts([gpu_node("n0", 8), gpu_node("n1", 4, model=A100)], template) == most


def test_time_sliced_gpus_are_no_bound_by_device() -> None:
    assert counts([gpu_node("n0", 2, replicas=4)], pod("t", 1, cpu="1")) == [8]


def test_several_models_are_told_apart() -> None:
    mixed = layout_node("n0", {"model": A100, "count": 3}, {"model": "NVIDIA-H100-80GB-HBM3", "count": 5})
    assert counts([mixed], pod("t", 1, models=[A100], cpu="1")) == [3]
    assert counts([mixed], pod("t", 2, models=["NVIDIA-H100-80GB-HBM3"], cpu="1")) == [2]


def test_instances_made_on_demand_are_bound_by_nothing_but_the_rest() -> None:
    assert counts([mig_node("n0", 1)], pod("t", mig=("1g.10gb", 1), cpu="4")) == [4]


@pytest.mark.parametrize(
    ("model", "profile", "most"),
    [("NVIDIA-A30", "1g.6gb", 8), ("NVIDIA-A100-SXM4-40GB", "3g.20gb", 4), ("NVIDIA-H100-80GB-HBM3", "7g.80gb", 2)],
)
def test_every_model_that_creates_instances_holds_as_many_as_it_has_slices_for(
    model: str, profile: str, most: int
) -> None:
    assert counts([mig_node("n0", 2, model=model)], pod("t", mig=(profile, 1), cpu="1")) == [most]


@pytest.mark.parametrize(
    ("options", "taken"),
    [
        ({}, 16),
        ({"cordoned": True}, 16),
        ({"taints": (LOST,)}, 16),
        ({"taints": (STAYS,)}, 0),
        ({"taints": (SOFT,)}, 16),
        ({"taints": (LOST, STAYS)}, 0),
        ({"taints": (STAYS,), "cordoned": True}, 0),
        ({"taints": (SOFT,), "cordoned": True}, 16),
        ({"cordoned": True, "labels": {"disk": "none"}}, 0),
    ],
)
def test_nodes_that_may_come_back_count(options: dict[str, object], taken: int) -> None:
    template = pod("t", cpu="1", node_selector={"disk": "ssd"})
    labels = {"disk": "ssd", **options.pop("labels", {})}  # type: ignore[dict-item]
    made = node("n0", labels=labels, **options)  # type: ignore[arg-type]
    assert counts([made], template) == [taken]
    assert EmptyCluster(make_overlay(made)).pods_per_empty_node_without_rules(one(template)).tolist() == [16]


def test_counts_are_kept_by_shape() -> None:
    cluster = EmptyCluster(make_overlay(node("n0")))
    small, large = one(pod("t", cpu="1")), one(pod("t", cpu="8"))
    first = cluster.pods_per_empty_node(small)
    assert cluster.pods_per_empty_node(small) is first
    assert cluster.pods_per_empty_node(large).tolist() == [2]


def never(*sets: PendingPodSet, nodes: list[Node] | None = None) -> NeverFits | None:
    return EmptyCluster(make_overlay(*(nodes or [gpu_node("n0", 8), gpu_node("n1", 4)]))).never_fits(sets)


def test_what_is_too_much_for_all_nodes_never_fits() -> None:
    assert never(one(pod("t", 2, cpu="1"), 6)) is None
    assert never(one(pod("t", 2, cpu="1"), 7)) == NeverFits(
        "REQUEST_EXCEEDS_CLUSTER", "on the empty cluster only 6 of 7 pods would fit"
    )
    assert never(one(pod("t", 9, cpu="1"))) == NeverFits(
        "REQUEST_EXCEEDS_CLUSTER", "no node that it may use is large enough for one of its pods, even when empty"
    )
    assert never(one(pod("t", 9, cpu="1"), 0)) is None
    assert never(one(pod("t", cpu="1")), one(pod("t", cpu="99"))) is not None
    nothing = EmptyCluster(make_overlay()).never_fits([one(pod("t"))])
    assert nothing == NeverFits(
        "REQUEST_EXCEEDS_CLUSTER", "no node that it may use is large enough for one of its pods, even when empty"
    )


def test_rules_of_nodes_are_named_with_the_most_frequent_as_the_code() -> None:
    nodes = [
        node("a", taints=(STAYS,)),
        node("b", taints=(STAYS,)),
        node("c", labels={"disk": "hdd"}),
    ]
    template = pod("t", node_selector={"disk": "ssd"})
    found = never(one(template), nodes=[node("c"), *nodes[:1]])
    assert found is not None
    assert found.code == "SELECTOR_MISMATCH"
    assert found.message.startswith("0/2 nodes are available: ")
    tainted = never(one(pod("t", node_selector={HOSTNAME_LABEL: "a"})), nodes=nodes)
    assert tainted is not None
    assert tainted.message.startswith("0/3 nodes are available: ")
    only = never(one(pod("t")), nodes=nodes[:2])
    assert only == NeverFits("TAINT_NOT_TOLERATED", "0/2 nodes are available: 2 node(s) had untolerated taint(s).")
    one_may = never(one(pod("t", cpu="99")), nodes=[node("c"), *nodes[:1]])
    assert one_may == NeverFits(
        "REQUEST_EXCEEDS_CLUSTER", "no node that it may use is large enough for one of its pods, even when empty"
    )


# Within a topology

RACKS = [("z0", "r0"), ("z0", "r0"), ("z0", "r1"), ("z1", "r0"), ("z1", "")]


def topology(count: int, request: TopologyRequest | None, with_tree: bool = True) -> NeverFits | None:
    """Nodes of 4 pods each; the last has no rack label."""
    nodes = [
        node(f"n{number}", cpu=4, labels={ZONE_LABEL: zone, **({RACK_LABEL: rack} if rack else {})})
        for number, (zone, rack) in enumerate(RACKS)
    ]
    tree = DomainTree.build(
        (ZONE_LABEL, RACK_LABEL, HOSTNAME_LABEL),
        [(zone, rack or None, f"n{number}") for number, (zone, rack) in enumerate(RACKS)],
    )
    cluster = EmptyCluster(make_overlay(*nodes))
    pod_set = one(pod("t", cpu="1"), count, request, tree=tree if with_tree else None)
    return cluster.never_fits_topology([one(pod("t", cpu="1")), pod_set])


@pytest.mark.parametrize(
    ("level", "most", "name"), [(ZONE_LABEL, 12, "zone"), (RACK_LABEL, 8, "rack"), (HOSTNAME_LABEL, 4, "node")]
)
def test_a_required_domain_has_to_be_large_enough(level: str, most: int, name: str) -> None:
    request = TopologyRequest("required", level)
    assert topology(most, request) is None
    assert topology(most + 1, request) == NeverFits(
        "REQUEST_EXCEEDS_CLUSTER", f"the largest {name} has room for {most} of {most + 1} pods when it is empty"
    )


def test_preferences_and_unknown_levels_forbid_nothing() -> None:
    assert topology(99, TopologyRequest("preferred", RACK_LABEL)) is None
    assert topology(99, TopologyRequest("required", "unknown")) is None
    assert topology(99, None) is None
    assert topology(99, TopologyRequest("required", RACK_LABEL), with_tree=False) is None
    assert topology(0, TopologyRequest("required", RACK_LABEL, RACK_LABEL, 99)) is None
    assert UNLIMITED > 10**9


def test_a_slice_has_to_fit_into_its_domain() -> None:
    fits = TopologyRequest("preferred", ZONE_LABEL, RACK_LABEL, 8)
    assert topology(16, fits) is None
    too_large = topology(18, TopologyRequest("preferred", ZONE_LABEL, RACK_LABEL, 9))
    assert too_large == NeverFits(
        "REQUEST_EXCEEDS_CLUSTER", "the largest rack has room for 8 of 9 pods when it is empty"
    )


def test_a_level_that_no_node_has_takes_nothing() -> None:
    tree = DomainTree.build((RACK_LABEL,), [(None,)])
    request = TopologyRequest("required", RACK_LABEL)
    pod_set = one(pod("t", cpu="1"), 1, request, tree=tree)
    found = EmptyCluster(make_overlay(node("n0"))).never_fits_topology([pod_set])
    assert found == NeverFits("REQUEST_EXCEEDS_CLUSTER", "the largest rack has room for 0 of 1 pods when it is empty")


def test_a_domain_of_any_name_is_counted_as_a_whole() -> None:
    rail = "example.com/rail"
    nodes = [node(f"n{number}", cpu=4, labels={rail: "x"}) for number in range(2)]
    tree = DomainTree.build((rail,), [("x",), ("x",)])
    cluster = EmptyCluster(make_overlay(*nodes))
    request = TopologyRequest("required", rail)
    assert cluster.never_fits_topology([one(pod("t", cpu="1"), 8, request, tree=tree)]) is None
    assert cluster.never_fits_topology([one(pod("t", cpu="1"), 9, request, tree=tree)]) is not None


def test_a_node_without_gpus_takes_no_share_of_one() -> None:
    cluster = EmptyCluster(make_overlay(node("n0"), gpu_node("n1", 1)))
    assert cluster.pods_per_empty_node(one(pod("t", share="0.5", cpu="1"))).tolist() == [0, 2]
    assert cluster.pods_per_empty_node(one(pod("t", memory_mib=10, cpu="1"))).tolist() == [0, 16]
