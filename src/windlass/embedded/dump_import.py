"""A real cluster's dump as a simulated cluster: `windlass up --from DUMP`.

Reads the dump's objects as they are written; the nodes become simulated ones, and everything that decides where work
goes is put into the store before controllers and scheduler see it. Running pods stay where they are and run until
they are deleted; pending ones pend. Identities change (the API server gives new ones), so references between objects
are rewritten.
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
from windlass.embedded.runtime.behaviour import DURATION_ANNOTATION
from windlass.embedded.runtime.fleet_nodes import FleetNode, fleet_nodes, registered_node
from windlass.embedded.scheduler_thread import SCHEDULER_NAMES
from windlass.model.codec import decode_object
from windlass.model.errors import InputError
from windlass.model.fleet import Fleet
from windlass.model.unstructured import Unstructured

CREATION_ORDER = (
    "Namespace",
    "CustomResourceDefinition",
    "PriorityClass",
    "RuntimeClass",
    "StorageClass",
    "PersistentVolume",
    "PersistentVolumeClaim",
    "ServiceAccount",
    "Topology",
    "ResourceFlavor",
    "Cohort",
    "ClusterQueue",
    "LocalQueue",
    "WorkloadPriorityClass",
    "Reservation",
    "RunTimeHistory",
    "Deployment",
    "ReplicaSet",
    "StatefulSet",
    "DaemonSet",
    "Job",
    "Workload",
    "PodGroup",
    "Pod",
    "PodDisruptionBudget",
    "LimitRange",
    "ResourceQuota",
)
"""What is taken over, owners before what they own; quotas last, since what runs must not be refused."""
_MADE_BY_SERVER = (
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "managedFields",
    "selfLink",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
)
_UID_LABELS = ("controller-uid", "batch.kubernetes.io/controller-uid")
MAX_REPORTED_PROBLEMS = 5


class ImportClient(Client, Protocol):
    """The verbs, with a way from a kind to its resource."""

    def kind(self, resource: str) -> Kind: ...

    def resources(self) -> Sequence[str]: ...


@dataclass
class DumpImport:
    nodes: list[FleetNode] = field(default_factory=list)
    objects: dict[str, list[Unstructured]] = field(default_factory=dict)
    """By kind."""
    skipped_kinds: dict[str, int] = field(default_factory=dict)

    def create_all(self, client: ImportClient) -> list[str]:
        """Create everything; returns lines for a person: what came over, and what could not."""
        return _Taking(self, client).run()


def read_dump_import(dump: Path, now: float) -> DumpImport:
    copy, seen = DumpImport(), set[str]()
    for file in list_files(dump):
        for raw in read_raw(file).objects:
            kind, tree = raw.header.kind, raw.data
            if not raw.header.metadata.name:
                raise InputError(f"a {kind} has no name", file=str(file), path="metadata.name")
            if kind == "Node":
                if raw.header.metadata.name not in seen:  # files of a dump may overlap
                    copy.nodes.append(_node(tree, str(file), len(copy.nodes), now))
                seen.add(raw.header.metadata.name)
            elif kind == "Fleet":
                fleet = decode_object(tree, str(file))
                assert isinstance(fleet, Fleet), "its kind says so"
                copy.nodes += fleet_nodes(fleet, now)
            elif kind in CREATION_ORDER:
                copy.objects.setdefault(kind, []).append(tree)
            else:
                copy.skipped_kinds[kind] = copy.skipped_kinds.get(kind, 0) + 1
    if not copy.nodes:
        raise InputError("holds no Node", file=str(dump), remedy="collect one with `windlass dump`")
    return copy


def _node(tree: Unstructured, file: str, number: int, now: float) -> FleetNode:
    decode_object(tree, file)  # says which field is wrong
    ready = (condition_of(tree, "Ready") or {}).get("status", "True") == "True"
    return FleetNode(registered_node(_fresh(tree), number, now, ready=ready), (), is_down=not ready)


def _fresh(tree: Unstructured) -> Unstructured:
    metadata = {key: value for key, value in tree["metadata"].items() if key not in _MADE_BY_SERVER}
    return {**tree, "metadata": metadata}


class _Taking:
    """One run over the dump, with the identities that were given."""

    def __init__(self, copy: DumpImport, door: ImportClient) -> None:
        self._copy, self._door = copy, door
        self._uids: dict[str, str] = {}
        self._complaints: list[str] = []
        self._taken: dict[str, int] = {}
        self._nodes = {name_of(node.tree) for node in copy.nodes}
        self._namespaces: set[str] = set()
        self._classes: dict[str, int] = {}
        self._kinds = {
            (kind.group, kind.kind): resource
            for resource in door.resources()
            for kind in (door.kind(resource),)
        }

    def run(self) -> list[str]:
        for kind in CREATION_ORDER:
            for tree in self._copy.objects.pop(kind, ()):  # a large cluster is not kept twice
                self._take(kind, tree)
        counted = ", ".join(f"{count} {kind}" for kind, count in self._taken.items())
        lines = [f"taken over: {len(self._nodes)} Node" + (f", {counted}" if counted else "")]
        if self._complaints:
            shown = self._complaints[:MAX_REPORTED_PROBLEMS]
            more = len(self._complaints) - len(shown)
            lines += [f"left out: {each}" for each in shown]
            lines += [f"left out: {more} more"] if more else []
        return lines

    def _take(self, kind: str, tree: Unstructured) -> None:
        group = str(tree.get("apiVersion", "")).rpartition("/")[0]
        resource = self._kinds.get((group, kind))
        if resource is None:
            self._complaints.append(f"{kind} {name_of(tree)}: {tree.get('apiVersion')} is not served here")
            return
        namespace = namespace_of(tree)
        if self._door.kind(resource).namespaced:
            namespace = namespace or "default"
            self._make_namespace(namespace)
        try:
            wanted = self._prepared(kind, tree)
        except (AttributeError, KeyError, TypeError, ValueError):
            self._complaints.append(f"{kind} {name_of(tree)}: it doesn't have the fields of a {kind}")
            return
        # Kinds here have one shape in all versions.
        wanted["apiVersion"] = self._door.kind(resource).api_version
        try:
            made = self._door.create(resource, namespace, wanted)
        except ApiError as error:
            if error.reason != "AlreadyExists":
                self._complaints.append(f"{kind} {name_of(tree)}: {error.message}")
            return
        self._uids[uid_of(tree)] = uid_of(made)
        self._taken[kind] = self._taken.get(kind, 0) + 1
        self._put_status(resource, namespace, tree)

    def _put_status(self, resource: str, namespace: str, tree: Unstructured) -> None:
        if not tree.get("status") or not self._door.kind(resource).has_subresource("status"):
            return
        try:
            newest = self._door.get(resource, namespace, name_of(tree))
            whole = {**newest, "status": tree["status"]}
            self._door.update(resource, namespace, name_of(tree), whole, "status")
        except ApiError as error:
            self._complaints.append(f"status of {tree['kind']} {name_of(tree)}: {error.message}")

    def _make_namespace(self, name: str) -> None:
        if name in self._namespaces:
            return
        self._namespaces.add(name)
        try:
            self._door.create("namespaces", "", {"metadata": {"name": name}})
        except ApiError as error:
            if error.reason != "AlreadyExists":
                raise

    def _prepared(self, kind: str, tree: Unstructured) -> Unstructured:
        made = _fresh(tree)
        made.pop("status", None)
        made["metadata"].pop("finalizers", None)  # those who would take them off again are not here
        made["metadata"]["ownerReferences"] = list(self._owners(tree))
        if not made["metadata"]["ownerReferences"]:
            del made["metadata"]["ownerReferences"]
        match kind:
            case "Pod":
                return self._pod(made, tree)
            case "Job":
                return self._job(made)
            case "DaemonSet" | "StatefulSet":
                # The revision that their pods carry is not in the dump: nothing may be rolled out for that.
                made["spec"] = {**made["spec"], "updateStrategy": {"type": "OnDelete"}}
            case "Namespace":
                made["spec"] = {}
        return made

    def _owners(self, tree: Unstructured) -> Iterator[Unstructured]:
        """With their new identities; one that is not here is dropped, unless nobody here knows its kind."""
        for reference in tree["metadata"].get("ownerReferences") or ():
            uid = self._uids.get(reference.get("uid", ""))
            group = str(reference.get("apiVersion", "")).rpartition("/")[0]
            if uid is not None:
                yield {**reference, "uid": uid}
            elif (group, reference.get("kind")) not in self._kinds:
                yield dict(reference)

    def _pod(self, made: Unstructured, tree: Unstructured) -> Unstructured:
        spec = _whole_spec(made["spec"])
        if spec.get("schedulerName") not in (None, *SCHEDULER_NAMES):
            spec["schedulerName"] = SCHEDULER_NAMES[0]
        if spec.get("nodeName") and spec["nodeName"] not in self._nodes:
            self._complaints.append(
                f"Pod {name_of(tree)} runs on {spec['nodeName']}, which is not in the dump"
            )
        self._keep_class(spec)
        spec.pop("priority", None)
        spec.pop("serviceAccountName", None)
        spec.pop("serviceAccount", None)
        metadata = made["metadata"]
        metadata["annotations"] = {DURATION_ANNOTATION: "forever", **(metadata.get("annotations") or {})}
        owner = controller_of(made)
        if has_tracking_finalizer(tree) and owner is not None and owner["kind"] == "Job":
            metadata["finalizers"] = [TRACKING_FINALIZER]  # its Job is here, and counts its end
        labels = dict(metadata.get("labels") or {})
        for label in _UID_LABELS:
            if label in labels:
                labels[label] = self._uids.get(labels[label], labels[label])
        metadata["labels"] = labels
        return {**made, "spec": spec}

    def _keep_class(self, spec: Unstructured) -> None:
        """A pod's priority comes from its class; where the dump has no such class, one is made for it."""
        name, value = spec.get("priorityClassName"), spec.get("priority")
        if not value or (name and name.startswith("system-")):
            return
        name = name or f"copied-{value}".replace("--", "-minus-")
        spec["priorityClassName"] = name
        if name in self._classes:
            return
        self._classes[name] = int(value)
        made = {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": name},
            "value": int(value),
            "preemptionPolicy": spec.get("preemptionPolicy") or "PreemptLowerPriority",
        }
        try:
            self._door.create("priorityclasses.scheduling.k8s.io", "", made)
        except ApiError as error:
            if error.reason != "AlreadyExists":
                self._complaints.append(f"PriorityClass {name}: {error.message}")

    def _job(self, made: Unstructured) -> Unstructured:
        """The server makes the selector anew, from the Job's new identity."""
        spec = {
            key: value for key, value in made["spec"].items() if key not in ("selector", "manualSelector")
        }
        template = dict(spec["template"])
        metadata = dict(template.get("metadata") or {})
        labels: Mapping[str, str] = metadata.get("labels") or {}
        metadata["labels"] = {key: value for key, value in labels.items() if key not in _UID_LABELS}
        metadata["annotations"] = {DURATION_ANNOTATION: "forever", **(metadata.get("annotations") or {})}
        inner = {"restartPolicy": "Never", **_whole_spec(template.get("spec") or {})}
        spec["template"] = {**template, "metadata": metadata, "spec": inner}
        return {**made, "spec": spec}


def _whole_spec(spec: Unstructured) -> Unstructured:
    """What a shortened or redacted dump leaves out and the API insists on."""
    filled = dict(spec)
    for part in ("initContainers", "containers"):
        if spec.get(part):
            filled[part] = [
                {"name": f"{part.lower()}-{at}", "image": "unknown", **each}
                for at, each in enumerate(spec[part])
            ]
    return filled
