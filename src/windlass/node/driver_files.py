"""The files of the NVIDIA driver that a container needs: libraries with their links, programs, firmware, settings.

`cdi` mounts them into containers; the agent itself loads NVML and CUDA from them where its own container has no driver
(`driver_libraries`). Libraries are found through the loader's cache of the driver's root, then in a list of folders. A
driver without `libcuda` is an error that names the folders: a container would start and compute nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath

import msgspec

from windlass.model.errors import InputError
from windlass.node.driver_root import DriverRoot, driver_roots
from windlass.node.host_root import HostRoot
from windlass.node.ld_cache import read_ld_cache

LD_CACHE = "/etc/ld.so.cache"
_MULTIARCH = ("/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu")
LIBRARY_FOLDERS = (
    *(f"{folder}{below}" for folder in _MULTIARCH for below in ("", "/nvidia/current", "/nvidia")),
    *("/usr/lib64", "/usr/lib64/nvidia", "/usr/lib", "/usr/lib/nvidia", "/lib64", "/lib"),
    *("/usr/local/nvidia/lib64", "/usr/local/nvidia/lib", "/usr/local/glibc/usr/lib", "/run/opengl-driver/lib"),
)
_BINARY_FOLDERS = ("/usr/bin", "/usr/sbin", "/bin", "/sbin", "/usr/local/bin", "/opt/bin", "/usr/local/nvidia/bin")
_BINARIES = (
    *("nvidia-smi", "nvidia-debugdump", "nvidia-persistenced", "nvidia-cuda-mps-control"),
    *("nvidia-cuda-mps-server", "nvidia-imex", "nvidia-imex-ctl"),
)
_SOCKETS = (
    *("/run/nvidia-persistenced/socket", "/run/nvidia-fabricmanager/socket", "/tmp/nvidia-mps"),
    "/run/nvidia-imex/socket",
)
_FIRMWARE_FOLDERS = (
    *("/lib/firmware/updates", "/lib/firmware", "/usr/lib/firmware"),
    *("/usr/local/nvidia/firmware", "/firmware"),
)
_DATA = (
    *("/usr/share/glvnd/egl_vendor.d/10_nvidia.json", "/usr/share/egl/egl_external_platform.d/10_nvidia_wayland.json"),
    *("/usr/share/egl/egl_external_platform.d/15_nvidia_gbm.json", "/usr/share/nvidia/nvoptix.bin"),
    *("/etc/vulkan/icd.d/nvidia_icd.json", "/usr/share/vulkan/icd.d/nvidia_icd.json"),
    *("/etc/vulkan/implicit_layer.d/nvidia_layers.json", "/usr/share/vulkan/implicit_layer.d/nvidia_layers.json"),
    *("/etc/OpenCL/vendors/nvidia.icd", "/usr/share/X11/xorg.conf.d/10-nvidia.conf"),
)
_SONAMES = {
    **dict.fromkeys(("libcuda", "libcudadebugger", "libnvcuvid", "libnvidia-allocator", "libnvidia-cfg"), "1"),
    **dict.fromkeys(("libnvidia-encode", "libnvidia-fbc", "libnvidia-ml", "libnvidia-ngx", "libnvidia-opencl"), "1"),
    **dict.fromkeys(("libnvidia-opticalflow", "libnvidia-ptxjitcompiler", "libnvidia-sandboxutils"), "1"),
    **dict.fromkeys(("libGLESv1_CM_nvidia", "libnvoptix", "libvdpau_nvidia"), "1"),
    "libGLESv2_nvidia": "2",
    "libGLX_nvidia": "0",
    "libEGL_nvidia": "0",
    "libnvidia-nvvm": "4",
}
"""The number in the name by which programs ask for a library; the others are asked for by the driver's version."""
_UNVERSIONED = ("libcuda", "libnvidia-opticalflow")
"""Also asked for as `libcuda.so`, by programs that were linked against the toolkit's stub."""
_ELF_32_BIT = b"\x7fELF\x01"


class DriverFile(msgspec.Struct, frozen=True):
    host: str
    inside: str
    """The path in a container."""
    local: str
    """The path for this process."""


class DriverLink(msgspec.Struct, frozen=True):
    target: str
    """As the link has it, most often a file beside it."""
    path: str
    """Of the link, in a container."""


class DriverFiles(msgspec.Struct, frozen=True, kw_only=True):
    root: str
    """The driver's root on the host."""
    libraries: tuple[DriverFile, ...]
    links: tuple[DriverLink, ...]
    others: tuple[DriverFile, ...]
    """Programs, sockets, firmware, settings."""

    @property
    def library_folders(self) -> tuple[str, ...]:
        """Inside a container."""
        return tuple(sorted({str(PurePosixPath(library.inside).parent) for library in self.libraries}))

    def binary(self, name: str) -> str:
        """A program of the driver, as this process can start it; empty if there is none."""
        return next((file.local for file in self.others if PurePosixPath(file.inside).name == name), "")


