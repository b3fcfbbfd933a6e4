"""The expected workload: classes, the 95 % that are kept, prices and scarcity."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reference.park import A100, H100, T4, Desk, gpu_node, node, pod
from windlass.placement.device_pricing import device_values
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


# Against plain twins


def scarcity(classes, gpus):
    """By model: its part of the constrained demand over its part of all GPUs; `gpus` are numbers by model."""
    total = sum(found.count * found.gpus * found.milli for found in classes)
    demand = dict.fromkeys(gpus, 0)
    for found in classes:
        allowed = [model for model in gpus if not found.models or model in found.models.split("|")]
        if not allowed or len(allowed) == len(gpus):
            continue
        asked = found.count * found.gpus * found.milli
        for model in allowed:
            demand[model] += asked * gpus[model] * 1000 // sum(gpus[name] for name in allowed)
    return {
        model: min(1000, demand[model] * sum(gpus.values()) // (total * number)) * 250 // 1000 if total else 0
        for model, number in gpus.items()
    }


def test_premiums_arrays_and_totals_equal_a_count_class_by_class():
    gpus = {A100: 1, H100: 4, T4: 3}
    nodes = [gpu_node("a", 1, model=A100), gpu_node("h", 4), gpu_node("t", 3, model=T4), node("none")]
    snapshot = Desk(*nodes).store.snapshot()
    codes = {model: next(code for code in range(16) if snapshot.gpu_models.mask([model]) >> code & 1) for model in gpus}
    choices = ["", H100, A100, f"{H100}|{T4}", f"{A100}|{T4}|{H100}", "unknown"]
    for seed in range(120):
        random = Random(seed)
        classes = tuple(
            MixClass(
                random.randint(1, 9),
                random.choice((0, 500, 1000)),
                random.choice((190, 500, 810)),
                random.choice((0, 1, 2, 8)),
                random.choice(choices),
            )
            for _ in range(random.randint(0, 4))
        )
        rare = (MixClass(1, 1000, 1000, 8, A100),) if random.random() < 0.5 else ()
        pods = sum(found.count for found in (*classes, *rare))
        found = mix_arrays(WorkloadMix(classes, pods, (*classes, *rare)), snapshot.gpu_models, snapshot.node_state)
        expected = scarcity((*classes, *rare), gpus)
        assert {model: int(found.scarce[code]) for model, code in codes.items()} == expected
        assert int(found.scarce.sum()) == sum(expected.values())
        gpu = [one for one in classes if one.gpus]
        assert found.totals.tolist() == [
            max(1, sum(one.count for one in gpu)),
            max(1, sum(one.count * one.cpu for one in gpu)),
            max(1, sum(one.count * one.gpus * one.milli for one in gpu)),
        ]
        assert found.cpu.tolist() == [one.cpu for one in classes]
        assert found.gpus.tolist() == [one.gpus for one in classes]
        assert found.milli.tolist() == [one.milli for one in classes]
        assert found.weight.tolist() == [one.count for one in classes]
        kept = sum(found.weight.tolist())
        assert found.share.tolist() == pytest.approx([one.count / kept for one in classes])
        masks = [snapshot.gpu_models.mask(one.models.split("|") if one.models else ()) for one in classes]
        assert found.models.tolist() == masks
        demand = {}
        for one in gpu:
            demand[one.milli] = demand.get(one.milli, 0) + one.count * one.gpus
        price = list(device_values(tuple(sorted(demand.items())) or ((1000, 1),), 5040))
        price[1000] += 504
        assert found.price.tolist() == price


def test_a_mix_without_constraints_or_gpus_has_no_premium():
    nodes = [gpu_node("a", 1, model=A100), gpu_node("h", 1)]
    assert not arrays(expecting(MixClass(3, 1000, 0, 0, H100)), *nodes).scarce.any()
    assert not arrays(WorkloadMix(), *nodes).scarce.any()
    assert not arrays(expecting(MixClass(3, 1000, 1000, 1, H100))).scarce.any(), "no GPUs at all"


def test_terms_that_are_left_out_have_no_effect_on_the_worth():
    whole = expecting(MixClass(3, 1000, 500, 1, ""), MixClass(1, 2000, 1000, 1, A100))
    nodes = (gpu_node("a", 1, model=A100), gpu_node("h", 7))

    def left_out(*terms):
        return arrays(WorkloadMix(whole.classes, whole.pods, whole.all_classes, terms), *nodes)

    full = left_out()
    without = left_out("whole")
    assert full.price[1000] - without.price[1000] == 504
    assert full.price[:1000].tolist() == without.price[:1000].tolist()
    assert left_out("stranded").totals.tolist() == [4, 1, 2**31]
    assert left_out("price").price.tolist() == [free * 5040 // 1000 for free in range(1001)]
    assert not left_out("usable").weight.any()
    both = left_out("models", "usable")
    assert not both.scarce.any()
    assert not both.weight.any()


def test_classes_without_pods_are_no_classes():
    found = mix((pod("a", 1), 0), (pod("b", 2), 3))
    assert [pod_class.gpus for pod_class in found.all_classes] == [2]
    assert found.pods == 3
    everything = mix((pod("a", 1), 19), (pod("b", 2), 1))
    assert [pod_class.gpus for pod_class in everything.classes] == [1], "19 of 20 are 95 %"
    assert [pod_class.gpus for pod_class in everything.all_classes] == [1, 2]
    models = mix((pod("a", share="0.5", models=[A100, H100]), 1))
    assert models.classes[0].models == f"{A100}|{H100}"
