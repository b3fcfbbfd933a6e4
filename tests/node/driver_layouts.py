"""The driver's files as four kinds of hosts have them, in a folder: for tests of CDI specs and of the search."""

from __future__ import annotations

import struct
from pathlib import Path

VERSION = "580.159.04"
LIBRARIES = ("libcuda", "libnvidia-ml", "libnvidia-ptxjitcompiler", "libnvidia-gpucomp", "libnvidia-allocator")
DEBIAN, CURRENT = "usr/lib/x86_64-linux-gnu", "usr/lib/x86_64-linux-gnu/nvidia/current"
USR_LOCAL, GKE, CONTAINER = "usr/local/nvidia", "home/kubernetes/bin/nvidia", "run/nvidia/driver"
HOOKS = "create-symlinks update-ldcache enable-cuda-compat"
ELF_32, ELF_64 = b"\x7fELF\x01", b"\x7fELF\x02"


def add(folder: Path, path: str, text: bytes | str = b"") -> Path:
    file = folder / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    return file


def link(folder: Path, path: str, target: str) -> None:
    place = folder / path
    place.parent.mkdir(parents=True, exist_ok=True)
    place.symlink_to(target)


def add_libraries(folder: Path, place: str, version: str = VERSION) -> None:
    for name in LIBRARIES:
        add(folder, f"{place}/{name}.so.{version}", ELF_64)
    link(folder, f"{place}/libcuda.so.1", f"libcuda.so.{version}")
    link(folder, f"{place}/libcuda.so", "libcuda.so.1")


def add_programs(folder: Path, place: str) -> None:
    for name in ("nvidia-smi", "nvidia-cuda-mps-control", "nvidia-cuda-mps-server"):
        add(folder, f"{place}/{name}")


def add_ld_cache(folder: Path, paths: dict[str, str], *, with_old_part: bool = False) -> None:
    """`/etc/ld.so.cache` with these names and paths, and a 32-bit library of each name that must not be taken."""
    entries = [(0x0303, name, path) for name, path in paths.items()]
    entries += [(0x0003, name, "/usr/lib/i386-linux-gnu/" + name) for name in paths]
    strings, table = b"", b""
    offset = 48 + 24 * len(entries)
    for flags, name, path in entries:
        positions = []
        for text in (name, path):
            positions.append(offset + len(strings))
            strings += text.encode() + b"\0"
        table += struct.pack("<iIIIQ", flags, *positions, 0, 0)
    header = struct.pack("<20sIIB3xIIII", b"glibc-ld.so.cache1.1", len(entries), len(strings), 2, 0, 0, 0, 0)
    old = struct.pack("<12sI", b"ld.so-1.7.0\0", 1) + bytes(12)
    old += bytes(-len(old) % 8)
    add(folder, "etc/ld.so.cache", (old if with_old_part else b"") + header + table + strings)


def debian(folder: Path) -> None:
    """Debian's own packages: the files are in a folder of their own, behind absolute links of alternatives."""
    add_libraries(folder, CURRENT)
    link(folder, "etc/alternatives/nvidia--libcuda.so.1", f"/{CURRENT}/libcuda.so.1")
    link(folder, f"{DEBIAN}/libcuda.so.1", "/etc/alternatives/nvidia--libcuda.so.1")
    link(folder, "lib", "usr/lib")
    add_ld_cache(folder, {"libcuda.so.1": "/lib/x86_64-linux-gnu/libcuda.so.1", "libc.so.6": "/lib/libc.so.6"})
    add_programs(folder, "usr/bin")
    add(folder, f"usr/lib/firmware/nvidia/{VERSION}/gsp_ga10x.bin")


def usr_local(folder: Path) -> None:
    """A machine of a cloud with the driver in a folder that its loader doesn't know."""
    add(folder, "etc/os-release")
    add_libraries(folder, f"{USR_LOCAL}/lib64")
    add_programs(folder, f"{USR_LOCAL}/bin")


def gke(folder: Path) -> None:
    """Google's installer: a folder with bin and lib64, and nothing under /usr."""
    add(folder, "etc/os-release")
    add_libraries(folder, f"{GKE}/lib64")
    add_programs(folder, f"{GKE}/bin")


def driver_container(folder: Path) -> None:
    """The GPU operator's driver container, whose root is mounted on the host."""
    add(folder, "etc/os-release")
    add_libraries(folder, f"{CONTAINER}/{DEBIAN}")
    add_programs(folder, f"{CONTAINER}/usr/bin")
    add(folder, f"{CONTAINER}/lib/firmware/nvidia/{VERSION}/gsp_tu10x.bin")


LAYOUTS = {"debian": debian, "usr-local": usr_local, "gke": gke, "driver-container": driver_container}
INSIDE = {
    "debian": f"/{CURRENT}",
    "usr-local": "/usr/local/nvidia/lib64",
    "gke": "/usr/local/nvidia/lib64",
    "driver-container": f"/{DEBIAN}",
}
"""Where containers find the libraries."""
ON_HOST = {
    "debian": f"/{CURRENT}",
    "usr-local": "/usr/local/nvidia/lib64",
    "gke": f"/{GKE}/lib64",
    "driver-container": f"/{CONTAINER}/{DEBIAN}",
}
