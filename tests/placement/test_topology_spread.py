"""Topology spread constraints that must hold (`DoNotSchedule`)."""

from __future__ import annotations

from reference.builders import (
    HOST,
    ZONE,
    make_node,
    make_pod,
    need,
    node_affinity,
    node_term,
    selector,
    spread,
    taint,
)
from reference.scene import Scene
from windlass.model.meta import LabelSelector
from windlass.placement.inter_pod import has_inter_pod_rules

WEB = selector(app="web")


def three_zones():
    return [make_node("a", zone="a"), make_node("b", zone="b"), make_node("c", zone="c")]


def web(*constraints, **options):
    labels = {"app": "web", **options.pop("labels", {})}
    return make_pod("web", labels=labels, topology_spread_constraints=constraints, **options)


def test_a_pod_goes_where_the_difference_to_the_emptiest_domain_stays_in_bounds():
    scene = Scene(three_zones(), {"a": [web()], "b": [web()]})
    assert scene.why(web(spread(ZONE, WEB))) == {"a": ["SPREAD"], "b": ["SPREAD"], "c": []}
    assert scene.fits(web(spread(ZONE, WEB, 2))) == ["a", "b", "c"]


def test_placements_shift_the_balance():
    scene = Scene(three_zones())
    pod = web(spread(ZONE, WEB))
    for chosen, then in (("a", ["b", "c"]), ("b", ["c"]), ("c", ["a", "b", "c"])):
        scene.place(pod, chosen)
        assert scene.fits(pod) == then


def test_a_pod_that_its_own_selector_leaves_out_adds_nothing():
    scene = Scene(three_zones(), {"a": [web()]})
    assert scene.fits(make_pod(topology_spread_constraints=(spread(ZONE, WEB),))) == ["a", "b", "c"]


def test_a_node_without_the_label_is_refused_in_other_words():
    scene = Scene([*three_zones(), make_node("bare")])
    assert scene.why(web(spread(ZONE, WEB)))["bare"] == ["SPREAD_MISSING_LABEL"]


def test_the_first_constraint_that_fails_gives_the_reason():
    scene = Scene([make_node("a", zone="a"), make_node("b", zone="b", host="b")], {"a": [web()]})
    both = spread(ZONE, WEB), spread(HOST, WEB)
    assert scene.why(web(*both))["a"] == ["SPREAD_MISSING_LABEL"]  # a is no domain: it lacks the other label
    scene = Scene(
        [make_node("a", zone="a"), make_node("b", zone="a", host="b"), make_node("c", zone="b", host="c")],
        {"b": [web(), web()]},
    )
    assert scene.why(web(*both))["a"] == ["SPREAD"]
    assert scene.why(web(*reversed(both)))["a"] == ["SPREAD_MISSING_LABEL"]


def test_nodes_that_lack_another_constraints_label_are_not_counted():
    nodes = [make_node("a", zone="a"), make_node("b", zone="b", host="b"), make_node("c", zone="b", host="c")]
    scene = Scene(nodes, {"b": [web()]})
    # Zone a has no counted node, so b's zone is the only domain and is compared with itself.
    assert scene.fits(web(spread(ZONE, WEB), spread(HOST, WEB))) == ["c"]


def test_too_few_domains_count_as_one_more_that_is_empty():
    scene = Scene(three_zones()[:2], {"a": [web()], "b": [web()]})
    assert scene.fits(web(spread(ZONE, WEB, min_domains=2))) == ["a", "b"]
    assert scene.fits(web(spread(ZONE, WEB, min_domains=3))) == []


def test_domains_that_node_affinity_rules_out_are_ignored_unless_the_policy_says_otherwise():
    scene = Scene(three_zones(), {"a": [web()], "b": [web()]})
    not_c = node_affinity(node_term(need(ZONE, "NotIn", "c")))
    assert scene.fits(web(spread(ZONE, WEB), affinity=not_c)) == ["a", "b"]
    assert scene.fits(web(spread(ZONE, WEB, node_affinity_policy="Ignore"), affinity=not_c)) == []


def test_tainted_domains_count_unless_the_policy_says_otherwise():
    nodes = [*three_zones()[:2], make_node("c", zone="c", taints=[taint("gpu")])]
    scene = Scene(nodes, {"a": [web()], "b": [web()]})
    assert scene.fits(web(spread(ZONE, WEB))) == []
    assert scene.fits(web(spread(ZONE, WEB, node_taints_policy="Honor"))) == ["a", "b"]


def test_match_label_keys_count_only_the_pods_own_revision():
    scene = Scene(three_zones(), {"a": [web(labels={"rev": "1"})], "b": [web(labels={"rev": "2"})]})
    constraint = spread(ZONE, WEB, match_label_keys=("rev",))
    assert scene.fits(web(constraint, labels={"rev": "2"})) == ["a", "c"]
    assert scene.fits(web(constraint)) == ["c"]  # without the label the key is ignored


def test_other_namespaces_and_pods_being_deleted_do_not_count():
    scene = Scene(three_zones(), {"a": [web(namespace="other")], "b": [web(deleting=True)]})
    assert scene.fits(web(spread(ZONE, WEB))) == ["a", "b", "c"]


def test_a_pod_that_is_placed_while_being_deleted_does_not_count_either():
    scene = Scene(three_zones(), {"a": [web()]})
    pod = web(spread(ZONE, WEB))
    assert scene.fits(pod) == ["b", "c"]
    scene.place(web(deleting=True), "b")
    assert scene.fits(pod) == ["b", "c"]


def test_no_selector_selects_nobody_and_an_empty_one_counts_nobody():
    scene = Scene(three_zones(), {"a": [web(), web()]})
    assert scene.fits(web(spread(ZONE, None))) == ["a", "b", "c"]
    assert scene.fits(web(spread(ZONE, LabelSelector()))) == ["a", "b", "c"]


def test_a_label_that_no_node_has():
    assert Scene(three_zones()).why(web(spread("rack", WEB)))["a"] == ["SPREAD_MISSING_LABEL"]


def test_only_hard_constraints_make_a_pod_ask():
    assert has_inter_pod_rules(web(spread(ZONE, WEB)))
    assert not has_inter_pod_rules(web(spread(ZONE, WEB, soft=True)))
    scene = Scene(three_zones(), {"a": [web(), web()]})
    assert scene.fits(web(spread(ZONE, WEB, soft=True))) == ["a", "b", "c"]
