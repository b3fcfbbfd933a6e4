"""Loads and checks scenario files; errors name file, line and field.

`cli.scenario` and the tests call `load_scenarios`. It refuses everything that is wrong without playing the scenario:
unknown fields, objects that can't be decoded, moments out of order.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from msgspec import inspect

from windlass.dump import json_documents, yaml_documents
from windlass.dump.files import read_text
from windlass.model.codec import decode_object
from windlass.model.configuration import (
    KueueConfiguration,
    SchedulerConfiguration,
    Settings,
    kueue_settings,
    scheduler_settings,
)
from windlass.model.decode_errors import find_decode_error, type_info, without_nulls
from windlass.model.errors import InputError
from windlass.model.names.windlass import WINDLASS_API_VERSION
from windlass.model.unstructured import Unstructured
from windlass.simulate.scenario.cluster_shorthand import cluster_objects, fleet_nodes
from windlass.simulate.scenario.durations import parse_duration, parse_moment
from windlass.simulate.scenario.node_names import check_node_names
from windlass.simulate.scenario.spec import MAX_REST, Moment, ResolvedMoment, Scenario, ScenarioFile, ShortWorkload
from windlass.simulate.scenario.workload_shorthand import workload_objects

SUFFIXES = (".yaml", ".yml")
CHAPTERS = (
    *("Workloads", "Quota", "Fair sharing", "Topology", "Placement", "Preemption", "Time"),
    *("Defragmentation", "Verdicts", "Hard cases"),
)
"""Chapters of the scenario index; `rule` of a scenario names one."""
MAX_COPIES = 10_000
Kind = TypeVar("Kind")
_KIND = re.compile(r"(?:^|[{,])\s*[\"']?kind[\"']?\s*:\s*[\"']?Scenario\b", re.MULTILINE)


def is_scenario(argument: str) -> bool:
    """Whether the argument of `windlass simulate` is a scenario file or a folder of them, and not a trace."""
    path = Path(argument)
    if path.is_dir() or path.suffix in SUFFIXES:
        return True
    return path.suffix == ".json" and path.is_file() and bool(_KIND.search(read_text(path)[:4096]))


def load_scenarios(path: Path) -> Iterator[Scenario]:
    """The scenarios of a file, or of the files in a folder, without its subfolders."""
    if not path.is_dir():
        yield from _load_file(path)
        return
    files = sorted(file for file in path.iterdir() if file.suffix in SUFFIXES and file.is_file())
    if not files:
        raise InputError(f"the folder holds no file that ends in {' or '.join(SUFFIXES)}", file=str(path))
    for file in files:
        yield from _load_file(file)


def _load_file(path: Path) -> Iterator[Scenario]:
    text, file = read_text(path), str(path)
    is_json = path.suffix == ".json"
    documents: Sequence[json_documents.JsonDocument | yaml_documents.YamlDocument] = list(
        json_documents.read_documents(text, file) if is_json else yaml_documents.read_documents(text, file)
    )
    if not documents:
        raise InputError("holds no scenario", file=file)
    for document in documents:
        yield read_scenario(document.value, path.stem, file, partial(document.position_of, None))


def read_scenario(
    obj: object,
    name: str = "scenario",
    file: str = "",
    position_of: Callable[[str], tuple[int, int]] = lambda path: (0, 0),
) -> Scenario:
    """One document as a scenario; an `InputError` names the field, and its line if `position_of` knows it."""
    try:
        return msgspec.structs.replace(_scenario(obj, name), file=file, position_of=position_of)
    except InputError as error:
        line, column = position_of(error.path)
        raise error.with_context(file=file, line=line, column=column) from None


def _scenario(obj: object, name: str) -> Scenario:
    if not isinstance(obj, Mapping) or obj.get("kind") != "Scenario":
        raise InputError("is not a Scenario", path="kind", remedy="a scenario has kind: Scenario")
    document = convert_strict(obj, ScenarioFile, "")
    if document.api_version != WINDLASS_API_VERSION:
        raise InputError("unknown version", path="apiVersion", remedy="use windlass.dev/v1")
    if document.rule not in CHAPTERS:
        remedy = f"use one of {', '.join(CHAPTERS)}"
        raise InputError(f"unknown rule {document.rule!r}", path="rule", remedy=remedy)
    if not document.timeline:
        raise InputError("nothing happens", path="timeline", remedy="add a moment with at")
    scenario = Scenario(
        name=document.metadata.name or name,
        document=document,
        settings=_settings(document.config),
        termination=parse_duration(document.termination, "termination"),
        objects=tuple(_initial_objects(document)),
        steps=tuple(_steps(document.timeline)),
    )
    made = (*scenario.objects, *(obj for step in scenario.steps for obj in step.submit))
    check_node_names(document, {obj["metadata"]["name"] for obj in made if obj["kind"] == "Node"})
    return scenario


def convert_strict(raw: Any, struct: type[Kind], path: str) -> Kind:
    """The value as the struct; an `InputError` with the path where it doesn't fit."""
    info = type_info(struct)  # type: ignore[arg-type]  # a class is hashable, whatever its type variable
    try:
        return msgspec.convert(without_nulls(raw, info), struct)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        closed = _without_untyped_parts(raw, info)
        fault = _find_union_error(closed, info, path) or find_decode_error(closed, info, path)
        raise fault or InputError(str(error), path=path) from None


