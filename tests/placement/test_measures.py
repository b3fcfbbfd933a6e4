"""How well a park is used, on parks small enough to count by hand."""

from __future__ import annotations

from reference.park import A100, H100, Desk, gpu_node, node, pod
from windlass.placement.measures import stranded, usage
from windlass.placement.mix import MixClass, WorkloadMix

HALF, WHOLE = MixClass(1, 1000, 500, 1, ""), MixClass(1, 2000, 1000, 1, "")
HALVES_AND_WHOLES = WorkloadMix((HALF, WHOLE), 2)


def causes(found):
    return {cause: amount for cause, amount in found.causes.items() if amount}


def test_an_empty_park_is_all_usable():
    found = usage(Desk(gpu_node("n", 2), node("cpu")).store.snapshot(), HALVES_AND_WHOLES)
    assert (found.total_milli, found.allocated_milli, found.fragment_milli) == (2000, 0, 0)
    assert causes(found) == {"usable": 2000}


def test_what_one_class_cant_use_is_its_share_of_a_fragment():
    """700 free: the halves use it; to the wholes, half of the mix, it is a fragment."""
    desk = Desk(gpu_node("n", 1), pod("x", share="0.3", on="n"))
    found = usage(desk.store.snapshot(), HALVES_AND_WHOLES)
    assert causes(found) == {"usable": 350, "lack_gpu": 350}
    assert (found.allocated_milli, found.fragment_milli) == (300, 350)


def test_gpu_without_cpu_is_a_fragment_to_those_who_need_more():
    """1 CPU left: enough for halves. None left: for nobody."""
    desk = Desk(gpu_node("n", 1, cpu=1))
    assert causes(usage(desk.store.snapshot(), HALVES_AND_WHOLES)) == {"usable": 500, "lack_cpu": 500}
    desk.put(pod("x", cpu="1", on="n"), pod("y", cpu="0", share="0.3", on="n"))
    found = usage(desk.store.snapshot(), HALVES_AND_WHOLES)
    assert causes(found) == {"lack_cpu": 350, "lack_both": 350}


def test_classes_without_gpus_and_other_models_count_all_as_fragment():
    mix = WorkloadMix((MixClass(2, 1000, 0, 0, ""), MixClass(1, 1000, 500, 1, A100), HALF), 4)
    assert causes(usage(Desk(gpu_node("n", 1)).store.snapshot(), mix)) == {
        "cpu_only": 500,
        "wrong_model": 250,
        "usable": 250,
    }


def test_unhealthy_devices_are_no_part_of_the_park():
    found = usage(Desk(gpu_node("n", 4, ill=1)).store.snapshot(), HALVES_AND_WHOLES)
    assert (found.total_milli, found.free_milli) == (3000, 3000)


def test_stranded_gpu_is_blamed_on_the_first_thing_that_leaves_no_class_standing():
    desk = Desk(
        gpu_node("fine", 1),
        gpu_node("model", 1, model=A100),
        gpu_node("crumbs", 1),
        gpu_node("starved", 2, cpu=1),
        pod("x", share="0.8", on="crumbs"),
        pod("y", cpu="500m", on="starved"),
    )
    mix = WorkloadMix((MixClass(1, 1000, 500, 1, H100),), 1)
    assert stranded(desk.store.snapshot(), mix) == {
        "wrong_model": 1000,
        "too_small": 200,
        "no_cpu": 2000,
        "no_memory": 0,
    }
    assert stranded(desk.store.snapshot(), WorkloadMix()) == dict.fromkeys(
        ("no_cpu", "no_memory", "too_small", "wrong_model"), 0
    )
