"""The form that a client asks for in its Accept header, and objects and lists written in it.

    JSON      the object's own bytes, as they are stored: no work at all
    Table     what `kubectl get` prints
    Partial   metadata only
    YAML      JSON, written differently

Used for answers and for the events of watches.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import msgspec
import yaml

from windlass.embedded.api.errors import ApiError
from windlass.embedded.api.kinds import Kind
from windlass.embedded.registry.listing import Page
from windlass.embedded.registry.registry import Registry
from windlass.embedded.store.record import Stored

Tree = dict[str, Any]

PLAIN, TABLE, PARTIAL = "plain", "table", "partial"
ACCEPTED = ("application/json", "application/yaml")
_META = "meta.k8s.io"
_VERSIONS = ("v1", "v1beta1")


class Form(msgspec.Struct, frozen=True):
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


DEFAULT = Form()


@lru_cache(maxsize=256)
def form_of(accept: str) -> Form:
    """The first form that the client would take and that we have; 406 where there is none."""
    if not accept:
        return DEFAULT
    wishes = [_wish(part) for part in accept.split(",") if part.strip()]
    for _, media, parameters in sorted(wishes, key=lambda wish: -wish[0]):
        form = _form(media, parameters)
        if form is not None:
            return form
    raise ApiError.not_acceptable(ACCEPTED)


def _wish(text: str) -> tuple[float, str, dict[str, str]]:
    media, *rest = (part.strip() for part in text.split(";"))
    parameters = dict(part.partition("=")[::2] for part in rest)
    try:
        weight = float(parameters.get("q", "1"))
    except ValueError:
        weight = 1.0
    return weight, media.lower(), parameters


def _form(media: str, parameters: dict[str, str]) -> Form | None:
    if media not in ("application/json", "application/yaml", "*/*", "application/*"):
        return None
    in_yaml = media == "application/yaml"
    what = parameters.get("as", "")
    if not what:
        return Form(yaml=in_yaml)
    if parameters.get("g") != _META or parameters.get("v") not in _VERSIONS:
        return None
    if what == "Table":
        return Form(TABLE, parameters["v"], in_yaml)
    if what in ("PartialObjectMetadata", "PartialObjectMetadataList"):
        return Form(PARTIAL, parameters["v"], in_yaml)
    return None


class Writing:
    """Writes objects of a kind in a form."""

    def __init__(self, registry: Registry, kind: Kind, form: Form, include: str = "") -> None:
        self._registry, self._kind, self._form = registry, kind, form
        self._include = include or "Metadata"
        if self._include not in ("None", "Metadata", "Object"):
            raise ApiError.bad_request(f'unrecognized includeObject value: "{include}"')
        self._headers = True
        self._bytes_may_do = form.shape == PLAIN and not form.yaml and not kind.stored_as
        self.as_stored = self._bytes_may_do and not kind.custom
        """Whether the stored bytes are what the client wants, of every object."""

    def as_it_is(self, stored: Stored) -> bool:
        """Whether the stored bytes of this object are what the client wants; custom kinds have several versions."""
        if self.as_stored:
            return True
        return self._bytes_may_do and bool(stored.tree.get("apiVersion") == self._kind.api_version)

    def one(self, stored: Stored) -> bytes:
        return stored.raw if self.as_it_is(stored) else self._encoded(self._tree(stored))

    def event(self, stored: Stored) -> bytes:
        """The object of a watch event. Only the first Table of a watch has the columns' names."""
        if self._form.shape != TABLE:
            return self.one(stored)
        table = self._table([stored], self._headers, {"resourceVersion": str(stored.version)})
        self._headers = False
        return self._encoded(table)

    def bookmark(self, version: int, ends_initial: bool) -> bytes:
        """An object of the kind with nothing in it but a version."""
        metadata: Tree = {"resourceVersion": str(version), "creationTimestamp": None}
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

    def page(self, page: Page) -> bytes:
        metadata: Tree = {"resourceVersion": str(page.version)}
        if page.token:
            metadata["continue"] = page.token
        if page.remaining is not None:
            metadata["remainingItemCount"] = page.remaining
        if self._form.shape == TABLE:
            return self._encoded(self._table(page.items, True, metadata))
        if self._form.shape == PARTIAL:
            kind, version = "PartialObjectMetadataList", self._form.api_version
        else:
            kind, version = self._kind.list_of, self._kind.api_version
        if self._form.yaml:
            items = [self._tree(each) for each in page.items]
            return self._encoded({"kind": kind, "apiVersion": version, "metadata": metadata, "items": items})
        head = b'{"kind":"%b","apiVersion":"%b","metadata":%b,"items":[' % (
            kind.encode(),
            version.encode(),
            msgspec.json.encode(metadata),
        )
        if self.as_stored:
            return b"%b%b]}\n" % (head, b",".join([each.raw for each in page.items]))
        return b"%b%b]}\n" % (head, b",".join([self.one(each) for each in page.items]))

    def _tree(self, stored: Stored) -> Tree:
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

    def _table(self, items: list[Stored], headers: bool, metadata: Tree) -> Tree:
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

    def _encoded(self, tree: Tree) -> bytes:
        return encoded(tree, self._form)


def encoded(tree: Tree, form: Form) -> bytes:
    """Any document in JSON or YAML."""
    if form.yaml:
        dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
        return bytes(yaml.dump(tree, Dumper=dumper, encoding="utf-8", allow_unicode=True))
    return msgspec.json.encode(tree)
