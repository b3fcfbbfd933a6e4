"""Reads Kubernetes objects from files and folders: JSON, YAML, several documents, Lists; errors name file and line.

Called by the commands (`--nodes`, `--from`, manifests) with a path. Fields are checked by `model.codec`, syntax is
checked here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from windlass.dump import json_documents
from windlass.model.codec import decode_object, describe_unreadable
from windlass.model.errors import InputError
from windlass.model.fleet import expand_fleet
from windlass.model.fleet_spec import Fleet
from windlass.model.gpu import node_devices
from windlass.model.node import Node
from windlass.model.requests import node_quantities
from windlass.model.times import parse_timestamp

if TYPE_CHECKING:
    from windlass.dump.yaml_documents import YamlDocument  # loaded once there is YAML to read

SUFFIXES = (".json", ".yaml", ".yml")
"""Files of a folder that are read; `diagnose` reads the others (logs, host reports)."""

_STAMP = re.compile(rb"20[0-9]{2}-[0-9]{2}-[0-9]{2}T[0-9:.]+(?:Z|[+-][0-9:]+)")
"""A time of this century: a pattern that begins with fixed characters is searched ten times as fast."""
_PAST = re.compile(
    rb"\b(?:creationTimestamp|lastTransitionTime|lastHeartbeatTime|lastProbeTime|lastUpdateTime|lastUpdate"
    rb"|startTime|startedAt|finishedAt|completionTime|firstTimestamp|lastTimestamp|eventTime|renewTime)"
    rb"[\"']?\s*:\s*[\"']?$"
)
"""Fields with a time in the past, in JSON or YAML; deadlines and the like lie in the future."""
_MAX_FIELD_LENGTH = 60
"""So many characters before a time are searched for the name of its field."""

_JSON = re.compile(r'\s*\{\s*["}]')
"""YAML flow style begins with a brace too, but seldom with a quoted key."""

Document: TypeAlias = "json_documents.JsonDocument | YamlDocument"


@dataclass(frozen=True)
class SourceObject:
    """An object and the place that it was read from."""

    value: object
    kind: str
    file: str
    document: Document
    item: int | None

    @property
    def raw(self) -> object:
        """The object as written in the file."""
        value = self.document.value
        return value["items"][self.item] if self.item is not None and isinstance(value, dict) else value

    def position_of(self, path: str = "") -> tuple[int, int]:
        """Line and column of the object, or of one of its fields."""
        return self.document.position_of(self.item, path)

    def locate_error(self, error: InputError) -> InputError:
        """The error, with the place added that it is about."""
        line, column = self.position_of(error.path)
        return error.with_context(file=self.file, line=line, column=column)


def read_objects(path: Path) -> Iterator[SourceObject]:
    """All objects in a file, or in the files of a folder, in order."""
    for file in list_files(path):
        for document in read_documents(file):
            for item, raw in raw_objects(document, str(file)):
                yield _decode(raw, str(file), document, item)


def read_objects_lenient(path: Path) -> Iterator[SourceObject]:
    """The same, but an object that can't be read comes as `Unreadable` in its place."""
    for file in list_files(path):
        for document in read_documents(file):
            for item, raw in raw_objects(document, str(file)):
                try:
                    yield _decode(raw, str(file), document, item)
                except InputError as error:
                    yield SourceObject(
                        describe_unreadable(raw, error), str(raw.get("kind", "")), str(file), document, item
                    )


def newest_timestamp(path: Path) -> int:
    """The newest past time of any object in the file or folder, in seconds; 0 if there is none."""
    return max((_newest(_read_bytes(file)) for file in list_files(path)), default=0)


def _newest(text: bytes) -> int:
    """Looks at the field of a time only if the time is later than all before it: dumps have millions of them."""
    newest = 0
    latest = b""
    for found in _STAMP.finditer(text):
        stamp = found[0]
        # Timestamps in UTC compare as text; the few with another offset are parsed.
        if stamp <= latest and stamp.endswith(b"Z"):
            continue
        if _PAST.search(text, max(0, found.start() - _MAX_FIELD_LENGTH), found.start()):
            seconds = parse_timestamp(stamp.decode())
            if seconds > newest:
                newest, latest = seconds, stamp if stamp.endswith(b"Z") else latest
    return newest


