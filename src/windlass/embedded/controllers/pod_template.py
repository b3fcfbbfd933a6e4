"""Pods out of a pod template, and the hash that tells templates apart."""

from __future__ import annotations

import hashlib

import msgspec

from windlass.embedded.controllers.objects import namespace_of, owner_reference
from windlass.model.unstructured import Unstructured

_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
"""Kubernetes' letters for generated names: no vowels, so no words come out."""
POD_TEMPLATE_HASH = "pod-template-hash"


def pod_from_template(
    template: Unstructured, owner: Unstructured, *, name: str = "", prefix: str = ""
) -> Unstructured:
    """A pod that the owner controls, with a name or with a prefix for one; the template itself is not shared."""
    given = template.get("metadata") or {}
    metadata: Unstructured = {
        "namespace": namespace_of(owner),
        "labels": dict(given.get("labels") or {}),
        "annotations": dict(given.get("annotations") or {}),
        "ownerReferences": [owner_reference(owner)],
    }
    if given.get("finalizers"):
        metadata["finalizers"] = list(given["finalizers"])
    if not metadata["annotations"]:
        del metadata["annotations"]
    metadata["name" if name else "generateName"] = name or prefix
    spec = msgspec.json.decode(msgspec.json.encode(template.get("spec") or {}))
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def generate_name_of(name: str) -> str:
    """`generateName` for the children of `name`; the server shortens what is too long."""
    return f"{name}-"


def template_hash(template: Unstructured, collisions: int = 0) -> str:
    """Ten letters for a template; `collisions` makes others, where they are taken."""
    encoded = msgspec.json.encode(template, order="deterministic") + (
        b"%d" % collisions if collisions else b""
    )
    number = int.from_bytes(hashlib.sha256(encoded).digest()[:8], "big")
    letters = ""
    for _ in range(10):
        number, rest = divmod(number, len(_ALPHABET))
        letters += _ALPHABET[rest]
    return letters


def same_template(one: Unstructured, other: Unstructured) -> bool:
    """Whether two templates are the same but for the label that carries the hash."""
    return _bare(one) == _bare(other)


def _bare(template: Unstructured) -> Unstructured:
    metadata = {
        key: value
        for key, value in (template.get("metadata") or {}).items()
        if value not in (None, {}, []) and key != "creationTimestamp"
    }
    labels = {key: value for key, value in (metadata.get("labels") or {}).items() if key != POD_TEMPLATE_HASH}
    metadata["labels"] = labels
    return {"metadata": metadata, "spec": template.get("spec") or {}}
