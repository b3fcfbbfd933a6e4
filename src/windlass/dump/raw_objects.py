"""Reads objects from files undecoded, for diagnosis, which needs fields that the model's structs leave out.

Called by `diagnose.evidence` with a dump's path. Large JSON is split into its items without decoding them; everything
else goes through the strict readers of `dump.files`, which know lines and columns.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from windlass.dump.files import raw_objects, read_documents
from windlass.model.errors import InputError
from windlass.model.meta import KubeStruct, ObjectMeta


class ObjectHeader(KubeStruct, frozen=True):
    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()


class _RawList(KubeStruct, frozen=True):
    api_version: str = ""
    kind: str = ""
    items: list[msgspec.Raw] | None = None


class _PageMeta(KubeStruct, frozen=True):
    continue_: str = msgspec.field(default="", name="continue")


class _Page(KubeStruct, frozen=True):
    items: list[msgspec.Raw] | None = None
    metadata: _PageMeta = _PageMeta()


class RawObject(msgspec.Struct, frozen=True):
    """One object, undecoded."""

    header: ObjectHeader
    file: str
    body: bytes | dict[str, Any] | msgspec.Raw
    says_kind: bool = True
    """Whether the body itself names the kind; an item of a typed List leaves that to the List."""

    @property
    def json(self) -> bytes:
        """The object as JSON that says its own kind."""
        if isinstance(self.body, dict):
            return msgspec.json.encode(self.body)
        body = bytes(self.body)
        if self.says_kind:
            return body
        header = msgspec.json.encode({"kind": self.header.kind, "apiVersion": self.header.api_version})
        return header[:-1] + b"," + body.lstrip()[1:]

    @property
    def data(self) -> dict[str, Any]:
        """The object as nested dicts."""
        if isinstance(self.body, dict):
            return self.body
        tree = msgspec.json.decode(self.body)
        return {"apiVersion": self.header.api_version, "kind": self.header.kind, **tree}


class RawFile(msgspec.Struct, frozen=True):
    """The objects of a file, and the kinds that it lists, even if a list is empty."""

    objects: list[RawObject]
    listed_kinds: frozenset[str]


_PAGES = msgspec.json.Decoder(_Page)
_LISTS = msgspec.json.Decoder(_RawList)
_HEADERS = msgspec.json.Decoder(ObjectHeader)


def read_raw(file: Path) -> RawFile:
    """Raises `InputError` with file and line for anything but Kubernetes objects in JSON or YAML."""
    quick = _quick(file)
    return quick if quick is not None else _careful(file)


def objects_of_list(body: bytes, kind: str, api_version: str) -> tuple[list[RawObject], str]:
    """The objects of one page of an API server's list, and the token for the next page."""
    page = _PAGES.decode(body)
    listed = _RawList(api_version=api_version, kind=f"{kind}List")
    return [_item(item, listed, kind, "") for item in page.items or ()], page.metadata.continue_


def _quick(file: Path) -> RawFile | None:
    """The fast path for a single JSON document; None for anything unexpected, which `_careful` then reports."""
    if file.suffix != ".json":
        return None
    try:
        body = file.read_bytes()
        listed = _LISTS.decode(body)
        if listed.items is None:
            return RawFile([RawObject(_HEADERS.decode(body), str(file), body)], frozenset())
        kind = listed.kind.removesuffix("List")
        objects = [_item(item, listed, kind, str(file)) for item in listed.items]
    except (msgspec.MsgspecError, ValueError, RecursionError, OSError):
        return None
    if not all(obj.header.kind for obj in objects):
        return None
    return RawFile(objects, frozenset({kind} if kind else ()))


def _item(item: msgspec.Raw, listed: _RawList, kind: str, file: str) -> RawObject:
    header = _HEADERS.decode(item)
    if header.kind:
        return RawObject(header, file, item)
    header = msgspec.structs.replace(header, kind=kind, api_version=listed.api_version)
    return RawObject(header, file, item, says_kind=False)


def _careful(file: Path) -> RawFile:
    objects: list[RawObject] = []
    lists: set[str] = set()
    for document in read_documents(file):
        if isinstance(document.value, dict) and "items" in document.value:
            lists.add(str(document.value.get("kind", "")).removesuffix("List"))
        for item, tree in raw_objects(document, str(file)):
            try:
                header = msgspec.convert(_only_header(tree), ObjectHeader)
            except (msgspec.ValidationError, ValueError, TypeError) as error:
                line, column = document.position_of(item, "")
                raise InputError(
                    f"is not a Kubernetes object: {error}", file=str(file), line=line, column=column
                ) from None
            if not header.kind:
                line, column = document.position_of(item, "")
                raise InputError("the object has no kind", file=str(file), line=line, column=column, path="kind")
            objects.append(RawObject(header, str(file), tree))
    return RawFile(objects, frozenset(lists - {""}))


def _only_header(tree: dict[str, Any]) -> dict[str, Any]:
    metadata = tree.get("metadata")
    known = {key: value for key, value in metadata.items() if value is not None} if isinstance(metadata, dict) else {}
    return {"kind": tree.get("kind") or "", "apiVersion": tree.get("apiVersion") or "", "metadata": known}
