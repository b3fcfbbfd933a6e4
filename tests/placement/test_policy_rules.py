"""The rule of each policy, on clusters small enough to compute it by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from reference.park import A100, H100, T4, Desk, gpu_node, layout_node, node, pod
from windlass import jit
from windlass.model.errors import InputError
from windlass.placement.overlay import Overlay
from windlass.placement.policies import POLICIES, SCORERS, PlacementConfig, make_scoring_rule
from windlass.placement.score_table import ScoreTable
from windlass.placement.scorer_selector import ScorerSelector
from windlass.placement.workload_mix import MixClass, WorkloadMix, mix_arrays


def expecting(*classes):
    return WorkloadMix(classes, sum(pod_class.count for pod_class in classes), classes)


def scores(desk, name):
    """{node: score} of a waiting pod, and the device that a share would get there, as the table has them."""
    snapshot = desk.store.snapshot()
    mix = mix_arrays(desk.config.expected_mix or WorkloadMix(), snapshot.gpu_models, snapshot.node_state)
    table = ScoreTable(snapshot, mix, ScorerSelector(SCORERS[desk.config.placement.policy]))
    (at,) = [row for row in snapshot.pods.pending() if snapshot.pods.objects[row].metadata.name == name]
    row = table.row(snapshot.shapes[int(snapshot.pods.shape[at])], snapshot)
    with np.errstate(over="ignore"):
        rule = make_scoring_rule(desk.config.placement, snapshot.node_state)
        Overlay(snapshot, table, rule, jit.kernels(small=True)).refresh(row)
    found = zip(table.cells.score[row].tolist(), table.cells.device[row].tolist(), strict=True)
    return dict(zip(snapshot.nodes.names, found, strict=True))


def test_first_fit_takes_the_first_node_in_rank_order():
    nodes = [gpu_node("a", 1), gpu_node("b", 8), gpu_node("c", 8)]
    assert Desk(*nodes, pod("p", 2), policy="first-fit").run() == {"p": "b"}
    ranked = Desk(*nodes, pod("p", 2), policy="first-fit", ranks={"a": 0, "b": 2, "c": 1})
    assert ranked.run() == {"p": "c"}


def test_pack_leaves_the_least_free_gpu_then_the_least_free_cpu():
    desk = Desk(gpu_node("big", 8), gpu_node("small", 2, cpu=16), gpu_node("tight", 2, cpu=8), policy="pack")
    assert desk.put(pod("p", 1)).run() == {"p": "tight"}
    assert desk.put(pod("q", 2)).run() == {"q": "small"}


def test_spread_leaves_the_most_free_gpu_then_the_most_free_cpu():
    desk = Desk(gpu_node("a", 2, cpu=8), gpu_node("b", 2, cpu=16), policy="spread")
    assert desk.put(pod("p", 1)).run() == {"p": "b"}
    assert desk.put(pod("q", 1)).run() == {"q": "a"}


def test_best_fit_counts_what_is_left_in_terms_of_the_largest_node():
    """big: 1 − ½·(16−4)/16 − ½·(8−2)/8 = 0.25; small: 1 − ½·(8−4)/16 − ½·(4−2)/8 = 0.75."""
    desk = Desk(gpu_node("big", 8, cpu=16), gpu_node("small", 4, cpu=8), policy="best-fit")
    desk.put(pod("p", 2, cpu="4"))
    assert scores(desk, "p") == {"big": (25, -1), "small": (75, -1)}


def test_dot_product_prefers_the_least_free_along_the_request():
    """big: ⟨(1, 1), (¼, ¼)⟩/2 = ¼ → 75; small: ⟨(½, ½), (¼, ¼)⟩/2 = ⅛ → 87."""
    desk = Desk(gpu_node("big", 8, cpu=16), gpu_node("small", 4, cpu=8), policy="dot-product")
    desk.put(pod("p", 2, cpu="4"))
    assert scores(desk, "p") == {"big": (75, -1), "small": (87, -1)}


def test_gpu_packing_fills_shared_devices_then_used_nodes_then_idle_ones():
    desk = Desk(gpu_node("idle", 8), gpu_node("used", 2), gpu_node("shared", 2), policy="gpu-packing")
    desk.put(pod("x", 1, on="used"), pod("y", share="0.3", on="shared"), pod("p", share="0.5"))
    # On the shared device 70 % is free: 100 − 7. A free device of a used node: 50 − 1. Idle with 8: max(25, 8).
    assert scores(desk, "p") == {"idle": (25, 0), "shared": (93, 0), "used": (49, 1)}
    desk.put(pod("q", 1))
    assert scores(desk, "q") == {"idle": (25, -1), "shared": (49, -1), "used": (49, -1)}


def test_gpu_clustering_keeps_pods_of_one_request_together():
    nodes = [gpu_node(name, 4) for name in ("idle", "mixed", "other", "same")]
    desk = Desk(*nodes, pod("p", 1), policy="gpu-clustering")
    desk.put(pod("a", 1, on="same"), pod("b", 1, on="mixed"), pod("c", 2, on="mixed"), pod("d", 2, on="other"))
    # Bands of 25; inside a band 25 times the part of the GPUs that is taken.
    assert scores(desk, "p") == {
        "idle": (25, -1),
        "mixed": (50 + 25 * 3 // 4, -1),
        "other": (25 * 2 // 4, -1),
        "same": (75 + 25 // 4, -1),
    }
    desk.put(pod("s", share="0.5"))
    assert scores(desk, "s")["idle"][0] == 25, "a share is a kind of its own"


FGD_MIX = expecting(MixClass(2, 1000, 500, 1, ""), MixClass(2, 2000, 1000, 1, ""))


def test_fgd_score_of_a_tiny_example():
    """Two classes, equally frequent: half a GPU with 1 CPU, and a whole one with 2.

    Node `open` has devices of 1000 and 500 free: the first class can use all, the second only the first device, so
    the fragment is ½·0 + ½·500 = 250. A half on device 0 leaves 500 + 500: the second class finds nothing,
    ½·0 + ½·1000 = 500. On device 1 it leaves 1000 + 0: no fragment. So device 1, with a gain of 250.
    """
    desk = Desk(gpu_node("open", 2, cpu=8), policy="fgd", mix=FGD_MIX)
    desk.put(pod("r", share="0.5", on="open", annotations={"windlass.dev/devices": "1"}), pod("p", share="0.5"))
    assert scores(desk, "p") == {"open": (math.floor(100 / (1 + math.exp(-0.25))), 1)}


def test_fgd_counts_gpu_that_lacks_cpu_as_fragment():
    """3 CPU beside two whole GPUs. A pod of 1 CPU and no GPU leaves both classes room; one of 2 CPU shuts the second
    class out: its half of 2000 becomes fragment, a gain of −1000."""
    desk = Desk(gpu_node("n", 2, cpu=3), policy="fgd", mix=FGD_MIX)
    desk.put(pod("small", cpu="1"), pod("large", cpu="2"))
    assert scores(desk, "small") == {"n": (50, -1)}
    assert scores(desk, "large") == {"n": (math.floor(100 / (1 + math.e)), -1)}


def test_fgd_on_a_node_of_two_models_scores_the_device_that_it_would_give():
    """The T4 in front is as free as the H100, and no reason to pass the H100 over."""
    mixed = layout_node("n", {"model": T4, "count": 1}, {"model": H100, "count": 1})
    desk = Desk(mixed, pod("p", share="0.5", models=[H100]), policy="fgd", mix=FGD_MIX)
    ((score, device),) = scores(desk, "p").values()
    assert device == 1
    assert 0 <= score <= 100
    assert desk.devices("p") == [(1, 500)]


def test_windlass_completes_a_device_rather_than_open_one():
    """With 810s and 190s about, a 190 belongs beside an 810, though a 500 would leave it room as well."""
    mix = expecting(MixClass(5, 1000, 810, 1, ""), MixClass(5, 1000, 190, 1, ""))
    desk = Desk(gpu_node("n", 3), mix=mix)
    desk.put(pod("x", share="0.5", on="n"), pod("y", share="0.81", on="n"), pod("p", share="0.19"))
    assert desk.devices("p") == [(1, 190)]


def test_windlass_keeps_cpu_beside_the_gpus_that_need_it():
    """Both nodes could take the CPU-heavy pod; on `lean` its CPU is all that the GPUs have."""
    mix = expecting(MixClass(9, 8000, 1000, 1, ""))
    desk = Desk(gpu_node("lean", 2, cpu=16), gpu_node("rich", 2, cpu=64), pod("p", cpu="8"), mix=mix)
    assert desk.run() == {"p": "rich"}


def test_windlass_saves_a_contended_model():
    """A pod that may go anywhere leaves the model alone that a class competes for, even one that was not kept."""
    free, only = MixClass(99, 1000, 1000, 1, ""), MixClass(49, 1000, 1000, 1, H100)
    nodes = [gpu_node("a-h100", 1), gpu_node("b-a100", 1, model=A100)]
    mix = WorkloadMix((free,), 148, (free, only))
    assert Desk(*nodes, pod("p", 1), mix=mix).run() == {"p": "b-a100"}
    assert Desk(*nodes, pod("p", 1), mix=expecting(free)).run() == {"p": "a-h100"}, "nobody competes"
    assert Desk(*nodes, pod("p", 1), mix=expecting(only)).run() == {"p": "b-a100"}


@pytest.mark.parametrize("policy", ["windlass", "first-fit", "pack", "spread"])
def test_cpu_pods_stay_off_gpu_nodes_while_there_is_room_elsewhere(policy):
    desk = Desk(gpu_node("a-gpu", 8, cpu=64), node("b-cpu", cpu=2), policy=policy)
    desk.put(pod("p", cpu="1"), pod("q", cpu="1"), pod("r", cpu="1"))
    assert desk.run() == {"p": "b-cpu", "q": "b-cpu", "r": "a-gpu"}


def test_published_rules_know_nothing_of_that():
    desk = Desk(gpu_node("a-gpu", 1), node("b-cpu"), pod("p"), policy="gpu-packing")
    assert desk.run() == {"p": "a-gpu"}


def test_random_is_spread_over_all_that_fit_and_over_the_devices_of_a_node():
    nodes = [gpu_node(f"n{index}", 4, cpu=64) for index in range(3)]
    nodes.append(node("no-gpu"))
    seen, devices = set(), set()
    for seed in range(40):
        (bind,) = Desk(*nodes, pod("p", share="0.5"), policy="random", seed=seed).plan().binds
        seen.add(bind.node)
        devices.add(bind.devices[0].index)
    assert seen == {"n0", "n1", "n2"}
    assert devices == {0, 1, 2, 3}


@pytest.mark.parametrize("policy", sorted(set(POLICIES) - {"windlass", "fgd", "random"}))
def test_a_share_goes_to_the_tightest_device_that_has_room(policy):
    desk = Desk(gpu_node("n", 3), policy=policy)
    desk.put(pod("a", share="0.2", on="n"), pod("b", share="0.6", on="n", annotations=on_device("1")))
    desk.put(pod("p", share="0.4"), pod("q", share="0.5"))
    (p, q) = desk.plan().binds
    assert [grant.index for grant in (*p.devices, *q.devices)] == [1, 0]


def on_device(devices):
    return {"windlass.dev/devices": devices}


def test_equal_nodes_are_taken_in_the_order_of_their_names():
    nodes = [gpu_node(name, 1) for name in ("c", "a", "b")]
    for policy in sorted(set(POLICIES) - {"random"}):
        assert Desk(*nodes, pod("p", 1), policy=policy).run() == {"p": "a"}


def test_an_unknown_policy_is_refused_with_the_list_of_known_ones():
    with pytest.raises(InputError, match=r"unknown placement policy 'best' .*windlass, fgd"):
        PlacementConfig("best")
