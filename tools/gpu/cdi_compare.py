"""Our CDI spec beside that of `nvidia-ctk cdi generate`, for the same GPU and driver in three layouts.

A section of `container.py`, which carries nvidia-ctk along (`--prepare` builds it from NVIDIA's Go module). What a
container gets is compared as sets: files, device nodes, links, hooks, variables. The differences that are meant are
listed here with their reason; any other one fails the section.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from windlass.node.backend.nvml import NvmlBackend
from windlass.node.cdi import make_spec
from windlass.node.cdi_hooks import find_hook_program
from windlass.node.driver_files import find_driver
from windlass.node.host_root import HostRoot

DRIVER = Path("/usr/local/nvidia")
LAYOUTS = {"host": "", "driver container": "usr/lib/x86_64-linux-gnu", "lib64": "usr/lib64"}
"""Where the libraries are under the driver's root; empty for the machine as it is."""
Spec = Mapping[str, Any]


def compare_layouts(backend: NvmlBackend, folder: Path, ctk: Path) -> dict[str, Any]:
    """Layout → what only one of the two has, and how much both have."""
    found = {}
    for name, place in LAYOUTS.items():
        root = _driver_root(folder / name.replace(" ", "-"), place) if place else Path("/")
        try:
            ours, theirs = _ours(backend, folder, root), _theirs(ctk, root)
        finally:
            if place:
                _unmount(root)
        (folder / f"ours-{name.replace(' ', '-')}.json").write_text(json.dumps(ours, indent=1))
        (folder / f"theirs-{name.replace(' ', '-')}.json").write_text(json.dumps(theirs, indent=1))
        found[name] = compare(ours, theirs)
    return found


def compare(ours: Spec, theirs: Spec) -> dict[str, Any]:
    """By kind of edit: the number that both have, and what only one of them has."""
    found = {}
    for kind, read in _KINDS.items():
        mine, other = set(read(ours)), set(read(theirs))
        found[kind] = {
            "both": len(mine & other),
            "only ours": sorted(mine - other),
            "only theirs": sorted(other - mine),
        }
    return found


def _edits(spec: Spec) -> Iterator[Mapping[str, Any]]:
    """Those common to all devices, and those of the first one."""
    yield spec.get("containerEdits") or {}
    for device in spec["devices"]:
        if device["name"] == "0":
            yield device.get("containerEdits") or {}


def _mounts(spec: Spec) -> Iterator[str]:
    return (mount["containerPath"] for edits in _edits(spec) for mount in edits.get("mounts") or ())


def _nodes(spec: Spec) -> Iterator[str]:
    return (node["path"] for edits in _edits(spec) for node in edits.get("deviceNodes") or ())


def _hooks(spec: Spec) -> Iterator[tuple[str, list[str]]]:
    """Name and arguments; the program's own name and `hook` come before."""
    names = ("create-symlinks", "update-ldcache", "enable-cuda-compat", "disable-device-node-modification", "chmod")
    for edits in _edits(spec):
        for hook in edits.get("hooks") or ():
            at = next((at for at, word in enumerate(hook["args"]) if word in names), None)
            yield (hook["args"][at], hook["args"][at + 1 :]) if at is not None else (str(hook["args"]), [])


def _links(spec: Spec) -> Iterator[str]:
    for name, arguments in _hooks(spec):
        if name == "create-symlinks":
            yield from (word for word in arguments if "::" in word)


def _folders(spec: Spec) -> Iterator[str]:
    for name, arguments in _hooks(spec):
        if name == "update-ldcache":
            yield from (word for word in arguments if word.startswith("/") and "ldconfig" not in word)


_KINDS: dict[str, Callable[[Spec], Iterator[str]]] = {
    "files": _mounts,
    "device nodes": _nodes,
    "links": _links,
    "folders of the loader": _folders,
    "hooks": lambda spec: (name for name, _ in _hooks(spec)),
    "variables": lambda spec: (value for edits in _edits(spec) for value in edits.get("env") or ()),
    "devices": lambda spec: (device["name"] for device in spec["devices"]),
}


def _ours(backend: NvmlBackend, folder: Path, root: Path) -> Spec:
    host, inventory = HostRoot(), backend.inventory()
    driver = find_driver(host, inventory.driver.version, driver_root=str(root) if root != Path("/") else "")
    hook = find_hook_program(host, "", folder / "state")
    spec = make_spec(inventory, host, "nvidia.com/gpu", driver, hook=hook)
    return dict(json.loads(msgspec.json.encode(spec)))


def _theirs(ctk: Path, root: Path) -> Spec:
    options = [f"--driver-root={root}", "--dev-root=/"]
    environment = dict(os.environ)
    if root == Path("/"):
        options.append(f"--library-search-path={DRIVER}/lib64")
        environment["PATH"] = f"{DRIVER}/bin:{environment['PATH']}"
        environment["LD_LIBRARY_PATH"] = f"{DRIVER}/lib64"
    command = [str(ctk), "cdi", "generate", "--format=json", "--device-name-strategy=index", *options]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=60, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"nvidia-ctk: {done.stderr[-2000:]}")
    return dict(json.loads(done.stdout))


def _driver_root(root: Path, place: str) -> Path:
    """A root file system with the driver in it, as a driver container has it."""
    for source, target in (("lib64", place), ("bin", "usr/bin"), ("firmware", "lib/firmware/nvidia")):
        folder = root / target
        folder.mkdir(parents=True, exist_ok=True)
        if (DRIVER / source).is_dir():
            subprocess.run(["mount", "--bind", str(DRIVER / source), str(folder)], check=True)
    (root / "etc").mkdir(exist_ok=True)
    (root / "etc/ld.so.conf").write_text(f"/{place}\n")
    subprocess.run(["ldconfig", "-r", str(root)], check=False, capture_output=True)
    return root


def _unmount(root: Path) -> None:
    for line in Path("/proc/mounts").read_text().splitlines():
        point = line.split()[1]
        if point.startswith(f"{root}/"):
            subprocess.run(["umount", "--lazy", point], check=False)
