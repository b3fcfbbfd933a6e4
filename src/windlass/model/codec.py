"""Decodes Kubernetes JSON (or the dicts of a YAML reader) into structs, strictly, and encodes them again.

Every source calls it: watch events, dumps, manifests, scenarios, traces of our own format. The fast path is one typed
decode. Only an object that fails there is decoded again, with nulls as Kubernetes reads them, and then accepted or
refused with an error that has the object, the field's path and a remedy. The only exception raised is `InputError`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from windlass.model import pod_group
from windlass.model.configuration import (
    KueueConfiguration,
    SchedulerConfiguration,
    kueue_settings,
    scheduler_settings,
)
from windlass.model.convert import convert, describe_found
from windlass.model.disruption import PodDisruptionBudget, check_budget
from windlass.model.errors import InputError
from windlass.model.fleet_spec import Fleet, check_fleet
from windlass.model.kueue import queue_wire, queues
from windlass.model.kueue.workload_wire import WorkloadObject
from windlass.model.kueue.workloads import check_workload
from windlass.model.meta import KubeStruct, ObjectMeta
from windlass.model.names.kai import KAI_POD_GROUP_API_VERSION, KAI_QUEUE_API_VERSION
from windlass.model.names.kubernetes import (
    POD_GROUP_API_VERSION,
    POLICY_API_VERSION,
    SCHEDULING_API_VERSION,
    STORAGE_API_VERSION,
)
from windlass.model.names.kueue import KUEUE_API_VERSION, KUEUE_CONFIG_API_VERSION
from windlass.model.names.others import (
    COSCHEDULING_API_VERSION,
)
from windlass.model.names.volcano import VOLCANO_API_VERSION
from windlass.model.names.windlass import WINDLASS_API_VERSION
from windlass.model.namespace_limits import LimitRange, ResourceQuota, check_limit_range, check_quota
from windlass.model.node import Node
from windlass.model.owners import owner_from_object
from windlass.model.owners import wire as owners
from windlass.model.owners.kinds import OWNER_KINDS
from windlass.model.pod import Pod
from windlass.model.pod_defaults import RUNTIME_CLASS_API_VERSION, RuntimeClass, check_runtime_class
from windlass.model.pod_group import pod_group_from_object
from windlass.model.priority import PriorityClass
from windlass.model.reservation import ReservationObject, reservation_from_object
from windlass.model.run_time_history import RunTimeHistoryObject, run_times_from_object
from windlass.model.shared_queues.kai import KaiQueueObject, kai_queue_from_object
from windlass.model.shared_queues.volcano import VolcanoQueueObject, volcano_queue_from_object
from windlass.model.validation import (
    check_node,
    check_pod,
    check_priority_class,
    check_storage_class,
    check_volume,
)
from windlass.model.volume import (
    CSINode,
    Namespace,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    VolumeAttachment,
)


class PartialObject(KubeStruct, frozen=True):
    """An object of a kind of which Windlass reads only the metadata."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()


class ObjectList(msgspec.Struct, frozen=True):
    """A Kubernetes List (`List`, `PodList`, …), decoded."""

    items: tuple[object, ...]


class Unreadable(msgspec.Struct, frozen=True):
    """An object that could not be decoded, with the fields that are known nevertheless.

    A pod of which only `node_name` is known blocks that node, since its free resources are unknown.
    """

    error: InputError
    kind: str = ""
    namespace: str = ""
    name: str = ""
    node_name: str = ""
    scheduler_name: str = ""
    uid: str = ""
    api_version: str = ""
    """`uid` and `api_version` are known if the object came from a server."""


class _Header(KubeStruct, frozen=True):
    kind: str = ""
    api_version: str = ""


