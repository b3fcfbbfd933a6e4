"""The agent's own driver on a bare container runtime: NVML and programs from the host's mounted file system."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.node import driver_layouts as layouts
from tests.node.driver_layouts import LAYOUTS, VERSION

from windlass.node.agent import AgentOptions
from windlass.node.backend.protocol import DeviceError
from windlass.node.driver_files import find_driver
from windlass.node.driver_libraries import kernel_module_version, link_driver, use_mounted_driver
from windlass.node.host_root import HostRoot

MODULE = f"NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  {VERSION}  Release Build  (root@x)  Mon Jun"


class MountedHost(HostRoot):
    """A host whose files are in a folder, with a kernel module."""

    def __init__(self, folder: Path, module: str = MODULE) -> None:
        super().__init__("/", files=folder)
        self._module = module

    def read(self, host_path: str) -> str:
        return self._module if host_path == "/proc/driver/nvidia/version" else super().read(host_path)


def build_nvml(file: Path, soname: str = "libnvidia-ml.so.1") -> None:
    file.unlink()
    source = "int nvmlMade(void) { return 42; }"
    command = ["gcc", "-shared", "-nostdlib", f"-Wl,-soname,{soname}", "-o", str(file), "-x", "c", "-"]
    subprocess.run(command, input=source, text=True, check=True)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_links_name_every_library_as_programs_do(tmp_path: Path, layout: str) -> None:
    LAYOUTS[layout](tmp_path / "host")
    link_driver(find_driver(HostRoot("/", files=tmp_path / "host"), VERSION), tmp_path / "driver")
    for name in ("libcuda.so", "libcuda.so.1", f"libcuda.so.{VERSION}", "libnvidia-ptxjitcompiler.so.1"):
        assert (tmp_path / "driver/lib" / name).resolve().is_file()
    assert (tmp_path / "driver/bin/nvidia-smi").exists()
    names = {path.name.partition(".so")[0] for path in (tmp_path / "driver/lib").iterdir()}
    assert names == {*layouts.LIBRARIES, "nvidia-drm_gbm"}, "nothing but the driver's, and no libc"


def test_nvml_is_loaded_from_the_mounted_host(tmp_path: Path) -> None:
    """In a process of its own: what was loaded stays loaded."""
    layouts.driver_container(tmp_path / "host")
    build_nvml(tmp_path / "host" / layouts.CONTAINER / layouts.DEBIAN / f"libnvidia-ml.so.{VERSION}")
    program = f"""
import ctypes, os
from pathlib import Path
from tests.node.test_driver_libraries import MountedHost
from windlass.node.driver_libraries import use_mounted_driver
print(use_mounted_driver(MountedHost(Path({str(tmp_path / "host")!r})), Path({str(tmp_path / "driver")!r})))
print(ctypes.CDLL("libnvidia-ml.so.1").nvmlMade(), os.environ["LD_LIBRARY_PATH"], os.environ["PATH"].split(":")[0])
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    lib, bin_folder = tmp_path / "driver/lib", tmp_path / "driver/bin"
    assert done.stdout == f"/run/nvidia/driver\n42 {lib} {bin_folder}\n", done.stderr


def test_the_agent_can_load_every_library_of_the_driver_by_its_name(tmp_path: Path) -> None:
    """NVML does, to ask CUDA for its version: on an H200 it answered "Not Found" for ever in the shipped pod."""
    layouts.driver_container(tmp_path / "host")
    folder = tmp_path / "host" / layouts.CONTAINER / layouts.DEBIAN
    for name in ("libnvidia-ml", "libcuda"):
        build_nvml(folder / f"{name}.so.{VERSION}", f"{name}.so.1")
    program = f"""
import contextlib, ctypes
from pathlib import Path
from windlass.node import agent
from windlass.node.backend.protocol import DeviceError
from windlass.node.host_root import HostRoot
HostRoot.read = lambda self, path: {MODULE!r}
with contextlib.suppress(DeviceError):  # it is no NVML, after all
    agent.make_backend(agent.AgentOptions(state=Path({str(tmp_path)!r})))
print(ctypes.CDLL("libcuda.so.1").nvmlMade())
"""
    environment = {**os.environ, "HOST_ROOT": str(tmp_path / "host")}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, timeout=60)
    assert done.stdout == "42\n", done.stderr


def test_nothing_is_done_where_the_process_is_on_the_host() -> None:
    environment: dict[str, str] = {}
    assert use_mounted_driver(HostRoot(), Path("/nowhere"), environment) == ""
    assert environment == {}


def test_what_is_missing_is_said(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="libnvidia-ml"):
        ctypes.CDLL("libnvidia-ml.so.1")  # else the next lines would prove nothing
    with pytest.raises(DeviceError, match="not loaded"):
        use_mounted_driver(MountedHost(tmp_path, module=""), tmp_path)
    with pytest.raises(DeviceError, match=r"libcuda.so.580.159.04 is in none of"):
        use_mounted_driver(MountedHost(tmp_path), tmp_path)


@pytest.mark.parametrize(
    ("text", "version"),
    [
        (MODULE, VERSION),
        ("NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.54.03  Tue Jun  6 22:20:39 UTC 2023", "535.54.03"),
        ("NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.159.04", VERSION),
        ("", ""),
    ],
)
def test_the_modules_version_is_read_in_every_form(tmp_path: Path, text: str, version: str) -> None:
    assert kernel_module_version(MountedHost(tmp_path, text)) == version


def test_the_hosts_files_are_where_a_variable_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def sees(root: str = "/") -> Path:
        return AgentOptions(root=Path(root)).host.host_file("/etc/x")

    assert sees() == Path("/etc/x")
    monkeypatch.setenv("HOST_ROOT", str(tmp_path))
    assert sees() == tmp_path / "etc/x"
    assert sees("/simulated") == Path("/simulated/etc/x")
    monkeypatch.setenv("HOST_ROOT", str(tmp_path / "missing"))
    assert sees() == Path("/etc/x"), "a pod without the host's processes does without"
