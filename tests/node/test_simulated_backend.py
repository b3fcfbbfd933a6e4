"""The simulated machine: true MIG arithmetic, readings as functions of time, one state for several processes."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.node.machines import machine
from tests.sharing.layouts import profiles_of

from windlass.model.fleet_spec import FleetGpus, FleetPool
from windlass.node.backend.protocol import DeviceError, ProcessUsage
from windlass.node.backend.simulated import SimulatedBackend
from windlass.node.host_root import HostRoot
from windlass.sharing.mig import profile_name
from windlass.sharing.mig_sizes import instance_memory_mib

MODELS = (
    *("A100-40", "A100-80", "A30", "H100", "H200", "B200", "L40S", "T4"),
    *("GH200-144", "GB200", "B300", "GB300"),
)


@pytest.mark.parametrize("model", MODELS)
def test_every_model_is_a_machine(model: str) -> None:
    inventory = machine(model, 16).inventory()
    assert len({gpu.uuid for gpu in inventory.gpus}) == 16
    assert len({gpu.bus_id for gpu in inventory.gpus}) == 16
    assert all(gpu.mig_capable == bool(profiles_of(model)) for gpu in inventory.gpus)
    assert machine(model, 1).reading(machine(model, 1).inventory().gpus[0].uuid)


@pytest.mark.parametrize("model", [model for model in MODELS if profiles_of(model)])
def test_sizes_give_the_names_that_the_driver_would(model: str) -> None:
    (gpu,) = machine(model, 1).inventory().gpus
    assert gpu.geometry is not None
    for profile in gpu.geometry.profiles:
        size = instance_memory_mib(gpu.geometry, profile, gpu.memory_mib)
        name = profile_name(profile.compute_slices, size, gpu.memory_mib, media=profile.media)
        if model != "A30":  # whose names count in quarters
            assert name == profile.name


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 7)), max_size=12))
def test_instances_never_overlap(attempts: list[tuple[int, int]]) -> None:
    backend = machine("H200", 1, mig=())
    gpu = backend.inventory().gpus[0]
    backend.set_mig_mode(gpu.uuid, True)
    profiles = profiles_of("H200")
    for which, start in attempts:
        with contextlib.suppress(DeviceError):
            backend.create_instance(gpu.uuid, profiles[which].name, start)
    taken: list[int] = []
    for instance in backend.inventory().gpus[0].instances:
        taken += range(instance.start, instance.start + instance.size)
    assert len(taken) == len(set(taken))


class TestReadings:
    def test_the_same_time_gives_the_same_reading(self) -> None:
        for now in (0.0, 1e9):
            first, second = machine(count=2, clock=lambda n=now: n), machine(count=2, clock=lambda n=now: n)
            uuid = first.inventory().gpus[1].uuid
            assert first.reading(uuid) == second.reading(uuid)

    def test_load_is_hot_and_hungry(self) -> None:
        backend = machine("H200", 2)
        idle, busy = (gpu.uuid for gpu in backend.inventory().gpus)
        backend.inject(0, load=0.0)
        backend.inject(1, load=1.0)
        for name in (
            "DCGM_FI_DEV_GPU_TEMP",
            "DCGM_FI_DEV_POWER_USAGE",
            "DCGM_FI_DEV_SM_CLOCK",
            "DCGM_FI_DEV_GPU_UTIL",
        ):
            assert backend.reading(idle)[name] < backend.reading(busy)[name]

    def test_a_lost_gpu_says_nothing(self) -> None:
        backend = machine(count=1)
        backend.inject(0, is_lost=True)
        assert backend.reading(backend.inventory().gpus[0].uuid) == {}

    def test_memory_adds_up(self) -> None:
        backend = machine("H200", 1)
        backend.inject(0, processes=[ProcessUsage(pid=1, memory_mib=1000)])
        reading = backend.reading(backend.inventory().gpus[0].uuid)
        parts = ("DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_FB_FREE", "DCGM_FI_DEV_FB_RESERVED")
        assert sum(reading[name] for name in parts) == reading["DCGM_FI_DEV_FB_TOTAL"]


class TestShared:
    def test_two_processes_see_one_machine(self, tmp_path: Path) -> None:
        first, second = machine(folder=tmp_path), machine(folder=tmp_path)
        uuid = first.inventory().gpus[0].uuid
        first.set_mig_mode(uuid, True)
        first.create_instance(uuid, "1g.10gb", 0)
        assert second.inventory() == first.inventory()

    def test_each_hears_of_every_fault_once(self, tmp_path: Path) -> None:
        first, second = machine(folder=tmp_path), machine(folder=tmp_path)
        first.inject(0, 31)
        assert [fault.xid for fault in second.wait_for_faults(0)] == [31]
        assert [fault.xid for fault in first.wait_for_faults(0)] == [31]
        assert first.wait_for_faults(0) == ()

    def test_a_later_start_finds_the_machine_as_it_was_left(self, tmp_path: Path) -> None:
        machine("H200", 1, folder=tmp_path).inject(0, is_lost=True)
        assert machine("H200", 1, folder=tmp_path).inventory().gpus[0].is_lost

    def test_capabilities_come_and_go_with_instances(self, tmp_path: Path) -> None:
        backend = machine("H200", 1, mig=("1g.18gb", "1g.18gb"), folder=tmp_path)
        root = HostRoot(tmp_path)
        gone = backend.inventory().gpus[0].instances[0]
        assert root.capability_minor(0, gone.gpu_instance, 0) > 0
        backend.destroy_instance(backend.inventory().gpus[0].uuid, gone.gpu_instance)
        assert root.capability_minor(0, gone.gpu_instance, 0) == -1
        assert len(list((tmp_path / "dev/nvidia-caps").iterdir())) == 2


class TestWiring:
    def test_a_board_is_behind_a_switch(self) -> None:
        inventory = machine("H100", 8).inventory()
        assert set(inventory.islands()) == {0}
        assert all(gpu.switch_links == 18 for gpu in inventory.gpus)

    def test_islands_are_linked_inside_and_not_between(self) -> None:
        inventory = machine("H100", 8, islands=2).inventory()
        assert inventory.islands() == (0, 0, 0, 0, 4, 4, 4, 4)

    def test_several_models_in_one_node(self) -> None:
        groups = (FleetGpus(model="H100", count=2), FleetGpus(model="T4", count=2))
        inventory = SimulatedBackend(FleetPool(name="mixed", gpus=groups)).inventory()
        assert [gpu.name for gpu in inventory.gpus][::2] == ["NVIDIA H100 80GB HBM3", "Tesla T4"]
        assert inventory.islands() == (0, 0, 2, 3)


@pytest.mark.parametrize(("profile", "count"), [("1g.18gb", 16), ("1g.35gb", 26), ("2g.35gb", 32), ("3g.71gb", 60)])
def test_instances_have_the_multiprocessors_of_the_largest_compute_instance(profile: str, count: int) -> None:
    backend = machine("H200", count=1, mig=(profile,))
    assert backend.inventory().gpus[0].instances[0].multiprocessors == count