_KINDS: dict[str, tuple[tuple[str, type], ...]] = {
    "Pod": (("v1", Pod),),
    "Node": (("v1", Node),),
    "Namespace": (("v1", Namespace),),
    "PersistentVolume": (("v1", PersistentVolume),),
    "PersistentVolumeClaim": (("v1", PersistentVolumeClaim),),
    "StorageClass": ((STORAGE_API_VERSION, StorageClass),),
    "CSINode": ((STORAGE_API_VERSION, CSINode),),
    "VolumeAttachment": ((STORAGE_API_VERSION, VolumeAttachment),),
    "PriorityClass": ((SCHEDULING_API_VERSION, PriorityClass),),
    "ClusterQueue": ((KUEUE_API_VERSION, queue_wire.ClusterQueueObject),),
    "LocalQueue": ((KUEUE_API_VERSION, queue_wire.LocalQueueObject),),
    "Cohort": ((KUEUE_API_VERSION, queue_wire.CohortObject),),
    "ResourceFlavor": ((KUEUE_API_VERSION, queue_wire.ResourceFlavorObject),),
    "Topology": ((KUEUE_API_VERSION, queue_wire.TopologyObject),),
    "Workload": ((KUEUE_API_VERSION, WorkloadObject),),
    "WorkloadPriorityClass": ((KUEUE_API_VERSION, queue_wire.WorkloadPriorityClassObject),),
    "Queue": ((KAI_QUEUE_API_VERSION, KaiQueueObject), (VOLCANO_API_VERSION, VolcanoQueueObject)),
    "PodGroup": (
        (KAI_POD_GROUP_API_VERSION, pod_group.KaiPodGroup),
        (COSCHEDULING_API_VERSION, pod_group.CoschedulingPodGroup),
        (VOLCANO_API_VERSION, pod_group.VolcanoPodGroup),
        (POD_GROUP_API_VERSION, pod_group.NativePodGroup),
    ),
    **OWNER_KINDS,
    "PodDisruptionBudget": ((POLICY_API_VERSION, PodDisruptionBudget),),
    "ResourceQuota": (("v1", ResourceQuota),),
    "LimitRange": (("v1", LimitRange),),
    "RuntimeClass": ((RUNTIME_CLASS_API_VERSION, RuntimeClass),),
    "Configuration": ((KUEUE_CONFIG_API_VERSION, KueueConfiguration),),
    "SchedulerConfiguration": ((WINDLASS_API_VERSION, SchedulerConfiguration),),
    "Fleet": ((WINDLASS_API_VERSION, Fleet),),
    "Reservation": ((WINDLASS_API_VERSION, ReservationObject),),
    "RunTimeHistory": ((WINDLASS_API_VERSION, RunTimeHistoryObject),),
}
"""Kind → its API versions, one per group, each with its struct."""
_CHECKS: dict[type, Any] = {
    Pod: check_pod,
    Node: check_node,
    PersistentVolume: check_volume,
    StorageClass: check_storage_class,
    Fleet: check_fleet,
    ReservationObject: reservation_from_object,
    RunTimeHistoryObject: run_times_from_object,
    queue_wire.ClusterQueueObject: queues.cluster_queue_from_object,
    queue_wire.LocalQueueObject: queues.local_queue_from_object,
    queue_wire.CohortObject: queues.cohort_from_object,
    queue_wire.ResourceFlavorObject: queues.resource_flavor_from_object,
    queue_wire.TopologyObject: queues.topology_from_object,
    KaiQueueObject: kai_queue_from_object,
    VolcanoQueueObject: volcano_queue_from_object,
    WorkloadObject: check_workload,
    PriorityClass: check_priority_class,
    queue_wire.WorkloadPriorityClassObject: check_priority_class,
    PodDisruptionBudget: check_budget,
    ResourceQuota: check_quota,
    LimitRange: check_limit_range,
    RuntimeClass: check_runtime_class,
    KueueConfiguration: kueue_settings,
    SchedulerConfiguration: scheduler_settings,
}
_KIND_OF: dict[type, tuple[str, str]] = {
    struct: (version, kind) for kind, known in _KINDS.items() for version, struct in known
}
_CHECKS |= {struct: pod_group_from_object for struct in _KIND_OF if issubclass(struct, pod_group.PodGroupObject)}
_CHECKS |= {struct: owner_from_object for struct in _KIND_OF if issubclass(struct, owners.OwnerObject)}
_DECODERS: dict[type, msgspec.json.Decoder[Any]] = {}
_HEADERS = msgspec.json.Decoder(_Header)
_NAMESPACED = frozenset(
    kind for struct, (_, kind) in _KIND_OF.items() if issubclass(struct, owners.OwnerObject | pod_group.PodGroupObject)
) | {
    "Pod",
    "PersistentVolumeClaim",
    "LocalQueue",
    "Workload",
    "PodDisruptionBudget",
    "ResourceQuota",
    "LimitRange",
    "RunTimeHistory",
}
_BYTE_OFFSET = re.compile(r"\(byte ([0-9]+)\)")


