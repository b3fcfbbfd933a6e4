"""An OCI archive of layers that are tar files: what `ctr images import` and other tools read.

The last step of the image's build. The format is the OCI image layout: blobs under their digests, and an index that
names the image.
"""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MEDIA = "application/vnd.oci.image"


@dataclass(frozen=True)
class Image:
    name: str
    architecture: str
    environment: Mapping[str, str]
    entry: Sequence[str]
    user: str


def write_archive(image: Image, layers: Sequence[Path], output: Path) -> None:
    """The archive with these layers, the lowest first."""
    output.parent.mkdir(parents=True, exist_ok=True)
    unfinished = output.with_name(f".{output.name}.unfinished")
    with tarfile.open(unfinished, "w") as tar:
        _add(tar, "oci-layout", json.dumps({"imageLayoutVersion": "1.0.0"}).encode())
        descriptors = [_add_layer(tar, layer) for layer in layers]
        config = _blob(tar, f"{MEDIA}.config.v1+json", _config(image, [layer["digest"] for layer in descriptors]))
        manifest = {
            "schemaVersion": 2,
            "mediaType": f"{MEDIA}.manifest.v1+json",
            "config": config,
            "layers": descriptors,
        }
        entry = _blob(tar, f"{MEDIA}.manifest.v1+json", manifest)
        entry["platform"] = {"architecture": image.architecture, "os": "linux"}
        entry["annotations"] = {
            "io.containerd.image.name": image.name,
            "org.opencontainers.image.ref.name": image.name.rpartition(":")[2],
        }
        index = {"schemaVersion": 2, "mediaType": f"{MEDIA}.index.v1+json", "manifests": [entry]}
        _add(tar, "index.json", json.dumps(index).encode())
    unfinished.replace(output)


def _config(image: Image, digests: Sequence[str]) -> dict[str, Any]:
    return {
        "architecture": image.architecture,
        "os": "linux",
        "config": {
            "Env": [f"{name}={value}" for name, value in image.environment.items()],
            "Entrypoint": list(image.entry),
            "User": image.user,
            "WorkingDir": "/",
        },
        "rootfs": {"type": "layers", "diff_ids": list(digests)},
    }


def _add_layer(tar: tarfile.TarFile, layer: Path) -> dict[str, Any]:
    with layer.open("rb") as content:
        found = f"sha256:{hashlib.file_digest(content, 'sha256').hexdigest()}"
    tar.add(layer, f"blobs/{found.replace(':', '/')}")
    return {"mediaType": f"{MEDIA}.layer.v1.tar", "digest": found, "size": layer.stat().st_size}


def _blob(tar: tarfile.TarFile, media: str, content: dict[str, Any]) -> dict[str, Any]:
    data = json.dumps(content).encode()
    found = f"sha256:{hashlib.sha256(data).hexdigest()}"
    _add(tar, f"blobs/{found.replace(':', '/')}", data)
    return {"mediaType": media, "digest": found, "size": len(data)}


def _add(tar: tarfile.TarFile, name: str, data: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.size = len(data)
    tar.addfile(entry, io.BytesIO(data))
