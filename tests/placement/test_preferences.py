"""Kube-scheduler's four preference scores with their weights, 0 to 100 each."""

from __future__ import annotations

import numpy as np
import pytest

from reference.builders import (
    HOST,
    ZONE,
    make_node,
    make_pod,
    near,
    need,
    node_affinity,
    node_term,
    pod_affinity,
    pod_anti_affinity,
    selector,
    spread,
    taint,
)
from reference.scene import Scene
from windlass.model.pod import Toleration
from windlass.placement.preferences import preference_scores

ALL_TAINTS_FINE = 3 * 100


def scores(scene, pod, feasible=None):
    """{node name: score beyond that of a node without untolerated taints}."""
    names = scene.nodes.names
    mask = np.array([feasible is None or name in feasible for name in names], dtype=np.bool_)
    found = preference_scores(pod, scene.nodes, scene.rules, mask)
    if found is None:
        return None
    return {name: int(s) - ALL_TAINTS_FINE for name, s, ok in zip(names, found, mask, strict=True) if ok}


def zones():
    return [make_node(name, zone=name[0], host=name) for name in ("a1", "a2", "b1")]


def test_a_pod_that_prefers_nothing_has_no_scores():
    assert scores(Scene(zones()), make_pod(labels={"app": "web"})) is None
    tolerant = make_pod(tolerations=(Toleration(operator="Exists"),))
    assert scores(Scene([make_node("a", taints=[taint("x", effect="PreferNoSchedule")])]), tolerant) is None


def test_prefer_h100_and_fall_back_to_a100():
    scene = Scene([make_node("h", gpu="h100"), make_node("a", gpu="a100"), make_node("t", gpu="t4")])
    preferred = [(80, node_term(need("gpu", "In", "h100"))), (40, node_term(need("gpu", "In", "a100")))]
    pod = make_pod(affinity=node_affinity(preferred=preferred))
    assert scores(scene, pod) == {"h": 200, "a": 100, "t": 0}
    assert scores(scene, pod, feasible=["a", "t"]) == {
        "a": 200,
        "t": 0,
    }  # among those that fit, the best gets all
    assert scores(scene, pod, feasible=["t"]) == {"t": 0}


def test_weights_of_matching_terms_add_up_and_fractions_are_cut_off():
    scene = Scene([make_node("both", x="1", y="1"), make_node("one", x="1"), make_node("none")])
    preferred = [(1, node_term(need("x", "Exists"))), (2, node_term(need("y", "Exists")))]
    pod = make_pod(affinity=node_affinity(preferred=preferred))
    assert scores(scene, pod) == {"both": 200, "one": 66, "none": 0}


def test_an_empty_preference_matches_nothing():
    pod = make_pod(affinity=node_affinity(preferred=[(100, node_term())]))
    assert scores(Scene([make_node("a")]), pod) == {"a": 0}


def test_fewer_untolerated_soft_taints_are_better():
    soft = [taint(key, effect="PreferNoSchedule") for key in ("x", "y")]
    scene = Scene([make_node("two", taints=soft), make_node("one", taints=soft[:1]), make_node("none")])
    assert scores(scene, make_pod()) == {"two": -300, "one": -150, "none": 0}
    tolerates_x = make_pod(tolerations=(Toleration(key="x", operator="Exists"),))
    assert scores(scene, tolerates_x) == {"two": -300, "one": 0, "none": 0}


def test_hard_taints_do_not_count_as_disliked():
    assert scores(Scene([make_node("a", taints=[taint("x")])]), make_pod()) is None


def test_preferred_company_is_counted_per_domain_and_stretched_over_the_range():
    cache = make_pod("cache", labels={"app": "cache"})
    scene = Scene(zones(), {"a1": [cache, cache]})
    beside = make_pod(affinity=pod_affinity(preferred=[(10, near(HOST, selector(app="cache")))]))
    assert scores(scene, beside) == {"a1": 200, "a2": 0, "b1": 0}
    scene.place(cache, "a2")
    assert scores(scene, beside, ["a1", "a2"]) == {
        "a1": 200,
        "a2": 0,
    }  # the least liked gets 0, whatever it has
    same_zone = make_pod(affinity=pod_affinity(preferred=[(10, near(ZONE, selector(app="cache")))]))
    assert scores(scene, same_zone) == {"a1": 200, "a2": 200, "b1": 0}
    away = make_pod(affinity=pod_anti_affinity(preferred=[(10, near(ZONE, selector(app="cache")))]))
    assert scores(scene, away) == {"a1": 0, "a2": 0, "b1": 200}


