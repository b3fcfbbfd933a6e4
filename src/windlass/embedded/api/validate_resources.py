"""Validation of resource lists: names, quantities, and requests against limits.

Called by the checks of pods, nodes, quotas and limit ranges with decoded objects, whose quantities are canonical
strings.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from windlass.embedded.api.bounded_cache import bounded_cache
from windlass.embedded.api.errors import FieldError, forbidden_field, invalid, required
from windlass.embedded.api.field_checks import problem_errors
from windlass.embedded.api.names import label_key_problems
from windlass.embedded.api.quantities import quantity_value
from windlass.model.digits import is_digits
from windlass.model.names.kubernetes import NATIVE_RESOURCE_DOMAIN
from windlass.model.unstructured import Unstructured

NATIVE = {"cpu", "memory", "ephemeral-storage", "storage", "pods"}
_FOR_CONTAINERS = {"cpu", "memory", "ephemeral-storage"}
COUNTED_RESOURCES = {
    *("pods", "services", "replicationcontrollers", "resourcequotas", "secrets", "configmaps"),
    *("persistentvolumeclaims", "services.nodeports", "services.loadbalancers"),
}


@bounded_cache(1 << 12)
def is_extended(name: str) -> bool:
    """A device or another resource that is counted in whole units, such as `nvidia.com/gpu`."""
    if "/" not in name or NATIVE_RESOURCE_DOMAIN in name or name.startswith("requests."):
        return False
    return not label_key_problems(f"requests.{name}")


def overcommittable(name: str) -> bool:
    """Whether requests may be lower than limits."""
    native = "/" not in name or NATIVE_RESOURCE_DOMAIN in name
    return native and not name.startswith("hugepages-")


def requirement_errors(resources: Unstructured, path: str) -> Iterator[FieldError]:
    """Validates a container's `resources`."""
    limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
    for name, value in limits.items():
        yield from _container_resource_errors(name, value, f"{path}.limits[{name}]")
    for name, value in requests.items():
        yield from _container_resource_errors(name, value, f"{path}.requests[{name}]")
        yield from _limit_errors(name, value, limits, path)
    huge = any(name.startswith("hugepages-") for name in (*limits, *requests))
    if huge and not ({"cpu", "memory"} & (limits.keys() | requests.keys())):
        yield forbidden_field(path, "HugePages require cpu or memory")


def _limit_errors(name: str, value: str, limits: Mapping[str, str], path: str) -> Iterator[FieldError]:
    limit = limits.get(name)
    if limit is None:
        if not overcommittable(name):
            yield required(f"{path}.limits", "Limit must be set for non overcommitable resources")
    elif value != limit and not overcommittable(name) and quantity_value(value) != quantity_value(limit):
        yield invalid(f"{path}.requests", value, f"must be equal to {name} limit of {limit}")
    elif value != limit and quantity_value(value) > quantity_value(limit):
        yield invalid(f"{path}.requests", value, f"must be less than or equal to {name} limit of {limit}")


def _container_resource_errors(name: str, value: str, path: str) -> Iterator[FieldError]:
    yield from problem_errors(path, name, _container_name_problems)
    yield from quantity_errors(name, value, path)
    if name.startswith("hugepages-"):
        page = name.removeprefix("hugepages-")
        size = quantity_value(page) if is_digits(page[:1]) else None
        if size is None or quantity_value(value) % size:
            yield invalid(path, value, f"{value} is not positive integer multiple of {name}")


@bounded_cache(1 << 12)
def _container_name_problems(name: str) -> tuple[str, ...]:
    problems = list(label_key_problems(name))
    if "/" not in name:
        standard = name in _FOR_CONTAINERS or name.startswith("hugepages-")
        if not standard and name not in NATIVE:
            problems.append("must be a standard resource type or fully qualified")
        if not standard:
            problems.append("must be a standard resource for containers")
    elif not (is_extended(name) or NATIVE_RESOURCE_DOMAIN in name):
        problems.append("doesn't follow extended resource name standard")
    return tuple(problems)


def quantity_errors(name: str, value: str, path: str) -> Iterator[FieldError]:
    """Not negative, and an integer for countable resources."""
    if value.startswith("-"):
        yield invalid(path, value, "must be greater than or equal to 0")
    counted = name in COUNTED_RESOURCES or is_extended(name)
    if counted and not is_digits(value) and quantity_value(value).denominator != 1:
        yield invalid(path, value, "must be an integer")
