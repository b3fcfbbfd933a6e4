"""Counts of matching pods by node and domain, terms of placed pods, and the indexes that find them."""

from __future__ import annotations

from random import Random

import numpy as np
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
from windlass.cluster.listers import Listers
from windlass.cluster.node_columns import NodeColumns
from windlass.model.meta import LabelSelector
from windlass.model.pod import Pod
from windlass.placement.inter_pod import InterPodRules, match_counters
from windlass.placement.inter_pod.existing_terms import ExistingTerms
from windlass.placement.inter_pod.match_counters import MatchCounters, PlacedPodGroups, sums_by_domain
from windlass.placement.inter_pod.pod_affinity import AffinityTerm, required_anti_affinity, scoring_terms
from windlass.placement.inter_pod.pod_matchers import MatcherIndex, PodMatcher, required_label_of, with_match_label_keys

NODES = NodeColumns(
    [
        make_node("n0", zone="a", host="n0"),
        make_node("n1", zone="b", host="n1"),
        make_node("n2", host="n2"),
        make_node("n3", zone="a", host="n3"),
    ]
)
LISTERS = Listers()


def matcher(chosen: LabelSelector | None, *namespaces: str) -> PodMatcher:
    return PodMatcher(frozenset(namespaces or ("default",)), None, chosen)


def app(name: str, **options: object) -> Pod:
    return make_pod(options.pop("as_", "p"), labels={"app": name}, **options)


# Matchers


@pytest.mark.parametrize(
    ("chosen", "label"),
    [
        (None, None),
        (LabelSelector(), None),
        (selector(app="x"), ("app", "x")),
        (LabelSelector(match_expressions=(expression("a", "In", "1", "2"), expression("b", "In", "3"))), ("b", "3")),
        (LabelSelector(match_expressions=(expression("a", "NotIn", "1"),)), None),
        (LabelSelector(match_expressions=(expression("a", "Exists"),)), None),
        (LabelSelector(match_labels={"z": "9"}, match_expressions=(expression("b", "In", "3"),)), ("z", "9")),
    ],
)
def test_a_selector_names_one_label_that_every_match_has(chosen: LabelSelector | None, label: object) -> None:
    assert matcher(chosen).required_label == label
    assert required_label_of((matcher(LabelSelector()), matcher(chosen))) == label
    assert required_label_of(()) is None


def test_selectors_that_mean_the_same_have_one_key() -> None:
    one = LabelSelector(match_labels={"a": "1", "b": "2"})
    two = LabelSelector(match_labels={"b": "2"}, match_expressions=(expression("a", "In", "1"),))
    assert matcher(one).key == matcher(two).key
    keys = {
        matcher(found).key
        for found in (
            one,
            selector(a="1"),
            None,
            LabelSelector(),
            LabelSelector(match_expressions=(expression("a", "NotIn", "1"),)),
        )
    }
    assert len(keys) == 5
    assert matcher(one).key != matcher(one, "other").key
    in_order = LabelSelector(match_expressions=(expression("a", "In", "1", "2"),))
    turned = LabelSelector(match_expressions=(expression("a", "In", "2", "1"),))
    assert matcher(in_order).key == matcher(turned).key


def test_a_matcher_selects_everything_only_by_an_empty_selector() -> None:
    assert matcher(LabelSelector()).selects_everything
    assert not matcher(None).selects_everything
    assert not matcher(selector(a="1")).selects_everything
    assert not matcher(LabelSelector(match_expressions=(expression("a", "Exists"),))).selects_everything


def test_label_keys_narrow_a_selector_to_the_pods_own_values() -> None:
    labels = {"app": "x", "rev": "2"}
    assert with_match_label_keys(None, labels, ["rev"]) is None
    plain = selector(app="x")
    assert with_match_label_keys(plain, labels, ["none"], ["none"]) is plain
    narrowed = with_match_label_keys(plain, labels, ["rev", "none"], ["app"])
    assert narrowed is not None
    assert [(found.key, found.operator, found.values) for found in narrowed.match_expressions] == [
        ("rev", "In", ("2",)),
        ("app", "NotIn", ("x",)),
    ]
    assert narrowed.match_labels == {"app": "x"}


