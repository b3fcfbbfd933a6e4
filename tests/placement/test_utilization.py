"""Utilization, fragmentation and stranded GPUs, on clusters small enough to count by hand."""

from __future__ import annotations

import msgspec
import pytest

from reference.kernel_nodes import any_machine, draws, mix_rows, node_state
from reference.park import A100, H100, UNHEALTHY, Desk, gpu_node, layout_node, mig_node, node, pod
from windlass import jit
from windlass.placement.utilization import GpuUtilization, StrandedGpus, allocated_milli, measure_utilization
from windlass.placement.workload_mix import MixClass, WorkloadMix, mix_arrays

L40S = "NVIDIA-L40S"
HALF, WHOLE = MixClass(1, 1000, 500, 1, ""), MixClass(1, 2000, 1000, 1, "")
HALVES_AND_WHOLES = WorkloadMix((HALF, WHOLE), 2)


@pytest.fixture(autouse=True)
def _interpreted(monkeypatch):
    """These clusters are tiny: loading the compiled kernels would take longer than all tests."""
    monkeypatch.setattr(jit, "compiled", jit.interpreted)


def causes(found):
    return {cause: amount for cause, amount in found.causes.items() if amount}


def test_an_empty_park_is_all_usable():
    found = measure_utilization(Desk(gpu_node("n", 2), node("cpu")).store.snapshot(), HALVES_AND_WHOLES)
    assert (found.total_milli, found.allocated_milli, found.fragment_milli) == (2000, 0, 0)
    assert causes(found) == {"usable": 2000}


def test_what_one_class_cant_use_is_its_share_of_a_fragment():
    """700 free: the halves use it; to the wholes, half of the mix, it is a fragment."""
    desk = Desk(gpu_node("n", 1), pod("x", share="0.3", on="n"))
    found = measure_utilization(desk.store.snapshot(), HALVES_AND_WHOLES)
    assert causes(found) == {"usable": 350, "lack_gpu": 350}
    assert (found.allocated_milli, found.fragment_milli) == (300, 350)


def test_gpu_without_cpu_is_a_fragment_to_those_who_need_more():
    """1 CPU left is enough for the class of halves; 0 CPUs for no class."""
    desk = Desk(gpu_node("n", 1, cpu=1))
    assert causes(measure_utilization(desk.store.snapshot(), HALVES_AND_WHOLES)) == {
        "usable": 500,
        "lack_cpu": 500,
    }
    desk.put(pod("x", cpu="1", on="n"), pod("y", cpu="0", share="0.3", on="n"))
    found = measure_utilization(desk.store.snapshot(), HALVES_AND_WHOLES)
    assert causes(found) == {"lack_cpu": 350, "lack_both": 350}


def test_classes_without_gpus_and_other_models_count_all_as_fragment():
    mix = WorkloadMix((MixClass(2, 1000, 0, 0, ""), MixClass(1, 1000, 500, 1, A100), HALF), 4)
    assert causes(measure_utilization(Desk(gpu_node("n", 1)).store.snapshot(), mix)) == {
        "cpu_only": 500,
        "wrong_model": 250,
        "usable": 250,
    }


def test_unhealthy_devices_are_no_part_of_the_park():
    found = measure_utilization(Desk(gpu_node("n", 4, ill=1)).store.snapshot(), HALVES_AND_WHOLES)
    assert (found.total_milli, found.free_milli) == (3000, 3000)


def test_an_unhealthy_gpu_in_use_takes_nothing_from_what_is_free():
    desk = Desk(gpu_node("n", 2), pod("x", gpus=1, on="n"), pod("y", gpus=1, on="n"))
    desk.put(gpu_node("n", 2, ill=1))
    found = measure_utilization(desk.store.snapshot(), HALVES_AND_WHOLES)
    assert (found.total_milli, found.free_milli) == (1000, 0)


def test_gpus_that_mig_cuts_as_asked_are_free_by_their_slices():
    desk = Desk(mig_node("n", 2))
    found = measure_utilization(desk.store.snapshot(), HALVES_AND_WHOLES)
    assert (found.total_milli, found.free_milli, found.allocated_milli) == (2000, 2000, 0)
    desk.put(pod("x", mig=("3g.40gb", 1)))
    assert desk.run() == {"x": "n"}
    assert measure_utilization(desk.store.snapshot(), HALVES_AND_WHOLES).allocated_milli == 500


