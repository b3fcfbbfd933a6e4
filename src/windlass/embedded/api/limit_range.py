"""LimitRange: defaults for containers without requests or limits, and minimum and maximum checks.

`admission` calls it: `fill_defaults` changes a pod, `check_pod` and `check_claim` refuse. Messages are the
Kubernetes API's (Apache-2.0).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from windlass.embedded.api.errors import ApiError
from windlass.embedded.api.json_trees import nested_value
from windlass.embedded.api.kinds import Kind
from windlass.embedded.api.resource_lists import ResourceList, parse_resource_list, pod_resources
from windlass.model.unstructured import Unstructured

_ANNOTATION = "kubernetes.io/limit-ranger"


def fill_defaults(pod: Unstructured, ranges: Iterable[Unstructured]) -> None:
    """Sets the namespace's defaults in containers that have none, in place."""
    for limit_range in ranges:
        limits: dict[str, str] = {}
        requests: dict[str, str] = {}
        for item in nested_value(limit_range, "spec", "limits") or ():
            if item.get("type") == "Container":
                limits |= item.get("default") or {}
                requests |= item.get("defaultRequest") or {}
        if limits or requests:
            _fill(pod, limits, requests)


def _fill(pod: Unstructured, limits: dict[str, str], requests: dict[str, str]) -> None:
    changes = []
    for field, role in (("containers", "container"), ("initContainers", "init container")):
        for container in pod["spec"].get(field) or ():
            resources = container.setdefault("resources", {})
            for section, defaults, word in (("requests", requests, "request"), ("limits", limits, "limit")):
                missing = {
                    name: value for name, value in defaults.items() if name not in (resources.get(section) or {})
                }
                if missing:
                    resources[section] = {**(resources.get(section) or {}), **missing}
                    changes.append(f"{', '.join(sorted(missing))} {word} for {role} {container['name']}")
    if changes:
        annotations = pod["metadata"].setdefault("annotations", {})
        annotations[_ANNOTATION] = "LimitRanger plugin set: " + "; ".join(changes)


def check_pod(kind: Kind, pod: Unstructured, ranges: Iterable[Unstructured]) -> None:
    """A 403 with every value outside a range."""
    for limit_range in ranges:
        problems = list(_problems(pod["spec"], nested_value(limit_range, "spec", "limits") or ()))
        if problems:
            unique = list(dict.fromkeys(problems))
            message = unique[0] if len(unique) == 1 else f"[{', '.join(unique)}]"
            raise ApiError.forbidden(kind, pod["metadata"].get("name", ""), message)


def check_claim(kind: Kind, claim: Unstructured, ranges: Iterable[Unstructured]) -> None:
    """A 403 if a claim's size is outside a range."""
    requests = parse_resource_list(nested_value(claim, "spec", "resources", "requests"))
    for limit_range in ranges:
        for item in nested_value(limit_range, "spec", "limits") or ():
            if item.get("type") != "PersistentVolumeClaim":
                continue
            problems = [*_below_minimum(item, requests, {}), *_request_above_maximum(item, requests)]
            if problems:
                raise ApiError.forbidden(kind, claim["metadata"].get("name", ""), problems[0])


def _problems(spec: Unstructured, items: Iterable[Unstructured]) -> Iterator[str]:
    for item in items:
        if item.get("type") == "Container":
            for container in (*spec.get("containers", ()), *spec.get("initContainers", ())):
                resources = container.get("resources") or {}
                yield from _range_problems(
                    item,
                    parse_resource_list(resources.get("requests")),
                    parse_resource_list(resources.get("limits")),
                )
        elif item.get("type") == "Pod":
            yield from _range_problems(item, pod_resources(spec, "requests"), pod_resources(spec, "limits"))


def _range_problems(item: Unstructured, requests: ResourceList, limits: ResourceList) -> Iterator[str]:
    yield from _below_minimum(item, requests, limits)
    yield from _above_maximum(item, requests, limits)
    yield from _ratio_problems(item, requests, limits)


def _below_minimum(item: Unstructured, requests: ResourceList, limits: ResourceList) -> Iterator[str]:
    for name, minimum in parse_resource_list(item.get("min")).items():
        message = f"minimum {name} usage per {item['type']} is {minimum}"
        request, limit = requests.get(name), limits.get(name)
        if request is None:
            yield f"{message}.  No request is specified"
        elif request.value < minimum.value:
            yield f"{message}, but request is {request}"
        elif limit is not None and limit.value < minimum.value:
            yield f"{message}, but limit is {limit}"


def _above_maximum(item: Unstructured, requests: ResourceList, limits: ResourceList) -> Iterator[str]:
    for name, maximum in parse_resource_list(item.get("max")).items():
        message = f"maximum {name} usage per {item['type']} is {maximum}"
        request, limit = requests.get(name), limits.get(name)
        if limit is None:
            yield f"{message}.  No limit is specified"
        elif limit.value > maximum.value:
            yield f"{message}, but limit is {limit}"
        elif request is not None and request.value > maximum.value:
            yield f"{message}, but request is {request}"


def _request_above_maximum(item: Unstructured, requests: ResourceList) -> Iterator[str]:
    for name, maximum in parse_resource_list(item.get("max")).items():
        request = requests.get(name)
        if request is not None and request.value > maximum.value:
            yield f"maximum {name} usage per {item['type']} is {maximum}, but request is {request}"


def _ratio_problems(item: Unstructured, requests: ResourceList, limits: ResourceList) -> Iterator[str]:
    for name, ratio in parse_resource_list(item.get("maxLimitRequestRatio")).items():
        message = f"{name} max limit to request ratio per {item['type']} is {ratio}"
        request, limit = requests.get(name), limits.get(name)
        if request is None or not request.value:
            yield f"{message}, but no request is specified or request is 0"
        elif limit is None or not limit.value:
            yield f"{message}, but no limit is specified or limit is 0"
        elif limit.value / request.value > ratio.value:
            yield f"{message}, but provided ratio is {float(limit.value / request.value):f}"