def test_placed_pods_pull_and_push_too_and_their_required_affinity_pulls_lightly():
    web = selector(app="web")
    new = make_pod(labels={"app": "web"})
    pulls = make_pod("p", affinity=pod_affinity(preferred=[(7, near(HOST, web))]))
    pushes = make_pod("q", affinity=pod_anti_affinity(preferred=[(7, near(HOST, web))]))
    requires = make_pod("r", affinity=pod_affinity(near(HOST, web)))
    scene = Scene(zones(), {"a1": [pulls], "a2": [pushes], "b1": [requires]})
    # 7, -7 and 1 out of -7..7.
    assert scores(scene, new) == {"a1": 200, "a2": 0, "b1": 2 * 57}
    assert scores(scene, make_pod(labels={"app": "db"})) is None


def test_quotients_are_taken_first_as_kube_scheduler_does():
    pods = [make_pod(f"p{i}", labels={"app": "x"}) for i in range(50)]
    scene = Scene(zones(), {"a1": pods, "a2": pods[:29]})
    pod = make_pod(affinity=pod_affinity(preferred=[(1, near(HOST, selector(app="x")))]))
    # 29 of 50 is 58 %, but 100 * (29 / 50) in floating point is a hair below and is cut off.
    assert scores(scene, pod)["a2"] == 2 * 57


@pytest.mark.parametrize(
    ("max_skew", "expected"),
    [
        (1, {"a1": 0, "a2": 0, "b1": 200}),
        # One pod among two zones weighs log(4); each side gets maxSkew - 1 on top: 5.39, rounded to 5, against 4.
        (5, {"a1": 160, "a2": 160, "b1": 200}),
    ],
)
def test_soft_spread_likes_emptier_domains_and_a_larger_skew_waters_it_down(max_skew, expected):
    web = make_pod("w", labels={"app": "web"})
    scene = Scene(zones(), {"a1": [web], "a2": []})
    pod = make_pod(topology_spread_constraints=(spread(ZONE, selector(app="web"), max_skew, soft=True),))
    assert scores(scene, pod) == expected


def test_soft_spread_scores_full_marks_where_there_is_nothing_to_balance():
    pod = make_pod(topology_spread_constraints=(spread(ZONE, selector(app="web"), soft=True),))
    assert scores(Scene(zones()), pod) == {"a1": 200, "a2": 200, "b1": 200}


def test_soft_spread_gives_nothing_to_nodes_without_the_label():
    pod = make_pod(topology_spread_constraints=(spread(ZONE, selector(app="web"), soft=True),))
    assert scores(Scene([*zones(), make_node("bare")]), pod)["bare"] == 0


def test_soft_spread_by_host_looks_at_each_node_for_itself():
    web = make_pod("w", labels={"app": "web"})
    scene = Scene([make_node("x", host="same"), make_node("y", host="same")], {"x": [web]})
    pod = make_pod(topology_spread_constraints=(spread(HOST, selector(app="web"), soft=True),))
    assert scores(scene, pod) == {"x": 0, "y": 200}


def test_soft_spread_weighs_a_label_by_how_many_values_the_feasible_nodes_have():
    web = make_pod("w", labels={"app": "web"})
    nodes = [make_node(name, zone=name[0], host=name) for name in ("a1", "b1", "b2", "c1")]
    scene = Scene(nodes, {"a1": [web], "b2": [web] * 3})
    by_zone = spread(ZONE, selector(app="web"), soft=True)
    by_host = spread(HOST, selector(app="web"), 2, soft=True)
    pod = make_pod(topology_spread_constraints=(by_zone, by_host))
    # Two zones and two hosts, log(4) each: a1 has 1 + 1 pods and 1 for the skew, 3.77; b1 has 3 + 0 and 1, 5.16.
    assert scores(scene, pod, ["a1", "b1"]) == {"a1": 200, "b1": 2 * 80}
    # Three hosts, log(5), in three zones: 4.22, 5.83 and, for c1, 1.
    assert scores(scene, pod, ["a1", "b1", "c1"]) == {"a1": 2 * 50, "b1": 2 * 16, "c1": 200}


def test_soft_spread_does_not_count_pods_on_nodes_that_the_policies_leave_out():
    web = make_pod("w", labels={"app": "web"})
    nodes = [*zones(), make_node("b2", zone="b", host="b2", taints=[taint("gpu")])]
    scene = Scene(nodes, {"a1": [web], "b2": [web, web]})
    for policy, better in (("Honor", "b1"), ("Ignore", "a1")):
        constraint = spread(ZONE, selector(app="web"), soft=True, node_taints_policy=policy)
        found = scores(scene, make_pod(topology_spread_constraints=(constraint,)), ["a1", "b1"])
        assert max(found, key=found.get) == better


def test_no_feasible_node_is_no_problem():
    pod = make_pod(affinity=node_affinity(preferred=[(1, node_term(need("x", "Exists")))]))
    assert scores(Scene(zones()), pod, feasible=[]) == {}
