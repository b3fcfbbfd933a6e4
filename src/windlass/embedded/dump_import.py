"""Imports a real cluster's dump into a simulated cluster: `windlass up --from DUMP`.

The dump's nodes become simulated nodes, and all objects that affect scheduling are created before controllers and
scheduler start. Running pods stay where they are and run until they are deleted; pending pods stay pending. The API
server assigns new UIDs, so references between objects are rewritten.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from windlass.dump.files import list_files
from windlass.dump.raw_objects import read_raw
from windlass.embedded.api.errors import ApiError
from windlass.embedded.api.kinds import Kind
from windlass.embedded.controllers.client import Client
from windlass.embedded.controllers.job_pods import TRACKING_FINALIZER, has_tracking_finalizer
from windlass.embedded.controllers.objects import condition_of, controller_of, name_of, namespace_of, uid_of
from windlass.embedded.runtime.fleet_nodes import FleetNode, fleet_nodes, registered_node
from windlass.embedded.scheduler_thread import SCHEDULER_NAMES
from windlass.model.codec import decode_object
from windlass.model.errors import InputError
from windlass.model.fleet import Fleet
from windlass.model.names.kubernetes import JOB_CONTROLLER_UID_LABEL, SCHEDULING_API_VERSION
from windlass.model.names.windlass import SIMULATED_DURATION_ANNOTATION
from windlass.model.unstructured import Unstructured

CREATION_ORDER = (
    *("Namespace", "CustomResourceDefinition", "PriorityClass", "RuntimeClass", "StorageClass"),
    *("PersistentVolume", "PersistentVolumeClaim", "ServiceAccount", "Topology", "ResourceFlavor"),
    *("Cohort", "ClusterQueue", "LocalQueue", "WorkloadPriorityClass", "Reservation", "RunTimeHistory"),
    *("Deployment", "ReplicaSet", "StatefulSet", "DaemonSet", "Job", "Workload", "PodGroup", "Pod"),
    *("PodDisruptionBudget", "LimitRange", "ResourceQuota"),
)
"""Imported kinds, owners before dependents; quotas last, so that running pods are not refused."""
_SERVER_FIELDS = (
    *("uid", "resourceVersion", "generation", "creationTimestamp", "managedFields", "selfLink"),
    *("deletionTimestamp", "deletionGracePeriodSeconds"),
)
_UID_LABELS = ("controller-uid", JOB_CONTROLLER_UID_LABEL)
MAX_REPORTED_PROBLEMS = 5


class ImportClient(Client, Protocol):
    """The client, with a mapping from kinds to resources."""

    def kind(self, resource: str) -> Kind: ...

    def resources(self) -> Sequence[str]: ...


@dataclass
class DumpImport:
    nodes: list[FleetNode] = field(default_factory=list)
    objects: dict[str, list[Unstructured]] = field(default_factory=dict)
    """By kind."""
    skipped_kinds: dict[str, int] = field(default_factory=dict)

    def create_all(self, client: ImportClient) -> list[str]:
        """Creates everything; returns lines for the user: what was imported, and what could not be."""
        return _ImportRun(self, client).run()


def read_dump_import(dump: Path, now: float) -> DumpImport:
    dump_import, node_names = DumpImport(), set[str]()
    for file in list_files(dump):
        for raw in read_raw(file).objects:
            kind, tree = raw.header.kind, raw.data
            if not raw.header.metadata.name:
                raise InputError(f"a {kind} has no name", file=str(file), path="metadata.name")
            if kind == "Node":
                if raw.header.metadata.name not in node_names:  # files of a dump may overlap
                    dump_import.nodes.append(_node(tree, str(file), len(dump_import.nodes), now))
                node_names.add(raw.header.metadata.name)
            elif kind == "Fleet":
                fleet = decode_object(tree, str(file))
                assert isinstance(fleet, Fleet), "kind is Fleet"
                dump_import.nodes += fleet_nodes(fleet, now)
            elif kind in CREATION_ORDER:
                dump_import.objects.setdefault(kind, []).append(tree)
            else:
                dump_import.skipped_kinds[kind] = dump_import.skipped_kinds.get(kind, 0) + 1
    if not dump_import.nodes:
        raise InputError("contains no Node", file=str(dump), remedy="collect one with `windlass dump`")
    return dump_import


def _node(tree: Unstructured, file: str, number: int, now: float) -> FleetNode:
    decode_object(tree, file)  # raises an error that names the wrong field
    ready = (condition_of(tree, "Ready") or {}).get("status", "True") == "True"
    return FleetNode(registered_node(_without_identity(tree), number, now, ready=ready), (), is_down=not ready)


def _without_identity(tree: Unstructured) -> Unstructured:
    metadata = {key: value for key, value in tree["metadata"].items() if key not in _SERVER_FIELDS}
    return {**tree, "metadata": metadata}


class _ImportRun:
    """One import, with the new UIDs by old UID."""

    def __init__(self, dump_import: DumpImport, client: ImportClient) -> None:
        self._copy, self._client = dump_import, client
        self._uids: dict[str, str] = {}
        self._problems: list[str] = []
        self._imported: dict[str, int] = {}
        self._nodes = {name_of(node.tree) for node in dump_import.nodes}
        self._namespaces: set[str] = set()
        self._priority_classes: dict[str, int] = {}
        self._kinds = {
            (kind.group, kind.kind): resource for resource in client.resources() for kind in (client.kind(resource),)
        }

    def run(self) -> list[str]:
        for kind in CREATION_ORDER:
            for tree in self._copy.objects.pop(kind, ()):  # pop: a large cluster must not be in memory twice
                self._import_object(kind, tree)
        counts = ", ".join(f"{count} {kind}" for kind, count in self._imported.items())
        lines = [f"imported: {len(self._nodes)} Node" + (f", {counts}" if counts else "")]
        if self._problems:
            shown = self._problems[:MAX_REPORTED_PROBLEMS]
            more = len(self._problems) - len(shown)
            lines += [f"left out: {problem}" for problem in shown]
            lines += [f"left out: {more} more"] if more else []
        return lines

    def _import_object(self, kind: str, tree: Unstructured) -> None:
        group = str(tree.get("apiVersion", "")).rpartition("/")[0]
        resource = self._kinds.get((group, kind))
        if resource is None:
            self._problems.append(f"{kind} {name_of(tree)}: {tree.get('apiVersion')} is not served here")
            return
        namespace = namespace_of(tree)
        if self._client.kind(resource).namespaced:
            namespace = namespace or "default"
            self._ensure_namespace(namespace)
        try:
            prepared = self._prepare(kind, tree)
        except (AttributeError, KeyError, TypeError, ValueError):
            self._problems.append(f"{kind} {name_of(tree)}: it does not have the fields of a {kind}")
            return
        # The kinds served here have one schema for all versions.
        prepared["apiVersion"] = self._client.kind(resource).api_version
        try:
            created = self._client.create(resource, namespace, prepared)
        except ApiError as error:
            if error.reason != "AlreadyExists":
                self._problems.append(f"{kind} {name_of(tree)}: {error.message}")
            return
        self._uids[uid_of(tree)] = uid_of(created)
        self._imported[kind] = self._imported.get(kind, 0) + 1
        self._write_status(resource, namespace, tree)

    def _write_status(self, resource: str, namespace: str, tree: Unstructured) -> None:
        if not tree.get("status") or not self._client.kind(resource).has_subresource("status"):
            return
        try:
            newest = self._client.get(resource, namespace, name_of(tree))
            updated = {**newest, "status": tree["status"]}
            self._client.update(resource, namespace, name_of(tree), updated, "status")
        except ApiError as error:
            self._problems.append(f"status of {tree['kind']} {name_of(tree)}: {error.message}")

    def _ensure_namespace(self, name: str) -> None:
        if name in self._namespaces:
            return
        self._namespaces.add(name)
        try:
            self._client.create("namespaces", "", {"metadata": {"name": name}})
        except ApiError as error:
            if error.reason != "AlreadyExists":
                raise

    def _prepare(self, kind: str, tree: Unstructured) -> Unstructured:
        prepared = _without_identity(tree)
        prepared.pop("status", None)
        prepared["metadata"].pop("finalizers", None)  # the controllers that would remove them don't run here
        prepared["metadata"]["ownerReferences"] = list(self._owners(tree))
        if not prepared["metadata"]["ownerReferences"]:
            del prepared["metadata"]["ownerReferences"]
        match kind:
            case "Pod":
                return self._pod(prepared, tree)
            case "Job":
                return self._job(prepared)
            case "DaemonSet" | "StatefulSet":
                # The dump lacks their pods' revision; OnDelete keeps that from starting a rollout.
                prepared["spec"] = {**prepared["spec"], "updateStrategy": {"type": "OnDelete"}}
            case "Namespace":
                prepared["spec"] = {}
        return prepared

    def _owners(self, tree: Unstructured) -> Iterator[Unstructured]:
        """Owner references with new UIDs. An owner that was not imported is dropped if its kind is served."""
        for reference in tree["metadata"].get("ownerReferences") or ():
            uid = self._uids.get(reference.get("uid", ""))
            group = str(reference.get("apiVersion", "")).rpartition("/")[0]
            if uid is not None:
                yield {**reference, "uid": uid}
            elif (group, reference.get("kind")) not in self._kinds:
                yield dict(reference)

    def _pod(self, prepared: Unstructured, tree: Unstructured) -> Unstructured:
        spec = _with_required_fields(prepared["spec"])
        if spec.get("schedulerName") not in (None, *SCHEDULER_NAMES):
            spec["schedulerName"] = SCHEDULER_NAMES[0]
        if spec.get("nodeName") and spec["nodeName"] not in self._nodes:
            self._problems.append(f"Pod {name_of(tree)} runs on {spec['nodeName']}, which is not in the dump")
        self._ensure_priority_class(spec)
        spec.pop("priority", None)
        spec.pop("serviceAccountName", None)
        spec.pop("serviceAccount", None)
        metadata = prepared["metadata"]
        metadata["annotations"] = {
            SIMULATED_DURATION_ANNOTATION: "forever",
            **(metadata.get("annotations") or {}),
        }
        owner = controller_of(prepared)
        if has_tracking_finalizer(tree) and owner is not None and owner["kind"] == "Job":
            metadata["finalizers"] = [TRACKING_FINALIZER]  # its Job was imported and counts it
        labels = dict(metadata.get("labels") or {})
        for label in _UID_LABELS:
            if label in labels:
                labels[label] = self._uids.get(labels[label], labels[label])
        metadata["labels"] = labels
        return {**prepared, "spec": spec}

    def _ensure_priority_class(self, spec: Unstructured) -> None:
        """A pod's priority comes from its class; a class that is not in the dump is created."""
        name, value = spec.get("priorityClassName"), spec.get("priority")
        if not value or (name and name.startswith("system-")):
            return
        name = name or f"copied-{value}".replace("--", "-minus-")
        spec["priorityClassName"] = name
        if name in self._priority_classes:
            return
        self._priority_classes[name] = int(value)
        priority_class = {
            "apiVersion": SCHEDULING_API_VERSION,
            "kind": "PriorityClass",
            "metadata": {"name": name},
            "value": int(value),
            "preemptionPolicy": spec.get("preemptionPolicy") or "PreemptLowerPriority",
        }
        try:
            self._client.create("priorityclasses.scheduling.k8s.io", "", priority_class)
        except ApiError as error:
            if error.reason != "AlreadyExists":
                self._problems.append(f"PriorityClass {name}: {error.message}")

    def _job(self, prepared: Unstructured) -> Unstructured:
        """Without selector: the server generates it from the Job's new UID."""
        spec = {key: value for key, value in prepared["spec"].items() if key not in ("selector", "manualSelector")}
        template = dict(spec["template"])
        metadata = dict(template.get("metadata") or {})
        labels: Mapping[str, str] = metadata.get("labels") or {}
        metadata["labels"] = {key: value for key, value in labels.items() if key not in _UID_LABELS}
        metadata["annotations"] = {
            SIMULATED_DURATION_ANNOTATION: "forever",
            **(metadata.get("annotations") or {}),
        }
        pod_spec = {"restartPolicy": "Never", **_with_required_fields(template.get("spec") or {})}
        spec["template"] = {**template, "metadata": metadata, "spec": pod_spec}
        return {**prepared, "spec": spec}


def _with_required_fields(spec: Unstructured) -> Unstructured:
    """Adds what a shortened or redacted dump lacks and the API requires."""
    filled = dict(spec)
    for containers_field in ("initContainers", "containers"):
        if spec.get(containers_field):
            filled[containers_field] = [
                {"name": f"{containers_field.lower()}-{index}", "image": "unknown", **container}
                for index, container in enumerate(spec[containers_field])
            ]
    return filled
