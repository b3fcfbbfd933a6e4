"""Object metadata, and the base that every Kubernetes struct shares.

Only the fields that Windlass reads are declared; everything else in an object is skipped while decoding,
which is what makes a watch event cheap. Structs are frozen: an object that changed is another object.
"""

from __future__ import annotations

import msgspec


class KubeStruct(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, gc=False):
    """Base of all structs that are decoded from Kubernetes JSON or YAML (camelCase on the wire)."""


class OwnerReference(KubeStruct, frozen=True):
    kind: str = ""
    name: str = ""
    uid: str = ""
    api_version: str = ""
    controller: bool = False


class ObjectMeta(KubeStruct, frozen=True):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    generate_name: str = ""
    resource_version: str = ""
    creation_timestamp: str = ""
    deletion_timestamp: str = ""
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    owner_references: tuple[OwnerReference, ...] = ()


class LabelSelectorRequirement(KubeStruct, frozen=True):
    """One expression of a label selector; `operator` is In, NotIn, Exists or DoesNotExist."""

    key: str
    operator: str
    values: tuple[str, ...] = ()


class LabelSelector(KubeStruct, frozen=True):
    """All of `match_labels` and all of `match_expressions`; an empty selector matches everything."""

    match_labels: dict[str, str] = {}
    match_expressions: tuple[LabelSelectorRequirement, ...] = ()
