"""Inter-pod affinity and anti-affinity, required, in both directions."""

from __future__ import annotations

import pytest

from reference.builders import (
    HOST,
    ZONE,
    expression,
    make_node,
    make_pod,
    near,
    pod_affinity,
    pod_anti_affinity,
    selector,
)
from reference.scene import Scene
from windlass.model.meta import LabelSelector, ObjectMeta
from windlass.model.volume import Namespace
from windlass.placement.inter_pod import has_inter_pod_rules


def two_zones():
    return [
        make_node("a1", zone="a", host="a1"),
        make_node("a2", zone="a", host="a2"),
        make_node("b1", zone="b", host="b1"),
        make_node("bare"),
    ]


def cache(**options):
    return make_pod("cache", labels={"app": "cache", **options.pop("labels", {})}, **options)


def wants(*terms, **options):
    return make_pod("web", labels=options.pop("labels", {"app": "web"}), affinity=pod_affinity(*terms), **options)


def avoids(*terms, **options):
    return make_pod("web", labels=options.pop("labels", {"app": "web"}), affinity=pod_anti_affinity(*terms), **options)


def test_affinity_wants_a_matching_pod_in_the_nodes_domain():
    scene = Scene(two_zones(), {"a1": [cache()]})
    assert scene.fits(wants(near(ZONE, selector(app="cache")))) == ["a1", "a2"]
    assert scene.fits(wants(near(HOST, selector(app="cache")))) == ["a1"]
    assert scene.why(wants(near(ZONE, selector(app="cache"))))["bare"] == ["POD_AFFINITY"]


def test_all_affinity_terms_must_be_met_by_one_and_the_same_kind_of_pod():
    terms = near(ZONE, selector(app="cache")), near(ZONE, selector(tier="gold"))
    apart = Scene(two_zones(), {"a1": [cache()], "a2": [make_pod("gold", labels={"tier": "gold"})]})
    assert apart.fits(wants(*terms)) == []
    together = Scene(two_zones(), {"a1": [cache(labels={"tier": "gold"})]})
    assert together.fits(wants(*terms)) == ["a1", "a2"]


def test_the_first_pod_of_a_group_that_wants_its_own_kind_may_start_anywhere():
    first = wants(near(ZONE, selector(app="web")))
    scene = Scene(two_zones())
    assert scene.fits(first) == ["a1", "a2", "b1"]  # not where the label is missing
    scene.place(first, "b1")
    assert scene.fits(first) == ["b1"]


def test_the_first_pod_rule_is_not_for_pods_that_want_others():
    assert Scene(two_zones()).fits(wants(near(ZONE, selector(app="cache")))) == []


def test_a_friend_on_a_node_without_the_label_is_in_no_domain():
    scene = Scene(two_zones(), {"bare": [make_pod("other", labels={"app": "web"})]})
    assert scene.fits(wants(near(ZONE, selector(app="web")))) == ["a1", "a2", "b1"]
    assert scene.fits(wants(near(ZONE, selector(app="web")), labels={"app": "api"})) == []


def test_anti_affinity_refuses_domains_with_a_matching_pod():
    scene = Scene(two_zones(), {"a1": [cache()]})
    assert scene.why(avoids(near(ZONE, selector(app="cache")))) == {
        "a1": ["POD_ANTI_AFFINITY"],
        "a2": ["POD_ANTI_AFFINITY"],
        "b1": [],
        "bare": [],  # without the label it is in no domain, so nobody is near
    }
    assert scene.fits(avoids(near(HOST, selector(app="cache")))) == ["a2", "b1", "bare"]


def test_any_anti_affinity_term_is_enough_to_refuse():
    scene = Scene(two_zones(), {"a1": [cache()], "b1": [make_pod("db", labels={"app": "db"})]})
    assert scene.fits(avoids(near(HOST, selector(app="cache")), near(ZONE, selector(app="db")))) == [
        "a2",
        "bare",
    ]


def test_placed_pods_keep_others_away_too():
    scene = Scene(two_zones(), {"a1": [avoids(near(ZONE, selector(app="cache")))]})
    assert scene.why(cache()) == {
        "a1": ["EXISTING_ANTI_AFFINITY"],
        "a2": ["EXISTING_ANTI_AFFINITY"],
        "b1": [],
        "bare": [],
    }
    assert scene.fits(make_pod("db", labels={"app": "db"})) == ["a1", "a2", "b1", "bare"]


def test_one_per_host_is_counted_down_again_when_pods_leave():
    scene = Scene(two_zones()[:2])
    pod = avoids(near(HOST, selector(app="web")))
    scene.place(pod, "a1")
    scene.place(pod, "a2")
    assert scene.why(pod)["a1"] == ["POD_ANTI_AFFINITY", "EXISTING_ANTI_AFFINITY"]
    scene.rules.remove(pod, 0)
    assert scene.fits(pod) == ["a1"]


