"""The response format that a client asks for in its Accept header, and the encoding of objects and lists.

    JSON      the stored bytes: no encoding needed
    Table     what `kubectl get` prints
    Partial   metadata only
    YAML      the JSON document as YAML

Used for responses and for watch events.
"""

from __future__ import annotations

import msgspec
import yaml

from windlass.embedded.api.bounded_cache import bounded_cache
from windlass.embedded.api.errors import ApiError
from windlass.embedded.api.kinds import Kind
from windlass.embedded.registry.listing import Page
from windlass.embedded.registry.registry import Registry
from windlass.embedded.store.stored_object import StoredObject
from windlass.model.unstructured import Unstructured

PLAIN, TABLE, PARTIAL = "plain", "table", "partial"
ACCEPTED_MEDIA_TYPES = ("application/json", "application/yaml")
_META = "meta.k8s.io"
_VERSIONS = ("v1", "v1beta1")


class ResponseFormat(msgspec.Struct, frozen=True):
    shape: str = PLAIN
    version: str = "v1"
    """Version of Table and PartialObjectMetadata."""
    yaml: bool = False

    @property
    def media_type(self) -> str:
        return "application/yaml" if self.yaml else "application/json"

    @property
    def api_version(self) -> str:
        return f"{_META}/{self.version}"


DEFAULT_FORMAT = ResponseFormat()


@bounded_cache(256)
def negotiate_format(accept: str) -> ResponseFormat:
    """The first supported format that the client accepts; 406 if there is none."""
    if not accept:
        return DEFAULT_FORMAT
    accepted = [_parse_accept_part(part) for part in accept.split(",") if part.strip()]
    for _, media, parameters in sorted(accepted, key=lambda candidate: -candidate[0]):
        response_format = _match_format(media, parameters)
        if response_format is not None:
            return response_format
    raise ApiError.not_acceptable(ACCEPTED_MEDIA_TYPES)


def _parse_accept_part(text: str) -> tuple[float, str, dict[str, str]]:
    media, *rest = (part.strip() for part in text.split(";"))
    parameters = dict(part.partition("=")[::2] for part in rest)
    try:
        weight = float(parameters.get("q", "1"))
    except ValueError:
        weight = 1.0
    return weight, media.lower(), parameters


def _match_format(media: str, parameters: dict[str, str]) -> ResponseFormat | None:
    if media not in ("application/json", "application/yaml", "*/*", "application/*"):
        return None
    in_yaml = media == "application/yaml"
    as_kind = parameters.get("as", "")
    if not as_kind:
        return ResponseFormat(yaml=in_yaml)
    if parameters.get("g") != _META or parameters.get("v") not in _VERSIONS:
        return None
    if as_kind == "Table":
        return ResponseFormat(TABLE, parameters["v"], in_yaml)
    if as_kind in ("PartialObjectMetadata", "PartialObjectMetadataList"):
        return ResponseFormat(PARTIAL, parameters["v"], in_yaml)
    return None


