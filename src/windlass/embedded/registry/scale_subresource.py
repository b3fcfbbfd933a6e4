"""The scale subresource of every kind with replicas. Called by `in_process_client` and the HTTP server."""

from __future__ import annotations

from typing import Any

from windlass.embedded.api.errors import ApiError, invalid
from windlass.embedded.api.json_trees import nested_value
from windlass.embedded.api.kinds import Kind
from windlass.embedded.api.patches import json_patch, merge_patch
from windlass.embedded.registry.admission_chain import CRD
from windlass.embedded.registry.context import Context
from windlass.embedded.registry.options import WriteOptions
from windlass.embedded.registry.preconditions import check_name
from windlass.embedded.registry.writer import Mutation, Writer
from windlass.model.unstructured import Unstructured

_SCALE = Kind("Scale", "", "autoscaling", "v1")
JSON_PATCH = "application/json-patch+json"
_METADATA_FIELDS = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")


class ScalePaths:
    """Where a kind keeps its replica counts."""

    def __init__(self, spec: str = "", status: str = "", selector: str = "") -> None:
        self.spec = (spec or ".spec.replicas").lstrip(".").split(".")
        self.status = (status or ".status.replicas").lstrip(".").split(".")
        self.selector = selector.lstrip(".").split(".") if selector else []


class ScaleSubresource:
    def __init__(self, context: Context, writer: Writer) -> None:
        self._context, self._writer = context, writer

    def get(self, kind: Kind, namespace: str, name: str) -> Unstructured:
        return self._scale_of(kind, self._context.get(kind, namespace, name).tree)

    def update(self, kind: Kind, namespace: str, name: str, scale: Unstructured, options: WriteOptions) -> Unstructured:
        return self.modify(kind, namespace, name, lambda _: scale, options)

    def patch(
        self, kind: Kind, namespace: str, name: str, patch: Any, media_type: str, options: WriteOptions
    ) -> Unstructured:
        """A Scale has no lists, so a strategic merge patch is a merge patch."""
        if media_type == JSON_PATCH:
            return self.modify(kind, namespace, name, lambda scale: json_patch(scale, patch), options)
        if not isinstance(patch, dict):
            raise ApiError.bad_request("error decoding patch: the patch is not an object")
        return self.modify(kind, namespace, name, lambda scale: dict(merge_patch(scale, patch)), options)

    def modify(self, kind: Kind, namespace: str, name: str, change: Mutation, options: WriteOptions) -> Unstructured:
        """Changes the Scale as if it were a separate object."""
        paths = self._paths(kind)

        def scaled(tree: Unstructured) -> Unstructured:
            wanted = change(self._scale_of(kind, tree))
            metadata = wanted.get("metadata")
            metadata = metadata if isinstance(metadata, dict) else {}
            check_name({"metadata": {"name": name, **metadata}}, name)
            spec = wanted.get("spec")
            replicas = spec.get("replicas", 0) if isinstance(spec, dict) else 0
            if not isinstance(replicas, int) or isinstance(replicas, bool):
                raise ApiError.bad_request(
                    'Scale in version "v1" cannot be handled as a Scale: json: cannot '
                    "unmarshal into Go struct field ScaleSpec.spec.replicas of type int32"
                )
            if replicas < 0:
                error = invalid("spec.replicas", replicas, "must be greater than or equal to 0")
                raise ApiError.invalid(_SCALE, name, [error])
            given = {field: metadata[field] for field in ("resourceVersion", "uid") if metadata.get(field)}
            tree = {**tree, "metadata": {**tree["metadata"], **given}}
            return _put(tree, paths.spec, replicas)

        stored = self._writer.modify(kind, namespace, name, scaled, options)
        return self._scale_of(kind, stored.tree)

    def _paths(self, kind: Kind) -> ScalePaths:
        """A custom kind's paths are in its CustomResourceDefinition."""
        if not kind.custom:
            return ScalePaths()
        definition = self._context.get(self._context.kind(CRD), "", kind.resource).tree
        for version in definition["spec"].get("versions") or []:
            if version.get("name") == kind.version:
                scale = (version.get("subresources") or {}).get("scale") or {}
                names = ("specReplicasPath", "statusReplicasPath", "labelSelectorPath")
                return ScalePaths(*(scale.get(name, "") for name in names))
        return ScalePaths()

    def _scale_of(self, kind: Kind, tree: Unstructured) -> Unstructured:
        paths = self._paths(kind)
        metadata = {field: tree["metadata"][field] for field in _METADATA_FIELDS if field in tree["metadata"]}
        status: Unstructured = {"replicas": nested_value(tree, *paths.status) or 0}
        selector = nested_value(tree, *(paths.selector or ("spec", "selector")))
        text = selector if isinstance(selector, str) else selector_text(selector)
        if text:
            status["selector"] = text
        replicas = nested_value(tree, *paths.spec)
        spec = {"replicas": replicas} if replicas else {}
        head = {"kind": "Scale", "apiVersion": "autoscaling/v1"}
        return {**head, "metadata": metadata, "spec": spec, "status": status}


def selector_text(selector: Any) -> str:
    """A LabelSelector object as text."""
    if not isinstance(selector, dict):
        return ""
    parts = [f"{key}={value}" for key, value in sorted((selector.get("matchLabels") or {}).items())]
    set_operators = {"In": "in", "NotIn": "notin"}
    for requirement in selector.get("matchExpressions") or []:
        key, operator = requirement.get("key", ""), requirement.get("operator", "")
        if operator in set_operators:
            parts.append(f"{key} {set_operators[operator]} ({','.join(requirement.get('values') or [])})")
        else:
            parts.append(key if operator == "Exists" else f"!{key}")
    return ",".join(parts)


def _put(tree: Unstructured, path: list[str], value: Any) -> Unstructured:
    """The object with another value at a path; unchanged parts are shared."""
    first, *rest = path
    child = tree.get(first)
    return {**tree, first: _put(child if isinstance(child, dict) else {}, rest, value) if rest else value}
