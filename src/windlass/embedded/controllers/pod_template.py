"""Pods from a pod template, and the template's hash. Used by the workload controllers."""

from __future__ import annotations

import hashlib

import msgspec

from windlass.embedded.controllers.objects import namespace_of, owner_reference
from windlass.model.unstructured import Unstructured

_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
"""Kubernetes' letters for generated names: no vowels, so that no words appear."""
POD_TEMPLATE_HASH = "pod-template-hash"


def pod_from_template(template: Unstructured, owner: Unstructured, *, name: str = "", prefix: str = "") -> Unstructured:
    """A pod controlled by the owner, with a name or a generateName prefix; shares nothing with the template."""
    template_metadata = template.get("metadata") or {}
    metadata: Unstructured = {
        "namespace": namespace_of(owner),
        "labels": dict(template_metadata.get("labels") or {}),
        "annotations": dict(template_metadata.get("annotations") or {}),
        "ownerReferences": [owner_reference(owner)],
    }
    if template_metadata.get("finalizers"):
        metadata["finalizers"] = list(template_metadata["finalizers"])
    if not metadata["annotations"]:
        del metadata["annotations"]
    metadata["name" if name else "generateName"] = name or prefix
    spec = msgspec.json.decode(msgspec.json.encode(template.get("spec") or {}))
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def generate_name_of(name: str) -> str:
    """`generateName` for the children of `name`; the server shortens it if necessary."""
    return f"{name}-"


def template_hash(template: Unstructured, collisions: int = 0) -> str:
    """Ten letters for a template; `collisions` gives another hash if the name is taken."""
    encoded = msgspec.json.encode(template, order="deterministic") + (b"%d" % collisions if collisions else b"")
    number = int.from_bytes(hashlib.sha256(encoded).digest()[:8], "big")
    letters = ""
    for _ in range(10):
        number, rest = divmod(number, len(_ALPHABET))
        letters += _ALPHABET[rest]
    return letters


def same_template(first: Unstructured, second: Unstructured) -> bool:
    """Whether two templates are equal apart from the hash label."""
    return _without_hash(first) == _without_hash(second)


def _without_hash(template: Unstructured) -> Unstructured:
    metadata = {
        key: value
        for key, value in (template.get("metadata") or {}).items()
        if value not in (None, {}, []) and key != "creationTimestamp"
    }
    labels = {key: value for key, value in (metadata.get("labels") or {}).items() if key != POD_TEMPLATE_HASH}
    metadata["labels"] = labels
    return {"metadata": metadata, "spec": template.get("spec") or {}}
