"""Makes `src/windlass/embedded/api/schemas/kubernetes.json`: the shapes of the kinds that the embedded server serves.

Read from a real kube-apiserver's OpenAPI documents (field names, types, enums, patch strategies, list types) and from
the Go module of its types (which fields are written even when empty). Nobody's prose is taken along: descriptions are
dropped, and Windlass writes its own in `schemas/words.json`. Kubernetes is licensed under Apache-2.0.

    python -m tools.make_api_schemas              # starts the test cluster's API server
    python -m tools.make_api_schemas --kubeconfig FILE
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from tests.real_cluster.api import Api
from tests.real_cluster.binaries import Binaries
from tests.real_cluster.control_plane import ControlPlane

from windlass.embedded.api.kinds import BUILT_IN_KINDS

ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / "src" / "windlass" / "embedded" / "api" / "schemas" / "kubernetes.json"
MODULES = ROOT / "tests" / "real_cluster" / "binaries" / "kubernetes"

Schema = dict[str, Any]
_REF = "#/components/schemas/"
_KEPT = (
    "type",
    "format",
    "enum",
    "required",
    "x-kubernetes-patch-strategy",
    "x-kubernetes-patch-merge-key",
    "x-kubernetes-list-type",
    "x-kubernetes-list-map-keys",
    "x-kubernetes-map-type",
    "x-kubernetes-group-version-kind",
    "x-kubernetes-preserve-unknown-fields",
)
_ALSO = (  # answers and bodies that are no kinds of their own
    "io.k8s.api.autoscaling.v1.Scale",
    "io.k8s.api.policy.v1.Eviction",
    "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions",
    "io.k8s.apimachinery.pkg.apis.meta.v1.Status",
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kubeconfig", type=Path, help="of a running API server of the pinned release")
    chosen = parser.parse_args()
    document = made(Api(chosen.kubeconfig), GoFacts()) if chosen.kubeconfig else _from_test_cluster()
    TARGET.parent.mkdir(exist_ok=True)
    TARGET.write_text(text(document))
    print(f"{TARGET.relative_to(ROOT)}: {len(document['definitions'])} definitions")


def _from_test_cluster() -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        plane = ControlPlane(Binaries(tell=print), Path(folder))
        plane.etcd.service.start()
        try:
            plane.apiserver.start()
            return made(plane.api, GoFacts())
        finally:
            plane.stop()


def text(document: dict[str, Any]) -> str:
    """One definition a line: small, and a change of release shows as a change of lines."""
    lines = [
        f"{json.dumps(name)}:{json.dumps(schema, separators=(',', ':'), sort_keys=True)}"
        for name, schema in sorted(document["definitions"].items())
    ]
    head = json.dumps({key: value for key, value in document.items() if key != "definitions"})[:-1]
    return head + ',"definitions":{\n' + ",\n".join(lines) + "\n}}\n"


def made(api: Api, facts: GoFacts | None) -> dict[str, Any]:
    """The document, from a running API server and, unless there are none, the facts of its types."""
    everything: dict[str, Schema] = {}
    for api_version in sorted({kind.api_version for kind in BUILT_IN_KINDS} | {"autoscaling/v1"}):
        path = f"/openapi/v3/apis/{api_version}" if "/" in api_version else f"/openapi/v3/api/{api_version}"
        everything |= api.get(path)["components"]["schemas"]
    wanted = {(kind.group, kind.version, kind.kind) for kind in BUILT_IN_KINDS}
    roots = [*_ALSO, *(name for name, schema in everything.items() if _gvks(schema) & wanted)]
    reached = _closure(everything, roots)
    return {
        "source": "Kubernetes " + api.get("/version")["gitVersion"],
        "licence": "field names, types and values of the Kubernetes API, Apache-2.0; no descriptions",
        "definitions": {name: _definition(name, everything[name], facts) for name in sorted(reached)},
    }


def _gvks(schema: Schema) -> set[tuple[str, str, str]]:
    listed = schema.get("x-kubernetes-group-version-kind", ())
    return {(each["group"], each["version"], each["kind"]) for each in listed}


def _closure(everything: dict[str, Schema], roots: Iterable[str]) -> set[str]:
    reached: set[str] = set()
    waiting = list(roots)
    while waiting:
        name = waiting.pop()
        if name not in reached:
            reached.add(name)
            waiting += _references(everything[name])
    return reached


def _references(node: object) -> Iterator[str]:
    if isinstance(node, dict):
        if isinstance(node.get("$ref"), str):
            yield node["$ref"].removeprefix(_REF)
        for value in node.values():
            yield from _references(value)
    elif isinstance(node, list):
        for value in node:
            yield from _references(value)


def _definition(name: str, schema: Schema, facts: GoFacts | None) -> Schema:
    made = _compact(schema)
    for field, code in (facts.of(name) if facts is not None else {}).items():
        if field in made.get("properties", {}):
            made["properties"][field]["x-go"] = code
    if len(_gvks(schema)) > 1:
        del made["x-kubernetes-group-version-kind"]
    return made


def _compact(schema: Schema) -> Schema:
    made: Schema = {key: schema[key] for key in _KEPT if key in schema}
    if schema.get("default") not in (None, "", 0, {}, False):
        made["default"] = schema["default"]
    for combined in schema.get("allOf", ()):
        made["$ref"] = combined["$ref"].removeprefix(_REF)
    if "$ref" in schema:
        made["$ref"] = schema["$ref"].removeprefix(_REF)
    if "oneOf" in schema:
        made["oneOf"] = schema["oneOf"]
    for inner in ("items", "additionalProperties"):
        if isinstance(schema.get(inner), dict):
            made[inner] = _compact(schema[inner])
    if "properties" in schema:
        made["properties"] = {name: _compact(each) for name, each in schema["properties"].items()}
    return made


class GoFacts:
    """How Go writes a field: `always` (zero values too), `null` (null when absent), `zero` (not when zero), else not.

    OpenAPI doesn't tell `hostNetwork: false`, which an API server drops, from `suspend: false`, which it keeps.
    """

    _FIELD = re.compile(r'^\t(?:\w+\s+)?(?P<type>[^\s`]+)\s+`.*?json:"(?P<tag>[^"]*)"', re.MULTILINE)
    _EMBEDDED = re.compile(r'^\t(?P<type>[\w.]+)\s+`json:",inline"', re.MULTILINE)
    _STRUCT = re.compile(r"^type (\w+) struct \{\n(.*?)^\}", re.MULTILINE | re.DOTALL)
    _NAMED = re.compile(r"^type (\w+) (?!struct)([\w\[\]*.]+)", re.MULTILINE)

    def __init__(self) -> None:
        self._folders = {
            module: self._folder(f"k8s.io/{module}") for module in ("api", "apimachinery", "apiextensions-apiserver")
        }
        self._packages: dict[str, tuple[dict[str, str], dict[str, str]]] = {}

    @staticmethod
    def _folder(module: str) -> Path:
        command = ["go", "list", "-m", "-f", "{{.Dir}}", module]
        found = subprocess.run(command, cwd=MODULES, check=True, capture_output=True, text=True)
        return Path(found.stdout.strip())

    def of(self, definition: str) -> dict[str, str]:
        """Codes by JSON name of the struct behind an OpenAPI definition."""
        package, _, name = definition.removeprefix("io.k8s.").rpartition(".")
        return dict(self._fields(package, name))

    def _package(self, package: str) -> tuple[dict[str, str], dict[str, str]]:
        if package not in self._packages:
            module, _, path = package.partition(".")
            folder = self._folders[module] / path.replace(".", "/")
            source = "\n".join(file.read_text() for file in sorted(folder.glob("*.go")) if "generated" not in file.name)
            self._packages[package] = (dict(self._STRUCT.findall(source)), dict(self._NAMED.findall(source)))
        return self._packages[package]

    def _fields(self, package: str, name: str) -> Iterator[tuple[str, str]]:
        structs, named = self._package(package)
        body = structs.get(name, "")
        for inline in self._EMBEDDED.finditer(body):
            prefix, _, inner = inline["type"].rpartition(".")
            if inner != "TypeMeta":
                yield from self._fields(_META if prefix == "metav1" else package, inner)
        for field in self._FIELD.finditer(body):
            tag, *options = field["tag"].split(",")
            if tag and (code := self._code(field["type"], options, structs, named)):
                yield tag, code

    @staticmethod
    def _code(type_: str, options: list[str], structs: dict[str, str], named: dict[str, str]) -> str:
        if "omitzero" in options:
            return "zero"
        type_ = named.get(type_, type_)
        if type_.startswith("*"):
            return "" if "omitempty" in options else "null"
        if type_.startswith(("[]", "map")) or type_ in ("v1.ResourceList", "ResourceList"):
            return "" if "omitempty" in options else "always"
        if "omitempty" not in options:
            return "always"
        # Go never counts a struct as empty.
        structure = type_ in structs or "." in type_
        scalar = type_ in ("metav1.ConditionStatus", "types.UID", "v1.ConditionStatus") or (
            type_.rpartition(".")[2] in _FOREIGN_STRINGS
        )
        return "always" if structure and not scalar else "zero"


_META = "apimachinery.pkg.apis.meta.v1"
_FOREIGN_STRINGS = {
    "UID",
    "NamespacedName",
    "ConditionStatus",
    "DeletionPropagation",
    "NodeName",
    "IncludeObjectPolicy",
    "ManagedFieldsOperationType",
    "Protocol",
    "TaintEffect",
    "PersistentVolumeAccessMode",
    "NodeInclusionPolicy",
}


if __name__ == "__main__":
    main()
