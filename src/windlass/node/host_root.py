"""The node's files under a root that can be moved: `/dev`, `/proc/driver/nvidia`, `/sys/bus/pci`, `/run`.

Back ends, CDI, validator and plugin read device nodes and PCI data only through `HostRoot`, so that a container can
mount the host elsewhere and a test can build a machine in a folder. A simulated device node is a plain file with
the text `char 195:0`, since tests may not be allowed to create device nodes.
"""

from __future__ import annotations

import os
import re
import stat
from dataclasses import dataclass
from pathlib import Path

NVIDIA_VENDOR = "0x10de"
DISPLAY_CLASS = 0x03
_STAND_IN = re.compile(r"char (\d{1,5}):(\d{1,7})\s*")


@dataclass(frozen=True)
class DeviceNode:
    """A character device, or the plain file that stands in for it."""

    path: str
    """The path inside a container: `/dev/nvidia0`."""
    major: int
    minor: int
    is_stand_in: bool = False
    mode: int = 0
    """Permission bits."""
    uid: int = 0
    gid: int = 0


@dataclass(frozen=True)
class PciGpu:
    """An NVIDIA display controller on the PCI bus, whether the driver sees it or not."""

    bus_id: str
    pci_class: str
    numa: int
    driver: str = ""
    """The kernel module that has it: `nvidia`, `vfio-pci`; empty for none."""


class HostRoot:
    def __init__(
        self, root: str | Path = "/", *, dev: str | Path | None = None, files: str | Path | None = None
    ) -> None:
        """`files` is where the host's file system is mounted, if that isn't where `/dev`, `/proc` and `/sys` are."""
        self.root = Path(root)
        self.dev_root = Path(dev) if dev is not None else self.root
        self._files = Path(files) if files is not None else self.root

    @property
    def host_prefix(self) -> str:
        """What paths of the host begin with: the folder of a simulated machine, which containers mount from there."""
        return str(self.root)

    @property
    def is_this_process(self) -> bool:
        """Whether the host's file system is this process's own, as far as it knows."""
        return self._files == Path("/")

    def host_file(self, host_path: str) -> Path:
        """A file of the host outside `/dev`, `/proc` and `/sys`, as this process can open it."""
        return self._files / host_path.lstrip("/")

    def path(self, host_path: str) -> Path:
        """Maps a path of the host to a path that this process can open."""
        base = self.dev_root if host_path == "/dev" or host_path.startswith("/dev/") else self.root
        return base / host_path.lstrip("/")

    def local(self, host_path: str) -> Path:
        """A path of a CDI spec, as this process can open it; device nodes, also simulated ones, are as named."""
        is_device = Path(host_path).is_relative_to(self.path("/dev"))
        return Path(host_path) if is_device or self.root != Path("/") else self.host_file(host_path)

    def exists(self, host_path: str) -> bool:
        return self.path(host_path).exists()

    def glob(self, pattern: str) -> list[str]:
        """Paths of the host that match a pattern in their last part, sorted."""
        folder, _, name = pattern.rpartition("/")
        host_folder = self.path(folder)
        found = host_folder.glob(name) if host_folder.is_dir() else ()
        return sorted(f"{folder}/{path.name}" for path in found)

    def read(self, host_path: str) -> str:
        """The text of a file, stripped; empty if it can't be read."""
        try:
            return self.path(host_path).read_text(encoding="utf-8", errors="replace").strip()
        except OSError:
            return ""

    def device_node(self, host_path: str) -> DeviceNode | None:
        """The device node at a path; None if there is none."""
        try:
            status = self.path(host_path).stat()
        except OSError:
            return None
        if stat.S_ISCHR(status.st_mode):
            major, minor, mode = os.major(status.st_rdev), os.minor(status.st_rdev), stat.S_IMODE(status.st_mode)
            return DeviceNode(host_path, major, minor, mode=mode, uid=status.st_uid, gid=status.st_gid)
        match = _STAND_IN.fullmatch(self.read(host_path))
        return DeviceNode(host_path, int(match[1]), int(match[2]), is_stand_in=True) if match else None

    def pci_gpus(self) -> tuple[PciGpu, ...]:
        """NVIDIA GPUs on the PCI bus, by address."""
        found = []
        folder = self.path("/sys/bus/pci/devices")
        for device in sorted(folder.iterdir()) if folder.is_dir() else ():
            if self._read_pci_attribute(device.name, "vendor").lower() != NVIDIA_VENDOR:
                continue
            pci_class = self.pci_class(device.name)
            if _parse_int(pci_class, 16, 0) >> 16 == DISPLAY_CLASS:
                bound = device / "driver"
                driver = Path(os.readlink(bound)).name if bound.is_symlink() else ""
                found.append(PciGpu(device.name.lower(), pci_class, self.numa_of(device.name), driver))
        return tuple(found)

    def numa_of(self, bus_id: str) -> int:
        """The NUMA node of a PCI device; -1 if unknown."""
        return _parse_int(self._read_pci_attribute(bus_id, "numa_node"), 10, -1)

    def pci_config(self, bus_id: str) -> bytes:
        """The PCI configuration space: 64 bytes if unprivileged, empty if it can't be read."""
        try:
            return self.path(f"/sys/bus/pci/devices/{bus_id}/config").read_bytes()
        except OSError:
            return b""

    def pci_class(self, bus_id: str) -> str:
        return self._read_pci_attribute(bus_id, "class") or "0x000000"

    def capability_minor(self, minor: int, gpu_instance: int, compute_instance: int | None = None) -> int:
        """Minor number of the `/dev/nvidia-caps` node that gives access to an instance; -1 if there is none."""
        where = f"/proc/driver/nvidia/capabilities/gpu{minor}/mig/gi{gpu_instance}"
        if compute_instance is not None:
            where += f"/ci{compute_instance}"
        match = re.search(r"DeviceFileMinor:\s*(\d+)", self.read(where + "/access"))
        return int(match[1]) if match else -1

    def boot_id(self) -> str:
        return self.read("/proc/sys/kernel/random/boot_id")

    def _read_pci_attribute(self, bus_id: str, name: str) -> str:
        return self.read(f"/sys/bus/pci/devices/{bus_id}/{name}")


def _parse_int(text: str, base: int, default: int) -> int:
    try:
        return int(text, base)
    except ValueError:
        return default