def _find_union_error(raw: Any, info: inspect.Type, path: str) -> InputError | None:
    """For a union of a name and a struct: the error of the mapping read as the struct, which msgspec doesn't name."""
    if isinstance(info, inspect.UnionType):
        structs = [kind for kind in info.types if isinstance(kind, inspect.StructType)]
        if len(structs) != 1 or not isinstance(raw, Mapping):
            return None
        return _find_union_error(raw, structs[0], path) or find_decode_error(raw, structs[0], path)
    if isinstance(info, inspect.StructType) and isinstance(raw, Mapping):
        parts = [(field.encode_name, field.type) for field in info.fields if field.encode_name in raw]
        inner = (_find_union_error(raw[name], kind, f"{path}.{name}".lstrip(".")) for name, kind in parts)
        return next((fault for fault in inner if fault is not None), None)
    if isinstance(info, inspect.VarTupleType) and isinstance(raw, list | tuple):
        items = (_find_union_error(item, info.item_type, f"{path}[{at}]") for at, item in enumerate(raw))
        return next((fault for fault in items if fault is not None), None)
    return None


def _without_untyped_parts(raw: Any, info: inspect.Type) -> Any:
    """A copy in which mappings of any content are empty, so that no error is searched in them."""
    if isinstance(info, inspect.DictType) and isinstance(info.value_type, inspect.AnyType):
        return {} if isinstance(raw, Mapping) else raw
    if isinstance(info, inspect.StructType) and isinstance(raw, Mapping):
        known = {field.encode_name: field.type for field in info.fields}
        return {
            key: _without_untyped_parts(value, known[key]) if key in known else value
            for key, value in raw.items()
            if value is not None
        }
    if isinstance(info, inspect.VarTupleType) and isinstance(raw, list | tuple):
        return [_without_untyped_parts(item, info.item_type) for item in raw]
    if isinstance(info, inspect.UnionType):
        structs = [kind for kind in info.types if isinstance(kind, inspect.StructType)]
        return _without_untyped_parts(raw, structs[0]) if len(structs) == 1 else raw
    return raw


def _settings(config: Unstructured) -> Settings:
    if not config:
        return Settings()
    kind = {"apiVersion": WINDLASS_API_VERSION, "kind": "SchedulerConfiguration"}
    found = _decode(config if "kind" in config else {**kind, **config}, "config")
    if isinstance(found, SchedulerConfiguration):
        return scheduler_settings(found)
    if isinstance(found, KueueConfiguration):
        return kueue_settings(found)
    raise InputError("is not a configuration", path="config.kind", remedy="leave kind out")


def _initial_objects(document: ScenarioFile) -> Iterator[Unstructured]:
    yield from fleet_nodes(document.fleet)
    for path, obj in cluster_objects(document):
        _decode(obj, path, inside=False)
        yield obj
    for index, obj in enumerate(document.objects):
        yield from _explicit_objects(obj, f"objects[{index}]")
    for index, work in enumerate(document.running):
        yield from _check_decodes(workload_objects(work, f"running[{index}]"), f"running[{index}]")


def _steps(timeline: tuple[Moment, ...]) -> Iterator[ResolvedMoment]:
    before = 0
    for index, moment in enumerate(timeline):
        path = f"timeline[{index}]"
        at = parse_moment(moment.at, f"{path}.at")
        if at < before:
            raise InputError("is before the moment above it", path=f"{path}.at", remedy="put them in order")
        before = at
        rest = moment.expect.rest if moment.expect else 0
        if not 0 <= rest <= MAX_REST:
            raise InputError(f"{rest} is not a number of rounds from 0 to {MAX_REST}", path=f"{path}.expect.rest")
        submitted: list[Unstructured] = []
        for number, entry in enumerate(moment.submit):
            submitted += _submitted_objects(entry, f"{path}.submit[{number}]")
        yield ResolvedMoment(at, moment, tuple(submitted), moment.expect)


def _submitted_objects(entry: Unstructured, path: str) -> list[Unstructured]:
    """The objects of a Kubernetes object or a short form."""
    if "kind" in entry:
        return list(_explicit_objects(entry, path))
    return _check_decodes(workload_objects(convert_strict(entry, ShortWorkload, path), path), path)


def _explicit_objects(obj: Unstructured, path: str) -> Iterator[Unstructured]:
    """A Kubernetes object of the file; its field `count` makes several, numbered from 1."""
    body = {key: value for key, value in obj.items() if key != "count"}
    count = obj.get("count", 1)
    if type(count) is not int or not 1 <= count <= MAX_COPIES:
        message, remedy = f"{count!r} is not a number of objects", f"use 1 to {MAX_COPIES}"
        raise InputError(message, path=f"{path}.count", remedy=remedy)
    metadata = getattr(_decode(body, path), "metadata", None)
    if metadata is None or not metadata.name:
        raise InputError("needs a name", path=f"{path}.metadata.name", remedy="add a name")
    for number in range(1, count + 1):
        name = metadata.name if count == 1 else f"{metadata.name}-{number}"
        yield {**body, "metadata": {**body["metadata"], "name": name}}


def _check_decodes(trees: list[Unstructured], path: str) -> list[Unstructured]:
    for obj in trees:
        _decode(obj, path, inside=False)
    return trees


def _decode(obj: Unstructured, path: str, *, inside: bool = True) -> object:
    """Decodes the object. Unless it is `inside` the file, an error's path leads to its short form."""
    try:
        return decode_object(obj)
    except InputError as error:
        where = f"{path}.{error.path}" if inside and error.path else path
        detail = f"{error.path}: {error.message}" if not inside and error.path else error.message
        raise InputError(detail, path=where, remedy=error.remedy, object=error.object) from None
