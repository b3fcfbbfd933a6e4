"""On random clusters and pods, the fast filters and scores say what the slow reference says, node by node."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from reference.alone import reasons_alone
from reference.scores import preference_sums
from reference.strategies import clusters, crowds, pods
from reference.together import reasons_together
from windlass.cluster.listers import Listers
from windlass.cluster.node_columns import NodeColumns
from windlass.model.reasons import reason_of_bit
from windlass.placement.filters import static_reasons
from windlass.placement.inter_pod import InterPodRules
from windlass.placement.preferences import preference_scores


def objects_of(cluster):
    return Listers(
        volumes=cluster.volumes,
        claims=cluster.claims,
        storage_classes=cluster.storage_classes,
        namespaces=cluster.namespaces,
    )


def neighbours_of(cluster):
    return InterPodRules(NodeColumns(cluster.nodes), objects_of(cluster), cluster.placed)


def in_words(mask):
    return [{reason_of_bit(bit).name for bit in range(32) if int(cell) >> bit & 1} for cell in mask]


@settings(max_examples=250)
@given(cluster=clusters(), pod=pods(with_claims=False), data=st.data())
def test_filters_and_preferences_equal_the_reference_on_every_node(cluster, pod, data):
    neighbours = neighbours_of(cluster)
    static = static_reasons(pod, neighbours.nodes, neighbours.listers)
    assert in_words(static) == [reasons_alone(pod, node, cluster) for node in cluster.nodes]
    together = [reasons_together(pod, index, cluster) for index in range(len(cluster.nodes))]
    assert in_words(neighbours.reasons(pod, static)) == together
    assert neighbours.constrains(pod) or not any(together)
    check_preferences(cluster, pod, data.draw(some_of(cluster.nodes)))


@settings(max_examples=80)
@given(cluster=clusters(with_storage=True), pod=pods())
def test_volume_rules_equal_the_reference_on_every_node(cluster, pod):
    neighbours = neighbours_of(cluster)
    static = static_reasons(pod, neighbours.nodes, neighbours.listers)
    assert in_words(static) == [reasons_alone(pod, node, cluster) for node in cluster.nodes]
    together = [reasons_together(pod, index, cluster) for index in range(len(cluster.nodes))]
    assert in_words(neighbours.reasons(pod, static)) == together


@settings(max_examples=300)
@given(crowd=crowds(), data=st.data())
def test_spread_equals_the_reference_in_a_crowd(crowd, data):
    cluster, pod = crowd
    neighbours = neighbours_of(cluster)
    static = static_reasons(pod, neighbours.nodes, neighbours.listers)
    together = [reasons_together(pod, index, cluster) for index in range(len(cluster.nodes))]
    assert in_words(neighbours.reasons(pod, static)) == together
    check_preferences(cluster, pod, data.draw(some_of(cluster.nodes)))


def some_of(found):
    return st.lists(st.booleans(), min_size=len(found), max_size=len(found))


def check_preferences(cluster, pod, chosen):
    neighbours = neighbours_of(cluster)
    feasible = np.array(chosen, dtype=np.bool_)
    scores = preference_scores(pod, neighbours.nodes, neighbours, feasible)
    expected = preference_sums(pod, cluster, [row for row, is_chosen in enumerate(chosen) if is_chosen])
    if scores is None:
        # Nobody prefers anything: all nodes are alike.
        assert len(set(expected.values())) <= 1
    else:
        assert {row: int(scores[row]) for row in expected} == expected
        assert not scores[~feasible].any()


@settings(max_examples=100)
@given(cluster=clusters(), later=st.lists(pods(with_claims=False), max_size=4), pod=pods(), data=st.data())
def test_adding_and_removing_equals_building_from_scratch(cluster, later, pod, data):
    neighbours = neighbours_of(cluster)
    facts = neighbours.nodes
    static = np.zeros(facts.size, dtype=np.uint64)
    everywhere = np.ones(facts.size, dtype=np.bool_)
    neighbours.reasons(pod, static)  # so that counters exist and have to follow
    preference_scores(pod, facts, neighbours, everywhere)
    placed = list(cluster.placed)
    rows = st.integers(0, facts.size - 1)
    for new in later:
        row = data.draw(rows)
        neighbours.add(new, row)
        placed.append((new, row))
        if data.draw(st.booleans()):
            gone = placed.pop(data.draw(st.integers(0, len(placed) - 1)))
            neighbours.remove(*gone)
    fresh = InterPodRules(facts, neighbours.listers, placed)
    assert neighbours.reasons(pod, static).tolist() == fresh.reasons(pod, static).tolist()
    assert neighbours.constrains(pod) == fresh.constrains(pod)
    ours, theirs = (preference_scores(pod, facts, n, everywhere) for n in (neighbours, fresh))
    assert (ours is None) == (theirs is None)
    assert ours is None or ours.tolist() == theirs.tolist()
