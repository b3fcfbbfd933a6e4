"""Filters on a pod and one node: cordon, node name, taints, node selector and affinity."""

from __future__ import annotations

import pytest

from reference.builders import make_node, make_pod, need, node_affinity, node_term, taint
from reference.scene import Scene
from windlass.model.pod import Toleration


def tolerates(key="", operator="Exists", value="", effect=""):
    return (Toleration(key=key, operator=operator, value=value, effect=effect),)


def test_a_pod_without_wishes_fits_everywhere():
    assert Scene([make_node("a"), make_node("b")]).fits(make_pod()) == ["a", "b"]


def test_there_may_be_no_nodes_at_all():
    assert Scene([]).why(make_pod()) == {}


def test_a_cordoned_node_takes_no_pods():
    scene = Scene([make_node("a", cordoned=True), make_node("b")])
    assert scene.why(make_pod()) == {"a": ["UNSCHEDULABLE"], "b": []}


def test_a_pod_that_tolerates_the_cordon_taint_goes_to_a_cordoned_node():
    pod = make_pod(tolerations=tolerates("node.kubernetes.io/unschedulable", effect="NoSchedule"))
    assert Scene([make_node("a", cordoned=True)]).fits(pod) == ["a"]


def test_a_pod_that_names_a_node_fits_nowhere_else():
    scene = Scene([make_node("a"), make_node("b")])
    assert scene.why(make_pod(node_name="b")) == {"a": ["NODE_NAME"], "b": []}
    assert scene.fits(make_pod(node_name="elsewhere")) == []


@pytest.mark.parametrize("effect", ["NoSchedule", "NoExecute"])
def test_hard_taints_refuse_and_soft_ones_do_not(effect):
    scene = Scene([make_node("a", taints=[taint("gpu", "h100", effect)]), make_node("b")])
    assert scene.why(make_pod()) == {"a": ["TAINT"], "b": []}
    assert Scene([make_node("a", taints=[taint("gpu", effect="PreferNoSchedule")])]).fits(make_pod()) == ["a"]


@pytest.mark.parametrize(
    ("tolerations", "fits"),
    [
        (tolerates("gpu"), True),
        (tolerates("gpu", "Equal", "h100"), True),
        (tolerates("gpu", "", "h100"), True),
        (tolerates("gpu", "Equal", "a100"), False),
        (tolerates("gpu", effect="NoExecute"), False),
        (tolerates(), True),
        (tolerates("other"), False),
        ((), False),
    ],
)
def test_a_toleration_matches_by_key_operator_value_and_effect(tolerations, fits):
    scene = Scene([make_node("a", taints=[taint("gpu", "h100")])])
    assert scene.fits(make_pod(tolerations=tolerations)) == (["a"] if fits else [])


def test_every_hard_taint_has_to_be_tolerated():
    scene = Scene([make_node("a", taints=[taint("gpu"), taint("spot")])])
    assert scene.fits(make_pod(tolerations=tolerates("gpu"))) == []
    assert scene.fits(make_pod(tolerations=tolerates("gpu") + tolerates("spot"))) == ["a"]


def test_a_node_selector_wants_all_its_labels():
    scene = Scene([make_node("a", gpu="h100", pool="x"), make_node("b", gpu="h100"), make_node("c")])
    pod = make_pod(node_selector={"gpu": "h100", "pool": "x"})
    assert scene.why(pod) == {"a": [], "b": ["NODE_AFFINITY"], "c": ["NODE_AFFINITY"]}


def test_terms_are_alternatives_and_expressions_of_a_term_all_have_to_hold():
    scene = Scene([make_node("a", gpu="h100", zone="1"), make_node("b", gpu="h100"), make_node("c", gpu="t4")])
    h100_in_a_zone = node_term(need("gpu", "In", "h100"), need("topology.kubernetes.io/zone", "Exists"))
    assert scene.fits(make_pod(affinity=node_affinity(h100_in_a_zone))) == ["a"]
    assert scene.fits(make_pod(affinity=node_affinity(h100_in_a_zone, node_term(need("gpu", "In", "t4"))))) == [
        "a",
        "c",
    ]


def test_node_selector_and_affinity_both_have_to_match():
    scene = Scene([make_node("a", gpu="h100", pool="x"), make_node("b", gpu="h100", pool="y")])
    pod = make_pod(node_selector={"gpu": "h100"}, affinity=node_affinity(node_term(need("pool", "In", "y"))))
    assert scene.fits(pod) == ["b"]


def test_several_reasons_are_all_told():
    scene = Scene([make_node("a", cordoned=True, taints=[taint("gpu")])])
    assert scene.why(make_pod(node_selector={"x": "y"})) == {"a": ["UNSCHEDULABLE", "TAINT", "NODE_AFFINITY"]}
