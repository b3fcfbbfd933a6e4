"""Compute instances through NVML: the largest that a GPU instance has, as nvidia-smi makes it."""

from __future__ import annotations

from types import SimpleNamespace

import pynvml as nv
import pytest

from windlass.node.backend import nvml, nvml_mig
from windlass.node.backend.protocol import DeviceError

ONE_SLICE, TWO_SLICES, THREE_SLICES, ONE_SLICE_WHOLE = 0, 1, 2, 7
H200 = {
    "1g.18gb": (1, {ONE_SLICE: (1, 16)}, 16),
    "1g.35gb": (1, {ONE_SLICE: (1, 16), ONE_SLICE_WHOLE: (1, 26)}, 26),
    "2g.35gb": (2, {ONE_SLICE: (1, 16), TWO_SLICES: (2, 32)}, 32),
    "3g.71gb": (3, {ONE_SLICE: (1, 16), TWO_SLICES: (2, 32), THREE_SLICES: (3, 60)}, 60),
}
"""Profile → slices, the compute instances that the driver offers (number → slices, multiprocessors), the largest."""


class Instance:
    """A GPU instance of the driver, which remembers the compute instance that is made in it."""

    def __init__(self, offered: dict[int, tuple[int, int]]) -> None:
        self.offered, self.made = offered, -1

    def profile(self, instance: object, number: int, engine: int) -> SimpleNamespace:
        if number not in self.offered:
            raise nv.NVMLError(nv.NVML_ERROR_NOT_SUPPORTED)
        slices, multiprocessors = self.offered[number]
        return SimpleNamespace(id=number, sliceCount=slices, multiprocessorCount=multiprocessors)

    def create(self, instance: object, number: int) -> None:
        self.made = number


def created(monkeypatch: pytest.MonkeyPatch, slices: int, offered: dict[int, tuple[int, int]]) -> int:
    instance = Instance(offered)
    placement = SimpleNamespace(start=0, size=1)
    monkeypatch.setattr(nvml_mig, "_size_at", lambda *arguments: placement.size)
    monkeypatch.setattr(nv, "nvmlDeviceCreateGpuInstanceWithPlacement", lambda *arguments: instance)
    monkeypatch.setattr(nv, "nvmlGpuInstanceGetComputeInstanceProfileInfo", instance.profile)
    monkeypatch.setattr(nv, "nvmlGpuInstanceCreateComputeInstance", instance.create)
    monkeypatch.setattr(nv, "nvmlGpuInstanceDestroy", lambda instance: None)
    nvml_mig.create(None, nvml_mig.Profile("x", 1, slices), 0, "x")
    return offered[instance.made][1]


@pytest.mark.parametrize("profile", H200)
def test_an_instance_gets_all_its_multiprocessors(monkeypatch: pytest.MonkeyPatch, profile: str) -> None:
    slices, offered, largest = H200[profile]
    assert created(monkeypatch, slices, offered) == largest


def test_without_one_over_all_slices_nothing_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DeviceError, match="no compute instance of 2 slices"):
        created(monkeypatch, 2, {ONE_SLICE: (1, 16)})


def test_a_profile_that_the_driver_did_not_list_at_first_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """On an H200 the list was short while another process switched MIG on: 1g.18gb+me was advertised as 1g.18gb."""
    lists = [(nvml_mig.Profile("1g.18gb", 19, 1),), (nvml_mig.Profile("1g.18gb+me", 20, 1),)]
    monkeypatch.setattr(nvml_mig, "profiles_of", lambda handle: lists.pop(0) if len(lists) > 1 else lists[0])
    backend = nvml.NvmlBackend.__new__(nvml.NvmlBackend)
    backend._profiles = {}
    assert [backend._profile_name(None, "GPU-1", number) for number in (19, 20, 20, 99)] == [
        *("1g.18gb", "1g.18gb+me", "1g.18gb+me", ""),
    ]


def test_an_instance_for_which_the_driver_fails_once_is_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = [nv.NVML_ERROR_UNKNOWN, nv.NVML_SUCCESS]

    def read(handle: object, device: object, index: int, name_of: object) -> str:
        code = answers.pop(0)
        if code:
            raise nv.NVMLError(code)
        return f"instance {index}"

    def device(handle: object, index: int) -> object:
        if index:
            raise nv.NVMLError(nv.NVML_ERROR_NOT_FOUND)
        return object()

    monkeypatch.setattr(nvml_mig, "RETRY_SECONDS", (0.0, 0.0))
    monkeypatch.setattr(nvml_mig, "_instance", read)
    monkeypatch.setattr(nv, "nvmlDeviceGetMaxMigDeviceCount", lambda handle: 7)
    monkeypatch.setattr(nv, "nvmlDeviceGetMigDeviceHandleByIndex", device)
    assert nvml_mig.instances_of(None, lambda number: "") == ("instance 0",)
