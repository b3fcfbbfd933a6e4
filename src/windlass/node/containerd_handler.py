"""A runtime handler for containerd by a drop-in of our own: what would be written, or why nothing is.

The admin's files are read and never changed. containerd 2 merges a drop-in key by key. 1.x puts its plugin tables in
the place of those before: what the admin has there would be lost, so it is refused and named. `windlass node runtime`
prints it.
"""

from __future__ import annotations

import fnmatch
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

import msgspec

from windlass.model.errors import InputError

MAIN_FILE = "/etc/containerd/config.toml"
DROP_IN = "/etc/containerd/conf.d/90-windlass.toml"
MARK = "# Written by `windlass node runtime`; `windlass node runtime --undo` removes it.\n"
_PLUGINS = {2: "io.containerd.grpc.v1.cri", 3: "io.containerd.cri.v1.runtime", 4: "io.containerd.cri.v1.runtime"}
"""The version of the file → the plugin that has the handlers."""
_RUNC = {"runtime_type": "io.containerd.runc.v2"}
_FIRST_MERGING = 2
"""The major version of containerd from which a drop-in is merged."""

Table = dict[str, Any]


class HandlerPlan(msgspec.Struct, frozen=True):
    text: str = ""
    """Of the drop-in; empty: nothing is to be written."""
    why: str = ""
    """Why nothing may be written; with an empty text and no reason the handler is there."""
    lost: tuple[str, ...] = ()
    """Settings that the drop-in would take away."""


def plan_handler(files: Sequence[tuple[str, str]], drop_in: str, major: int, handler: str, binary: str) -> HandlerPlan:
    """`files`: path and text of the main file and of what it imports, in containerd's order, without our drop-in."""
    tables = [_parse(path, text) for path, text in files]
    if not tables:
        return HandlerPlan(why=f"there is no main file, and without one containerd reads no drop-in: write {MAIN_FILE}")
    main, version = tables[0], tables[0].get("version")
    if version not in _PLUGINS:
        return HandlerPlan(why=f"{files[0][0]} has version {version}; known are {', '.join(map(str, _PLUGINS))}")
    before = _loaded(tables, major)
    runtimes = _runtimes(before, version)
    if handler in runtimes:
        return HandlerPlan()
    text = _drop_in_text(version, handler, binary, runtimes.get("runc") or _RUNC)
    if not imports(files[0][0], main, drop_in):
        imported = ", ".join(map(str, main.get("imports") or ())) or "nothing"
        return HandlerPlan(why=f"{files[0][0]} imports {imported}, and not {drop_in}: add its folder to `imports`")
    after = dict(_settings(_loaded([*tables, tomllib.loads(text)], major)))
    lost = tuple(f"{name} = {value}" for name, value in _settings(before) if after.get(name) != value)
    if lost:
        return HandlerPlan(why=f"a drop-in would take away {len(lost)} settings of containerd {major}", lost=lost)
    return HandlerPlan(text)


def imports(main_path: str, main: Table, path: str) -> bool:
    """Whether the main file imports that path. A pattern that is not absolute begins at the main file's folder."""
    patterns = [PurePosixPath(main_path).parent / str(pattern) for pattern in main.get("imports") or ()]
    return any(fnmatch.fnmatchcase(path, str(pattern)) for pattern in patterns)


def import_patterns(main_path: str, text: str) -> list[str]:
    patterns = _parse(main_path, text).get("imports") or ()
    return [str(PurePosixPath(main_path).parent / str(pattern)) for pattern in patterns]


def _parse(path: str, text: str) -> Table:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"it is no TOML: {error}", file=path) from None


def _loaded(tables: Sequence[Table], major: int) -> Table:
    """As containerd of that version has it."""
    found: Table = {}
    for table in tables:
        if major >= _FIRST_MERGING:
            found = _merged(found, table)
        else:
            found = {**found, **table, "plugins": {**found.get("plugins", {}), **table.get("plugins", {})}}
    return found


def _merged(before: Table, after: Table) -> Table:
    merged = dict(before)
    for key, value in after.items():
        known = merged.get(key)
        merged[key] = _merged(known, value) if isinstance(known, dict) and isinstance(value, dict) else value
    return merged


def _runtimes(table: Table, version: int) -> Table:
    found: Any = table
    for key in ("plugins", _PLUGINS[version], "containerd", "runtimes"):
        found = found.get(key) or {} if isinstance(found, dict) else {}
    return found if isinstance(found, dict) else {}


def _settings(table: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, str]]:
    for key, value in table.items():
        name = f"{path}.{key}" if path else key
        if isinstance(value, dict):  # an empty table sets nothing
            yield from _settings(value, name)
        else:
            yield name, _toml(value)


def _drop_in_text(version: int, handler: str, binary: str, runc: Table) -> str:
    """The handler is a copy of runc's with another binary, so that it has its cgroup driver."""
    table = _merged(runc, {"options": {"BinaryName": binary}})
    path = f"plugins.'{_PLUGINS[version]}'.containerd.runtimes.{_key(handler)}"
    return f"{MARK}version = {version}\n" + "".join(_table_lines(path, table))


def _table_lines(path: str, table: Table) -> Iterator[str]:
    yield f"\n[{path}]\n"
    yield from (f"{_key(key)} = {_toml(value)}\n" for key, value in table.items() if not isinstance(value, dict))
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _table_lines(f"{path}.{_key(key)}", value)


def _key(name: str) -> str:
    return name if name.replace("-", "").replace("_", "").isalnum() and name.isascii() else _toml(name)


def _toml(value: Any) -> str:
    """JSON's texts and lists are TOML's."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, str):
        return msgspec.json.encode(value).decode()
    if isinstance(value, dict):
        return f"{{{', '.join(f'{_key(key)} = {_toml(item)}' for key, item in value.items())}}}"
    return str(value)
