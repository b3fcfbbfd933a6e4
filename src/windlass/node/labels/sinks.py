"""Where labels are written: NFD's feature file, a NodeFeature object, or the Node's own labels.

The sidecar calls `write_labels`. Labels that we wrote and that no longer apply are removed; labels of others are
never changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from windlass.model.errors import ClusterUnreachable, InputError
from windlass.node.atomic_file import write_atomically

if TYPE_CHECKING:
    from windlass.node.node_api import NodeApi

OWNED_LABELS_ANNOTATION = "windlass.dev/owned-labels"


class LabelSink(Protocol):
    def write_labels(self, labels: Mapping[str, str]) -> None: ...


class FileSink:
    """NFD's feature file: `name=value` lines, replaced in one step."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def write_labels(self, labels: Mapping[str, str]) -> None:
        text = "".join(f"{name}={value}\n" for name, value in sorted(labels.items()))
        write_atomically(self._path, text.encode())


class NodeFeatureSink:
    """NFD's object for this node, owned by the agent's DaemonSet and pod, so that it is deleted with them."""

    def __init__(self, api: NodeApi, namespace: str, pod: str = "") -> None:
        self._api, self._namespace, self._pod = api, namespace, pod
        self._owners: list[dict[str, Any]] | None = None if pod else []
        """None until the agent's own pod has been read."""

    def write_labels(self, labels: Mapping[str, str]) -> None:
        if self._owners is None:
            self._owners = self._find_owners()
        self._api.apply_node_feature(self._namespace, labels, self._owners or ())

    def _find_owners(self) -> list[dict[str, Any]] | None:
        """None if the pod can't be read: then labels are written without owners, and it is read next time."""
        try:
            return owner_references(self._api.get_pod(self._namespace, self._pod))
        except ClusterUnreachable:
            return None


def owner_references(pod: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The DaemonSet of a pod and the pod itself; empty for other owners."""
    metadata = pod["metadata"]
    for owner in metadata.get("ownerReferences") or ():
        if owner["kind"] == "DaemonSet":
            fields = {name: owner[name] for name in ("apiVersion", "kind", "name", "uid")}
            identity = {"name": metadata["name"], "uid": metadata["uid"]}
            return [{**fields, "controller": True}, {"apiVersion": "v1", "kind": "Pod", **identity}]
    return []


class NodeSink:
    """Labels on the Node itself; an annotation lists those that are ours."""

    def __init__(self, api: NodeApi) -> None:
        self._api = api

    def write_labels(self, labels: Mapping[str, str]) -> None:
        metadata = self._api.get_node()["metadata"]
        current: dict[str, str] = metadata.get("labels") or {}
        owned_before = (metadata.get("annotations") or {}).get(OWNED_LABELS_ANNOTATION, "").split(",")
        changes: dict[str, str | None] = {name: value for name, value in labels.items() if current.get(name) != value}
        changes |= {name: None for name in owned_before if name in current and name not in labels}
        owned = ",".join(sorted(labels))
        if changes or owned != ",".join(owned_before):
            self._api.patch_node(labels=changes, annotations={OWNED_LABELS_ANNOTATION: owned})


def make_sink(kind: str, *, file: Path, api: NodeApi | None, namespace: str, pod: str = "") -> LabelSink:
    """`kind` is `file`, `node-feature` or `node`; `pod` is the agent's own pod, if it runs in one."""
    if kind == "file":
        return FileSink(file)
    if api is None:
        remedy = "run inside the cluster, give --kubeconfig, or use file"
        raise InputError(f"labels as {kind} need an API server", remedy=remedy)
    return NodeFeatureSink(api, namespace, pod) if kind == "node-feature" else NodeSink(api)