def test_the_index_finds_what_matches_whole_and_forgets_what_is_dropped() -> None:
    index: MatcherIndex[str] = MatcherIndex(LISTERS)
    assert not index
    groups = {
        "x": (matcher(selector(app="x")),),
        "x and red": (matcher(selector(app="x")), matcher(selector(color="red"))),
        "all": (matcher(LabelSelector()),),
        "other": (matcher(selector(app="x"), "elsewhere"),),
    }
    for name, group in groups.items():
        index.put(name, group, name)
    assert index

    def found(namespace: str = "default", **labels: str) -> set[str]:
        return set(index.matching(namespace, labels))

    assert found(app="x") == {"x", "all"}
    assert found(app="x", color="red") == {"x", "x and red", "all"}
    assert found(color="red") == {"all"}
    assert found("elsewhere", app="x") == {"other"}
    index.drop("all", groups["all"])
    index.drop("x", groups["x"])
    assert found(app="x", color="red") == {"x and red"}
    for name in ("x and red", "other"):
        index.drop(name, groups[name])
    assert not index


# Counters


def test_counters_follow_pods_that_come_and_go() -> None:
    wanted = {
        "x": ((matcher(selector(app="x")),), False),
        "live x": ((matcher(selector(app="x")),), True),
        "all": ((matcher(LabelSelector()),), False),
        "x and y": ((matcher(LabelSelector(match_expressions=(expression("app", "In", "x", "y"),))),), False),
    }
    for seed in range(40):
        random = Random(seed)
        placed = PlacedPodGroups()
        counters = MatchCounters(NODES, LISTERS, placed)
        pods: list[tuple[Pod, int]] = []
        asked: set[str] = set()
        for _ in range(25):
            if pods and random.random() < 0.4:
                pod, row = pods.pop(random.randrange(len(pods)))
                placed.remove(pod, row)
                counters.change(pod, row, -1)
            else:
                pod, row = app(random.choice("xyz"), deleting=random.random() < 0.3), random.randrange(4)
                pods.append((pod, row))
                placed.add(pod, row)
                counters.change(pod, row, 1)
            name = random.choice(list(wanted))
            asked.add(name)
            for name in asked:
                group, live = wanted[name]
                expected = [0] * 4
                for pod, row in pods:
                    matches = group[0].matches("default", pod.metadata.labels, LISTERS)
                    expected[row] += matches and not (live and bool(pod.metadata.deletion_timestamp))
                counter = counters.counter(group, live)
                assert counter.per_node.tolist() == expected
                zones = [expected[0] + expected[3], expected[1]]
                column = NODES.label(ZONE)
                assert counter.per_domain(ZONE).tolist() == [zones["ab".index(value)] for value in column.values]
                assert counter.in_domain_of_each_node(ZONE).tolist() == [zones[0], zones[1], 0, zones[0]]
                assert counter.in_domain_of_each_node(HOST).tolist() == expected


def test_a_pod_that_was_not_placed_cant_be_removed() -> None:
    placed = PlacedPodGroups()
    placed.add(app("x"), 1)
    placed.add(app("x"), 1)
    placed.remove(app("x"), 1)
    assert [dict(group.rows) for group in placed.groups_with(("app", "x"))] == [{1: 1}]
    with pytest.raises(KeyError):
        placed.remove(app("x"), 0)
    with pytest.raises(KeyError):
        placed.remove(app("y"), 1)
    placed.remove(app("x"), 1)
    assert list(placed.groups_with(None)) == []
    assert list(placed.groups_with(("app", "x"))) == []


def test_the_counter_that_was_not_used_for_longest_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(match_counters, "_MAX_COUNTERS", 2)
    placed = PlacedPodGroups()
    counters = MatchCounters(NODES, LISTERS, placed)
    x, y, z = ((matcher(selector(app=name)),) for name in "xyz")
    first, second = counters.counter(x), counters.counter(y)
    assert counters.counter(x) is first
    third = counters.counter(z)
    placed.add(app("y"), 0)
    counters.change(app("y"), 0, 1)
    assert second.per_node.tolist() == [0] * 4, "no longer followed"
    assert counters.counter(x) is first
    assert counters.counter(z) is third
    assert counters.counter(y) is not second
    assert counters.counter(y).per_node.tolist() == [1, 0, 0, 0]


