"""A container's environment variables from its spec, the pod's fields, ConfigMaps and Secrets.

The kubelet calls it when a container starts. A missing source raises a `ContainerStartError` in the kubelet's own
wording.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Mapping, Sequence

from windlass.embedded.controllers.objects import annotations_of, labels_of, name_of, namespace_of, uid_of
from windlass.embedded.runtime.container_runtime import ContainerStartError
from windlass.model.errors import InputError
from windlass.model.quantity import whole_value
from windlass.model.unstructured import Unstructured

Lookup = Callable[[str, str, str], "Unstructured | None"]
"""(resource, namespace, name) → object, or None."""
MAX_LENGTH = 2 << 20
"""Of a container's environment, and of its arguments: about what Linux gives a process at most."""
_REFERENCE = re.compile(r"\$\$|\$\(([A-Za-z_][A-Za-z0-9_.-]*)\)")
_SUBSCRIPT = re.compile(r"metadata\.(labels|annotations)\['([^']*)'\]")


def container_environment(pod: Unstructured, container: Unstructured, lookup: Lookup) -> dict[str, str]:
    values: dict[str, str] = {}
    for source in container.get("envFrom") or ():
        values |= _env_from(source, pod, lookup)
    length = sum(map(len, values.values()))
    for entry in container.get("env") or ():
        if entry.get("valueFrom"):
            found = _source(entry["valueFrom"], pod, container, lookup)
            if found is None:
                continue
        else:
            found = expand(str(entry.get("value") or ""), values, MAX_LENGTH - length)
        values[entry["name"]] = found
        length += len(found)
    if length > MAX_LENGTH:
        raise _too_long()
    return values


def expand(text: str, values: Mapping[str, str], max_length: int = MAX_LENGTH) -> str:
    """Replaces `$(NAME)` if NAME is known; `$$` becomes a dollar sign.

    Raises a `ContainerStartError` if the result is longer than a process can be given: thirty variables that each
    contain the one before twice would fill the memory.
    """
    left = max_length - len(text)
    if left < 0:
        raise _too_long()

    def replace(match: re.Match[str]) -> str:
        nonlocal left
        if match[0] == "$$":
            return "$"
        found = values.get(match[1], match[0])
        left -= len(found) - len(match[0])
        if left < 0:
            raise _too_long()
        return found

    return _REFERENCE.sub(replace, text)


def expand_all(arguments: Sequence[object], values: Mapping[str, str]) -> list[str]:
    """The arguments of a command, expanded."""
    expanded: list[str] = []
    left = MAX_LENGTH
    for argument in arguments:
        expanded.append(expand(str(argument), values, left))
        left -= len(expanded[-1])
    return expanded


def _too_long() -> ContainerStartError:
    message = f"argument list too long: command and environment have more than {MAX_LENGTH} characters"
    return ContainerStartError("CreateContainerError", message)


def _env_from(source: Unstructured, pod: Unstructured, lookup: Lookup) -> dict[str, str]:
    prefix = source.get("prefix") or ""
    for field, resource in (("configMapRef", "configmaps"), ("secretRef", "secrets")):
        reference = source.get(field)
        if reference:
            data = _data(resource, reference, pod, lookup)
            return {f"{prefix}{key}": value for key, value in (data or {}).items()}
    return {}


def _source(source: Unstructured, pod: Unstructured, container: Unstructured, lookup: Lookup) -> str | None:
    for field, resource in (("configMapKeyRef", "configmaps"), ("secretKeyRef", "secrets")):
        reference = source.get(field)
        if not reference:
            continue
        data = _data(resource, reference, pod, lookup)
        if data is not None and reference["key"] in data:
            return data[reference["key"]]
        if reference.get("optional"):
            return None
        kind = "ConfigMap" if resource == "configmaps" else "Secret"
        message = f"couldn't find key {reference['key']} in {kind} {namespace_of(pod)}/{reference['name']}"
        raise ContainerStartError("CreateContainerConfigError", message)
    if source.get("fieldRef"):
        return _field(source["fieldRef"]["fieldPath"], pod)
    if source.get("resourceFieldRef"):
        return _resource(source["resourceFieldRef"], container)
    return None


def _data(resource: str, reference: Unstructured, pod: Unstructured, lookup: Lookup) -> dict[str, str] | None:
    found = lookup(resource, namespace_of(pod), reference["name"])
    if found is None:
        if reference.get("optional"):
            return None
        kind = resource.removesuffix("s")
        raise ContainerStartError("CreateContainerConfigError", f'{kind} "{reference["name"]}" not found')
    data = found.get("data") or {}
    if resource == "secrets":
        return {key: base64.b64decode(value).decode("utf-8", "replace") for key, value in data.items()}
    return dict(data)


def _field(path: str, pod: Unstructured) -> str:
    subscript = _SUBSCRIPT.fullmatch(path)
    if subscript:
        source = labels_of(pod) if subscript[1] == "labels" else annotations_of(pod)
        return source.get(subscript[2], "")
    spec, status = pod.get("spec") or {}, pod.get("status") or {}
    return {
        "metadata.name": name_of(pod),
        "metadata.namespace": namespace_of(pod),
        "metadata.uid": uid_of(pod),
        "spec.nodeName": str(spec.get("nodeName") or ""),
        "spec.serviceAccountName": str(spec.get("serviceAccountName") or ""),
        "status.podIP": str(status.get("podIP") or ""),
        "status.podIPs": str(status.get("podIP") or ""),
        "status.hostIP": str(status.get("hostIP") or ""),
    }.get(path, "")


def _resource(reference: Unstructured, container: Unstructured) -> str:
    kind, _, name = str(reference.get("resource", "")).partition(".")
    raw = ((container.get("resources") or {}).get(kind) or {}).get(name)
    try:
        value = whole_value(raw) if raw is not None else 0
        divisor = whole_value(reference.get("divisor") or "1") or 1
    except InputError:
        return "0"
    return str(-(-value // divisor))
