"""A container from a CDI spec with runc alone: what a container runtime does with the edits, written down once.

Used by `container.py` on a machine with a GPU, and by the tests with a driver that only pretends. The root file system
has a program, the C library and nothing of a driver: what the program finds comes from the spec.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from windlass.node.cdi import CdiEdits, CdiSpec

LOADER = "/lib64/ld-linux-x86-64.so.2"
LIBRARIES = ("libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1")
LIBRARY_FOLDER = "/lib/x86_64-linux-gnu"
PROGRAM = "/bin/vector-add"
SECONDS = 120
_MOUNTS = (
    {"destination": "/proc", "type": "proc", "source": "proc"},
    {"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "mode=755"]},
    {"destination": "/dev/shm", "type": "tmpfs", "source": "shm", "options": ["mode=1777"]},
    {"destination": "/tmp", "type": "tmpfs", "source": "tmpfs", "options": ["mode=1777"]},
    {"destination": "/sys", "type": "bind", "source": "/sys", "options": ["rbind", "ro"]},
)
"""What every container has."""


def make_root(root: Path, program: Path, libraries: Path = Path("/")) -> None:
    """A root with the program and this machine's C library (or that under `libraries`)."""
    for path in (LOADER, *(f"{LIBRARY_FOLDER}/{name}" for name in LIBRARIES)):
        target = root / path[1:]
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(libraries / path[1:], target)
    for folder in ("bin", "dev", "etc", "proc", "sys", "tmp", "usr/lib"):
        (root / folder).mkdir(parents=True, exist_ok=True)
    shutil.copy(program, root / PROGRAM[1:])
    (root / PROGRAM[1:]).chmod(0o755)


def edits_of(spec: CdiSpec, names: Sequence[str]) -> list[CdiEdits]:
    """The edits of the named devices and those common to all, in a runtime's order."""
    devices = {device.name: device.container_edits for device in spec.devices}
    return [*(devices[name] for name in names), spec.container_edits]


def oci_config(edits: Sequence[CdiEdits], *, uid: int = 0, cgroup: str = "/windlass-container") -> dict[str, Any]:
    """`config.json` of a container that runs the program with these edits."""
    hooks = [
        {"path": hook.path, "args": list(hook.args), "env": list(hook.env)} for edit in edits for hook in edit.hooks
    ]
    gids = sorted({gid for edit in edits for gid in edit.additional_gids})
    return {
        "ociVersion": "1.0.2",
        "process": {
            "user": {"uid": uid, "gid": uid, "additionalGids": gids},
            "args": [PROGRAM],
            "env": ["PATH=/usr/bin:/bin", *(value for edit in edits for value in edit.env)],
            "cwd": "/",
            "noNewPrivileges": True,
        },
        "root": {"path": "rootfs", "readonly": True},
        "mounts": [*_MOUNTS, *_mounts(edits)],
        "hooks": {"createContainer": hooks},
        "linux": {
            "cgroupsPath": cgroup,
            "namespaces": [{"type": kind} for kind in ("pid", "mount", "ipc", "uts")],
            **_devices(edits),
        },
    }


def _mounts(edits: Sequence[CdiEdits]) -> list[dict[str, Any]]:
    mounts = [mount for edit in edits for mount in edit.mounts]
    return [
        {"destination": each.container_path, "type": "bind", "source": each.host_path, "options": list(each.options)}
        for each in mounts
    ]


def _devices(edits: Sequence[CdiEdits]) -> dict[str, Any]:
    """The device nodes, and the cgroup's rules that allow them and no others."""
    nodes = [node for edit in edits for node in edit.device_nodes]
    numbers = [{"type": node.type or "c", "major": node.major, "minor": node.minor} for node in nodes]
    devices = [
        {**number, "path": node.path, "fileMode": node.file_mode or 0o666, "uid": node.uid, "gid": node.gid}
        for number, node in zip(numbers, nodes, strict=True)
    ]
    allowed = [{**number, "allow": True, "access": "rwm"} for number in numbers]
    return {"devices": devices, "resources": {"devices": [{"allow": False, "access": "rwm"}, *allowed]}}


def run_container(runc: str, bundle: Path, name: str, config: dict[str, Any]) -> subprocess.CompletedProcess[str]:
    """Runs the container of a bundle to its end."""
    (bundle / "config.json").write_text(json.dumps(config))
    command = [runc, "--root", str(bundle / "runc"), "run", "--bundle", str(bundle), name]
    return subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