def decode_object(raw: bytes | Mapping[str, Any], file: str = "", line: int = 0) -> object:
    """One object, or an `ObjectList`; `file` and `line` are the place for errors."""
    try:
        quick = _decode_fast(raw) if isinstance(raw, bytes) else None
        if quick is not None:
            return quick
        tree = _parse(raw)
        if not _is_list(tree):
            return _decode_tree(tree)
        return ObjectList(tuple(_decode_tree(item, f"items[{at}]") for at, item in _list_items(tree)))
    except InputError as error:
        raise error.with_context(file=file, line=line) from None


def decode_each(raw: bytes | Mapping[str, Any], file: str = "", line: int = 0) -> Iterator[object | Unreadable]:
    """The objects of a document one by one, Lists expanded; one that can't be decoded becomes an `Unreadable`."""
    try:
        tree = _parse(raw)
        items = _list_items(tree) if _is_list(tree) else [(0, tree)]
    except InputError as error:
        yield Unreadable(error.with_context(file=file, line=line))
        return
    for position, item in items:
        try:
            yield _decode_tree(item, f"items[{position}]" if item is not tree else "")
        except InputError as error:
            yield describe_unreadable(item, error.with_context(file=file, line=line))


def decode_kind(raw: bytes | msgspec.Raw, kind: str, api_version: str) -> object | Unreadable:
    """An object whose kind is known beforehand: items of typed lists don't have the field."""
    struct = _struct_of(kind, api_version)
    if struct is not None and not issubclass(struct, queue_wire.QueueObject):
        try:
            obj: object = _decoder(struct).decode(raw)
            _check(obj)
            return obj
        except (msgspec.MsgspecError, InputError, ValueError, RecursionError):
            pass  # the slow path reports the error, or accepts a null
    tree: Any = None
    try:
        tree = {"apiVersion": api_version, "kind": kind, **_parse(bytes(raw))}
        return _decode_tree(tree)
    except InputError as error:
        return describe_unreadable(tree or {"kind": kind}, error)


def encode_object(obj: object) -> bytes:
    """Kubernetes JSON of an object that `decode_object` could have made."""
    return msgspec.json.encode(to_unstructured(obj))


def to_unstructured(obj: object) -> dict[str, Any]:
    """The same as nested dicts and lists, with `apiVersion` and `kind`, for YAML writers."""
    if isinstance(obj, ObjectList):
        return {"apiVersion": "v1", "kind": "List", "items": [to_unstructured(item) for item in obj.items]}
    tree: dict[str, Any] = msgspec.to_builtins(obj)
    if type(obj) in _KIND_OF:
        version, kind = _KIND_OF[type(obj)]
        return {"apiVersion": version, "kind": kind, **tree}
    return tree


def object_id(obj: Any) -> tuple[str, str, str]:
    """API group, kind, and `namespace/name` (the name alone where the kind has no namespaces) of a decoded object."""
    version, kind = _KIND_OF.get(type(obj)) or (obj.api_version, obj.kind)
    name, namespace = obj.metadata.name, obj.metadata.namespace
    if kind in _NAMESPACED:
        namespace = namespace or "default"
    return version.rpartition("/")[0], kind, f"{namespace}/{name}" if namespace else name


def _decode_fast(raw: bytes) -> object | None:
    """The typed decode of a well-formed object; None if the slow path is needed."""
    try:
        header = _HEADERS.decode(raw)
        struct = _struct_of(header.kind, header.api_version)
        if struct is None or issubclass(struct, queue_wire.QueueObject):
            return None  # in queue kinds, fields that are not implemented must be detected
        obj: object = _decoder(struct).decode(raw)
        _check(obj)
    except (msgspec.MsgspecError, InputError, ValueError, RecursionError):
        return None
    return obj


