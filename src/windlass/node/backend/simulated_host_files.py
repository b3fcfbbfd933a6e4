"""Writes the files that a machine with these GPUs would show: device nodes, capabilities, PCI data.

`simulated` writes them into its folder whenever the machine changes; `node.host_root` reads them. Device nodes are
plain files with the numbers of the node, since creating real ones needs privileges.
"""

from __future__ import annotations

from pathlib import Path

from windlass.node.atomic_file import write_atomically
from windlass.sharing.inventory import Driver, Gpu

_GPU_MAJOR, _CAPS_MAJOR = 195, 237
_COMMON = {
    "nvidiactl": (195, 255),
    "nvidia-modeset": (195, 254),
    "nvidia-uvm": (510, 0),
    "nvidia-uvm-tools": (510, 1),
}


def write_host_files(folder: Path, driver: Driver, gpus: tuple[Gpu, ...]) -> None:
    """Writes all files again, and removes those of instances and minor numbers that no longer exist."""
    _write_common(folder, driver)
    caps, proc = folder / "dev/nvidia-caps", folder / "proc/driver/nvidia/capabilities"
    wanted = {f"nvidia{gpu.minor}" for gpu in gpus if not gpu.is_lost}
    for stale in (folder / "dev").glob("nvidia[0-9]*"):
        if stale.name not in wanted:
            stale.unlink()
    kept = {path for gpu in gpus for path in _write_gpu(folder, gpu)}
    for old in (*caps.glob("*"), *proc.glob("**/access")):
        if old not in kept:
            old.unlink(missing_ok=True)


def _write_common(folder: Path, driver: Driver) -> None:
    _write(
        folder / "proc/driver/nvidia/version",
        f"NVRM version: NVIDIA UNIX x86_64 Kernel Module  {driver.version}",
    )
    boot = folder / "proc/sys/kernel/random/boot_id"
    if not boot.exists():
        _write(boot, "7d3b7c1e-5a51-4b56-8d0b-5f5f0c1f2a11")
    for name, (major, minor) in _COMMON.items():
        _write(folder / "dev" / name, f"char {major}:{minor}")
    for library in ("libcuda", "libnvidia-ml"):
        name = f"{library}.so.{driver.version}"
        _write(folder / "usr/lib/x86_64-linux-gnu" / name, f"stands for {name}")


def _write_gpu(folder: Path, gpu: Gpu) -> list[Path]:
    """Writes one GPU's files; returns those that depend on its instances."""
    pci = folder / "sys/bus/pci/devices" / gpu.bus_id
    for name, text in (
        ("vendor", "0x10de"),
        ("device", "0x" + gpu.pci_id[2:6].lower()),
        ("class", gpu.pci_class),
        ("numa_node", str(gpu.numa)),
    ):
        _write(pci / name, text)
    if gpu.is_lost:
        return []
    _write(folder / f"dev/nvidia{gpu.minor}", f"char {_GPU_MAJOR}:{gpu.minor}")
    mig = folder / f"proc/driver/nvidia/capabilities/gpu{gpu.minor}/mig"
    written = []
    for instance in gpu.instances:
        first = 3 + 135 * gpu.minor + 9 * instance.gpu_instance
        gi = mig / f"gi{instance.gpu_instance}"
        for place, number in ((gi, first), (gi / f"ci{instance.compute_instance}", first + 1)):
            access, cap = place / "access", folder / f"dev/nvidia-caps/nvidia-cap{number}"
            _write(access, f"DeviceFileMinor: {number}\nDeviceFileMode: 292\nDeviceFileModify: 1")
            _write(cap, f"char {_CAPS_MAJOR}:{number}")
            written += [access, cap]
    return written


def _write(path: Path, text: str) -> None:
    """Only if the content differs, and in one step: another process may be reading. A real device node stays."""
    if path.is_char_device():
        return
    try:
        if path.read_text() == text + "\n":
            return
    except OSError:
        path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, (text + "\n").encode())
