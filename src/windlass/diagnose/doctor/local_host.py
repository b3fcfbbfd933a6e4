"""`doctor here`: why a program in this container or on this host does not see the GPU.

Called by `cli.doctor`. From the bottom up: device files, driver and libraries, environment, shared memory, a first CUDA
call, the kernel log. All paths are under a root, so that tests and mounted hosts can be examined.
"""

from __future__ import annotations

import ctypes
import os
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from windlass.diagnose import log_patterns
from windlass.diagnose.doctor.report import ERROR, OK, WARNING, Symptom
from windlass.diagnose.evidence import LogLines

LIBRARY_FOLDERS = (
    "usr/lib/x86_64-linux-gnu",
    "usr/lib64",
    "usr/lib/aarch64-linux-gnu",
    "usr/local/nvidia/lib64",
    "lib",
)
SMALL_SHM = 65 << 20
CUDA_ERRORS = {
    34: (
        "the driver's stub library is loaded instead of the driver",
        "remove the stubs folder from LD_LIBRARY_PATH",
    ),
    100: ("CUDA sees no device", "check that the container requests a GPU, and check CUDA_VISIBLE_DEVICES"),
    802: ("the NVLink fabric is not up", "start the fabric manager, in the driver's version"),
    803: (
        "the driver's kernel module and library have different versions",
        "reboot, or reload the kernel modules",
    ),
    804: ("forward compatibility does not work on this GPU", "use an image for the driver's CUDA"),
    35: ("the driver is older than this CUDA", "upgrade the driver, or use an image for an older CUDA"),
    999: ("unknown error: often access to the device cgroup was lost", "recreate the container"),
}


class Host:
    """The file system, environment and CUDA driver to examine."""

    def __init__(
        self,
        root: Path = Path("/"),
        environment: Mapping[str, str] | None = None,
        cuda: Callable[[], tuple[int, int]] | None = None,
    ) -> None:
        self.root = root
        self.environment = os.environ if environment is None else environment
        self.cuda = cuda or cuda_devices

    def path(self, relative: str) -> Path:
        return self.root / relative

    def text(self, relative: str) -> str:
        try:
            return self.path(relative).read_text(encoding="utf-8", errors="replace")
        except OSError:
            return ""


def cuda_devices() -> tuple[int, int]:
    """(error, devices) of cuInit and cuDeviceGetCount; error -1 if there is no library."""
    try:
        library = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return -1, 0
    error = int(library.cuInit(0))
    count = ctypes.c_int(0)
    if error == 0:
        error = int(library.cuDeviceGetCount(ctypes.byref(count)))
    return error, count.value


def examine_here(host: Host) -> list[Symptom]:
    """All checks, lowest layer first: a fault usually causes the ones after it."""
    return [
        *_device_nodes(host),
        *_driver(host),
        *_environment(host),
        *_cdi(host),
        *_shared_memory(host),
        *_cuda(host),
        *_kernel(host),
    ]


def _device_nodes(host: Host) -> Iterator[Symptom]:
    devices = sorted(path.name for path in host.path("dev").glob("nvidia[0-9]*"))
    if not devices:
        yield Symptom(
            "device-nodes",
            ERROR,
            "/dev",
            "there is no /dev/nvidia*",
            "this container was given no GPU, or the driver created no device nodes",
            "request nvidia.com/gpu in limits; on a host: nvidia-modprobe -u -c=0",
        )
        return
    closed = [name for name in devices if not os.access(host.path(f"dev/{name}"), os.R_OK | os.W_OK)]
    if closed:
        yield Symptom(
            "device-access",
            ERROR,
            "/dev",
            f"{', '.join(closed)} can't be opened",
            "permissions or the device cgroup",
            "",
        )
    else:
        yield Symptom("device-nodes", OK, "/dev", ", ".join(devices))
    missing = [name for name in ("nvidiactl", "nvidia-uvm") if not host.path(f"dev/{name}").exists()]
    if missing:
        yield Symptom(
            "control-nodes",
            ERROR,
            "/dev",
            f"{', '.join(missing)} is missing",
            "CUDA can't start without it",
            "nvidia-modprobe -u",
        )


