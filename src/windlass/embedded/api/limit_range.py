"""LimitRange: what containers get that don't say what they take, and what is too much or too little.

Fed by `api.admission`: `fill` changes a pod, `check` refuses. The wording is the Kubernetes API's (Apache-2.0).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from windlass.embedded.api.errors import ApiError
from windlass.embedded.api.json_trees import nested_value
from windlass.embedded.api.kinds import Kind
from windlass.embedded.api.resource_lists import ResourceList, parse_resource_list, pod_resources
from windlass.model.unstructured import Unstructured

_NOTE = "kubernetes.io/limit-ranger"


def fill_defaults(pod: Unstructured, ranges: Iterable[Unstructured]) -> None:
    """Defaults of the namespace for containers that are silent, in place."""
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
    said = []
    for listed, word in (("containers", "container"), ("initContainers", "init container")):
        for container in pod["spec"].get(listed) or ():
            resources = container.setdefault("resources", {})
            for which, defaults, short in (("requests", requests, "request"), ("limits", limits, "limit")):
                missing = {
                    name: value
                    for name, value in defaults.items()
                    if name not in (resources.get(which) or {})
                }
                if missing:
                    resources[which] = {**(resources.get(which) or {}), **missing}
                    said.append(f"{', '.join(sorted(missing))} {short} for {word} {container['name']}")
    if said:
        annotations = pod["metadata"].setdefault("annotations", {})
        annotations[_NOTE] = "LimitRanger plugin set: " + "; ".join(said)


def check_pod(kind: Kind, pod: Unstructured, ranges: Iterable[Unstructured]) -> None:
    """A 403 with everything that is outside a range."""
    for limit_range in ranges:
        problems = list(_problems(pod["spec"], nested_value(limit_range, "spec", "limits") or ()))
        if problems:
            unique = list(dict.fromkeys(problems))
            shown = unique[0] if len(unique) == 1 else f"[{', '.join(unique)}]"
            raise ApiError.forbidden(kind, pod["metadata"].get("name", ""), shown)


def check_claim(kind: Kind, claim: Unstructured, ranges: Iterable[Unstructured]) -> None:
    """The same for the size of a claim."""
    asked = parse_resource_list(nested_value(claim, "spec", "resources", "requests"))
    for limit_range in ranges:
        for item in nested_value(limit_range, "spec", "limits") or ():
            if item.get("type") != "PersistentVolumeClaim":
                continue
            problems = [*_too_little(item, asked, {}), *_asked_too_much(item, asked)]
            if problems:
                raise ApiError.forbidden(kind, claim["metadata"].get("name", ""), problems[0])


def _problems(spec: Unstructured, items: Iterable[Unstructured]) -> Iterator[str]:
    for item in items:
        if item.get("type") == "Container":
            for container in (*spec.get("containers", ()), *spec.get("initContainers", ())):
                resources = container.get("resources") or {}
                yield from _outside(
                    item,
                    parse_resource_list(resources.get("requests")),
                    parse_resource_list(resources.get("limits")),
                )
        elif item.get("type") == "Pod":
            yield from _outside(item, pod_resources(spec, "requests"), pod_resources(spec, "limits"))


def _outside(item: Unstructured, requests: ResourceList, limits: ResourceList) -> Iterator[str]:
    yield from _too_little(item, requests, limits)
    yield from _too_much(item, requests, limits)
    yield from _too_far_apart(item, requests, limits)


def _too_little(item: Unstructured, requests: ResourceList, limits: ResourceList) -> Iterator[str]:
    for name, least in parse_resource_list(item.get("min")).items():
        head = f"minimum {name} usage per {item['type']} is {least}"
        asked, limit = requests.get(name), limits.get(name)
        if asked is None:
            yield f"{head}.  No request is specified"
        elif asked.value < least.value:
            yield f"{head}, but request is {asked}"
        elif limit is not None and limit.value < least.value:
            yield f"{head}, but limit is {limit}"


def _too_much(item: Unstructured, requests: ResourceList, limits: ResourceList) -> Iterator[str]:
    for name, most in parse_resource_list(item.get("max")).items():
        head = f"maximum {name} usage per {item['type']} is {most}"
        asked, limit = requests.get(name), limits.get(name)
        if limit is None:
            yield f"{head}.  No limit is specified"
        elif limit.value > most.value:
            yield f"{head}, but limit is {limit}"
        elif asked is not None and asked.value > most.value:
            yield f"{head}, but request is {asked}"


def _asked_too_much(item: Unstructured, requests: ResourceList) -> Iterator[str]:
    for name, most in parse_resource_list(item.get("max")).items():
        asked = requests.get(name)
        if asked is not None and asked.value > most.value:
            yield f"maximum {name} usage per {item['type']} is {most}, but request is {asked}"


def _too_far_apart(item: Unstructured, requests: ResourceList, limits: ResourceList) -> Iterator[str]:
    for name, ratio in parse_resource_list(item.get("maxLimitRequestRatio")).items():
        head = f"{name} max limit to request ratio per {item['type']} is {ratio}"
        asked, limit = requests.get(name), limits.get(name)
        if asked is None or not asked.value:
            yield f"{head}, but no request is specified or request is 0"
        elif limit is None or not limit.value:
            yield f"{head}, but no limit is specified or limit is 0"
        elif limit.value / asked.value > ratio.value:
            yield f"{head}, but provided ratio is {float(limit.value / asked.value):f}"
