"""Where the NVIDIA driver's files lie: on the host, as this process sees them, and inside a container.

Found by `driver_files`. A driver is installed on the host itself, in a folder that a cloud fills
(`/home/kubernetes/bin/nvidia`), or is the root of a driver container (`/run/nvidia/driver`). The agent's container has
the host's files somewhere else, and what a CDI spec names must be the host's path.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from windlass.node.host_root import HostRoot

DRIVER_ROOTS = ("/", "/run/nvidia/driver", "/home/kubernetes/bin/nvidia", "/opt/nvidia/driver")
"""Searched in this order if the configuration names none: the host's own driver goes before a driver container."""
INSTALL_PREFIX = "/usr/local/nvidia"
"""Where containers find a driver that is a folder of `bin` and `lib64` and no root file system; GKE's own place."""
_MAX_LINKS = 40


@dataclass(frozen=True)
class DriverRoot:
    host: str
    """The folder on the host: `/`, `/run/nvidia/driver`."""
    local: Path
    """The same folder, as this process can open it."""
    prefix: str = ""
    """What container paths begin with; empty where the folder is a root file system."""

    def host_path(self, path: str) -> str:
        return path if self.host == "/" else self.host.rstrip("/") + path

    def container_path(self, path: str) -> str:
        return self.prefix + path

    def local_path(self, path: str) -> Path:
        """The file behind a path of this root, with symbolic links resolved inside it."""
        return self.local / self.resolve(path).lstrip("/")

    def resolve(self, path: str) -> str:
        """The path without symbolic links; an absolute link is one of this root, not of this process's."""
        pending = path.split("/")
        resolved: list[str] = []
        links = 0
        while pending:
            part = pending.pop(0)
            if part in ("", "."):
                continue
            if part == "..":
                resolved = resolved[:-1]
                continue
            candidate = self.local.joinpath(*resolved, part)
            if links < _MAX_LINKS and candidate.is_symlink():
                links += 1
                target = os.readlink(candidate)
                resolved = [] if target.startswith("/") else resolved
                pending = [*target.split("/"), *pending]
            else:
                resolved.append(part)
        return "/" + "/".join(resolved)


def seen_here(host: HostRoot, folder: str) -> Path:
    """A folder of the host as this process can open it: its own, where the agent's pod mounts it, else the host's."""
    is_mounted = host.is_this_process or Path(folder).is_dir()
    return Path(folder) if is_mounted else DriverRoot("/", host.host_file("/")).local_path(folder)


def driver_roots(host: HostRoot, configured: str, container_driver_root: str) -> tuple[DriverRoot, ...]:
    """The roots to search. `configured` and `container_driver_root` are the device plugin's settings of that name."""
    mounted = Path(container_driver_root)
    if configured not in ("", "/"):
        local = mounted if container_driver_root and mounted.is_dir() else host.host_file(configured)
        return (_root(host.host_prefix.rstrip("/") + configured.rstrip("/"), local),)
    roots = [_root(host.host_prefix.rstrip("/") + path, host.host_file(path)) for path in DRIVER_ROOTS]
    if container_driver_root and mounted.is_dir() and host.is_this_process:
        roots.insert(0, _root("/", mounted))
    return tuple(root for root in roots if root.local.is_dir())


def _root(host: str, local: Path) -> DriverRoot:
    is_file_system = any((local / name).is_dir() for name in ("usr", "etc"))
    return DriverRoot(host or "/", local, "" if is_file_system else INSTALL_PREFIX)