def test_sums_are_over_the_counted_nodes_with_the_label() -> None:
    counts = np.array([1, 2, 4, 8], dtype=np.int64)
    for mask in range(16):
        counted = np.array([bool(mask >> i & 1) for i in range(4)])
        sums, occurs = sums_by_domain(NODES, ZONE, counts, counted)
        expected = {"a": (mask & 1) + (mask & 8), "b": mask & 2}
        values = list(NODES.label(ZONE).values)
        assert sums.tolist() == [expected[value] for value in values]
        assert occurs.tolist() == [expected[value] > 0 for value in values]


# Terms of placed pods


def test_weights_of_terms_add_up_per_domain_and_go_with_their_pods() -> None:
    terms = ExistingTerms(NODES, LISTERS)
    by_zone = AffinityTerm(matcher(selector(app="x")), ZONE)
    by_host = AffinityTerm(matcher(selector(app="x")), HOST)
    assert terms.weights("default", {"app": "x"}) is None
    assert not terms.matches_any("default", {"app": "x"})
    terms.change(by_zone, 0, 3)
    terms.change(by_zone, 3, 4)
    terms.change(by_zone, 2, 100)  # in no zone
    terms.change(by_zone, 1, 0)
    terms.change(by_zone, 1, 11)
    terms.change(by_host, 1, -2)
    weights = terms.weights("default", {"app": "x"})
    assert weights is not None
    assert weights.tolist() == [7, 9, 0, 7], "a node without the label is in no domain, not in the last"
    terms.change(by_zone, 1, -11)
    assert terms.matches_any("default", {"app": "x"})
    assert not terms.matches_any("default", {"app": "y"})
    assert terms.weights("default", {"app": "y"}) is None
    assert terms.weights("other", {"app": "x"}) is None
    terms.change(by_zone, 0, -7)
    assert terms.matches_any("default", {"app": "x"})
    terms.change(by_host, 1, 2)
    assert not terms.matches_any("default", {"app": "x"}), "the index keeps nothing of pods that left"
    assert terms.weights("default", {"app": "x"}) is None


def test_placed_pods_score_by_preferred_terms_and_lightly_by_required_affinity() -> None:
    preferred = [(7, near(ZONE, selector(a="1")))]
    pulls = make_pod("a", affinity=pod_affinity(near(HOST, selector(app="x")), preferred=preferred))
    assert [(found.weight, found.term.topology_key) for found in scoring_terms(pulls)] == [(1, HOST), (7, ZONE)]
    pushes = make_pod(
        "b", affinity=pod_anti_affinity(near(HOST, selector(app="x")), preferred=[(5, near(ZONE, selector(a="1")))])
    )
    assert [(found.weight, found.term.topology_key) for found in scoring_terms(pushes)] == [(-5, ZONE)]
    assert [term.topology_key for term in required_anti_affinity(pushes)] == [HOST]
    assert scoring_terms(make_pod("c")) == ()


def test_removing_a_pod_undoes_all_that_it_did() -> None:
    rules = InterPodRules(NODES, LISTERS)
    pushes = make_pod(
        "b",
        labels={"app": "x"},
        affinity=pod_anti_affinity(near(ZONE, selector(app="x")), preferred=[(5, near(HOST, selector(app="x")))]),
    )
    plain = app("x")
    static = np.zeros(4, dtype=np.uint64)
    assert not rules.constrains(plain)
    rules.add(pushes, 0)
    assert rules.constrains(plain)
    assert np.flatnonzero(rules.reasons(plain, static)).tolist() == [0, 3]
    scores = rules.affinity_scores(plain)
    assert scores is not None
    assert scores.tolist() == [-5, 0, 0, 0]
    own = rules.affinity_scores(pushes)
    assert own is not None
    assert own.tolist() == [-10, 0, 0, 0]
    rules.remove(pushes, 0)
    assert not rules.constrains(plain)
    assert not rules.reasons(pushes, static).any()
    assert rules.affinity_scores(plain) is None
