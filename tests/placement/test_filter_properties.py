"""On random clusters and pods, filters and preference scores equal the slow reference on every node."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from reference.inter_pod import inter_pod_reasons
from reference.node_filters import node_filter_reasons
from reference.scores import preference_sums
from reference.strategies import clusters, crowds, pods
from windlass.cluster.listers import Listers
from windlass.cluster.node_columns import NodeColumns
from windlass.model.reasons import reason_of_bit
from windlass.placement.filters import static_reasons
from windlass.placement.inter_pod import InterPodRules
from windlass.placement.preferences import preference_scores


def listers_of(cluster):
    return Listers(
        volumes=cluster.volumes,
        claims=cluster.claims,
        storage_classes=cluster.storage_classes,
        namespaces=cluster.namespaces,
    )


def rules_of(cluster):
    return InterPodRules(NodeColumns(cluster.nodes), listers_of(cluster), cluster.placed)


def reason_names(mask):
    return [{reason_of_bit(bit).name for bit in range(32) if int(cell) >> bit & 1} for cell in mask]


@settings(max_examples=250)
@given(cluster=clusters(), pod=pods(with_claims=False), data=st.data())
def test_filters_and_preferences_equal_the_reference_on_every_node(cluster, pod, data):
    rules = rules_of(cluster)
    static = static_reasons(pod, rules.nodes, rules.listers)
    assert reason_names(static) == [node_filter_reasons(pod, node, cluster) for node in cluster.nodes]
    expected_reasons = [inter_pod_reasons(pod, index, cluster) for index in range(len(cluster.nodes))]
    assert reason_names(rules.reasons(pod, static)) == expected_reasons
    assert rules.constrains(pod) or not any(expected_reasons)
    check_preferences(cluster, pod, data.draw(masks(cluster.nodes)))


@settings(max_examples=80)
@given(cluster=clusters(with_storage=True), pod=pods())
def test_volume_rules_equal_the_reference_on_every_node(cluster, pod):
    rules = rules_of(cluster)
    static = static_reasons(pod, rules.nodes, rules.listers)
    assert reason_names(static) == [node_filter_reasons(pod, node, cluster) for node in cluster.nodes]
    expected_reasons = [inter_pod_reasons(pod, index, cluster) for index in range(len(cluster.nodes))]
    assert reason_names(rules.reasons(pod, static)) == expected_reasons


@settings(max_examples=300)
@given(crowd=crowds(), data=st.data())
def test_spread_equals_the_reference_in_a_crowd(crowd, data):
    cluster, pod = crowd
    rules = rules_of(cluster)
    static = static_reasons(pod, rules.nodes, rules.listers)
    expected_reasons = [inter_pod_reasons(pod, index, cluster) for index in range(len(cluster.nodes))]
    assert reason_names(rules.reasons(pod, static)) == expected_reasons
    check_preferences(cluster, pod, data.draw(masks(cluster.nodes)))


def masks(nodes):
    return st.lists(st.booleans(), min_size=len(nodes), max_size=len(nodes))


def check_preferences(cluster, pod, mask):
    rules = rules_of(cluster)
    feasible = np.array(mask, dtype=np.bool_)
    scores = preference_scores(pod, rules.nodes, rules, feasible)
    expected = preference_sums(pod, cluster, [row for row, is_feasible in enumerate(mask) if is_feasible])
    if scores is None:
        # No preference applies, so all nodes have the same score.
        assert len(set(expected.values())) <= 1
    else:
        assert {row: int(scores[row]) for row in expected} == expected
        assert not scores[~feasible].any()


@settings(max_examples=100)
@given(cluster=clusters(), later=st.lists(pods(with_claims=False), max_size=4), pod=pods(), data=st.data())
def test_adding_and_removing_equals_building_from_scratch(cluster, later, pod, data):
    rules = rules_of(cluster)
    nodes = rules.nodes
    static = np.zeros(nodes.size, dtype=np.uint64)
    everywhere = np.ones(nodes.size, dtype=np.bool_)
    rules.reasons(pod, static)  # so that counters exist and have to be updated
    preference_scores(pod, nodes, rules, everywhere)
    placed = list(cluster.placed)
    rows = st.integers(0, nodes.size - 1)
    for new in later:
        row = data.draw(rows)
        rules.add(new, row)
        placed.append((new, row))
        if data.draw(st.booleans()):
            removed = placed.pop(data.draw(st.integers(0, len(placed) - 1)))
            rules.remove(*removed)
    rebuilt = InterPodRules(nodes, rules.listers, placed)
    assert rules.reasons(pod, static).tolist() == rebuilt.reasons(pod, static).tolist()
    assert rules.constrains(pod) == rebuilt.constrains(pod)
    updated_scores, rebuilt_scores = (preference_scores(pod, nodes, which, everywhere) for which in (rules, rebuilt))
    assert (updated_scores is None) == (rebuilt_scores is None)
    assert updated_scores is None or updated_scores.tolist() == rebuilt_scores.tolist()
