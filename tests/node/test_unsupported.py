"""WSL, Tegra and GPUs of virtual machines are refused by name, not as a driver that is missing."""

from __future__ import annotations

from pathlib import Path

import pytest

from windlass.node.agent import AgentOptions, make_backend
from windlass.node.backend.protocol import DeviceError
from windlass.node.host_root import HostRoot
from windlass.node.unsupported import unsupported_machine


def add(root: Path, path: str, text: str = "") -> Path:
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file


def add_gpu(root: Path, bus_id: str, driver: str) -> None:
    folder = f"sys/bus/pci/devices/{bus_id}"
    add(root, f"{folder}/vendor", "0x10de")
    add(root, f"{folder}/class", "0x030200")
    (root / folder / "driver").symlink_to(f"../../../../bus/pci/drivers/{driver}")


@pytest.mark.parametrize(
    ("file", "text", "told"),
    [
        ("dev/dxg", "", "WSL"),
        ("sys/devices/soc0/family", "Tegra\n", "Tegra"),
        ("etc/nv_tegra_release", "# R36", "Tegra"),
    ],
)
def test_is_refused_by_name(tmp_path: Path, file: str, text: str, told: str) -> None:
    assert unsupported_machine(HostRoot(tmp_path)) == ""
    add(tmp_path, file, text)
    assert told in unsupported_machine(HostRoot(tmp_path))
    with pytest.raises(DeviceError, match=told):
        make_backend(AgentOptions(root=tmp_path))
    add(tmp_path, "dev/nvidiactl")
    assert unsupported_machine(HostRoot(tmp_path)) == "", "a driver serves GPUs there"


def test_gpus_of_virtual_machines(tmp_path: Path) -> None:
    add_gpu(tmp_path, "0000:18:00.0", "vfio-pci")
    assert "0000:18:00.0 by vfio-pci" in unsupported_machine(HostRoot(tmp_path))
    add_gpu(tmp_path, "0000:3b:00.0", "nvidia")
    assert unsupported_machine(HostRoot(tmp_path)) == "", "the other one is the node's own"
