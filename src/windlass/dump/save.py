"""A dump on disk: what was collected, as the files that `--from` reads, redacted where asked.

Fed by `windlass dump`. A name that ends in .json or .yaml is one file without logs; any other is a folder.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from windlass.dump.collect import Collected
from windlass.dump.inside import PodLog
from windlass.dump.raw import RawObject

KEPT_ANNOTATIONS = (
    "kueue.x-k8s.io/",
    "windlass.dev/",
    "scheduling.",
    "cluster-autoscaler.",
    "karpenter.sh/",
    "nvidia.com/",
    "gpu-",
)
"""Annotations that placement and diagnosis read; redaction drops the others."""


def save(collected: Collected, target: Path, redact: bool, rename: bool) -> None:
    """Written whole or not at all is the caller's business: the target must not exist yet, or be its own to replace."""
    objects = [_redacted(one) if redact else one.data for one in collected.objects]
    if rename:
        objects = Renaming(objects).apply()
    if target.suffix in (".json", ".yaml", ".yml"):
        target.write_bytes(_list(objects))
        return
    target.mkdir(parents=True, exist_ok=True)
    by_kind: dict[str, list[dict[str, Any]]] = {kind: [] for kind in sorted(collected.lists)}
    for tree in objects:
        by_kind.setdefault(str(tree.get("kind")), []).append(tree)
    for kind, trees in by_kind.items():
        (target / f"{kind.lower()}.json").write_bytes(_list(trees, kind))
    if not rename:  # logs name everything
        _save_logs(collected.logs, target)


def _list(objects: list[dict[str, Any]], kind: str = "") -> bytes:
    document = {"apiVersion": "v1", "kind": f"{kind}List", "items": objects}
    return msgspec.json.format(msgspec.json.encode(document), indent=1)


def _save_logs(logs: Iterable[PodLog], target: Path) -> None:
    for log in logs:
        (target / "logs").mkdir(exist_ok=True)
        (target / "logs" / f"{log.namespace}_{log.pod}_{log.container}.log").write_text(
            log.text, encoding="utf-8"
        )


def _redacted(raw: RawObject) -> dict[str, Any]:
    """Without secrets, environment values, foreign annotations and managed fields."""
    tree = msgspec.json.decode(msgspec.json.encode(raw.data))
    assert isinstance(tree, dict), raw.header
    if tree.get("kind") == "Secret":
        tree.pop("data", None)
        tree.pop("stringData", None)
    _clean(tree)
    return tree


def _clean(tree: Any) -> None:
    if isinstance(tree, list):
        for value in tree:
            _clean(value)
    if not isinstance(tree, dict):
        return
    tree.pop("managedFields", None)
    annotations = tree.get("annotations")
    if isinstance(annotations, dict):
        tree["annotations"] = {
            key: value for key, value in annotations.items() if key.startswith(KEPT_ANNOTATIONS)
        }
    environment = tree.get("env")
    if isinstance(environment, list):
        for variable in environment:
            if isinstance(variable, dict) and not str(variable.get("name", "")).startswith(
                ("NVIDIA_", "CUDA_", "NCCL_")
            ):
                variable.pop("value", None)
    for value in tree.values():
        _clean(value)


class Renaming:
    """Names of objects and namespaces, consistently replaced wherever a whole string is one of them."""

    def __init__(self, objects: list[dict[str, Any]]) -> None:
        self._objects = objects
        self._names: dict[str, str] = {}
        for tree in objects:
            metadata = tree.get("metadata")
            for key in ("name", "namespace"):
                name = metadata.get(key) if isinstance(metadata, dict) else None
                if (
                    isinstance(name, str)
                    and name
                    and tree.get("kind") not in ("PriorityClass", "RuntimeClass", "StorageClass")
                ):
                    digest = hashlib.sha256(name.encode()).hexdigest()[:10]
                    self._names[name] = f"{str(tree.get('kind', 'x')).lower()[:4]}-{digest}"

    def apply(self) -> list[dict[str, Any]]:
        return [tree for one in self._objects if isinstance(tree := self._renamed(one), dict)]

    def _renamed(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {key: self._renamed(inner) if key != "kind" else inner for key, inner in value.items()}
        if isinstance(value, list):
            return [self._renamed(inner) for inner in value]
        if isinstance(value, str):
            return self._names.get(value, value)
        return value