def _decoder(struct: type) -> msgspec.json.Decoder[Any]:
    """Made on first use: a command that reads three kinds should not build decoders for thirty."""
    found = _DECODERS.get(struct)
    if found is None:
        found = _DECODERS[struct] = msgspec.json.Decoder(struct)
    return found


def _parse(raw: bytes | Mapping[str, Any]) -> Mapping[str, Any]:
    tree = _parse_json(raw) if isinstance(raw, bytes) else raw
    if not isinstance(tree, Mapping):
        raise InputError(
            f"expected an object, found {describe_found(tree)}",
            remedy="a Kubernetes object is a mapping with apiVersion, kind and metadata",
        )
    return tree


def _parse_json(raw: bytes) -> Any:
    try:
        return msgspec.json.decode(raw)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        offset = _BYTE_OFFSET.search(str(error))
        before = raw[: int(offset[1])] if offset else b""
        raise InputError(
            f"not JSON: {error}",
            line=before.count(b"\n") + 1 if offset else 0,
            column=len(before) - before.rfind(b"\n") if offset else 0,
            remedy="is the file complete?",
        ) from None


def _decode_tree(tree: object, position: str = "") -> object:
    if not isinstance(tree, Mapping):
        raise InputError(f"expected an object, found {describe_found(tree)}", path=position)
    kind = tree.get("kind")
    if not isinstance(kind, str) or not kind:
        raise InputError(
            f"expected the kind of an object, found {describe_found(kind)}",
            path=f"{position}.kind" if position else "kind",
            remedy="every Kubernetes object says what it is, such as kind: Pod",
        )
    version = tree.get("apiVersion", "")
    struct = _struct_of(kind, version if isinstance(version, str) else "")
    try:
        obj = convert(tree, struct or PartialObject)
        _check(obj)
    except InputError as error:
        raise error.with_context(object=_name_of(tree), code="INVALID_OBJECT") from None
    return obj


def _check(obj: object) -> None:
    check = _CHECKS.get(type(obj))
    if check is not None:
        check(obj)


def _struct_of(kind: str, version: str) -> type | None:
    """By kind and API group; without an apiVersion, by kind if that is unambiguous."""
    group = version.rpartition("/")[0]
    known = _KINDS.get(kind, ())
    if not version:
        return known[0][1] if len(known) == 1 else None
    return next((struct for api_version, struct in known if api_version.rpartition("/")[0] == group), None)


def _is_list(tree: Mapping[str, Any]) -> bool:
    kind = tree.get("kind")
    return isinstance(kind, str) and kind.endswith("List") and "items" in tree


def _list_items(tree: Mapping[str, Any]) -> list[tuple[int, Any]]:
    """(position, item); items of a typed list without a kind get the kind of the list."""
    items = tree["items"]
    if items is None:
        return []
    if not isinstance(items, list | tuple):
        raise InputError(f"expected a list, found {describe_found(items)}", object=str(tree["kind"]), path="items")
    kind = str(tree["kind"]).removesuffix("List")
    return [
        (at, {"kind": kind, **item} if kind and isinstance(item, Mapping) and "kind" not in item else item)
        for at, item in enumerate(items)
    ]


def _text(tree: object, *keys: str) -> str:
    """The string at a path of keys, or nothing; never fails."""
    for key in keys:
        tree = tree.get(key) if isinstance(tree, Mapping) else None
    return tree if isinstance(tree, str) else ""


def _name_of(tree: Mapping[str, Any]) -> str:
    kind = _text(tree, "kind")
    name = _text(tree, "metadata", "name") or _text(tree, "metadata", "generateName")
    namespace = _text(tree, "metadata", "namespace")
    if kind in _NAMESPACED:
        namespace = namespace or "default"
    return f"{kind} {namespace}/{name}" if namespace else f"{kind} {name}".rstrip()


def describe_unreadable(tree: object, error: InputError) -> Unreadable:
    """The fields of a refused object that are known nevertheless."""
    return Unreadable(
        error,
        kind=_text(tree, "kind"),
        namespace=_text(tree, "metadata", "namespace"),
        name=_text(tree, "metadata", "name"),
        node_name=_text(tree, "spec", "nodeName"),
        scheduler_name=_text(tree, "spec", "schedulerName"),
    )
