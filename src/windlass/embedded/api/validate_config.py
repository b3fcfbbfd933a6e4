"""Validation of ConfigMaps and Secrets.

Called by `validation` with decoded, defaulted objects. Messages are the Kubernetes API's (Apache-2.0).
"""

from __future__ import annotations

from collections.abc import Iterator

from windlass.embedded.api.errors import FieldError, invalid, required, too_long
from windlass.embedded.api.field_checks import problem_errors
from windlass.embedded.api.names import config_key_problems
from windlass.model.unstructured import Unstructured

_MAX_DATA_BYTES = 1024 * 1024


def config_map_errors(obj: Unstructured) -> Iterator[FieldError]:
    data, binary = obj.get("data") or {}, obj.get("binaryData") or {}
    for field, values in (("data", data), ("binaryData", binary)):
        for key in values:
            yield from problem_errors(f"{field}[{key}]", key, config_key_problems)
            if field == "data" and key in binary:
                yield invalid(f"data[{key}]", key, "duplicate of key present in binaryData")
    total = sum(len(value.encode()) for value in data.values()) + sum(len(value) * 3 // 4 for value in binary.values())
    if total > _MAX_DATA_BYTES:
        yield too_long("[]", _MAX_DATA_BYTES)


_SECRET_KEYS = {
    "kubernetes.io/tls": ("tls.crt", "tls.key"),
    "kubernetes.io/dockerconfigjson": (".dockerconfigjson",),
    "kubernetes.io/dockercfg": (".dockercfg",),
    "kubernetes.io/ssh-auth": ("ssh-privatekey",),
}


def secret_errors(obj: Unstructured) -> Iterator[FieldError]:
    data = obj.get("data") or {}
    for key in data:
        yield from problem_errors(f"data[{key}]", key, config_key_problems)
    if sum(len(value) * 3 // 4 for value in data.values()) > _MAX_DATA_BYTES:
        yield too_long("data", _MAX_DATA_BYTES)
    for key in _SECRET_KEYS.get(obj.get("type", ""), ()):
        if key not in data:
            yield required(f"data[{key}]")