class ObjectEncoder:
    """Encodes objects of a kind in a format."""

    def __init__(
        self, registry: Registry, kind: Kind, response_format: ResponseFormat, include_object: str = ""
    ) -> None:
        self._registry, self._kind, self._format = registry, kind, response_format
        self._include_object = include_object or "Metadata"
        if self._include_object not in ("None", "Metadata", "Object"):
            raise ApiError.bad_request(f'unrecognized includeObject value: "{include_object}"')
        self._needs_headers = True
        self._may_send_bytes = response_format.shape == PLAIN and not response_format.yaml and not kind.stored_as
        self.sends_stored_bytes = self._may_send_bytes and not kind.custom
        """Whether every object can be sent as its stored bytes."""

    def can_send_stored_bytes(self, stored: StoredObject) -> bool:
        """Whether this object can be sent as its stored bytes; custom kinds have several versions."""
        if self.sends_stored_bytes:
            return True
        return self._may_send_bytes and bool(stored.tree.get("apiVersion") == self._kind.api_version)

    def encode_object(self, stored: StoredObject) -> bytes:
        return stored.raw if self.can_send_stored_bytes(stored) else self._encode(self._tree(stored))

    def encode_event(self, stored: StoredObject) -> bytes:
        """The object of a watch event. Only the first Table of a watch has column definitions."""
        if self._format.shape != TABLE:
            return self.encode_object(stored)
        table = self._table([stored], self._needs_headers, {"resourceVersion": str(stored.version)})
        self._needs_headers = False
        return self._encode(table)

    def encode_bookmark(self, version: int, ends_initial: bool) -> bytes:
        """An object of the kind with only a version."""
        metadata: Unstructured = {"resourceVersion": str(version), "creationTimestamp": None}
        if ends_initial:
            metadata["annotations"] = {"k8s.io/initial-events-end": "true"}
        if self._format.shape == PLAIN:
            head = {"kind": self._kind.kind, "apiVersion": self._kind.api_version}
            return self._encode({**head, "metadata": metadata})
        if self._format.shape == PARTIAL:
            return self._encode(self._partial(metadata))
        table = self._table([], self._needs_headers, {"resourceVersion": str(version)})
        if ends_initial:
            table["rows"] = [{"cells": [], "object": {"metadata": metadata}}]
        return self._encode(table)

    def encode_list(self, page: Page) -> bytes:
        metadata: Unstructured = {"resourceVersion": str(page.version)}
        if page.continue_token:
            metadata["continue"] = page.continue_token
        if page.remaining is not None:
            metadata["remainingItemCount"] = page.remaining
        if self._format.shape == TABLE:
            return self._encode(self._table(page.items, True, metadata))
        if self._format.shape == PARTIAL:
            kind, version = "PartialObjectMetadataList", self._format.api_version
        else:
            kind, version = self._kind.list_kind_name, self._kind.api_version
        if self._format.yaml:
            items = [self._tree(stored) for stored in page.items]
            return self._encode({"kind": kind, "apiVersion": version, "metadata": metadata, "items": items})
        prefix = b'{"kind":"%b","apiVersion":"%b","metadata":%b,"items":[' % (
            kind.encode(),
            version.encode(),
            msgspec.json.encode(metadata),
        )
        if self.sends_stored_bytes:
            return b"%b%b]}\n" % (prefix, b",".join([stored.raw for stored in page.items]))
        return b"%b%b]}\n" % (prefix, b",".join([self.encode_object(stored) for stored in page.items]))

    def _tree(self, stored: StoredObject) -> Unstructured:
        if self._format.shape == TABLE:
            return self._table([stored], True, {"resourceVersion": str(stored.version)})
        tree = self._registry.context.from_stored(self._kind, stored)
        return self._partial(tree["metadata"]) if self._format.shape == PARTIAL else tree

    def _partial(self, metadata: Unstructured) -> Unstructured:
        head = {"kind": "PartialObjectMetadata", "apiVersion": self._format.api_version}
        return {**head, "metadata": metadata}

    def _table(self, items: list[StoredObject], headers: bool, metadata: Unstructured) -> Unstructured:
        context = self._registry.context
        table = self._registry.machinery.table(
            self._kind,
            [context.from_stored(self._kind, stored) for stored in items],
            context.clock(),
            list_meta=metadata,
            include=self._include_object,
            headers=headers,
        )
        table["apiVersion"] = self._format.api_version
        return table

    def _encode(self, tree: Unstructured) -> bytes:
        return encode_document(tree, self._format)


def encode_document(tree: Unstructured, response_format: ResponseFormat) -> bytes:
    """Any document as JSON or YAML."""
    if response_format.yaml:
        dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
        return bytes(yaml.dump(tree, Dumper=dumper, encoding="utf-8", allow_unicode=True))
    return msgspec.json.encode(tree)
