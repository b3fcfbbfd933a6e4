"""Objects in and out: Kubernetes JSON (or what a YAML reader made of it) to structs, strictly, and back.

Every source comes through here: watch events, dumps, manifests, scenarios, traces of our own format. The fast path is
one typed decode. Only an object that it refuses is read again, with nulls taken as Kubernetes takes them, and
then either accepted or refused with an error that names the object, the field's path and what would help. Whatever is
handed in, nothing but an `InputError` comes out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from windlass.model.checks import check_node, check_pod, check_storage_class, check_volume
from windlass.model.errors import InputError
from windlass.model.faults import find_fault, found, type_info, without_nulls
from windlass.model.fleet_spec import Fleet, check_fleet
from windlass.model.meta import KubeStruct, ObjectMeta
from windlass.model.node import Node
from windlass.model.pod import Pod
from windlass.model.priority import PriorityClass
from windlass.model.volume import Namespace, PersistentVolume, PersistentVolumeClaim, StorageClass


class OtherObject(KubeStruct, frozen=True):
    """An object of a kind that Windlass doesn't read further."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()


class ObjectList(msgspec.Struct, frozen=True):
    """A Kubernetes List (`List`, `PodList`, …), decoded."""

    items: tuple[object, ...]


class Unreadable(msgspec.Struct, frozen=True):
    """An object that could not be read, and what can be said of it all the same.

    A pod of which only `node_name` is known still blocks that node: what is free there is not known.
    """

    error: InputError
    kind: str = ""
    namespace: str = ""
    name: str = ""
    node_name: str = ""


class _Header(KubeStruct, frozen=True):
    kind: str = ""
    api_version: str = ""


_KINDS: dict[str, tuple[str, type]] = {
    "Pod": ("v1", Pod),
    "Node": ("v1", Node),
    "Namespace": ("v1", Namespace),
    "PersistentVolume": ("v1", PersistentVolume),
    "PersistentVolumeClaim": ("v1", PersistentVolumeClaim),
    "StorageClass": ("storage.k8s.io/v1", StorageClass),
    "PriorityClass": ("scheduling.k8s.io/v1", PriorityClass),
    "Fleet": ("windlass.dev/v1", Fleet),
}
"""Kind → its API version, and its struct."""
_CHECKS: dict[type, Any] = {
    Pod: check_pod,
    Node: check_node,
    PersistentVolume: check_volume,
    StorageClass: check_storage_class,
    Fleet: check_fleet,
}
_KIND_OF = {struct: (version, kind) for kind, (version, struct) in _KINDS.items()}
_DECODERS: dict[type, msgspec.json.Decoder[Any]] = {
    struct: msgspec.json.Decoder(struct) for _, struct in _KINDS.values()
}
_HEADERS = msgspec.json.Decoder(_Header)
_NAMESPACED = ("Pod", "PersistentVolumeClaim")
_BYTE_OFFSET = re.compile(r"\(byte ([0-9]+)\)")


def decode_object(raw: bytes | Mapping[str, Any], file: str = "", line: int = 0) -> object:
    """One object, or an `ObjectList`; `file` and `line` say in errors where it stands."""
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


def decode_each(
    raw: bytes | Mapping[str, Any], file: str = "", line: int = 0
) -> Iterator[object | Unreadable]:
    """The objects of a document one by one, Lists opened; what can't be read comes as `Unreadable` in its place."""
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
            yield _unreadable(item, error.with_context(file=file, line=line))


def encode_object(thing: object) -> bytes:
    """Kubernetes JSON of an object that `decode_object` could have made."""
    return msgspec.json.encode(to_tree(thing))


def to_tree(thing: object) -> dict[str, Any]:
    """The same as nested dicts and lists, with `apiVersion` and `kind`, for YAML writers."""
    if isinstance(thing, ObjectList):
        return {"apiVersion": "v1", "kind": "List", "items": [to_tree(item) for item in thing.items]}
    tree: dict[str, Any] = msgspec.to_builtins(thing)
    if type(thing) in _KIND_OF:
        version, kind = _KIND_OF[type(thing)]
        return {"apiVersion": version, "kind": kind, **tree}
    return tree


def _decode_fast(raw: bytes) -> object | None:
    """The typed decode of a well-formed object; None where a closer look is needed."""
    try:
        header = _HEADERS.decode(raw)
        struct = _struct_of(header.kind, header.api_version)
        if struct is None:
            return None
        thing: object = _DECODERS[struct].decode(raw)
        _check(thing)
    except (msgspec.MsgspecError, InputError, ValueError, RecursionError):
        return None
    return thing


def _parse(raw: bytes | Mapping[str, Any]) -> Mapping[str, Any]:
    tree = _parse_json(raw) if isinstance(raw, bytes) else raw
    if not isinstance(tree, Mapping):
        raise InputError(
            f"expected an object, found {found(tree)}",
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
        raise InputError(f"expected an object, found {found(tree)}", path=position)
    kind = tree.get("kind")
    if not isinstance(kind, str) or not kind:
        raise InputError(
            f"expected the kind of an object, found {found(kind)}",
            path=f"{position}.kind" if position else "kind",
            remedy="every Kubernetes object says what it is, such as kind: Pod",
        )
    version = tree.get("apiVersion", "")
    struct = _struct_of(kind, version if isinstance(version, str) else "")
    try:
        thing = _convert(tree, struct or OtherObject)
        _check(thing)
    except InputError as error:
        raise error.with_context(object=_name_of(tree), code="INVALID_OBJECT") from None
    return thing


def _convert(tree: Mapping[str, Any], struct: type) -> object:
    info = type_info(struct)
    cleaned = without_nulls(tree, info)
    try:
        thing: object = msgspec.convert(cleaned, struct)
    except (msgspec.MsgspecError, ValueError, TypeError, RecursionError) as error:
        fault = find_fault(cleaned, info)
        raise fault or InputError(str(error)) from None
    return thing


def _check(thing: object) -> None:
    check = _CHECKS.get(type(thing))
    if check is not None:
        check(thing)


def _struct_of(kind: str, version: str) -> type | None:
    """By kind and API group; a manifest that leaves out its apiVersion is taken at its kind."""
    entry = _KINDS.get(kind)
    if entry is None:
        return None
    known, struct = entry
    return struct if not version or version.rpartition("/")[0] == known.rpartition("/")[0] else None


def _is_list(tree: Mapping[str, Any]) -> bool:
    kind = tree.get("kind")
    return isinstance(kind, str) and kind.endswith("List") and "items" in tree


def _list_items(tree: Mapping[str, Any]) -> list[tuple[int, Any]]:
    """Numbered; items of a typed list get its kind where they don't say theirs."""
    items = tree["items"]
    if items is None:
        return []
    if not isinstance(items, list | tuple):
        raise InputError(f"expected a list, found {found(items)}", object=str(tree["kind"]), path="items")
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


def _unreadable(tree: object, error: InputError) -> Unreadable:
    return Unreadable(
        error,
        kind=_text(tree, "kind"),
        namespace=_text(tree, "metadata", "namespace"),
        name=_text(tree, "metadata", "name"),
        node_name=_text(tree, "spec", "nodeName"),
    )
