"""The OpenAPI v2 document in protobuf, the only form in which kubectl requests it.

`server.non_resource_paths` serves it. kubectl reads it for kinds that it can't find in version 3, to learn whether
the server validates fields; so it contains only that, for every kind. Field numbers are those of `openapi.v2`
(gnostic, Apache-2.0).
"""

from __future__ import annotations

import json

from windlass.embedded.api.kinds import Kind
from windlass.embedded.api.machinery import Machinery
from windlass.embedded.api.openapi import VERSION

PROTOBUF_MARKER = "com.github.proto-openapi.spec.v2"
"""Part of the `Accept` header of clients that want it, in both spellings."""
MEDIA_TYPE = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"


def v2(machinery: Machinery) -> bytes:
    paths = b"".join(_field(2, _path(kind)) for kind in machinery.kinds if "patch" in kind.verbs)
    info = _text(1, "Kubernetes") + _text(2, VERSION)
    return _text(1, "2.0") + _field(2, info) + _field(8, paths)


def _path(kind: Kind) -> bytes:
    """One path with the operation that patches an object, and its parameter `fieldValidation`."""
    query = _text(2, "query") + _text(4, "fieldValidation") + _text(6, "string")
    parameter = _field(1, _field(2, _field(3, query)))
    gvk = {"group": kind.group, "version": kind.version, "kind": kind.kind}
    extension = _text(1, "x-kubernetes-group-version-kind") + _field(2, _text(2, json.dumps(gvk)))
    operation = _field(8, parameter) + _field(13, extension)
    return _text(1, kind.path("{namespace}/{name}")) + _field(2, _field(8, operation))


def _text(number: int, value: str) -> bytes:
    return _field(number, value.encode())


def _field(number: int, value: bytes) -> bytes:
    """A length-delimited field."""
    return _varint(number << 3 | 2) + _varint(len(value)) + value


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)
