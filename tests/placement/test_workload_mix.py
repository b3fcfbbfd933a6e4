"""The expected workload: classes, the 95 % that are kept, prices and scarcity."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reference.park import A100, H100, Desk, gpu_node, pod
from windlass.placement.workload_mix import (
    MODEL_PREMIUM,
    SCORE_TERMS,
    MixClass,
    WorkloadMix,
    mix_arrays,
    mix_of,
)


def mix(*counted):
    """From (pod, count) pairs."""
    snapshot = Desk(*[counted_pod for counted_pod, _ in counted]).store.snapshot()
    numbers = snapshot.pods.shape.tolist()
    return mix_of((snapshot.shapes[n], count) for n, (_, count) in zip(numbers, counted, strict=True))


def expecting(*classes):
    return WorkloadMix(classes, sum(pod_class.count for pod_class in classes), classes)


def arrays(expected, *nodes):
    snapshot = Desk(*nodes).store.snapshot()
    return mix_arrays(expected, snapshot.gpu_models, snapshot.node_state)


def test_classes_are_what_fgd_tells_apart_most_frequent_first():
    found = mix(
        (pod("a", share="0.5", cpu="4"), 2),
        (pod("b", share="0.5", cpu="4", asks={"memory": "1Gi"}), 2),
        (pod("c", 2, cpu="8"), 3),
        (pod("d", cpu="4"), 1),
    )
    assert found.pods == 8
    assert [(pod_class.count, pod_class.cpu, pod_class.milli, pod_class.gpus) for pod_class in found.classes] == [
        (4, 4000, 500, 1),
        (3, 8000, 1000, 2),
        (1, 4000, 0, 0),
    ]


def test_rare_classes_go_once_95_percent_are_covered_and_the_rest_is_scaled_up():
    found = mix((pod("a", 1), 50), (pod("b", 2), 45), (pod("c", 4), 3), (pod("d", 8), 2))
    assert [pod_class.gpus for pod_class in found.classes] == [1, 2]
    assert found.pods == 100
    assert arrays(found, gpu_node("n", 1)).share.tolist() == [0.5 / 0.95, 0.45 / 0.95]


def test_equally_frequent_classes_are_ordered_by_the_larger_request():
    found = mix((pod("a", 1, cpu="1"), 1), (pod("b", 1, cpu="2"), 1))
    assert [pod_class.cpu for pod_class in found.classes] == [2000, 1000]


def test_requests_whose_share_is_not_known_beforehand_count_as_cpu_only():
    found = mix((pod("a", memory_mib=1000), 1), (pod("b", mig=("1g.10gb", 1)), 1))
    assert [(pod_class.count, pod_class.milli, pod_class.gpus) for pod_class in found.classes] == [(2, 0, 0)]


def test_a_model_that_constrained_classes_compete_for_is_scarce():
    """All demand wants the one H100 of two GPUs: fully contended, and the A100 not at all."""
    only = expecting(MixClass(1, 1000, 1000, 1, H100))
    found = arrays(only, gpu_node("a", 1, model=A100), gpu_node("h", 1))
    assert found.scarce[:2].tolist() == [0, MODEL_PREMIUM]
    free = expecting(MixClass(1, 1000, 1000, 1, ""))
    assert not arrays(free, gpu_node("a", 1, model=A100), gpu_node("h", 1)).scarce.any()


@given(st.lists(st.integers(1, 1000), min_size=1, max_size=12))
def test_what_is_kept_covers_95_percent_and_no_class_more_than_needed(counts):
    found = mix(*[(pod(f"p{i}", cpu=f"{i + 1}m"), count) for i, count in enumerate(counts)])
    kept = [pod_class.count for pod_class in found.classes]
    assert kept == sorted(kept, reverse=True)
    assert 100 * sum(kept) >= 95 * sum(counts)
    assert 100 * sum(kept[:-1]) < 95 * sum(counts)
    assert abs(arrays(found).share.sum() - 1) < 1e-12


def test_an_empty_mix_expects_whole_gpus():
    found = arrays(WorkloadMix(), gpu_node("n", 1))
    assert found.price[999] == 0
    assert found.price[1000] > 0
    assert found.totals.tolist() == [1, 1, 1]


def test_a_term_of_the_policy_can_be_left_out():
    whole = expecting(MixClass(3, 1000, 500, 1, ""), MixClass(1, 2000, 1000, 1, A100))
    nodes = (gpu_node("a", 1, model=A100), gpu_node("h", 7))
    full = arrays(whole, *nodes)

    def left_out(term):
        return arrays(WorkloadMix(whole.classes, whole.pods, whole.all_classes, (term,)), *nodes)

    def differing(found):
        return {name for name in full._fields if getattr(full, name).tolist() != getattr(found, name).tolist()}

    assert {term: differing(left_out(term)) for term in SCORE_TERMS} == {
        "usable": {"weight"},
        "price": {"price"},
        "whole": {"price"},
        "stranded": {"totals"},
        "models": {"scarce"},
    }
    price = left_out("price").price
    assert [int(price[free]) for free in (0, 500, 1000)] == [0, 2520, 5040]
    with pytest.raises(ValueError, match="no term 'luck'"):
        left_out("luck")
