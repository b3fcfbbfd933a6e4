"""What resource claims ask for, and which of the published devices would do: by number, by attribute, by taint.

`resource_claims` calls `device_finding` for a waiting pod. Only expressions that compare an attribute with a text are
understood; a device is left out for an expression only if that is sure.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from windlass.diagnose.evidence import Evidence
from windlass.diagnose.finding import Finding
from windlass.diagnose.unstructured import nested, nested_bool, nested_int, nested_map, nested_maps, nested_string

Key = tuple[str, str]
"""Pool and name of a device."""


class Device(msgspec.Struct, frozen=True):
    pool: str
    name: str
    attributes: dict[str, str]
    taints: tuple[dict[str, object], ...] = ()
    is_shared: bool = False
    """Whether several claims may have it at once."""

    @property
    def key(self) -> Key:
        return self.pool, self.name


class DeviceRequest(msgspec.Struct, frozen=True):
    """One request of a claim: so many devices of one class, of one node."""

    claim: str
    class_name: str
    count: int
    expressions: tuple[str, ...]
    tolerates_all: bool


def published_devices(evidence: Evidence, driver: str) -> list[Device]:
    slices = (
        item for item in evidence.of_kind("ResourceSlice") if nested_string(item.data, "spec", "driver") == driver
    )
    return [
        Device(
            nested_string(item.data, "spec", "pool", "name"),
            nested_string(row, "name"),
            _attributes(row),
            tuple(nested_maps(row, "taints") or nested_maps(row, "basic", "taints")),
            nested_bool(row, "allowMultipleAllocations"),
        )
        for item in slices
        for row in nested_maps(item.data, "spec", "devices")
    ]


def _attributes(row: dict[str, object]) -> dict[str, str]:
    """Name without domain → text. Before Kubernetes 1.33 they were nested in `basic`."""
    found = nested_map(row, "attributes") or nested_map(row, "basic", "attributes")
    return {name.rpartition("/")[2]: nested_string(value, "string") for name, value in found.items()}


def requests_of(name: str, spec: object) -> Iterator[DeviceRequest]:
    """Requests of a claim's spec; alternatives (`firstAvailable`) and `allocationMode: All` are left out."""
    for row in nested_maps(spec, "devices", "requests"):
        exact = nested_map(row, "exactly") or row
        class_name = nested_string(exact, "deviceClassName")
        if class_name and nested_string(exact, "allocationMode") != "All":
            selectors = nested_maps(exact, "selectors")
            expressions = tuple(nested_string(selector, "cel", "expression") for selector in selectors)
            yield DeviceRequest(
                name, class_name, nested_int(exact, "count") or 1, expressions, bool(nested(exact, "tolerations"))
            )


def device_finding(
    request: DeviceRequest, driver: str, devices: Sequence[Device], taken: Iterable[Key]
) -> Finding | None:
    """Why the request finds no devices; None if some node has enough free, or if that can't be said."""
    if not devices:
        return None
    matching = [device for device in devices if not any(_excludes(text, device) for text in request.expressions)]
    if not matching:
        return _none_matches(request, driver, devices)
    most = max(Counter(device.pool for device in matching).values())
    if most < request.count:
        message = (
            f"{request.claim} asks for {request.count} devices of {driver} at once, and no node has more than {most}"
        )
        return Finding("REQUEST_EXCEEDS_CLUSTER", f"{message} that would do" if request.expressions else message)
    allocated = set(taken)
    free = [device for device in matching if device.is_shared or device.key not in allocated]
    usable = [device for device in free if request.tolerates_all or not _is_tainted(device)]
    by_pool = Counter(device.pool for device in usable)
    if max(by_pool.values(), default=0) >= request.count:
        return None
    if len(usable) < len(free):
        return _tainted(request, driver, [device for device in free if device not in usable], len(usable))
    if not free:
        return Finding("GPU_FULL", f"all {len(matching)} devices of {driver} are allocated to other claims")
    code = "GPU_FRAGMENTED" if len(free) >= request.count else "GPU_FULL"
    message = f"{request.claim} asks for {request.count} devices of {driver}, and no node has more than "
    return Finding(code, f"{message}{max(by_pool.values())} free")


def _none_matches(request: DeviceRequest, driver: str, devices: Sequence[Device]) -> Finding:
    """The attribute that is asked for, and the values that the devices have."""
    for text in request.expressions:
        for name, wanted in COMPARED.findall(text):
            has = sorted({device.attributes.get(name, "") or "none" for device in devices})
            if wanted not in has:
                message = (
                    f"{request.claim} asks for a device of {driver} whose {name} is {wanted}; "
                    f"the published ones have {', '.join(has[:MOST_VALUES])}"
                )
                remedy = "correct the expression in the claim's selectors, or the template that it is made from"
                return Finding("DRA_CLAIM_INVALID", message, remedy=remedy)
    message = f"no published device of {driver} matches the expressions of {request.claim}"
    return Finding("DRA_CLAIM_INVALID", message)


MOST_VALUES = 4


def _tainted(request: DeviceRequest, driver: str, out: Sequence[Device], left: int) -> Finding:
    taints = sorted(
        {f"{nested_string(row, 'key')}={nested_string(row, 'value')}" for device in out for row in device.taints}
    )
    names = ", ".join(f"{device.name} of pool {device.pool}" for device in out[:MOST_VALUES])
    message = f"the driver has tainted {names} ({', '.join(taints)}); {request.count} needed, {left} others free"
    remedy = (
        f"see why {driver} has tainted it (its plugin's log, the node's kernel log), then reset or replace the device"
    )
    return Finding("DEVICE_UNHEALTHY", message, remedy=remedy)


def _is_tainted(device: Device) -> bool:
    return any(nested_string(row, "effect") in ("NoSchedule", "NoExecute") for row in device.taints)


COMPARED = re.compile(r"""\battributes\[["'][^"']+["']\]\.(\w+)\s*==\s*["']([^"']*)["']""")
EITHER = re.compile(r"\|\||!|\?|\bhas\(")


def _excludes(expression: str, device: Device) -> bool:
    """Whether the expression is sure not to hold: one of its comparisons does not, and nothing but `&&` joins them."""
    if EITHER.search(expression.replace("!=", "")):
        return False
    return any(device.attributes.get(name, wanted) != wanted for name, wanted in COMPARED.findall(expression))
