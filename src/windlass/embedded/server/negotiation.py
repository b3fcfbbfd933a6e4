"""The form that a client asks for in its Accept header, and objects and lists written in it.

    JSON      the object's own bytes, as they are stored: no work at all
    Table     what `kubectl get` prints
    Partial   metadata only
    YAML      JSON, written differently

Used for answers and for the events of watches.
"""

from __future__ import annotations

from functools import lru_cache

import msgspec
import yaml

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
    """Of Table and PartialObjectMetadata."""
    yaml: bool = False

    @property
    def media_type(self) -> str:
        return "application/yaml" if self.yaml else "application/json"

    @property
    def api_version(self) -> str:
        return f"{_META}/{self.version}"


DEFAULT_FORMAT = ResponseFormat()


@lru_cache(maxsize=256)
def negotiate_format(accept: str) -> ResponseFormat:
    """The first form that the client would take and that we have; 406 where there is none."""
    if not accept:
        return DEFAULT_FORMAT
    wishes = [_wish(part) for part in accept.split(",") if part.strip()]
    for _, media, parameters in sorted(wishes, key=lambda wish: -wish[0]):
        form = _form(media, parameters)
        if form is not None:
            return form
    raise ApiError.not_acceptable(ACCEPTED_MEDIA_TYPES)


def _wish(text: str) -> tuple[float, str, dict[str, str]]:
    media, *rest = (part.strip() for part in text.split(";"))
    parameters = dict(part.partition("=")[::2] for part in rest)
    try:
        weight = float(parameters.get("q", "1"))
    except ValueError:
        weight = 1.0
    return weight, media.lower(), parameters


def _form(media: str, parameters: dict[str, str]) -> ResponseFormat | None:
    if media not in ("application/json", "application/yaml", "*/*", "application/*"):
        return None
    in_yaml = media == "application/yaml"
    what = parameters.get("as", "")
    if not what:
        return ResponseFormat(yaml=in_yaml)
    if parameters.get("g") != _META or parameters.get("v") not in _VERSIONS:
        return None
    if what == "Table":
        return ResponseFormat(TABLE, parameters["v"], in_yaml)
    if what in ("PartialObjectMetadata", "PartialObjectMetadataList"):
        return ResponseFormat(PARTIAL, parameters["v"], in_yaml)
    return None


class ObjectEncoder:
    """Writes objects of a kind in a form."""

    def __init__(
        self, registry: Registry, kind: Kind, response_format: ResponseFormat, include_object: str = ""
    ) -> None:
        self._registry, self._kind, self._form = registry, kind, response_format
        self._include = include_object or "Metadata"
        if self._include not in ("None", "Metadata", "Object"):
            raise ApiError.bad_request(f'unrecognized includeObject value: "{include_object}"')
        self._headers = True
        self._bytes_may_do = (
            response_format.shape == PLAIN and not response_format.yaml and not kind.stored_as
        )
        self.sends_stored_bytes = self._bytes_may_do and not kind.custom
        """Whether the stored bytes are what the client wants, of every object."""

    def can_send_stored_bytes(self, stored: StoredObject) -> bool:
        """Whether the stored bytes of this object are what the client wants; custom kinds have several versions."""
        if self.sends_stored_bytes:
            return True
        return self._bytes_may_do and bool(stored.tree.get("apiVersion") == self._kind.api_version)

    def encode_object(self, stored: StoredObject) -> bytes:
        return stored.raw if self.can_send_stored_bytes(stored) else self._encoded(self._tree(stored))

    def encode_event(self, stored: StoredObject) -> bytes:
        """The object of a watch event. Only the first Table of a watch has the columns' names."""
        if self._form.shape != TABLE:
            return self.encode_object(stored)
        table = self._table([stored], self._headers, {"resourceVersion": str(stored.version)})
        self._headers = False
        return self._encoded(table)

    def encode_bookmark(self, version: int, ends_initial: bool) -> bytes:
        """An object of the kind with nothing in it but a version."""
        metadata: Unstructured = {"resourceVersion": str(version), "creationTimestamp": None}
        if ends_initial:
            metadata["annotations"] = {"k8s.io/initial-events-end": "true"}
        if self._form.shape == PLAIN:
            return self._encoded(
                {"kind": self._kind.kind, "apiVersion": self._kind.api_version, "metadata": metadata}
            )
        if self._form.shape == PARTIAL:
            return self._encoded(
                {
                    "kind": "PartialObjectMetadata",
                    "apiVersion": self._form.api_version,
                    "metadata": metadata,
                }
            )
        table = self._table([], self._headers, {"resourceVersion": str(version)})
        if ends_initial:
            table["rows"] = [{"cells": [], "object": {"metadata": metadata}}]
        return self._encoded(table)

    def encode_list(self, page: Page) -> bytes:
        metadata: Unstructured = {"resourceVersion": str(page.version)}
        if page.continue_token:
            metadata["continue"] = page.continue_token
        if page.remaining is not None:
            metadata["remainingItemCount"] = page.remaining
        if self._form.shape == TABLE:
            return self._encoded(self._table(page.items, True, metadata))
        if self._form.shape == PARTIAL:
            kind, version = "PartialObjectMetadataList", self._form.api_version
        else:
            kind, version = self._kind.list_kind_name, self._kind.api_version
        if self._form.yaml:
            items = [self._tree(each) for each in page.items]
            return self._encoded({"kind": kind, "apiVersion": version, "metadata": metadata, "items": items})
        head = b'{"kind":"%b","apiVersion":"%b","metadata":%b,"items":[' % (
            kind.encode(),
            version.encode(),
            msgspec.json.encode(metadata),
        )
        if self.sends_stored_bytes:
            return b"%b%b]}\n" % (head, b",".join([each.raw for each in page.items]))
        return b"%b%b]}\n" % (head, b",".join([self.encode_object(each) for each in page.items]))

    def _tree(self, stored: StoredObject) -> Unstructured:
        if self._form.shape == TABLE:
            return self._table([stored], True, {"resourceVersion": str(stored.version)})
        tree = self._registry.context.from_stored(self._kind, stored)
        if self._form.shape == PARTIAL:
            return {
                "kind": "PartialObjectMetadata",
                "apiVersion": self._form.api_version,
                "metadata": tree["metadata"],
            }
        return tree

    def _table(self, items: list[StoredObject], headers: bool, metadata: Unstructured) -> Unstructured:
        context = self._registry.context
        made = self._registry.machinery.table(
            self._kind,
            [context.from_stored(self._kind, each) for each in items],
            context.clock(),
            list_meta=metadata,
            include=self._include,
            headers=headers,
        )
        made["apiVersion"] = self._form.api_version
        return made

    def _encoded(self, tree: Unstructured) -> bytes:
        return encode_document(tree, self._form)


def encode_document(tree: Unstructured, response_format: ResponseFormat) -> bytes:
    """Any document in JSON or YAML."""
    if response_format.yaml:
        dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
        return bytes(yaml.dump(tree, Dumper=dumper, encoding="utf-8", allow_unicode=True))
    return msgspec.json.encode(tree)
