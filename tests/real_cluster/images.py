"""Container images without a registry: made from Debian's static busybox, as archives that `ctr` can import.

Used by `node`, which imports them; tests name them by `BUSYBOX`. An archive has Docker's layout: a manifest, a config,
and one layer.
"""

from __future__ import annotations

import hashlib
import io
import json
import shutil
import tarfile
from collections.abc import Sequence
from pathlib import Path

BUSYBOX = "windlass.test/busybox:1"
PAUSE = "windlass.test/pause:1"
_APPLETS = (
    "sh",
    "sleep",
    "true",
    "false",
    "echo",
    "cat",
    "env",
    "ls",
    "id",
    "date",
    "wget",
    "nc",
    "test",
    "kill",
)


def write_images(archive: Path) -> None:
    """One archive with the image that tests run and the one that holds a pod's namespaces."""
    program = shutil.which("busybox")
    if program is None:
        raise FileNotFoundError("busybox (Debian's busybox-static) is not installed")
    layer = _layer(Path(program).read_bytes())
    with tarfile.open(archive, "w") as tar:
        _add(tar, "layer.tar", layer)
        manifest = []
        for name, command in ((BUSYBOX, ["sh"]), (PAUSE, ["/bin/sleep", "2147483647"])):
            config = _config(layer, command)
            file = hashlib.sha256(config).hexdigest() + ".json"
            _add(tar, file, config)
            manifest.append({"Config": file, "RepoTags": [name], "Layers": ["layer.tar"]})
        _add(tar, "manifest.json", json.dumps(manifest).encode())


def _layer(busybox: bytes) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for folder in ("bin", "etc", "tmp", "proc", "sys", "dev"):
            entry = tarfile.TarInfo(folder)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o1777 if folder == "tmp" else 0o755
            tar.addfile(entry)
        _add(tar, "bin/busybox", busybox, mode=0o755)
        _add(tar, "etc/passwd", b"root:x:0:0:root:/:/bin/sh\nnobody:x:65534:65534::/:/bin/sh\n")
        for applet in _APPLETS:
            entry = tarfile.TarInfo(f"bin/{applet}")
            entry.type, entry.linkname = tarfile.SYMTYPE, "busybox"
            tar.addfile(entry)
    return buffer.getvalue()


def _config(layer: bytes, command: Sequence[str]) -> bytes:
    return json.dumps(
        {
            "architecture": "amd64",
            "os": "linux",
            "config": {"Cmd": list(command), "Env": ["PATH=/bin"], "WorkingDir": "/"},
            "rootfs": {"type": "layers", "diff_ids": ["sha256:" + hashlib.sha256(layer).hexdigest()]},
            "history": [{"created_by": " ".join(command)}],
        }
    ).encode()


def _add(tar: tarfile.TarFile, name: str, content: bytes, mode: int = 0o644) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(content), mode
    tar.addfile(entry, io.BytesIO(content))