def test_a_pod_that_was_never_placed_can_not_be_removed():
    scene = Scene(two_zones(), {"a1": [cache()]})
    with pytest.raises(KeyError):
        scene.rules.remove(cache(), 1)
    with pytest.raises(KeyError):
        scene.rules.remove(make_pod("other"), 0)


def test_terms_speak_of_their_owners_namespace_unless_they_say_otherwise():
    scene = Scene(two_zones(), {"a1": [cache(namespace="prod")]})
    assert scene.fits(wants(near(ZONE, selector(app="cache")), namespace="test")) == []
    assert scene.fits(wants(near(ZONE, selector(app="cache")), namespace="prod")) == ["a1", "a2"]
    named = near(ZONE, selector(app="cache"), namespaces=("prod",))
    assert scene.fits(wants(named, namespace="test")) == ["a1", "a2"]


def test_namespaces_can_be_chosen_by_label_and_an_empty_selector_means_all():
    gold = Namespace(metadata=ObjectMeta(name="prod", labels={"tier": "gold"}))
    scene = Scene(two_zones(), {"a1": [cache(namespace="prod")]}, namespaces={"prod": gold})
    for chosen, fits in (
        (selector(tier="gold"), True),
        (selector(tier="tin"), False),
        (LabelSelector(), True),
    ):
        term = near(ZONE, selector(app="cache"), namespace_selector=chosen)
        assert bool(scene.fits(wants(term, namespace="test"))) == fits


def test_a_term_without_a_selector_speaks_of_nobody():
    scene = Scene(two_zones(), {"a1": [cache()]})
    assert scene.fits(avoids(near(ZONE, None))) == ["a1", "a2", "b1", "bare"]
    assert scene.fits(wants(near(ZONE, None))) == []
    assert scene.fits(avoids(near(ZONE, LabelSelector()))) == ["b1", "bare"]


def test_match_label_keys_compare_with_the_owners_own_labels():
    old = cache(labels={"version": "1"})
    scene = Scene(two_zones(), {"a1": [old]})
    same = near(ZONE, selector(app="cache"), match_label_keys=("version",))
    assert scene.fits(wants(same, labels={"version": "1"})) == ["a1", "a2"]
    assert scene.fits(wants(same, labels={"version": "2"})) == []
    assert scene.fits(wants(same, labels={})) == ["a1", "a2"]  # a key that the owner lacks is ignored
    other = near(ZONE, selector(app="cache"), mismatch_label_keys=("version",))
    assert scene.fits(avoids(other, labels={"version": "2"})) == ["b1", "bare"]
    assert scene.fits(avoids(other, labels={"version": "1"})) == ["a1", "a2", "b1", "bare"]


def test_expressions_without_any_plain_label_work_as_well():
    not_web = LabelSelector(match_expressions=(expression("app", "NotIn", "web"), expression("app", "Exists")))
    scene = Scene(two_zones(), {"a1": [cache()], "b1": [make_pod("w", labels={"app": "web"})]})
    assert scene.fits(avoids(near(ZONE, not_web))) == ["b1", "bare"]
    scene.place(avoids(near(HOST, not_web)), "a2")
    assert scene.why(cache())["a2"] == ["EXISTING_ANTI_AFFINITY"]


def test_pods_on_their_way_out_still_count():
    scene = Scene(two_zones(), {"a1": [cache(deleting=True)]})
    assert scene.fits(avoids(near(HOST, selector(app="cache")))) == ["a2", "b1", "bare"]


def test_who_needs_to_ask_at_all():
    scene = Scene(two_zones(), {"a1": [avoids(near(ZONE, selector(app="cache")))]})
    plain = make_pod(labels={"app": "db"})
    assert not has_inter_pod_rules(plain)
    assert not scene.rules.constrains(plain)
    assert not has_inter_pod_rules(cache())
    assert scene.rules.constrains(cache())
    scene.rules.remove(avoids(near(ZONE, selector(app="cache"))), 0)
    assert not scene.rules.constrains(cache())
    assert has_inter_pod_rules(wants(near(ZONE, selector(app="cache"))))
    assert not has_inter_pod_rules(make_pod(affinity=pod_affinity(preferred=[(1, near(ZONE, selector(a="b")))])))


def test_more_selectors_than_are_kept_are_counted_again_when_asked(monkeypatch):
    monkeypatch.setattr("windlass.placement.inter_pod.match_counters._MAX_COUNTERS", 2)
    scene = Scene(two_zones(), {"a1": [make_pod(f"p{i}", labels={"job": str(i)}) for i in range(5)]})
    for _ in range(2):
        for i in range(5):
            assert scene.fits(avoids(near(HOST, selector(job=str(i))))) == ["a2", "b1", "bare"]
    scene.place(make_pod("p0", labels={"job": "0"}), "b1")
    assert scene.fits(avoids(near(HOST, selector(job="0")))) == ["a2", "bare"]