def find_driver(
    host: HostRoot, version: str, *, driver_root: str = "/", container_driver_root: str = ""
) -> DriverFiles:
    """The driver of this version; an `InputError` with the folders that were searched if its `libcuda` isn't there."""
    searched: list[str] = []
    for root in driver_roots(host, driver_root, container_driver_root):
        folders = list(dict.fromkeys(_cached_folders(root, version))) or list(_folders(root))
        found = {name: path for folder in reversed(folders) for name, path in _libraries_in(root, folder, version)}
        if any(name.startswith("libcuda.so.") for name in found):
            return _driver_files(root, version, sorted(found.values()))
        searched += [root.host_path(path) for path in (LD_CACHE, *_folders(root))]
    where = ", ".join(dict.fromkeys(searched)) or f"{driver_root} (there is no such folder)"
    raise InputError(
        f"libcuda.so.{version} is in none of: {where}",
        path="flags.nvidiaDriverRoot",
        remedy="set it to the folder on the host that has the driver",
    )


def folder_times(host: HostRoot, *, driver_root: str = "/", container_driver_root: str = "") -> tuple[int, ...]:
    """When the folders of libraries last changed: a driver that was exchanged is seen by it."""
    times = []
    for root in driver_roots(host, driver_root, container_driver_root):
        for path in (LD_CACHE, *LIBRARY_FOLDERS):
            file = root.local / path[1:]
            times.append(file.stat().st_mtime_ns if file.exists() else 0)
    return tuple(times)


def _cached_folders(root: DriverRoot, version: str) -> Iterator[str]:
    """Folders of the driver's libraries by the root's own loader, which knows every layout."""
    for name, path in read_ld_cache(root.local_path(LD_CACHE)):
        if name.startswith(("libcuda.", "libnvidia-", "libGLX_nvidia", "libEGL_nvidia", "libnvcuvid")):
            real = PurePosixPath(root.resolve(path))
            if real.match(f"*.so.{version}"):
                yield str(real.parent)


def _folders(root: DriverRoot) -> Iterator[str]:
    for folder in LIBRARY_FOLDERS if not root.prefix else ("/lib64", "/lib"):
        real = root.resolve(folder)
        if root.local_path(real).is_dir():
            yield real


def _libraries_in(root: DriverRoot, folder: str, version: str) -> Iterator[tuple[str, str]]:
    local = root.local_path(folder)
    for pattern in (f"*.so.{version}", f"vdpau/*.so.{version}", "libnvidia-nvvm70.so.*"):
        for file in sorted(local.glob(pattern)):
            if not file.is_symlink() and not _is_32_bit(file):
                yield file.name, f"{folder}/{file.relative_to(local)}"


def _is_32_bit(file: Path) -> bool:
    try:
        with file.open("rb") as opened:
            return opened.read(len(_ELF_32_BIT)) == _ELF_32_BIT
    except OSError:
        return True


def _driver_files(root: DriverRoot, version: str, libraries: list[str]) -> DriverFiles:
    return DriverFiles(
        root=root.host,
        libraries=tuple(_file(root, path) for path in libraries),
        links=tuple(_links(root, libraries)),
        others=tuple(dict.fromkeys(_others(root, version))),
    )


def _file(root: DriverRoot, path: str, inside: str = "") -> DriverFile:
    return DriverFile(root.host_path(path), inside or root.container_path(path), str(root.local_path(path)))


def _links(root: DriverRoot, libraries: Iterable[str]) -> Iterator[DriverLink]:
    """By the names that programs ask for, and all others that the root has beside the libraries."""
    names: dict[str, str] = {}
    for path in libraries:
        folder, _, file = path.rpartition("/")
        stem = file.partition(".so.")[0]
        number = _SONAMES.get(stem)
        if number is not None:
            names[f"{folder}/{stem}.so.{number}"] = file
        if stem in _UNVERSIONED:
            names[f"{folder}/{stem}.so"] = f"{stem}.so.{number}"
        if stem == "libGLX_nvidia":
            names[f"{folder}/libGLX_indirect.so.0"] = file
        if stem == "libnvidia-allocator":
            names[f"{folder}/gbm/nvidia-drm_gbm.so"] = f"../{stem}.so.{number}"
    known = set(libraries)
    for folder in sorted({path.rpartition("/")[0] for path in libraries}):
        for link in sorted(root.local_path(folder).glob("lib*.so*")):
            if link.is_symlink() and (real := root.resolve(f"{folder}/{link.name}")) in known:
                names.setdefault(f"{folder}/{link.name}", PurePosixPath(real).name)
    for path, target in sorted(names.items()):
        if path not in known:
            yield DriverLink(target, root.container_path(path))


def _others(root: DriverRoot, version: str) -> Iterator[DriverFile]:
    for name in _BINARIES:
        for folder in _BINARY_FOLDERS if not root.prefix else ("/bin",):
            if root.local_path(f"{folder}/{name}").is_file():
                # Images don't have the driver's own folder on their path.
                yield _file(root, root.resolve(f"{folder}/{name}"), f"/usr/bin/{name}")
                break
    for path in (*_SOCKETS, *_DATA):
        if root.local_path(path).exists():
            yield _file(root, path, path)
    for folder in _FIRMWARE_FOLDERS:
        firmware = root.local_path(f"{folder}/nvidia/{version}")
        found = sorted(firmware.glob("gsp*.bin"))
        for file in found:
            inside = f"/lib/firmware/nvidia/{version}/{file.name}"
            yield _file(root, f"{folder}/nvidia/{version}/{file.name}", inside)
        if found:
            break
