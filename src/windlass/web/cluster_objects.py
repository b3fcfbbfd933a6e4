"""The objects of a real cluster, as the page reads them: listed and watched, and only what it shows kept of each.

`cli.observe` runs it; `web.page_state` reads it as it reads the store of `windlass up`. Nothing is written. A pod keeps
about a kilobyte of what it has: requests, node, phase, conditions and owner, and neither environment nor commands.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import msgspec

from windlass.cluster.delta import Deleted, Delta, Put
from windlass.kube.client import KubeClient
from windlass.kube.informers import Informers
from windlass.kube.resources import KUEUE_API_GROUP, WATCHED_KINDS, Kind
from windlass.model.unstructured import Unstructured
from windlass.operator.resources import GROUP, OPERATOR_KINDS
from windlass.web.page_state import CUSTOM_RESOURCE_DEFINITIONS, OPERATOR_VIEWS, ChangeHandler

_QUEUE_PLURALS = ("workloads", "clusterqueues", "localqueues")
KINDS: tuple[Kind, ...] = (
    Kind("Node", "nodes", "", ("v1",), namespaced=False, required=True),
    Kind("Pod", "pods", "", ("v1",), required=True),
    Kind("Namespace", "namespaces", "", ("v1",), namespaced=False),
    Kind("Event", "events", "", ("v1",)),
    Kind("Job", "jobs", "batch", ("v1",)),
    *(Kind(kind, f"{kind.lower()}s", "apps", ("v1",)) for kind in ("Deployment", "StatefulSet", "ReplicaSet")),
    *(kind for kind in WATCHED_KINDS if kind.group == KUEUE_API_GROUP and kind.plural in _QUEUE_PLURALS),
    *(
        msgspec.structs.replace(kind, required=False)
        for kind in OPERATOR_KINDS
        if f"{kind.plural}.{GROUP}" in OPERATOR_VIEWS
    ),
)
"""What `install observe` asks the rights for: list and watch."""
POD_SPEC_FIELDS = (
    *("nodeName", "priority", "priorityClassName", "schedulerName", "schedulingGroup", "overhead"),
    "activeDeadlineSeconds",
)
POD_STATUS_FIELDS = ("phase", "reason", "message", "startTime")
_CONTAINER_STATUS = ("name", "restartCount", "state", "lastState")
STATUS_LISTS: dict[str, tuple[str, ...]] = {
    "conditions": ("type", "status", "reason", "message"),
    "containerStatuses": _CONTAINER_STATUS,
    "initContainerStatuses": _CONTAINER_STATUS,
}
BRING_UP_FIELDS = ("phase", "stack", "reason", "message", "since", "deadline", "steps")
"""Of a GPUNode that is not in service."""
NODE_STATUS_FIELDS = ("capacity", "allocatable")


class ClusterObjects:
    """An `ObjectSource`."""

    def __init__(self, client: KubeClient) -> None:
        self.informers = Informers(client, self._on_deltas, KINDS, decode=_decode)
        self._objects: dict[str, dict[str, Unstructured]] = {resource_name(kind): {} for kind in KINDS}
        self._names = {(kind.kind, kind.group): resource_name(kind) for kind in KINDS}
        self._handlers: dict[str, list[ChangeHandler]] = {}

    def list(self, resource: str) -> list[Unstructured]:
        if resource == CUSTOM_RESOURCE_DEFINITIONS:  # the page follows a queue's kind once its definition is there
            names = (resource_name(kind) for kind in KINDS if kind.group in (KUEUE_API_GROUP, GROUP))
            return [{"metadata": {"name": name}} for name in names]
        return list(self._objects.get(resource, {}).values())

    def subscribe(self, resource: str, handler: ChangeHandler) -> Callable[[], None]:
        handlers = self._handlers.setdefault(resource, [])
        handlers.append(handler)
        return lambda: handlers.remove(handler)

    def _on_deltas(self, deltas: Sequence[Delta]) -> None:
        for delta in deltas:
            if isinstance(delta, Deleted):
                name = self._names[delta.kind, delta.group]
                old = self._objects[name].pop(delta.key, None)
                if old is not None:
                    self._tell(name, "DELETED", old, old)
                continue
            if not isinstance(delta, Put):
                continue
            tree = cast(Unstructured, delta.object)
            meta = tree["metadata"]
            name = tree.pop("resource")
            key = f"{meta['namespace']}/{meta['name']}" if meta.get("namespace") else meta["name"]
            old = self._objects[name].get(key)
            self._objects[name][key] = tree
            self._tell(name, "MODIFIED" if old is not None else "ADDED", tree, old)

    def _tell(self, name: str, change: str, new: Unstructured, old: Unstructured | None) -> None:
        for handler in tuple(self._handlers.get(name, ())):
            handler(change, new, old)


def resource_name(kind: Kind) -> str:
    return f"{kind.plural}.{kind.group}" if kind.group else kind.plural


_RESOURCES = {(kind.kind, kind.group): resource_name(kind) for kind in KINDS}


def _decode(raw: msgspec.Raw, kind: str, api_version: str) -> object:
    tree: Unstructured = msgspec.json.decode(raw)
    tree["metadata"].pop("managedFields", None)
    if kind == "Pod":
        tree = trimmed_pod(tree)
    elif kind == "Node":
        tree["status"] = _trimmed_status(tree.get("status") or {}, NODE_STATUS_FIELDS)
    elif kind == "GPUNode":
        tree = _trimmed_gpu_node(tree)
    elif "template" in (tree.get("spec") or {}):
        tree["spec"]["template"] = _trimmed_template(tree["spec"]["template"] or {})
    group = api_version.rpartition("/")[0]
    return {**tree, "resource": _RESOURCES[kind, group]}


def trimmed_pod(tree: Mapping[str, Any]) -> Unstructured:
    spec, status = tree.get("spec") or {}, tree.get("status") or {}
    return {
        "metadata": tree["metadata"],
        "spec": {**_kept(spec, POD_SPEC_FIELDS), **_containers(spec)},
        "status": _trimmed_status(status, POD_STATUS_FIELDS),
    }


def _trimmed_gpu_node(tree: Mapping[str, Any]) -> Unstructured:
    """Of the thousands that are in service, that they are."""
    status = tree.get("status") or {}
    is_shown = status.get("phase") in (None, "", "NotReady")
    return {"metadata": tree["metadata"], "status": _kept(status, BRING_UP_FIELDS if is_shown else ("phase",))}


def _trimmed_status(status: Mapping[str, Any], fields: Sequence[str]) -> Unstructured:
    found = _kept(status, fields)
    for name, kept in STATUS_LISTS.items():
        if status.get(name):
            found[name] = [_kept(part, kept) for part in status[name]]
    return found


def _trimmed_template(template: Mapping[str, Any]) -> Unstructured:
    spec = template.get("spec") or {}
    return {
        "metadata": template.get("metadata") or {},
        "spec": {**_kept(spec, POD_SPEC_FIELDS), **_containers(spec)},
    }


def _containers(spec: Mapping[str, Any]) -> Unstructured:
    fields = ("name", "resources", "restartPolicy")
    lists = {name: spec.get(name) or () for name in ("containers", "initContainers")}
    return {name: [_kept(container, fields) for container in found] for name, found in lists.items() if found}


def _kept(tree: Mapping[str, Any], fields: Sequence[str]) -> Unstructured:
    return {field: tree[field] for field in fields if field in tree}
