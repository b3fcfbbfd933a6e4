"""A manifest: one object of a file, the line of each field, and the pods that it would create.

`cli.check` reads manifests with `read_manifests`; every rule gets one.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

from windlass.diagnose.subject import templates_of
from windlass.diagnose.unstructured import nested_map, nested_maps, nested_string
from windlass.dump.files import Document, list_files, parse_documents, raw_objects, read_documents
from windlass.model.codec import decode_object
from windlass.model.errors import InputError
from windlass.model.gpu import gpu_request
from windlass.model.pod import Pod
from windlass.model.requests import pod_requests

STDIN = Path("-")
IGNORE_ANNOTATION = "windlass.dev/ignore"
"""Annotation that names rules (comma-separated) which don't apply to the object, or `all`."""


class PodView:
    """A pod that a manifest would create: as written (`template`), and as the model decodes it (`pod`)."""

    def __init__(self, path: str, template: dict[str, Any], name: str, namespace: str) -> None:
        self.path, self.template = path, template
        """`path` of the template in the object; empty for a Pod itself."""
        data = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {**nested_map(template, "metadata"), "name": name, "namespace": namespace},
            "spec": nested_map(template, "spec"),
        }
        self.pod: Pod | None = None
        self.error: InputError | None = None
        try:
            decoded = decode_object(data)
            self.pod = decoded if isinstance(decoded, Pod) else None
        except InputError as error:
            self.error = error

    @cached_property
    def validation_error(self) -> InputError | None:
        """Why the API server would refuse it: an invalid field or request."""
        if self.pod is None:
            return self.error
        try:
            gpu_request(self.pod, pod_requests(self.pod))
        except InputError as error:
            return error
        return None

    @cached_property
    def spec(self) -> dict[str, Any]:
        return nested_map(self.template, "spec")

    def field_path(self, path: str) -> str:
        """The path of a pod field within the manifest."""
        return f"{self.path}.{path}" if self.path else path

    def containers(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """(path, container), init containers first."""
        for group in ("initContainers", "containers"):
            for place, container in enumerate(nested_maps(self.spec, group)):
                yield self.field_path(f"spec.{group}[{place}]"), container


class Manifest:
    def __init__(
        self,
        data: dict[str, Any],
        file: str,
        document: Document,
        document_index: int,
        list_index: int | None = None,
    ) -> None:
        self.data, self.file = data, file
        self._document = document
        self.document_index, self.list_index = document_index, list_index
        """Index of the YAML document in the file, and of the item if it is a List."""
        self.file_error: InputError | None = None
        """Why the file could not be read, where it is one of a folder."""

    @property
    def kind(self) -> str:
        return nested_string(self.data, "kind")

    @property
    def name(self) -> str:
        return nested_string(self.data, "metadata", "name") or nested_string(self.data, "metadata", "generateName")

    @property
    def namespace(self) -> str:
        return nested_string(self.data, "metadata", "namespace") or "default"

    @property
    def api_version(self) -> str:
        return nested_string(self.data, "apiVersion")

    @cached_property
    def decoded(self) -> object:
        """As the model reads it; the `InputError` if it can't."""
        metadata = nested_map(self.data, "metadata") | {"name": self.name, "namespace": self.namespace}
        try:
            return decode_object({**self.data, "metadata": metadata, "status": {}})
        except InputError as error:
            return error

    @property
    def title(self) -> str:
        return f"{self.kind} {self.name}" if self.name else self.kind

    def line_of(self, path: str = "") -> int:
        if self.file_error is not None:
            return max(1, self.file_error.line)
        return self._document.position_of(self.list_index, path)[0]

    @cached_property
    def pods(self) -> tuple[PodView, ...]:
        """One per template; a Pod itself counts as one."""
        if self.kind == "Pod":
            return (PodView("", self.data, self.name or "pod", self.namespace),)
        return tuple(
            PodView(path, template, self.name or "pod", self.namespace) for path, template in templates_of(self.data)
        )

    def ignores_rule(self, rule: str) -> bool:
        ignored = nested_string(self.data, "metadata", "annotations", IGNORE_ANNOTATION)
        names = {name.strip() for name in ignored.split(",")}
        return rule in names or "all" in names


def read_manifests(paths: list[Path], stdin: str = "") -> list[Manifest]:
    """All objects of the files, in order. Raises `InputError` with file and line for invalid JSON or YAML."""
    found: list[Manifest] = []
    for path in paths:
        if path == STDIN:
            found += _of_documents(parse_documents(stdin, "<stdin>"), "<stdin>")
            continue
        for file in list_files(path):
            try:
                found += _of_documents(read_documents(file), str(file))
            except InputError as error:
                if file == path:
                    raise
                found.append(_unreadable(file, error))  # the other files of the folder are checked all the same
    return found


def _unreadable(file: Path, error: InputError) -> Manifest:
    manifest = Manifest({}, str(file), next(iter(parse_documents("{}", str(file)))), 0)
    manifest.file_error = error
    return manifest


def _of_documents(documents: Iterator[Document], file: str) -> list[Manifest]:
    found = []
    for number, document in enumerate(documents):
        if not isinstance(document.value, dict):
            found.append(Manifest({}, file, document, number))
        elif "kind" not in document.value:
            found.append(Manifest(document.value, file, document, number))
        else:
            objects = raw_objects(document, file)
            found += [Manifest(data, file, document, number, item) for item, data in objects]
    return found
