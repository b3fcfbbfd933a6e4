"""Where labels go: a feature file that NFD reads, a NodeFeature object, or the node's own labels.

Called by the agent's label part after each change. Labels that were ours and are gone are taken away; labels of others
are never touched. A sink that belongs to somebody else is left alone, and the part says whose it is.
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
    """NFD's feature file: `name=value` lines, replaced as a whole."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def write_labels(self, labels: Mapping[str, str]) -> None:
        text = "".join(f"{name}={value}\n" for name, value in sorted(labels.items()))
        write_atomically(self._path, text.encode())


class NodeFeatureSink:
    """NFD's object for this node, owned by the agent's DaemonSet and pod, so that it goes when they go."""

    def __init__(self, api: NodeApi, namespace: str, pod: str = "") -> None:
        self._api = api
        self._namespace = namespace
        self._pod = pod
        self._owners: list[dict[str, Any]] | None = None if pod else []
        """None until the agent's own pod could be read."""

    def write_labels(self, labels: Mapping[str, str]) -> None:
        if self._owners is None:
            self._owners = self._find_owners()
        self._api.apply_node_feature(self._namespace, labels, self._owners or ())

    def _find_owners(self) -> list[dict[str, Any]] | None:
        """Labels matter more than who owns them: a pod that can't be read is asked for again the next time."""
        try:
            return owner_references(self._api.get_pod(self._namespace, self._pod))
        except ClusterUnreachable:
            return None


def owner_references(pod: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The DaemonSet of a pod and the pod itself; nothing for a pod of another kind of owner."""
    metadata = pod["metadata"]
    for owner in metadata.get("ownerReferences") or ():
        if owner["kind"] == "DaemonSet":
            fields = {name: owner[name] for name in ("apiVersion", "kind", "name", "uid")}
            mine = {"apiVersion": "v1", "kind": "Pod", "name": metadata["name"], "uid": metadata["uid"]}
            return [{**fields, "controller": True}, mine]
    return []


class NodeSink:
    """Labels on the Node itself; which are ours stands in an annotation."""

    def __init__(self, api: NodeApi) -> None:
        self._api = api

    def write_labels(self, labels: Mapping[str, str]) -> None:
        metadata = self._api.get_node()["metadata"]
        now: dict[str, str] = metadata.get("labels") or {}
        before = (metadata.get("annotations") or {}).get(OWNED_LABELS_ANNOTATION, "").split(",")
        wanted: dict[str, str | None] = {
            name: value for name, value in labels.items() if now.get(name) != value
        }
        wanted |= {name: None for name in before if name in now and name not in labels}
        owned = ",".join(sorted(labels))
        if wanted or owned != ",".join(before):
            self._api.patch_node(labels=wanted, annotations={OWNED_LABELS_ANNOTATION: owned})


def make_sink(kind: str, *, file: Path, api: NodeApi | None, namespace: str, pod: str = "") -> LabelSink:
    """`file`, `node-feature` or `node`; `pod` is the agent's own, where it runs in one."""
    if kind == "file":
        return FileSink(file)
    if api is None:
        raise InputError(
            f"labels as {kind} need an API server",
            remedy="run inside the cluster, give --kubeconfig, or use file",
        )
    return NodeFeatureSink(api, namespace, pod) if kind == "node-feature" else NodeSink(api)