def test_gpus_that_are_cut_already_are_free_by_their_parts():
    """One H100 in a half and three eighths, an L40S with four replicas, and a node that can't be understood."""
    mixed = {"nvidia.com/gpu.product": H100, "nvidia.com/gpu.count": "1", "nvidia.com/mig.strategy": "mixed"}
    parts = {"nvidia.com/mig-3g.40gb": 1, "nvidia.com/mig-1g.10gb": 3}
    shared = {
        "nvidia.com/gpu.product": f"{L40S}-SHARED",
        "nvidia.com/gpu.count": "1",
        "nvidia.com/gpu.replicas": "4",
        "nvidia.com/gpu.sharing-strategy": "time-slicing",
    }
    desk = Desk(node("cut", labels=mixed, **parts), node("shared", labels=shared, **{"nvidia.com/gpu.shared": 4}))
    assert measure_utilization(desk.store.snapshot(), HALVES_AND_WHOLES).free_milli == 2000
    desk.put(
        pod("x", asks={"nvidia.com/mig-3g.40gb": "1"}, on="cut"),
        pod("y", asks={"nvidia.com/gpu.shared": "1"}, on="shared"),
    )
    found = measure_utilization(desk.store.snapshot(), HALVES_AND_WHOLES)
    assert found.free_milli == 1000 * 3 // 7 + 750
    desk.put(node("cut", labels={**mixed, "nvidia.com/gpu.count": "one"}, **parts))
    assert measure_utilization(desk.store.snapshot(), HALVES_AND_WHOLES).free_milli == 750


def stranded(desk, mix, smallest_memory=0):
    snapshot = desk.store.snapshot()
    return StrandedGpus(mix_arrays(mix, snapshot.gpu_models, snapshot.node_state), smallest_memory).by_reason(snapshot)


def test_gpu_is_stranded_where_the_least_of_all_classes_finds_no_memory():
    desk = Desk(gpu_node("poor", 2), gpu_node("fine", 1), pod("x", cpu="0", asks={"memory": "63Gi"}, on="poor"))
    assert stranded(desk, HALVES_AND_WHOLES, 1 << 30)["no_memory"] == 0
    assert stranded(desk, HALVES_AND_WHOLES, 2 << 30) == {
        "no_cpu": 0,
        "no_memory": 2000,
        "too_small": 0,
        "wrong_model": 0,
    }


def test_a_class_that_needs_less_cpu_but_more_gpu_does_not_help_a_small_rest():
    """300 free and one CPU: the share that would fit wants two CPUs, what is content with one wants a whole GPU."""
    desk = Desk(gpu_node("n", 1, cpu=1), pod("x", cpu="0", share="0.7", on="n"))
    mix = WorkloadMix((MixClass(1, 2000, 300, 1, ""), MixClass(1, 500, 1000, 1, "")), 2)
    assert stranded(desk, mix) == {"no_cpu": 300, "no_memory": 0, "too_small": 0, "wrong_model": 0}


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
    assert stranded(desk, mix) == {
        "wrong_model": 1000,
        "too_small": 200,
        "no_cpu": 2000,
        "no_memory": 0,
    }
    assert stranded(desk, WorkloadMix()) == dict.fromkeys(("no_cpu", "no_memory", "too_small", "wrong_model"), 0)


def test_all_but_what_is_usable_is_fragment():
    found = GpuUtilization(5000, 3000, {"usable": 1800, "lack_cpu": 500, "lack_gpu": 700})
    assert (found.allocated_milli, found.fragment_milli) == (2000, 1200)


def test_gpus_on_demand_count_by_the_slices_of_their_own_geometry():
    """An A30 has four slices, an H100 eight; the media engines are no slice."""
    a30 = layout_node("a", {"model": "NVIDIA-A30", "count": 1, "mig": "dynamic"})
    desk = Desk(a30, mig_node("h", 1), pod("x", mig=("1g.6gb", 1)), pod("y", mig=("1g.10gb.me", 1)))
    assert allocated_milli(desk.store.snapshot()) == 0
    assert desk.run() == {"x": "a", "y": "h"}
    assert allocated_milli(desk.store.snapshot()) == 250 + 125
    assert measure_utilization(desk.store.snapshot(), HALVES_AND_WHOLES).free_milli == 750 + 875


