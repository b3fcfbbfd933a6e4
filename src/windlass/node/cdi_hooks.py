"""The hooks of a CDI spec, and which program on the host runs them.

`cdi_writer` asks once per change for the program: NVIDIA's `nvidia-cdi-hook` or `nvidia-ctk` where the host has one
that knows the hooks, otherwise a script of ours that is laid onto the host and run by its shell. A hook name that the
installed program lacks would fail every container, so only names that stand in the program itself are used.
"""

from __future__ import annotations

import mmap
from collections.abc import Sequence
from pathlib import Path

import msgspec

from windlass.node.atomic_file import write_atomically
from windlass.node.driver_files import DriverFiles
from windlass.node.host_root import HostRoot

CREATE_SYMLINKS, UPDATE_LDCACHE = "create-symlinks", "update-ldcache"
ENABLE_COMPAT, DISABLE_NODE_CHANGES = "enable-cuda-compat", "disable-device-node-modification"
_REQUIRED = frozenset((CREATE_SYMLINKS, UPDATE_LDCACHE))
_KNOWN = (CREATE_SYMLINKS, ENABLE_COMPAT, UPDATE_LDCACHE, DISABLE_NODE_CHANGES)
_FOLDERS = ("/usr/bin", "/usr/local/nvidia/toolkit", "/usr/local/bin", "/home/kubernetes/bin/nvidia/toolkit")
_PROGRAMS = ("nvidia-cdi-hook", "nvidia-ctk")
SCRIPT = Path(__file__).with_name("cdi_hook.sh")
SHELL = "/bin/sh"


class HookProgram(msgspec.Struct, frozen=True, kw_only=True):
    """The program that runs hooks, as the host calls it."""

    path: str
    command: tuple[str, ...]
    """The first arguments, before the hook's name."""
    hooks: frozenset[str]


class Hook(msgspec.Struct, frozen=True):
    name: str
    arguments: tuple[str, ...]


def find_hook_program(host: HostRoot, configured: str, folder: Path | None) -> HookProgram | None:
    """The host's program, or our script, written into `folder` (the same on the host); None on a host without a shell.

    The script is an argument of the host's shell, since `/run` is often mounted `noexec`. Without `folder` nothing is
    written.
    """
    paths = [configured, *(f"{place}/{name}" for name in _PROGRAMS for place in _FOLDERS)]
    for path in dict.fromkeys(paths):
        hooks = frozenset(name for name in _KNOWN if _contains(host, path, name))
        if hooks >= _REQUIRED:
            program = Path(path).name
            command = (program, "hook") if program == "nvidia-ctk" else (program,)
            return HookProgram(path=path, command=command, hooks=hooks)
    if not host.host_file(SHELL).exists():
        return None
    script = folder / SCRIPT.name if folder is not None else SCRIPT
    text = SCRIPT.read_bytes()
    if not script.exists() or script.read_bytes() != text:
        write_atomically(script, text)
    ours = frozenset((CREATE_SYMLINKS, ENABLE_COMPAT, UPDATE_LDCACHE))
    return HookProgram(path=SHELL, command=("sh", str(script)), hooks=ours)


def hooks_for(driver: DriverFiles, version: str, known: frozenset[str], without: frozenset[str]) -> Sequence[Hook]:
    """The hooks in the order in which they have to run: the cache is made of what the others leave."""
    links = tuple(part for link in driver.links for part in ("--link", f"{link.target}::{link.path}"))
    folders = tuple(part for folder in driver.library_folders for part in ("--folder", folder))
    hooks = (
        Hook(CREATE_SYMLINKS, links),
        Hook(ENABLE_COMPAT, (f"--host-driver-version={version}",)),
        Hook(UPDATE_LDCACHE, folders),
        Hook(DISABLE_NODE_CHANGES, ()),
    )
    return [hook for hook in hooks if hook.name in known and without.isdisjoint((hook.name, "all"))]


def _contains(host: HostRoot, path: str, name: str) -> bool:
    """Whether a program has this name in it. The GPU operator has a script there, and the program beside it."""
    for candidate in (f"{path}.real", path):
        try:
            with (
                host.host_file(candidate).open("rb") as file,
                mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data,
            ):
                if data.find(name.encode()) >= 0:
                    return True
        except (OSError, ValueError):
            continue
    return False