def _driver(host: Host) -> Iterator[Symptom]:
    version = re.search(r"Kernel Module[^\d]*([\d.]+)", host.text("proc/driver/nvidia/version"))
    libraries = [path.name for folder in LIBRARY_FOLDERS for path in host.path(folder).glob("libcuda.so.*.*")]
    if version is None:
        yield Symptom(
            "driver",
            ERROR,
            "/proc/driver/nvidia",
            "the kernel module is not loaded",
            "no driver on this host",
            "modprobe nvidia",
        )
    if not libraries:
        yield Symptom(
            "driver-library",
            ERROR,
            "libcuda.so",
            "the driver's library is not in this container",
            "the container runtime did not mount it",
            "use the nvidia runtime (runtimeClassName: nvidia), or CDI",
        )
        return
    have = libraries[0].removeprefix("libcuda.so.")
    if version is not None and have != version[1]:
        yield Symptom(
            "driver-versions",
            ERROR,
            "libcuda.so",
            f"the kernel module is {version[1]}, the library {have}",
            "they must be equal",
            "reboot the node, or reload the kernel modules",
        )
    elif version is not None:
        yield Symptom("driver", OK, "/proc/driver/nvidia", f"driver {version[1]}")


def _environment(host: Host) -> Iterator[Symptom]:
    environment = host.environment
    visible = environment.get("NVIDIA_VISIBLE_DEVICES", "")
    if visible in ("void", "none"):
        yield Symptom(
            "visible-devices",
            ERROR,
            "environment",
            f"NVIDIA_VISIBLE_DEVICES={visible}",
            "it makes the container runtime hide GPUs",
            "request nvidia.com/gpu in limits",
        )
    if environment.get("CUDA_VISIBLE_DEVICES", "unset") in ("", "-1"):
        yield Symptom(
            "cuda-visible-devices",
            ERROR,
            "environment",
            "CUDA_VISIBLE_DEVICES hides every GPU",
            "",
            "unset CUDA_VISIBLE_DEVICES",
        )
    capabilities = environment.get("NVIDIA_DRIVER_CAPABILITIES", "")
    if capabilities and "all" not in capabilities and "compute" not in capabilities:
        yield Symptom(
            "driver-capabilities",
            ERROR,
            "environment",
            f"NVIDIA_DRIVER_CAPABILITIES={capabilities}",
            "without compute no CUDA library is mounted",
            "NVIDIA_DRIVER_CAPABILITIES=compute,utility",
        )


def _cdi(host: Host) -> Iterator[Symptom]:
    specs = [path.name for folder in ("etc/cdi", "var/run/cdi") for path in host.path(folder).glob("*.*")]
    if specs:
        yield Symptom("cdi", OK, "/etc/cdi", f"has the CDI specs {', '.join(sorted(specs)[:4])}")


def _shared_memory(host: Host) -> Iterator[Symptom]:
    try:
        stats = os.statvfs(host.path("dev/shm"))
    except OSError:
        return
    size = stats.f_frsize * stats.f_blocks
    if 0 < size <= SMALL_SHM:
        yield Symptom(
            "shared-memory",
            WARNING,
            "/dev/shm",
            f"/dev/shm has {size >> 20} MiB",
            "data loaders and NCCL need more",
            "mount an emptyDir with medium: Memory at /dev/shm",
        )
    else:
        yield Symptom("shared-memory", OK, "/dev/shm", f"/dev/shm has {size >> 20} MiB")


def _cuda(host: Host) -> Iterator[Symptom]:
    error, devices = host.cuda()
    if error == -1:
        yield Symptom(
            "cuda", ERROR, "libcuda.so.1", "the library can't be loaded", "", "use the nvidia runtime, or CDI"
        )
    elif error:
        meaning, mend = CUDA_ERRORS.get(error, ("", ""))
        yield Symptom("cuda", ERROR, "cuInit", f"CUDA answers error {error}", meaning, mend)
    elif not devices:
        yield Symptom("cuda", ERROR, "cuDeviceGetCount", "CUDA sees no device", "", "check CUDA_VISIBLE_DEVICES")
    else:
        yield Symptom("cuda", OK, "cuInit", f"CUDA sees {devices} device(s)")


def _kernel(host: Host) -> Iterator[Symptom]:
    lines = host.text("var/log/kern.log").splitlines() + host.text("var/log/dmesg").splitlines()
    for seen in log_patterns.find_matches([LogLines("kernel log", lines)], log_patterns.HOST):
        yield Symptom("kernel-log", ERROR, seen.origin, seen.line, seen.code, "")
