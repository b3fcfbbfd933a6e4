"""The effective request of a pod and the resources of a node, as integers.

Called by `cluster` for shapes and node rows. Units: cpu in thousandths, everything else in its base unit (bytes,
devices, pods). The effective request is computed as in Kubernetes; what the API server would refuse is an `InputError`
with the object and the field's path.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from functools import lru_cache

from windlass.model.errors import InputError
from windlass.model.names.kubernetes import NATIVE_RESOURCE_DOMAIN
from windlass.model.node import Node
from windlass.model.pod import Container, Pod, PodSpec, RawQuantity
from windlass.model.quantity import INT64_MAX, format_quantity, milli_value, parse_quantity, whole_value

MAX_POD_REQUEST = 2**50
"""More than any node has (1 PiB of memory). Larger requests are capped to it, so that sums over thousands of pods fit
into 64 bits."""
MAX_NODE_AMOUNT = 2**50
"""Larger amounts of a node are capped to it as well, so that sums over thousands of nodes fit into 64 bits."""
Amounts = dict[str, int]

_POD_LEVEL_NAMES = ("cpu", "memory")


def pod_requests(pod: Pod) -> Amounts:
    """The effective request of a pod, without resources that are 0; `pods` is always 1.

    Containers are summed; init containers run one after the other, so that the maximum counts, each plus the sidecars
    (restartable init containers) started before it; a pod-level request replaces the sum; the runtime's overhead is
    added.
    """
    try:
        total = _spec_requests(pod.spec)
    except InputError as error:
        raise error.with_context(object=f"Pod {pod.key}") from None
    total["pods"] = 1
    return total


def is_extended_resource(name: str) -> bool:
    """Whether the resource is an extended one (`nvidia.com/gpu`): whole numbers only, request equal to limit."""
    return "/" in name and NATIVE_RESOURCE_DOMAIN not in name and not name.startswith("requests.")


@lru_cache(maxsize=1 << 16)
def parse_amount(name: str, raw: RawQuantity) -> int:
    """The amount of one resource in the unit of the arrays. Raises an `InputError` for an impossible amount."""
    value = milli_value(raw) if name == "cpu" else whole_value(raw)
    if value < 0:
        raise InputError(f"{raw!r} is negative", remedy="a resource quantity must be 0 or more", code="INVALID_OBJECT")
    if is_extended_resource(name) and parse_quantity(raw).denominator != 1:
        raise InputError(
            f"{raw!r} of {name} must be an integer",
            remedy="extended resources can't be split; share a GPU with nvidia.com/gpu.shared, a MIG profile or the "
            "gpu-fraction annotation",
            code="FRACTIONAL_GPU_REQUEST",
        )
    return value


def format_amount(name: str, amount: int) -> str:
    """An amount of a resource as Kubernetes would print it: `1500m` of cpu, `2Gi` of memory, `8` GPUs."""
    if name == "cpu":
        return format_quantity(Fraction(amount, 1000))
    binary = name in ("memory", "ephemeral-storage") or name.startswith("hugepages-")
    return format_quantity(amount, "BinarySI") if binary else str(amount)


def _spec_requests(spec: PodSpec) -> Amounts:
    total = _container_requests(spec.containers[0], "containers", 0) if spec.containers else {}
    for index in range(1, len(spec.containers)):
        _add(total, _container_requests(spec.containers[index], "containers", index))
    if spec.init_containers:
        _count_init_containers(spec, total)
    if spec.resources is not None:
        _apply_pod_level(spec, total)
    for name, raw in spec.overhead.items():
        total[name] = total.get(name, 0) + _amount(name, raw, "spec.overhead")
    for name, amount in total.items():
        if amount > INT64_MAX:
            raise InputError(f"the containers' requests of {name} add up to more than 2^63", path="spec.containers")
    return {name: min(amount, MAX_POD_REQUEST) for name, amount in total.items() if amount}


def _count_init_containers(spec: PodSpec, total: Amounts) -> None:
    """Raises `total` to the maximum of the init containers, and adds the sidecars."""
    sidecars: Amounts = {}
    peak: Amounts = {}
    for index, container in enumerate(spec.init_containers):
        asked = _container_requests(container, "initContainers", index)
        if container.restart_policy == "Always":
            _add(total, asked)
            _add(sidecars, asked)
        else:
            _add(asked, sidecars)
            _raise_to(peak, asked)
    _raise_to(total, peak)


def _apply_pod_level(spec: PodSpec, total: Amounts) -> None:
    """Replaces the containers' requests by `spec.resources`; a limit without request counts if they request nothing."""
    assert spec.resources is not None
    requests, limits = spec.resources.requests, spec.resources.limits
    for where, amounts in (("requests", requests), ("limits", limits)):
        for name in amounts:
            if name not in _POD_LEVEL_NAMES and not name.startswith("hugepages-"):
                raise InputError(
                    f"{name} can't be asked for at the pod's level",
                    path=f"spec.resources.{where}.{name}",
                    remedy="only cpu, memory and hugepages can; ask for it in a container",
                    code="INVALID_OBJECT",
                )
    limited = {name: _amount(name, raw, "spec.resources.limits") for name, raw in limits.items()}
    for name, amount in limited.items():
        if name not in total or name.startswith("hugepages-"):
            total[name] = amount
    for name, raw in requests.items():
        total[name] = _amount(name, raw, "spec.resources.requests")
        if total[name] > limited.get(name, INT64_MAX):
            raise _above_limit(name, raw, limits[name], f"spec.resources.requests.{name}")


