"""Everything that is known about a cluster: objects, events, logs of pods and hosts.

`cli.cluster_option` fills it from a dump or a live cluster; every stage of diagnosis reads it. `complete_kinds` tells a
kind of which no object exists from a kind that was not read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from copy import copy
from functools import cached_property, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakKeyDictionary

import msgspec

from windlass.diagnose.unstructured import nested_int, nested_map, nested_string
from windlass.dump.configuration import Configuration, published_configurations
from windlass.dump.files import list_files
from windlass.dump.raw_objects import ObjectHeader, RawObject, read_raw
from windlass.model.codec import Unreadable, decode_kind, decode_object, describe_unreadable, to_unstructured
from windlass.model.configuration import Settings
from windlass.model.errors import InputError
from windlass.model.fleet import expand_fleet
from windlass.model.fleet_spec import Fleet
from windlass.model.group_membership import ANNOUNCED_FORMS
from windlass.model.node import Node
from windlass.model.pod import Pod
from windlass.model.volume import PersistentVolume, PersistentVolumeClaim

if TYPE_CHECKING:
    from windlass.dump.collect import CollectedCluster

CLUSTER_KINDS = frozenset(
    {
        "Node",
        "GPU",
        "Namespace",
        "PersistentVolume",
        "StorageClass",
        "PriorityClass",
        "RuntimeClass",
        "ClusterQueue",
        "ResourceFlavor",
        "Cohort",
        "Topology",
        "WorkloadPriorityClass",
        "DeviceClass",
        "ResourceSlice",
        "CustomResourceDefinition",
        "AdmissionCheck",
        "NodePool",
        "NodeClaim",
    }
)


class ClusterObject:
    """One object: as it was written (`data`), and as the model decodes it (`decoded`)."""

    __slots__ = ("_data", "_raw", "decoded", "error", "kind", "name", "namespace", "uid")

    def __init__(self, raw: RawObject) -> None:
        header = raw.header
        self._raw = raw
        self._data: dict[str, Any] | None = None
        self.kind, self.name, self.uid = header.kind, header.metadata.name, header.metadata.uid
        self.namespace = "" if header.kind in CLUSTER_KINDS else header.metadata.namespace or "default"
        self.decoded: object = None
        self.error: InputError | None = None
        """Why it can't be decoded, if it can't."""

    @property
    def data(self) -> dict[str, Any]:
        if self._data is None:
            self._data = self._raw.data
        return self._data

    @property
    def api_version(self) -> str:
        return self._raw.header.api_version

    @property
    def api_group(self) -> str:
        return self.api_version.rpartition("/")[0]

    @property
    def created(self) -> str:
        return self._raw.header.metadata.creation_timestamp

    @property
    def labels(self) -> dict[str, str]:
        return self._raw.header.metadata.labels

    @property
    def annotations(self) -> dict[str, str]:
        return self._raw.header.metadata.annotations

    @property
    def owners(self) -> Sequence[tuple[str, str, str]]:
        """(kind, name, uid) of its owners, the controlling one first."""
        references = self._raw.header.metadata.owner_references
        if not references:
            return ()
        if len(references) > 1:
            references = tuple(sorted(references, key=lambda reference: not reference.controller))
        return [(reference.kind, reference.name, reference.uid) for reference in references]

    @property
    def title(self) -> str:
        # kubectl finds no PodGroup of an announced group, which exists only because pods name it.
        kind = "group" if self.api_group in ANNOUNCED_FORMS else self.kind
        return f"{kind} {self.namespace}/{self.name}" if self.namespace else f"{kind} {self.name}"

    def decode(self) -> None:
        """Sets `decoded`; an invalid object is kept with its error."""
        body, header = self._raw.body, self._raw.header
        if not isinstance(body, dict):
            self.decoded = decode_kind(body, header.kind, header.api_version)
        else:
            try:
                self.decoded = decode_object(body)
            except InputError as error:
                self.decoded = describe_unreadable(body, error)
        if isinstance(self.decoded, Unreadable):
            self.error = self.decoded.error.with_context(file=self._raw.file)
            self.decoded = msgspec.structs.replace(self.decoded, error=self.error)


class Event(msgspec.Struct, frozen=True):
    reason: str
    message: str
    kind: str
    namespace: str
    name: str
    source: str
    count: int = 1
    last: str = ""
    warning: bool = False
    uid: str = ""
    """Of the object that it is about: a deleted object may have had the same name."""


class LogLines(msgspec.Struct, frozen=True):
    origin: str
    """For messages: `pod ns/name (container)`, or `host node dmesg`."""
    lines: list[str]


class Evidence:
    def __init__(self) -> None:
        self.items: dict[tuple[str, str, str], ClusterObject] = {}
        self.complete_kinds: set[str] = set()
        """Kinds of which all objects are known: the dump has a List of them."""
        self.read_errors: list[InputError] = []
        self.hidden: list[str] = []
        """What the caller's rights do not cover, such as `secrets: not allowed`."""
        self.failed_queries: list[tuple[str, str]] = []
        """(what was asked of the cluster without an answer, command that asks again)."""
        self.secrets: dict[str, bool] = {}
        """`namespace/name` → whether a Secret of that name exists, of those that were asked for; never what it has."""
        self._by_uid: dict[str, ClusterObject] = {}
        self._pod_logs: dict[tuple[str, str], dict[str, LogLines]] = {}
        self._host_logs: dict[str, dict[str, LogLines]] = {}
        self._events: list[Event] = []

    def add(self, raw: RawObject) -> None:
        if raw.header.kind == "Event":
            self._events.append(read_event(raw.data))
            return
        item = ClusterObject(raw)
        if not item.name:
            return
        item.decode()
        if isinstance(item.decoded, Fleet):
            self._add_fleet(item.decoded)
            return
        self.items[self._key_of(item)] = item
        if item.uid:
            self._by_uid[item.uid] = item
        if item.error is not None:
            self.read_errors.append(item.error)

    def _key_of(self, item: ClusterObject) -> tuple[str, str, str]:
        """Four schedulers have a kind PodGroup: a second one of the same name has its API group in the key."""
        known = self.items.get((item.kind, item.namespace, item.name)) if item.kind == "PodGroup" else None
        is_other = known is not None and known.api_group != item.api_group
        return f"{item.kind}.{item.api_group}" if is_other else item.kind, item.namespace, item.name

    def _add_fleet(self, fleet: Fleet) -> None:
        for node in expand_fleet(fleet):
            header = ObjectHeader(api_version="v1", kind="Node", metadata=node.metadata)
            self.add(RawObject(header, "", to_unstructured(node)))

    def add_pod_log(self, namespace: str, pod: str, container: str, lines: list[str]) -> None:
        log = LogLines(f"pod {namespace}/{pod} ({container})", lines)
        self._pod_logs.setdefault((namespace, pod), {})[container] = log

    def add_host_log(self, node: str, source: str, lines: list[str]) -> None:
        self._host_logs.setdefault(node, {})[source] = LogLines(f"host {node} {source}", lines)

    # Lookups

    def get(self, kind: str, namespace: str, name: str) -> ClusterObject | None:
        return self.items.get((kind, "" if kind in CLUSTER_KINDS else namespace or "default", name))

    def pod_group(self, api_group: str, namespace: str, name: str) -> ClusterObject | None:
        found = (self.items.get((kind, namespace, name)) for kind in ("PodGroup", f"PodGroup.{api_group}"))
        return next((item for item in found if item is not None and item.api_group == api_group), None)

    def of_kind(self, kind: str) -> list[ClusterObject]:
        return self._kinds.get(kind, [])

    @cached_property
    def _kinds(self) -> dict[str, list[ClusterObject]]:
        kinds: dict[str, list[ClusterObject]] = {}
        for item in self.items.values():
            kinds.setdefault(item.kind, []).append(item)
        return kinds

    def has_kind(self, kind: str) -> bool:
        """Whether the kind was read, even if no object exists."""
        return kind in self.complete_kinds or bool(self.of_kind(kind))

    @cached_property
    def sharing_configs(self) -> list[tuple[ClusterObject, str, str]]:
        """(ConfigMap, key, text) of the device plugin's configurations that share GPUs."""
        return [
            (item, name, text)
            for item in self.of_kind("ConfigMap")
            for name, text in nested_map(item.data, "data").items()
            if isinstance(text, str) and ("timeSlicing" in text or "mps:" in text)
        ]

    @cached_property
    def nodes(self) -> dict[str, Node]:
        return {item.name: item.decoded for item in self.of_kind("Node") if isinstance(item.decoded, Node)}

    @cached_property
    def pods(self) -> dict[tuple[str, str], ClusterObject]:
        return {(item.namespace, item.name): item for item in self.of_kind("Pod")}

    @cached_property
    def published_configurations(self) -> list[Configuration]:
        """The configurations that the cluster's schedulers have published."""
        return published_configurations(item.data for kind in ("ConfigMap", "Lease") for item in self.of_kind(kind))

    def visible_to(self, settings: Settings) -> Evidence:
        """A copy without the nodes that the settings' nodeSelector excludes."""
        if not settings.node_selector:
            return self
        visible = copy(self)
        visible.items = {
            key: item for key, item in self.items.items() if item.kind != "Node" or settings.selects_node(item.labels)
        }
        for name in [name for name in vars(visible) if isinstance(getattr(Evidence, name, None), cached_property)]:
            del visible.__dict__[name]
        return visible

    @cached_property
    def objects(self) -> tuple[object, ...]:
        """Decoded objects, for the engine."""
        known = tuple(item.decoded for item in self.items.values() if item.decoded is not None)
        return known if self.has_kind("PersistentVolume") else (*known, *self._unread_volumes())

    def _unread_volumes(self) -> Iterator[PersistentVolume]:
        """Volumes that claims are bound to, where volumes were not read: that one is unknown proves nothing."""
        for item in self.of_kind("PersistentVolumeClaim"):
            claim = item.decoded
            if isinstance(claim, PersistentVolumeClaim) and claim.spec.volume_name and claim.status.phase == "Bound":
                spec = {"accessModes": claim.spec.access_modes, "storageClassName": claim.spec.storage_class_name or ""}
                metadata = {"name": claim.spec.volume_name}
                data = {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": metadata, "spec": spec}
                volume = decode_object({**data, "status": {"phase": "Bound"}})
                assert isinstance(volume, PersistentVolume), data
                yield volume

    def owner(self, item: ClusterObject) -> ClusterObject | None:
        """The first owner that is in the evidence, the controlling one first."""
        for kind, name, uid in item.owners:
            found = self._by_uid.get(uid) if uid else None
            found = found or self.get(kind, item.namespace, name)
            if found is not None:
                return found
        return None

    def children(self, item: ClusterObject) -> list[ClusterObject]:
        by_uid = self._children.get(item.uid, []) if item.uid else []
        return [*by_uid, *self._children.get((item.kind, item.namespace, item.name), [])]

    @cached_property
    def _children(self) -> dict[object, list[ClusterObject]]:
        """Children by the owner's uid if the owner is known, else by its (kind, namespace, name)."""
        found: dict[object, list[ClusterObject]] = {}
        for item in self.items.values():
            owners = item.owners
            if owners:
                known = [uid for _, _, uid in owners if uid and uid in self._by_uid]
                kind, name, _ = owners[0]
                where = "" if kind in CLUSTER_KINDS else item.namespace
                found.setdefault(known[0] if known else (kind, where, name), []).append(item)
        return found

    def events_of(self, item: ClusterObject) -> list[Event]:
        """The oldest first; those about a deleted object of the same name are left out."""
        found = self._events_by.get((item.kind, item.name), {}).get(item.namespace, [])
        return [event for event in found if not event.uid or not item.uid or event.uid == item.uid]

    @property
    def events(self) -> Sequence[Event]:
        return self._events

    @cached_property
    def _events_by(self) -> dict[tuple[str, str], dict[str, list[Event]]]:
        found: dict[tuple[str, str], dict[str, list[Event]]] = {}
        for event in sorted(self._events, key=lambda event: event.last):
            namespace = "" if event.kind in CLUSTER_KINDS else event.namespace or "default"
            found.setdefault((event.kind, event.name), {}).setdefault(namespace, []).append(event)
        return found

    def logs_of(self, pod: ClusterObject) -> list[LogLines]:
        return list(self._pod_logs.get((pod.namespace, pod.name), {}).values())

    @cached_property
    def logged_pods(self) -> list[ClusterObject]:
        """Pods of which there are logs: few, where pods are many."""
        return [pod for pod in self.of_kind("Pod") if (pod.namespace, pod.name) in self._pod_logs]

    def host_logs(self, node: str) -> list[LogLines]:
        return list(self._host_logs.get(node, {}).values())

    def pods_on(self, node: str) -> Iterator[ClusterObject]:
        return iter(self._by_node.get(node, ()))

    @cached_property
    def _by_node(self) -> dict[str, list[ClusterObject]]:
        found: dict[str, list[ClusterObject]] = {}
        for item in self.of_kind("Pod"):
            value = item.decoded
            node = value.spec.node_name if isinstance(value, Pod) else ""
            if isinstance(value, Unreadable):
                node = value.node_name
            if node:
                found.setdefault(node, []).append(item)
        return found


Found = TypeVar("Found")


def once_per_evidence(find: Callable[[Evidence], Found]) -> Callable[[Evidence], Found]:
    """Remembers what was found: evidence does not change once questions are asked, and a survey asks hundreds."""
    known: WeakKeyDictionary[Evidence, Found] = WeakKeyDictionary()

    @wraps(find)
    def remembered(evidence: Evidence) -> Found:
        if evidence not in known:
            known[evidence] = find(evidence)
        return known[evidence]

    return remembered


def read_event(data: dict[str, Any]) -> Event:
    """Of core and of events.k8s.io Events."""
    about = nested_map(data, "involvedObject") or nested_map(data, "regarding")
    source = nested_string(data, "source", "component") or nested_string(data, "reportingComponent")
    return Event(
        reason=nested_string(data, "reason"),
        message=nested_string(data, "message") or nested_string(data, "note"),
        kind=nested_string(about, "kind"),
        namespace=nested_string(about, "namespace"),
        name=nested_string(about, "name"),
        source=source or nested_string(data, "reportingController"),
        count=max(1, nested_int(data, "count"), nested_int(data, "series", "count")),
        last=nested_string(data, "lastTimestamp")
        or nested_string(data, "eventTime")
        or nested_string(data, "firstTimestamp"),
        warning=nested_string(data, "type") == "Warning",
        uid="" if nested_string(about, "kind") == "Node" else nested_string(about, "uid"),  # kubelets write the name
    )


def evidence_from_collected(collected: CollectedCluster) -> Evidence:
    """Evidence from a live cluster."""
    evidence = Evidence()
    evidence.complete_kinds |= collected.listed_kinds
    evidence.hidden += collected.not_readable
    for raw in collected.objects:
        evidence.add(raw)
    for log in collected.logs:
        evidence.add_pod_log(log.namespace, log.pod, log.container, log.text.splitlines())
    for host in collected.hosts:
        evidence.add_host_log(host.node, host.source, host.text.splitlines())
    return evidence


def load_evidence(dump: Path, *, keep_going: bool = False) -> Evidence:
    """Evidence from a dump: a file, or a folder with `logs/` and `hosts/`. `keep_going` collects read errors."""
    evidence = Evidence()
    for path in list_files(dump):
        try:
            file = read_raw(path)
        except InputError as error:
            if not keep_going:
                raise
            evidence.read_errors.append(error)
            continue
        evidence.complete_kinds |= file.listed_kinds
        for raw in file.objects:
            evidence.add(raw)
    if dump.is_dir():
        _load_logs(evidence, dump)
    return evidence


def _load_logs(evidence: Evidence, dump: Path) -> None:
    for file in sorted(dump.glob("logs/*.log")):
        parts = file.stem.split("_")
        if len(parts) == 3:
            evidence.add_pod_log(parts[0], parts[1], parts[2], _lines(file))
    for file in sorted(dump.glob("hosts/*/*.log")):
        evidence.add_host_log(file.parent.name, file.stem, _lines(file))


def _lines(file: Path) -> list[str]:
    """Bytes that are not UTF-8 are replaced."""
    try:
        return file.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError as error:
        raise InputError(f"can't be read: {error.strerror}", file=str(file)) from error
