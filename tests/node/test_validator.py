"""The validator: every check with its evidence, and nothing that fails is passed over."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any

import numpy
import pytest
from tests.node.machines import machine

from windlass.node.backend.protocol import ProcessUsage
from windlass.node.backend.simulated import SimulatedBackend
from windlass.node.host_root import HostRoot
from windlass.node.validator import compute
from windlass.node.validator.checks import Check, validate
from windlass.node.validator.compute import compute_in_process
from windlass.node.validator.validated_gpus import ValidatedGpus


def failed(backend: SimulatedBackend, folder: Path, **settings: str) -> list[Check]:
    found = validate(backend, HostRoot(folder), backend.compute, **settings)
    return [check for check in found.checks if check.outcome == "fail"]


def test_a_good_node_passes_with_evidence_for_everything(tmp_path: Path) -> None:
    backend = machine(folder=tmp_path)
    found = validate(backend, HostRoot(tmp_path), backend.compute)
    assert found.passed
    assert all(check.evidence for check in found.checks)
    names = {check.name for check in found.checks}
    assert names == {
        "driver",
        "visible",
        "driver files",
        "container runtime",
        "memory",
        "nvlink",
        "row remapping",
        "throttling",
        "recovery",
        "computation",
    }


def test_a_gpu_that_others_have_for_themselves_is_not_to_be_reset(tmp_path: Path) -> None:
    """Beside an MPS client, which exclusive mode protects from everybody else."""
    backend = machine(count=1, folder=tmp_path)
    backend.set_exclusive(backend.inventory().gpus[0].uuid, True)
    backend.inject(0, processes=[ProcessUsage(pid=42)])
    found = validate(backend, HostRoot(tmp_path), backend.compute)
    (computation,) = [check for check in found.checks if check.name == "computation"]
    assert (computation.outcome, computation.remedy) == ("does not apply", "")
    assert "MPS" in computation.evidence
    assert found.passed


@pytest.mark.parametrize(
    ("facts", "name"),
    [
        ({"remap_pending": True}, "row remapping"),
        ({"remap_failure": True}, "row remapping"),
        ({"throttle": 0x40}, "throttling"),
        ({"recovery_action": 2}, "recovery"),
        ({"links_down": 1}, "nvlink"),
        ({"refuses": ["compute"]}, "computation"),
    ],
)
def test_what_is_wrong_with_a_gpu_fails_that_gpu(tmp_path: Path, facts: dict[str, object], name: str) -> None:
    backend = machine(folder=tmp_path)
    backend.inject(3, **facts)  # type: ignore[arg-type]
    (check,) = failed(backend, tmp_path)
    assert (check.name, check.gpu) == (name, 3)
    assert check.remedy
    outcome = validate(backend, HostRoot(tmp_path), backend.compute)
    assert outcome.failures(3)
    assert not outcome.failures(2)


def test_a_gpu_that_the_driver_has_lost_is_named_by_its_address(tmp_path: Path) -> None:
    backend = machine(folder=tmp_path)
    backend.inject(2, is_lost=True)
    found = {check.name: check for check in failed(backend, tmp_path)}
    assert backend.inventory().gpus[2].bus_id in found["visible"].evidence
    outcome = validate(backend, HostRoot(tmp_path), backend.compute)
    assert not outcome.failures(1), "a neighbour is still good"


def test_a_gpu_that_the_driver_never_saw(tmp_path: Path) -> None:
    backend = machine(folder=tmp_path)
    for name, text in (("vendor", "0x10de"), ("class", "0x030200"), ("numa_node", "0")):
        path = tmp_path / "sys/bus/pci/devices/0000:ff:00.0" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (check,) = failed(backend, tmp_path)
    assert "0000:ff:00.0" in check.evidence
    (tmp_path / "sys/bus/pci/devices/0000:ff:00.0/driver").symlink_to("../../../drivers/vfio-pci")
    assert failed(backend, tmp_path) == [], "a virtual machine has it"


def test_library_and_kernel_module_must_agree(tmp_path: Path) -> None:
    backend = machine(folder=tmp_path)
    (tmp_path / "proc/driver/nvidia/version").write_text("NVRM version: 570.1.1\n")
    (check,) = failed(backend, tmp_path)
    assert "570.1.1" in check.evidence


def test_the_driver_that_the_others_have(tmp_path: Path) -> None:
    backend = machine(folder=tmp_path)
    (check,) = failed(backend, tmp_path, expected_driver="595.1.1")
    assert "expected 595.1.1" in check.evidence


def test_instances_compute_too(tmp_path: Path) -> None:
    backend = machine("H200", 1, mig=("1g.18gb",) * 7, folder=tmp_path)
    found = validate(backend, HostRoot(tmp_path), backend.compute)
    assert sum(check.name == "computation" for check in found.checks) == 7


def test_the_computation_says_when_there_is_no_driver() -> None:
    """On a machine without CUDA the process answers with a reason, and doesn't fall over."""
    result = compute_in_process("GPU-nobody", seconds=30)
    assert not result.right
    assert result.error


def test_the_gate_lasts_as_long_as_the_boot(tmp_path: Path) -> None:
    path = tmp_path / "validated.json"
    ValidatedGpus(path, "boot-1").mark_passed("GPU-1")
    assert ValidatedGpus(path, "boot-1").has_passed("GPU-1")
    assert not ValidatedGpus(path, "boot-2").has_passed("GPU-1")
    path.write_text("{broken")
    assert not ValidatedGpus(path, "boot-1").has_passed("GPU-1")


class PretendedGpu:
    """The driver's calls that the computation makes, with numpy in place of a GPU."""

    def __init__(self, wrong: int = 0) -> None:
        self.wrong, self.buffers = wrong, list[bytes]()

    def kernel(self, text: str, name: str) -> str:
        return name

    def allocate(self, size: int) -> int:
        self.buffers.append(b"")
        return len(self.buffers) - 1

    def to_device(self, pointer: int, data: bytes) -> None:
        self.buffers[pointer] = data

    def launch(self, kernel: object, blocks: int, threads: int, arguments: Any) -> None:
        x, y, factor, _ = arguments
        xs, ys = (numpy.frombuffer(self.buffers[pointer], "u4") for pointer in (x, y))
        result = xs * numpy.uint32(factor.value) + ys
        result[: self.wrong] += 1
        self.buffers[y] = result.tobytes()

    def from_device(self, pointer: int, size: int) -> bytes:
        assert len(self.buffers[pointer]) == size
        return self.buffers[pointer]

    def wait(self) -> None: ...

    def free(self, pointer: int) -> None: ...

    def name(self) -> str:
        return "NVIDIA H200"

    def multiprocessors(self) -> int:
        return 132

    def memory(self) -> tuple[int, int]:
        return 1 << 30, 1 << 31


@pytest.mark.parametrize("wrong", [0, 3])
def test_every_number_is_compared_and_none_is_kept_as_an_object(monkeypatch: pytest.MonkeyPatch, wrong: int) -> None:
    """Memory of the computation counts against the agent's limit: tens of bytes a number, not hundreds."""
    count = 1 << 15
    monkeypatch.setattr(compute, "COUNT", count)
    gpu: Any = PretendedGpu(wrong)
    tracemalloc.start()
    try:
        result = compute.compute(gpu)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (result.right, result.error) == (not wrong, f"3 of {count} numbers are wrong" if wrong else "")
    assert peak / count < 60