def _container_requests(container: Container, group: str, index: int) -> Amounts:
    resources = container.resources
    requests, limits = resources.requests, resources.limits
    if not limits and not requests:
        return {}
    where = f"spec.{group}[{index}].resources"
    asked = {name: _amount(name, raw, where, "limits") for name, raw in limits.items()}
    for name, raw in requests.items():
        amount = _amount(name, raw, where, "requests")
        limit = asked.get(name)
        if limit != amount:
            _check_against_limit(name, amount, limit, container, where)
            asked[name] = amount
    return asked


def _check_against_limit(name: str, amount: int, limit: int | None, container: Container, where: str) -> None:
    """Which requests may differ from their limit, and how; called only if they differ."""
    requests, limits = container.resources.requests, container.resources.limits
    path = f"{where}.requests.{name}"
    if is_extended_resource(name) or name.startswith("hugepages-"):
        if limit is None:
            raise InputError(
                f"{name} is requested without a limit",
                path=path,
                remedy=f"set limits.{name} to {requests[name]!r}; the request may then be left out",
                code="REQUESTS_NE_LIMITS",
            )
        raise InputError(
            f"request {requests[name]!r} of {name} must be equal to its limit {limits[name]!r}",
            path=path,
            remedy=f"set limits.{name} only; the request follows it",
            code="REQUESTS_NE_LIMITS",
        )
    if limit is not None and amount > limit:
        raise _above_limit(name, requests[name], limits[name], path)


def _above_limit(name: str, request: RawQuantity, limit: RawQuantity, path: str) -> InputError:
    return InputError(
        f"request {request!r} of {name} is above its limit {limit!r}",
        path=path,
        remedy="raise the limit or lower the request",
        code="INVALID_OBJECT",
    )


def _amount(name: str, raw: RawQuantity, where: str, group: str = "") -> int:
    try:
        return parse_amount(name, raw)
    except InputError as error:
        path = f"{where}.{group}.{name}" if group else f"{where}.{name}"
        raise error.with_context(path=path, code="INVALID_OBJECT") from None


def _add(total: Amounts, more: Amounts) -> None:
    for name, amount in more.items():
        total[name] = total.get(name, 0) + amount


def _raise_to(total: Amounts, floor: Amounts) -> None:
    for name, amount in floor.items():
        if amount > total.get(name, 0):
            total[name] = amount


def node_quantities(node: Node) -> tuple[Amounts, Amounts]:
    """`(capacity, allocatable)` of a node.

    Defaulted as by the API server: without allocatable, capacity is allocatable. A resource that is only in allocatable
    has the same capacity.
    """
    status = node.status
    try:
        capacity = _amounts(status.capacity, "status.capacity")
        allocatable = _amounts(status.allocatable, "status.allocatable") if status.allocatable else dict(capacity)
        for name, amount in allocatable.items():
            if amount > capacity.setdefault(name, amount):
                raise _above_capacity(name, amount, capacity[name])
    except InputError as error:
        raise error.with_context(object=f"Node {node.name}") from None
    return _capped(capacity), _capped(allocatable)


def _capped(amounts: Amounts) -> Amounts:
    if max(amounts.values(), default=0) <= MAX_NODE_AMOUNT:
        return amounts  # as ever
    return {name: min(amount, MAX_NODE_AMOUNT) for name, amount in amounts.items()}


def _amounts(raw: Mapping[str, RawQuantity], where: str) -> Amounts:
    return {name: _amount(name, quantity, where) for name, quantity in raw.items()}


def _above_capacity(name: str, amount: int, capacity: int) -> InputError:
    return InputError(
        f"{format_amount(name, amount)} of {name} is more than the capacity of {format_amount(name, capacity)}",
        path=f"status.allocatable.{name}",
        remedy="a node can't offer more than it has: raise status.capacity or lower status.allocatable",
        code="INVALID_OBJECT",
    )