def cut_node(gpus=1, **parts):
    labels = {"nvidia.com/gpu.product": H100, "nvidia.com/gpu.count": str(gpus), "nvidia.com/mig.strategy": "mixed"}
    return node("cut", labels=labels, **parts)


def free_milli(*objects):
    return measure_utilization(Desk(*objects).store.snapshot(), HALVES_AND_WHOLES).free_milli


def test_instances_of_a_fixed_layout_weigh_as_much_as_their_memory():
    parts = {"nvidia.com/mig-3g.40gb": 1, "nvidia.com/mig-1g.10gb": 4}
    cut = cut_node(**parts)
    assert free_milli(cut) == 1000
    assert free_milli(cut, pod("x", asks={"nvidia.com/mig-3g.40gb": "1"}, on="cut")) == 500
    assert free_milli(cut, pod("x", asks={"nvidia.com/mig-1g.10gb": "3"}, on="cut")) == 625
    # More in use than there are: the others are no less free for it.
    assert free_milli(cut, pod("x", asks={"nvidia.com/mig-1g.10gb": "9"}, on="cut")) == 500
    twice = cut_node(2, **{"nvidia.com/mig-3g.40gb": 2, "nvidia.com/mig-1g.10gb": 8})
    assert free_milli(twice, pod("x", asks={"nvidia.com/mig-3g.40gb": "1"}, on="cut")) == 1500
    assert free_milli(cut, node("none")) == 1000


def test_only_the_healthy_gpus_that_are_cut_count_by_their_parts():
    groups = ({"model": H100, "count": 1}, {"model": H100, "count": 2, "mig": "static"})
    parts = {"nvidia.com/mig-3g.40gb": 4}
    assert free_milli(layout_node("n", *groups, **parts)) == 3000
    assert free_milli(layout_node("n", *groups, annotations={UNHEALTHY: "1"}, **parts)) == 2000


def test_resources_that_are_no_profile_count_by_the_unit():
    odd = cut_node(**{"nvidia.com/mig-odd": 4, "nvidia.com/mig-3g.40gb": 1})
    assert free_milli(odd, pod("x", asks={"nvidia.com/mig-3g.40gb": "1"}, on="cut")) == 500
    # A profile of another GPU, as well.
    other = cut_node(**{"nvidia.com/mig-1g.6gb": 4, "nvidia.com/mig-3g.40gb": 1})
    assert free_milli(other, pod("x", asks={"nvidia.com/mig-1g.6gb": "2"}, on="cut")) == 1000 * 6 // 8


def test_stranded_gpu_is_that_of_the_devices_which_no_class_can_use():
    empty = Desk(node("n")).store.snapshot()
    for random in draws(200):
        found = [any_machine(random) for _ in range(4)]
        classes = [
            (
                1,
                random.choice((0, 1, 2, 1000, 4000)),
                random.choice((0, 1, 2)),
                random.choice((99, 100, 250, 1000)),
                random.choice((7, 1, 2, 4)),
            )
            for _ in range(random.randint(1, 3))
        ]
        memory = random.choice((0, 1, 2, 1000))
        expected = dict.fromkeys(("no_cpu", "no_memory", "too_small", "wrong_model"), 0)
        gpu_classes = [(cpu, milli, models) for _, cpu, gpus, milli, models in classes if gpus]
        for machine in found if gpu_classes else ():
            for device in machine.devices:
                if device.free <= 0:
                    continue
                right = [(cpu, milli) for cpu, milli, models in gpu_classes if models >> device.model & 1]
                small = [cpu for cpu, milli in right if milli <= device.free]
                if not right:
                    expected["wrong_model"] += device.free
                elif not small:
                    expected["too_small"] += device.free
                elif machine.free[0] < min(small):
                    expected["no_cpu"] += device.free
                elif machine.free[1] < memory:
                    expected["no_memory"] += device.free
        snapshot = msgspec.structs.replace(empty, node_state=node_state(found))
        assert StrandedGpus(mix_rows(*classes), memory).by_reason(snapshot) == expected
