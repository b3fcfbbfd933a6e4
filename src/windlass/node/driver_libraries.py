"""The driver for the agent itself where its container has none: NVML, CUDA and nvidia-smi from the host's files.

Called by `agent.make_backend` before NVML is loaded. With NVIDIA's container runtime the libraries are in the
container; on a bare runtime the host's file system is mounted and they are taken from there. A folder of links holds
the driver's libraries alone: with the host's whole folder on the loader's path, programs would get the host's libc too.
"""

from __future__ import annotations

import ctypes
import os
import re
from collections.abc import MutableMapping
from pathlib import Path, PurePosixPath

from windlass.model.errors import InputError
from windlass.node.backend.protocol import DeviceError
from windlass.node.driver_files import DriverFiles, find_driver
from windlass.node.host_root import HostRoot

NVML = "libnvidia-ml.so.1"
_VERSION = re.compile(r"\s(\d{3,4}\.\d+(?:\.\d+)*)\s")


def use_mounted_driver(host: HostRoot, folder: Path, environment: MutableMapping[str, str] | None = None) -> str:
    """Makes the driver loadable; returns where it was found, empty if this process had it already.

    Sets `LD_LIBRARY_PATH` and `PATH` for the programs that this process starts, and for itself if it starts again: the
    loader reads the variable at the start of a process only. Until then NVML is loaded by its path, which is not
    enough for all of it. A `DeviceError` if the host has no driver either.
    """
    if host.is_this_process or _is_loadable():
        return ""
    version = kernel_module_version(host)
    if not version:
        raise DeviceError("the NVIDIA driver is not loaded: there is no /proc/driver/nvidia/version")
    try:
        driver = find_driver(host, version)
    except InputError as error:
        raise DeviceError(str(error)) from None
    link_driver(driver, folder)
    environment = os.environ if environment is None else environment
    environment["LD_LIBRARY_PATH"] = str(folder / "lib")
    environment["PATH"] = f"{folder / 'bin'}:{environment.get('PATH', os.defpath)}"
    ctypes.CDLL(str(folder / "lib" / NVML), mode=ctypes.RTLD_GLOBAL)
    return driver.root


def link_driver(driver: DriverFiles, folder: Path) -> None:
    """Fills `lib` and `bin` of a folder with links to the driver's files, as this process can open them."""
    local = {PurePosixPath(file.inside).name: file.local for file in driver.libraries}
    for link in (*driver.links, *driver.links):  # libcuda.so names libcuda.so.1, which names the file
        target = local.get(PurePosixPath(link.target).name)
        if target is not None:
            local.setdefault(PurePosixPath(link.path).name, target)
    programs = {PurePosixPath(file.inside).name: file.local for file in driver.others if "/bin/" in file.inside}
    for place, files in (("lib", local), ("bin", programs)):
        (folder / place).mkdir(parents=True, exist_ok=True)
        for name, target in files.items():
            _link(folder / place / name, target)


def kernel_module_version(host: HostRoot) -> str:
    """Of the loaded kernel module; empty if there is none."""
    match = _VERSION.search(host.read("/proc/driver/nvidia/version") + " ")
    return match[1] if match else ""


def _is_loadable() -> bool:
    try:
        ctypes.CDLL(NVML)
    except OSError:
        return False
    return True


def _link(path: Path, target: str) -> None:
    """In one step: the agent's other process makes the same link."""
    if path.is_symlink() and os.readlink(path) == target:
        return
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.unlink(missing_ok=True)
    temporary.symlink_to(target)
    temporary.replace(path)
