"""The objects that a viewer may see, between those of the cluster and the page's state.

What is left out here can't get onto the page, whatever the page does with what it has. Pods of other namespaces stay as
nameless users of their GPUs, since the fleet's sums are for everybody; their jobs, events and reasons are not there.
Nodes of a viewer who may not list nodes have made-up names, and neither labels nor taints.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable, Mapping
from typing import Any

from windlass.model.names.nvidia import GPU_CLIQUE_LABEL, NVIDIA_PREFIX
from windlass.model.names.windlass import ALLOCATED_DEVICES_ANNOTATION, DEVICES_ANNOTATION, UNHEALTHY_DEVICES_ANNOTATION
from windlass.model.unstructured import Unstructured
from windlass.web.jobs import OTHERS
from windlass.web.page_state import (
    CLUSTER_QUEUES,
    CUSTOM_RESOURCE_DEFINITIONS,
    OPERATOR_VIEWS,
    ChangeHandler,
    ObjectSource,
)
from windlass.web.viewers import Viewer

LOCAL_QUEUES = "localqueues.kueue.x-k8s.io"
_SALT = secrets.token_bytes(16)
_GPU_ANNOTATIONS = (ALLOCATED_DEVICES_ANNOTATION, DEVICES_ANNOTATION)


class VisibleObjects:
    """An `ObjectSource` for one viewer, or for all with the same rights."""

    def __init__(self, source: ObjectSource, viewer: Viewer) -> None:
        self._source, self._viewer = source, viewer

    def list(self, resource: str) -> list[Unstructured]:
        shown = (self._shown(resource, tree) for tree in self._source.list(resource))
        return [tree for tree in shown if tree is not None]

    def subscribe(self, resource: str, handler: ChangeHandler) -> Callable[[], None]:
        def tell(change: str, new: Unstructured, old: Unstructured | None) -> None:
            shown = self._shown(resource, new)
            if shown is not None:
                handler(change, shown, self._shown(resource, old) if old is not None else None)

        return self._source.subscribe(resource, tell)

    def queues(self) -> frozenset[str]:
        """ClusterQueues of the viewer's own LocalQueues."""
        trees = (tree for tree in self._source.list(LOCAL_QUEUES) if self._sees(tree))
        return frozenset(str((tree.get("spec") or {}).get("clusterQueue", "")) for tree in trees) - {""}

    def _shown(self, resource: str, tree: Unstructured) -> Unstructured | None:
        if resource == CUSTOM_RESOURCE_DEFINITIONS:
            return tree
        if resource == "nodes":
            return tree if self._viewer.sees_nodes else nameless_node(tree)
        if resource in OPERATOR_VIEWS:  # they name nodes, and whoever took one out of service
            return tree if self._viewer.sees_nodes else None
        if resource == CLUSTER_QUEUES:
            sees_it = self._viewer.namespaces is None or tree["metadata"]["name"] in self.queues()
            return tree if sees_it else None
        if self._sees(tree):
            return self._on_nameless_node(tree) if resource == "pods" and not self._viewer.sees_nodes else tree
        return self._on_nameless_node(nameless_pod(tree)) if resource == "pods" else None

    def _sees(self, tree: Mapping[str, Any]) -> bool:
        """Objects without a namespace that are none of the above are of nobody whom the viewer may know."""
        return self._viewer.namespaces is None or tree["metadata"].get("namespace", "") in self._viewer.namespaces

    def _on_nameless_node(self, pod: Unstructured) -> Unstructured:
        node = (pod.get("spec") or {}).get("nodeName")
        if self._viewer.sees_nodes or not node:
            return pod
        return {**pod, "spec": {**pod["spec"], "nodeName": made_up_name("node", node)}}


def nameless_pod(tree: Mapping[str, Any]) -> Unstructured:
    """What it takes of its node, and nothing else."""
    meta, spec, status = tree["metadata"], tree.get("spec") or {}, tree.get("status") or {}
    annotations = meta.get("annotations") or {}
    kept = {name: annotations[name] for name in _GPU_ANNOTATIONS if name in annotations}
    containers = [{"resources": container.get("resources") or {}} for container in spec.get("containers") or ()]
    return {
        "metadata": {
            "namespace": OTHERS,
            "name": made_up_name("pod", f"{meta.get('namespace', '')}/{meta['name']}"),
            "annotations": kept,
        },
        "spec": {"nodeName": spec.get("nodeName") or "", "containers": containers},
        "status": {"phase": status.get("phase") or ""},
    }


def nameless_node(tree: Mapping[str, Any]) -> Unstructured:
    """Its GPUs and whether it is ready, and nothing else."""
    meta, status = tree["metadata"], tree.get("status") or {}
    labels, annotations = meta.get("labels") or {}, meta.get("annotations") or {}
    ready = [
        {"type": "Ready", "status": condition.get("status")}
        for condition in status.get("conditions") or ()
        if condition.get("type") == "Ready"
    ]
    ill = {name: annotations[name] for name in (UNHEALTHY_DEVICES_ANNOTATION,) if name in annotations}
    return {
        "metadata": {
            "name": made_up_name("node", meta["name"]),
            "labels": {name: value for name, value in labels.items() if _is_about_gpus(name)},
            "annotations": ill,
        },
        "spec": {"unschedulable": bool((tree.get("spec") or {}).get("unschedulable"))},
        "status": {
            "conditions": ready,
            "capacity": status.get("capacity") or {},
            "allocatable": status.get("allocatable") or {},
        },
    }


def _is_about_gpus(label: str) -> bool:
    return label.startswith(NVIDIA_PREFIX) and label != GPU_CLIQUE_LABEL  # which says what stands beside what


def made_up_name(kind: str, name: str) -> str:
    """The same for the same name while this process runs, and no way back."""
    return f"{kind}-{hashlib.blake2b(name.encode(), key=_SALT, digest_size=5).hexdigest()}"
