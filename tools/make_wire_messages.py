"""Writes `src/windlass/embedded/server/messages.json`: field numbers of the Kubernetes API's protobuf messages.

    python tools/make_wire_messages.py FOLDER     a Go module cache's k8s.io folder, with `api@v…` and `apimachinery@v…`

Newer kubectl and client-go send built-in kinds as protobuf only, so the embedded API server has to read it. The numbers
are part of the API (Apache-2.0). Only messages that the served kinds reach are kept. A field that JSON doesn't have
under its own name is one whose fields JSON writes in its place (Go's embedded structs): marked as inline.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

from windlass.embedded.api.kinds import BUILT_IN_KINDS
from windlass.embedded.api.schema import definition_name, definitions

VERSION = "v0.36.3"
TARGET = Path(__file__).parent.parent / "src" / "windlass" / "embedded" / "server" / "messages.json"
ROOTS = (
    "io.k8s.api.policy.v1.Eviction",
    "io.k8s.api.autoscaling.v1.Scale",
    "io.k8s.api.authentication.v1.TokenRequest",
    "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions",
)
SCALARS = {"string", "bool", "bytes", "int32", "int64", "uint32", "uint64", "double", "float"}
FIELD = re.compile(
    r"^\s*(optional|repeated)?\s*(map<\s*(\w+)\s*,\s*([\w.]+)\s*>|[\w.]+)\s+(\w+)\s*=\s*(\d+)\s*(?:\[.*\])?;"
)

Messages = dict[str, dict[str, list[object]]]


def parse(text: str) -> Messages:
    """Every message of a file, by its OpenAPI name: number → [name, type, repeated, key type of a map]."""
    package = re.search(r"^package ([\w.]+);", text, re.M)
    assert package is not None
    prefix = _openapi(package[1])
    found: Messages = {}
    current: dict[str, list[object]] | None = None
    for line in re.sub(r"//[^\n]*", "", text).splitlines():
        opened = re.match(r"^message (\w+) \{", line)
        if opened:
            current = found[f"{prefix}.{opened[1]}"] = {}
        elif line.startswith("}"):
            current = None
        elif current is not None and (match := FIELD.match(line)):
            label, kind, key, value, name, number = match.groups()
            wanted = value or kind
            if wanted not in SCALARS:
                wanted = _openapi(wanted.lstrip(".")) if "." in wanted else f"{prefix}.{wanted}"
            current[number] = [name, wanted, label == "repeated", key or ""]
    return found


def _openapi(package: str) -> str:
    return re.sub(r"^k8s\.io\.", "io.k8s.", package)


def reachable(messages: Messages, roots: list[str]) -> Messages:
    kept: Messages = {}
    waiting = list(roots)
    while waiting:
        name = waiting.pop()
        if name in kept or name not in messages:
            continue
        kept[name] = messages[name]
        waiting += [str(field[1]) for field in messages[name].values() if field[1] not in SCALARS]
    return kept


def mark_inline(messages: Messages) -> None:
    known = definitions()
    for name, fields in messages.items():
        properties = known.get(name, {}).get("properties")
        for field in fields.values():
            nested = field[1] not in SCALARS and not field[2] and not field[3]
            field.append(bool(properties) and nested and field[0] not in properties)


def main(folder: Path) -> None:
    messages: Messages = {}
    for module in ("api", "apimachinery"):
        for file in sorted((folder / f"{module}@{VERSION}").rglob("generated.proto")):
            messages |= parse(file.read_text())
    roots = []
    for kind in BUILT_IN_KINDS:
        try:
            roots.append(definition_name(kind))
        except KeyError:
            continue
    kept = reachable(messages, [*roots, *ROOTS])
    mark_inline(kept)
    TARGET.write_text(json.dumps(kept, separators=(",", ":"), sort_keys=True) + "\n")
    print(f"{TARGET}: {len(kept)} messages", file=sys.stderr)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
