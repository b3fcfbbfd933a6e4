"""A request as data: built and tested without a server, sent by `kube.client`."""

from __future__ import annotations

from typing import Any

import msgspec

JSON = "application/json"
MERGE_PATCH = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
METADATA_ONLY = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
"""Asks for an object without its spec, data and status."""
APPLY_PATCH = "application/apply-patch+yaml"


class Request(msgspec.Struct, frozen=True):
    method: str
    path: str
    """Begins with `/api` or `/apis`."""
    query: tuple[tuple[str, str], ...] = ()
    body: Any = None
    """Sent as JSON."""
    content_type: str = JSON
    accept: str = JSON
    retries_on_429: bool = True
    """After 429 it is sent again when the server says so. An eviction's 429 is an answer, and is not."""

    @property
    def encoded_body(self) -> bytes | None:
        return None if self.body is None else msgspec.json.encode(self.body)

    def with_query(self, **query: str) -> Request:
        return msgspec.structs.replace(self, query=(*self.query, *query.items()))


def dry_run(request: Request) -> Request:
    """The same request as a dry run."""
    return request.with_query(dryRun="All")
