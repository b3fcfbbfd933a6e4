"""NVML is opened and closed as the agent needs it, and one lost GPU does not end the watching of the others."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pynvml as nv
import pytest
from tests.sharing.gpus import gpu

from windlass.node.backend import nvml, nvml_reading
from windlass.node.backend.protocol import DeviceError, DriverChanged
from windlass.node.host_root import HostRoot

VERSION = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.159.04  x"


class Driver:
    """NVML with two GPUs of which one may be lost, as far as opening, closing and events go."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.open, self.lost = 0, False
        self.module = VERSION
        self.sets: list[list[int]] = []
        self.xid = 0
        self.resets: list[int] = []
        for name in ("Init", "Shutdown", "EventSetCreate", "EventSetFree", "EventSetWait_v2", "DeviceGetCount"):
            monkeypatch.setattr(nv, f"nvml{name}", getattr(self, name))
        monkeypatch.setattr(nv, "nvmlDeviceGetHandleByIndex", self.handle)
        monkeypatch.setattr(nv, "nvmlDeviceGetSupportedEventTypes", lambda handle: nv.nvmlEventTypeXidCriticalError)
        monkeypatch.setattr(nv, "nvmlDeviceRegisterEvents", lambda handle, types, events: events.append(handle))
        monkeypatch.setattr(nv, "nvmlDeviceGetUUID", lambda handle: f"GPU-{handle}")
        monkeypatch.setattr(nvml, "nvidia_smi", lambda *arguments: self.resets.append(self.open))

    def root(self) -> HostRoot:
        root = HostRoot("/nowhere")
        root.read = lambda path: self.module  # type: ignore[method-assign]
        return root

    def Init(self) -> None:
        self.open += 1

    def Shutdown(self) -> None:
        self.open -= 1

    def DeviceGetCount(self) -> int:
        return 2

    def handle(self, index: int) -> int:
        if index == 0 and self.lost:
            raise nv.NVMLError(nv.NVML_ERROR_GPU_IS_LOST)
        return index

    def EventSetCreate(self) -> list[int]:
        self.sets.append([])
        return self.sets[-1]

    def EventSetFree(self, events: list[int]) -> None:
        events.clear()

    def EventSetWait_v2(self, events: list[int], milliseconds: int) -> Any:
        if self.lost and 0 in events:
            raise nv.NVMLError(nv.NVML_ERROR_GPU_IS_LOST)
        if not self.xid:
            raise nv.NVMLError(nv.NVML_ERROR_TIMEOUT)
        number, self.xid = self.xid, 0
        whole = nvml.NO_GPU_INSTANCE
        kind = nv.nvmlEventTypeXidCriticalError
        return SimpleNamespace(
            device=events[-1], eventType=kind, eventData=number, gpuInstanceId=whole, computeInstanceId=whole
        )


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Driver:
    return Driver(monkeypatch)


def test_a_released_driver_is_closed_and_opened_again(driver: Driver) -> None:
    backend = nvml.NvmlBackend(driver.root())
    backend.wait_for_faults(0)
    backend.release()
    backend.release()
    assert driver.open == 0
    assert driver.sets == [[]], "the events are freed too"
    with pytest.raises(DeviceError, match="let go"):
        backend.inventory()
    assert backend.wait_for_faults(0) == ()
    backend.acquire()
    driver.xid = 79
    assert [fault.xid for fault in backend.wait_for_faults(0)] == [79]
    assert driver.open == 1


def test_samples_of_the_counters_do_not_outlive_the_driver(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    """NVML is opened again for every new MIG layout."""
    samples, used = iter("abc"), []
    supported = SimpleNamespace(isSupportedDevice=True)
    freed: list[tuple[str, int]] = []
    monkeypatch.setattr(nv, "nvmlDeviceGetHandleByUUID", lambda uuid: 0)
    monkeypatch.setattr(nv, "nvmlGpmQueryDeviceSupport", lambda handle: supported)
    monkeypatch.setattr(nv, "nvmlGpmSampleAlloc", lambda: next(samples))
    monkeypatch.setattr(nv, "nvmlGpmSampleGet", lambda handle, sample: None)
    monkeypatch.setattr(nv, "nvmlGpmSampleFree", lambda sample: freed.append((sample, driver.open)))
    monkeypatch.setattr(nvml_reading, "_gpm_values", lambda before, after: used.append((before, after)) or ())
    monkeypatch.setattr(nvml_reading, "_SOURCES", ())
    monkeypatch.setattr(nvml_reading, "_calls", dict)
    backend = nvml.NvmlBackend(driver.root())
    backend.reading("GPU-0")
    backend.reading("GPU-0")
    backend.release()
    assert freed == [("a", 1), ("b", 1)], "while it was open"
    backend.acquire()
    backend.reading("GPU-0")
    assert used == [("a", "b")]


def test_a_reset_finds_nobody_at_the_driver(driver: Driver) -> None:
    backend = nvml.NvmlBackend(driver.root())
    backend.reset("GPU-0")
    assert driver.resets == [0]
    assert driver.open == 1


def test_another_driver_asks_for_another_process(driver: Driver) -> None:
    backend = nvml.NvmlBackend(driver.root())
    driver.module = VERSION.replace("580", "590")
    with pytest.raises(DriverChanged, match=r"580.159.04 to 590.159.04"):
        backend.inventory()
    assert driver.open == 0


def test_an_unloaded_driver_is_let_go(driver: Driver) -> None:
    backend = nvml.NvmlBackend(driver.root())
    driver.module = ""
    with pytest.raises(DeviceError, match="unloaded"):
        backend.inventory()
    assert driver.open == 0


def test_after_a_lost_gpu_the_others_are_heard(driver: Driver) -> None:
    backend = nvml.NvmlBackend(driver.root())
    assert backend.wait_for_faults(0) == ()
    driver.lost = True
    with pytest.raises(DeviceError):
        backend.wait_for_faults(0)
    driver.xid = 48
    assert [(fault.uuid, fault.xid) for fault in backend.wait_for_faults(0)] == [("GPU-1", 48)]


def test_a_gpu_that_is_back_is_heard_again(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nv, "nvmlSystemGetCudaDriverVersion_v2", lambda: 13000)
    monkeypatch.setattr(nv, "nvmlSystemGetDriverVersion", lambda: VERSION)
    monkeypatch.setattr(nvml.NvmlBackend, "_describe", lambda self, index, handle: gpu("H200", index))
    driver.lost = True
    backend = nvml.NvmlBackend(driver.root())
    backend.inventory()
    assert backend.wait_for_faults(0) == ()
    assert driver.sets == [[1]]
    driver.lost = False
    backend.inventory()
    assert backend.wait_for_faults(0) == ()
    assert driver.sets[-1] == [0, 1]