def read_nodes(path: Path) -> tuple[Node, ...]:
    """The nodes of a file: Nodes, Lists of them, and Fleets, in any mixture."""
    nodes: dict[str, Node] = {}
    for source in read_objects(path):
        try:
            for node in _nodes_of(source):
                if nodes.setdefault(node.name, node) is not node:
                    raise InputError("there is another node of this name", object=f"Node {node.name}")
        except InputError as error:
            raise source.locate_error(error) from error
    if not nodes:
        raise InputError("holds no Node and no Fleet", file=str(path))
    return tuple(nodes.values())


def _nodes_of(source: SourceObject) -> list[Node]:
    match source.value:
        case Node() as node:
            _check_quantities(node)
            return [node]
        case Fleet() as fleet:
            return list(expand_fleet(fleet))
    raise InputError(f"expected Node or Fleet objects, found a {source.kind}")


def _check_quantities(node: Node) -> None:
    """Refuses an impossible node here, where its line is known; later it is only a row."""
    try:
        capacity, allocatable = node_quantities(node)
        node_devices(node, allocatable, capacity)
    except InputError as error:
        raise error.with_context(object=f"Node {node.name}") from error


def list_files(path: Path) -> list[Path]:
    if not path.exists():
        raise InputError("there is no such file", file=str(path))
    if not path.is_dir():
        return [path]
    files = sorted(file for file in path.rglob("*") if file.suffix in SUFFIXES and file.is_file())
    if not files:
        raise InputError(f"the folder holds no file that ends in {', '.join(SUFFIXES)}", file=str(path))
    return files


def read_text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError("is not a text file in UTF-8", file=str(file)) from error
    except OSError as error:
        raise InputError(f"can't be read: {error.strerror}", file=str(file)) from error


def _read_bytes(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise InputError(f"can't be read: {error.strerror}", file=str(file)) from error


def read_documents(file: Path) -> Iterator[Document]:
    text = read_text(file)
    if file.suffix == ".json":
        return json_documents.read_documents(text, str(file))
    return parse_documents(text, str(file)) if file.suffix not in SUFFIXES else _yaml_documents(text, str(file))


def _yaml_documents(text: str, file: str) -> Iterator[Document]:
    from windlass.dump import yaml_documents

    return yaml_documents.read_documents(text, file)


def parse_documents(text: str, file: str) -> Iterator[Document]:
    """The documents of a text whose format is not known from a file name."""
    is_json = _JSON.match(text) is not None
    return json_documents.read_documents(text, file) if is_json else _yaml_documents(text, file)


def raw_objects(document: Document, file: str) -> Iterator[tuple[int | None, dict[str, Any]]]:
    """The document's objects as plain data: itself, or the items of a List (with their position)."""
    value = document.value
    if not isinstance(value, dict):
        raise _misplaced(document, None, file, "expected an object with apiVersion and kind")
    kind = value.get("kind")
    if not (isinstance(kind, str) and kind.endswith("List") and "items" in value):
        yield None, value
        return
    if not isinstance(value["items"], list):
        raise _misplaced(document, None, file, "the items of a List must be a list")
    for position, item in enumerate(value["items"]):
        if not isinstance(item, dict):
            raise _misplaced(document, position, file, "expected an object")
        yield position, _named_by_list(item, kind, value.get("apiVersion"))


def _named_by_list(item: dict[str, Any], list_kind: str, api_version: object) -> dict[str, Any]:
    """Items of a typed list (NodeList) have no kind of their own; the list has it."""
    if "kind" in item or list_kind == "List":
        return item
    return {"apiVersion": api_version, "kind": list_kind.removesuffix("List"), **item}


def _decode(raw: dict[str, Any], file: str, document: Document, item: int | None) -> SourceObject:
    try:
        return SourceObject(decode_object(raw), str(raw.get("kind", "")), file, document, item)
    except InputError as error:
        line, column = document.position_of(item, error.path)
        raise error.with_context(file=file, line=line, column=column) from error


def _misplaced(document: Document, item: int | None, file: str, message: str) -> InputError:
    line, column = document.position_of(item, "")
    return InputError(message, file=file, line=line, column=column)
