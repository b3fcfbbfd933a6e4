"""Replaces names consistently in objects, messages and logs.

Used by `dump.save` for `--rename`. Digests are salted per dump, so that names can't be guessed back; within one dump a
name always becomes the same name, so that owners, selectors and events still match.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Sequence
from typing import Any

from windlass.dump.configuration import HASH_ANNOTATION

KEPT_NAMES = re.compile(
    r"device-plugin|nvidia|gpu-operator|gpu-feature|nfd-|node-feature-discovery|mig-manager|mps-control|dcgm"
    r"|fabric-?manager|container-toolkit|^kube-|cluster-autoscaler|karpenter|kueue|volcano|coredns|-scheduler"
)
"""Names of the GPU stack and of Kubernetes: they are public, and diagnosis recognises components by them."""
KEPT_KINDS = ("PriorityClass", "RuntimeClass", "StorageClass", "DeviceClass", "WorkloadPriorityClass")
COMMON_WORDS = frozenset({"default", "true", "false", "gpu", "gpus", "node", "pod", "main", "system", "nvidia", "cuda"})
"""Names that reveal nothing, and which as words of messages mean something else."""
DROPPED_FIELDS = frozenset({HASH_ANNOTATION})
"""The hash of a configuration whose names are replaced."""
KEPT_FIELDS = frozenset({"kind", "apiVersion", "reason", "type", "phase", "operator", "effect", "uid"})
TOKENS = re.compile(
    r"[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)*\.[a-z]{2,}/[A-Za-z0-9._-]+"  # a qualified name: nvidia.com/gpu
    r"|[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?"
)
TAG = re.compile(r"[:@]([\w.-]+)$")


class NameAnonymizer:
    def __init__(self, objects: Sequence[dict[str, Any]], salt: bytes | None = None) -> None:
        self._salt = salt if salt is not None else secrets.token_bytes(16)
        self._names: dict[str, str] = {}
        for tree in objects:
            metadata = tree.get("metadata")
            if not isinstance(metadata, dict) or tree.get("kind") in KEPT_KINDS:
                continue
            self._add(metadata.get("name"), str(tree.get("kind") or "x"))
            self._add(metadata.get("namespace"), "Namespace")

    def _add(self, name: object, kind: str) -> None:
        if isinstance(name, str) and name and name not in COMMON_WORDS and not KEPT_NAMES.search(name):
            self._names.setdefault(name, f"{kind.lower()[:4]}-{self._digest(name)}")

    def _digest(self, name: str) -> str:
        return hashlib.sha256(self._salt + name.encode()).hexdigest()[:10]

    def anonymize(self, value: Any, field: str = "") -> Any:
        """An object, or a part of one."""
        if isinstance(value, dict):
            return {
                self.anonymize_text(key): inner if key in KEPT_FIELDS else self.anonymize(inner, key)
                for key, inner in value.items()
                if key not in DROPPED_FIELDS
            }
        if isinstance(value, list):
            return [self.anonymize(inner, field) for inner in value]
        if isinstance(value, str):
            return self._image(value) if field in ("image", "imageID") else self.anonymize_text(value)
        return value

    def anonymize_text(self, text: str) -> str:
        """A message, a log, or a name alone."""
        return TOKENS.sub(lambda found: self._names.get(found[0], found[0]), text)

    def _image(self, image: str) -> str:
        """Registry and repository are replaced; the tag stays, since it has the CUDA version."""
        tag = TAG.search(image)
        return f"image-{self._digest(TAG.sub('', image))}{tag[0] if tag else ''}" if image else ""
