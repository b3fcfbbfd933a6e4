"""Domains and requests where no Topology object names them."""

from __future__ import annotations

import pytest

from reference.park import Desk, gpu_node, pod
from windlass.cluster.node_columns import NodeColumns
from windlass.model.meta import LabelSelector
from windlass.model.names.kubernetes import HOSTNAME_LABEL, ZONE_LABEL
from windlass.model.names.windlass import RACK_LABEL
from windlass.model.pod import Affinity, PodAffinity, PodAffinityTerm, WeightedPodAffinityTerm
from windlass.model.topology import level_name
from windlass.model.workload import TopologyRequest
from windlass.placement.topology.affinity_request import request_from_affinity
from windlass.placement.topology.default_topology import DefaultTopology

REQUIRED = "kueue.x-k8s.io/podset-required-topology"
RAIL = "example.com/rail"


def rack_node(name, rack, zone="z", gpus=8, **labels):
    return gpu_node(name, gpus, labels={RACK_LABEL: rack, ZONE_LABEL: zone, **labels})


def topology(*nodes, keys=()):
    return DefaultTopology(NodeColumns(nodes), [True] * len(nodes), keys)


def test_levels_are_those_that_all_nodes_with_the_label_have():
    nodes = (rack_node("a", "r1"), rack_node("b", "r2"), gpu_node("c", 8))
    tree = topology(*nodes).tree(TopologyRequest("required", RACK_LABEL))
    assert tree.levels == (ZONE_LABEL, RACK_LABEL, HOSTNAME_LABEL)
    assert tree.rows.tolist() == [0, 1], "a node without the label is in no domain"


def test_a_level_that_some_nodes_lack_is_left_out():
    nodes = (rack_node("a", "r1"), gpu_node("b", 8, labels={RACK_LABEL: "r1"}))
    assert topology(*nodes).tree(TopologyRequest("required", RACK_LABEL)).levels == (
        RACK_LABEL,
        HOSTNAME_LABEL,
    )


def test_where_the_level_is_only_preferred_nodes_without_it_count_each_for_itself():
    nodes = (rack_node("a", "r1"), gpu_node("b", 8), gpu_node("c", 8))
    tree = topology(*nodes).tree(TopologyRequest("preferred", RACK_LABEL))
    assert sorted(tree.rows.tolist()) == [0, 1, 2]
    assert len(tree.domains(RACK_LABEL, 3)) == 3


def test_a_label_of_ones_own_stands_alone_above_the_node():
    nodes = (rack_node("a", "r1", **{RAIL: "x"}), rack_node("b", "r2", **{RAIL: "x"}))
    tree = topology(*nodes).tree(TopologyRequest("required", RAIL))
    assert tree.levels == (RAIL, HOSTNAME_LABEL)
    assert len(tree.domains(RAIL, 2)) == 1


def test_configured_levels_take_the_place_of_the_list():
    nodes = (rack_node("a", "r1", **{RAIL: "x"}), rack_node("b", "r1", **{RAIL: "x"}))
    tree = topology(*nodes, keys=(RAIL, RACK_LABEL)).tree(TopologyRequest("required", RACK_LABEL))
    assert tree.levels == (RAIL, RACK_LABEL, HOSTNAME_LABEL)


def test_who_asks_for_no_level_gets_no_domains():
    assert topology(rack_node("a", "r1")).tree(TopologyRequest("unconstrained")) is None


@pytest.mark.parametrize(
    ("key", "name"),
    [
        (RACK_LABEL, "rack"),
        (HOSTNAME_LABEL, "node"),
        ("cloud.google.com/gce-topology-subblock", "subblock"),
        (RAIL, RAIL),
    ],
)
def test_names_of_levels(key, name):
    assert level_name(key) == name


def drawn(name, *terms, preferred=(), labels=None, **options):
    wishes = PodAffinity(terms, tuple(WeightedPodAffinityTerm(*one) for one in preferred))
    return pod(name, 8, labels=labels or {"app": "ring"}, affinity=Affinity(pod_affinity=wishes), **options)


def to(app, key=RACK_LABEL, **options):
    return PodAffinityTerm(key, LabelSelector(match_labels={"app": app}), **options)


def test_affinity_to_itself_is_a_request():
    one = drawn("a", to("ring"))
    assert request_from_affinity(one, [one]) == TopologyRequest("required", RACK_LABEL, spans_pod_sets=True)


def test_only_those_whom_the_selector_names_share_the_domain():
    one, other = drawn("a", to("ring")), pod("b", 8, labels={"app": "other"})
    assert request_from_affinity(one, [one, other]) == TopologyRequest("required", RACK_LABEL)


@pytest.mark.parametrize(
    "term", [to("other"), to("ring", namespaces=("elsewhere",)), to("ring", match_label_keys=("app",))]
)
def test_affinity_to_others_is_none(term):
    one = drawn("a", term)
    assert request_from_affinity(one, [one]) is None


def test_two_required_terms_are_left_to_the_rules_between_pods():
    one = drawn("a", to("ring"), to("ring", ZONE_LABEL))
    assert request_from_affinity(one, [one]) is None


def test_the_dearest_preference_is_a_preference():
    one = drawn("a", preferred=((10, to("ring", ZONE_LABEL)), (50, to("ring", RACK_LABEL))))
    assert request_from_affinity(one, [one]) == TopologyRequest("preferred", RACK_LABEL, spans_pod_sets=True)


def test_a_gang_by_affinity_goes_to_the_rack_that_holds_all_of_it():
    """The best single node is in a rack with no second one free."""
    nodes = [rack_node(f"n{i}", f"r{i // 2}") for i in range(4)]
    members = [drawn(f"w{i}", to("ring"), group=("w", 2)) for i in range(2)]
    assert Desk(*nodes, pod("p", 8, on="n0"), *members).run() == {"w0": "n2", "w1": "n3"}


def test_where_its_like_runs_already_it_joins_them():
    nodes = [rack_node(f"n{i}", f"r{i // 2}") for i in range(6)]
    there = drawn("first", to("ring"), on="n0")
    members = [drawn(f"w{i}", to("ring"), group=("w", 1)) for i in range(1)]
    assert Desk(*nodes, there, *members).run() == {"w0": "n1"}


def test_a_gang_of_labels_alone_keeps_to_the_rack_it_requires():
    nodes = [rack_node(f"n{i}", f"r{i // 2}") for i in range(4)]
    notes = {REQUIRED: RACK_LABEL}
    members = [pod(f"w{i}", 8, group=("w", 2), annotations=notes) for i in range(2)]
    desk = Desk(*nodes, pod("p", 8, on="n0"), *members)
    assert desk.run() == {"w0": "n2", "w1": "n3"}
    more = [pod(f"v{i}", 8, group=("v", 2), annotations=notes) for i in range(2)]
    assert desk.put(*more).run() == {}
    assert desk.verdict("v0").code == "KUEUE_TOPOLOGY_NOFIT"
