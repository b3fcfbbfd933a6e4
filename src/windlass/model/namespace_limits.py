"""What a namespace allows: ResourceQuota (in all) and LimitRange (a container, a pod).

Decoded by `model.codec`. The API server applies both when a pod is made, so they matter for what is not submitted
yet: manifests that `plan` and `check` are asked about, and pod templates in a queue.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from windlass.model.errors import InputError
from windlass.model.meta import KubeStruct, ObjectMeta
from windlass.model.pod import Pod, PodSpec, RawQuantity
from windlass.model.quantity import parse_quantity, whole_value
from windlass.model.quota import format_quota, parse_quota
from windlass.model.requests import pod_requests

ResourceAmounts = dict[str, RawQuantity]


class QuotaSpec(KubeStruct, frozen=True):
    hard: ResourceAmounts = msgspec.field(default_factory=dict)
    scopes: tuple[str, ...] = ()


class QuotaStatus(KubeStruct, frozen=True):
    hard: ResourceAmounts = msgspec.field(default_factory=dict)
    used: ResourceAmounts = msgspec.field(default_factory=dict)


class ResourceQuota(KubeStruct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: QuotaSpec = QuotaSpec()
    status: QuotaStatus = QuotaStatus()

    @property
    def namespace(self) -> str:
        return self.metadata.namespace or "default"


class LimitRangeItem(KubeStruct, frozen=True):
    type: str = ""
    max: ResourceAmounts = msgspec.field(default_factory=dict)
    min: ResourceAmounts = msgspec.field(default_factory=dict)
    default: ResourceAmounts = msgspec.field(default_factory=dict)
    """Limits of a container that has none."""
    default_request: ResourceAmounts = msgspec.field(default_factory=dict)


class LimitRangeSpec(KubeStruct, frozen=True):
    limits: tuple[LimitRangeItem, ...] = ()


class LimitRange(KubeStruct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: LimitRangeSpec = LimitRangeSpec()

    @property
    def namespace(self) -> str:
        return self.metadata.namespace or "default"


def check_quota(quota: ResourceQuota) -> None:
    for where, amounts in (("spec.hard", quota.spec.hard), ("status.used", quota.status.used)):
        for name, raw in amounts.items():
            _readable(name, raw, f"{where}.{name}")


def check_limit_range(limits: LimitRange) -> None:
    for index, item in enumerate(limits.spec.limits):
        fields = {"max": item.max, "min": item.min, "default": item.default, "defaultRequest": item.default_request}
        for field, amounts in fields.items():
            for name, raw in amounts.items():
                _readable(name, raw, f"spec.limits[{index}].{field}.{name}")


def quota_left(quota: ResourceQuota) -> dict[str, int]:
    """What may still be asked for, by resource as a pod names it; keys that count other things are left out."""
    left = {}
    for name, raw in quota.spec.hard.items():
        resource = _resource(name)
        if resource:
            used = quota.status.used.get(name, 0)
            left[resource] = _units(resource, raw) - _units(resource, used)
    return left


def exceeded_quota_message(quota: ResourceQuota, asked: Mapping[str, int]) -> str:
    """In the API server's words why the namespace doesn't allow so much more; empty where it does.

    A quota with scopes selects by things that are not looked at here, so it forbids nothing.
    """
    if quota.spec.scopes:
        return ""
    left = quota_left(quota)
    short = [name for name in sorted(left) if asked.get(name, 0) > max(0, left[name])]
    if not short:
        return ""
    hard = {_resource(name): (name, _units(_resource(name), raw)) for name, raw in quota.spec.hard.items()}

    def listed(amounts: Mapping[str, int]) -> str:
        amount = {hard[name][0]: format_quota(name, amounts[name]) for name in short}
        return ",".join(f"{resource}={amount[resource]}" for resource in amount)

    used = {name: hard[name][1] - left[name] for name in short}
    limited = {name: hard[name][1] for name in short}
    return (
        f"exceeded quota: {quota.metadata.name}, requested: {listed(asked)}, "
        f"used: {listed(used)}, limited: {listed(limited)}"
    )


def limit_range_violation(ranges: Iterable[LimitRange], pod: Pod) -> str:
    """Which LimitRange the pod breaks, and how; empty where none."""
    for limits in ranges:
        for item in limits.spec.limits:
            for asked, path in _measured(item.type, pod):
                problem = _outside(item, asked, path)
                if problem:
                    return f"LimitRange {limits.metadata.name}: {problem}"
    return ""


def _measured(kind: str, pod: Pod) -> list[tuple[dict[str, int], str]]:
    """The requests that an item of this type looks at, with their paths."""
    if kind == "Pod":
        return [(pod_requests(pod), "spec")]
    if kind != "Container":
        return []
    found = []
    for field, containers in (
        ("initContainers", pod.spec.init_containers),
        ("containers", pod.spec.containers),
    ):
        for index, container in enumerate(containers):
            alone = Pod(metadata=pod.metadata, spec=PodSpec(containers=(container,)))
            found.append((pod_requests(alone), f"spec.{field}[{index}].resources.requests"))
    return found


def _outside(item: LimitRangeItem, asked: Mapping[str, int], path: str) -> str:
    for name, amount in asked.items():
        if name in item.max and amount > _request_units(name, item.max[name]):
            return f"{path}.{name} is above the maximum of {item.max[name]} per {item.type.lower()}"
        if name in item.min and amount < _request_units(name, item.min[name]):
            return f"{path}.{name} is below the minimum of {item.min[name]} per {item.type.lower()}"
    return ""


def _resource(key: str) -> str:
    """The resource that a key of a ResourceQuota counts the requests of; empty for other keys."""
    if key in ("cpu", "memory", "pods", "ephemeral-storage"):
        return key
    return key.removeprefix("requests.") if key.startswith("requests.") else ""


def _units(resource: str, raw: RawQuantity) -> int:
    return parse_quota(resource, raw) if resource else whole_value(raw)


def _request_units(resource: str, raw: RawQuantity) -> int:
    """Units of `pod_requests`: GPUs are whole there."""
    return parse_quota("cpu", raw) if resource == "cpu" else whole_value(raw)


def _readable(name: str, raw: RawQuantity, path: str) -> None:
    try:
        parse_quantity(raw)
        _units(_resource(name), raw)
    except InputError as error:
        raise error.with_context(path=path) from None
