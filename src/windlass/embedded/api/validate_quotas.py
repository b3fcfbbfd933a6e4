"""Validation of ResourceQuotas and LimitRanges; their effect is in `resource_quota` and `limit_range`.

Called by `validation` with decoded, defaulted objects. Messages are the Kubernetes API's (Apache-2.0).
"""

from __future__ import annotations

from collections.abc import Iterator

from windlass.embedded.api.errors import FieldError, duplicate, forbidden_field, invalid, required
from windlass.embedded.api.field_checks import problem_errors
from windlass.embedded.api.names import label_key_problems
from windlass.embedded.api.quantities import quantity_value
from windlass.embedded.api.validate_resources import COUNTED_RESOURCES, is_extended, quantity_errors
from windlass.model.unstructured import Unstructured

_COMPUTE = ("cpu", "memory", "ephemeral-storage")
_POD_RESOURCES = {
    *_COMPUTE,
    "requests.storage",
    *(f"{kind}.{name}" for kind in ("requests", "limits") for name in _COMPUTE),
}
_QUOTA_NAMES = _POD_RESOURCES | COUNTED_RESOURCES
_SCOPES = {
    *("Terminating", "NotTerminating", "BestEffort", "NotBestEffort", "PriorityClass"),
    *("CrossNamespacePodAffinity", "VolumeAttributesClass"),
}


def quota_errors(obj: Unstructured) -> Iterator[FieldError]:
    spec = obj["spec"]
    for name, value in (spec.get("hard") or {}).items():
        path = f"spec.hard[{name}]"
        yield from problem_errors(path, name, label_key_problems)
        if "/" not in name and name not in _QUOTA_NAMES and not name.startswith(("requests.hugepages", "hugepages-")):
            yield invalid(path, name, "must be a standard resource type or fully qualified")
            yield invalid(path, name, "must be a standard resource for quota")
        counted = "" if is_extended(name) and "." in name.partition("/")[0] else name
        yield from quantity_errors(counted, value, path)
    yield from _scope_selector_errors(spec)
    scopes = spec.get("scopes") or []
    if any(scope not in _SCOPES for scope in scopes):
        yield invalid("spec.scopes", scopes, "unsupported scope")
    elif scopes and any(name not in _POD_RESOURCES | {"pods"} and "/" not in name for name in spec.get("hard") or {}):
        yield invalid("spec.scopes", scopes, "unsupported scope applied to resource")


def _scope_selector_errors(spec: Unstructured) -> Iterator[FieldError]:
    path = "spec.scopeSelector.matchExpressions"
    for term in (spec.get("scopeSelector") or {}).get("matchExpressions") or ():
        name, operator, values = term.get("scopeName", ""), term.get("operator", ""), term.get("values") or []
        if name not in _SCOPES:
            yield invalid(f"{path}.scopeName", name, "unsupported scope")
        elif name not in ("PriorityClass", "VolumeAttributesClass") and operator != "Exists":
            yield invalid(f"{path}.operator", operator, _ONLY_EXISTS)
        if operator in ("In", "NotIn"):
            if not values:
                detail = "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector"
                yield required(f"{path}.values", detail)
        elif operator not in ("Exists", "DoesNotExist"):
            yield invalid(f"{path}.operator", operator, "not a valid selector operator")
        elif values:
            detail = "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector"
            yield invalid(f"{path}.values", values, detail)


_ONLY_EXISTS = (
    "must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, ResourceQuotaScopeNotTerminating, "
    "ResourceQuotaScopeBestEffort, ResourceQuotaScopeNotBestEffort or ResourceQuotaScopeCrossNamespacePodAffinity"
)
_LIMIT_TYPES = ("Container", "Pod", "PersistentVolumeClaim")


def limit_range_errors(obj: Unstructured) -> Iterator[FieldError]:
    seen: set[str] = set()
    for index, item in enumerate(obj["spec"].get("limits") or ()):
        path, kind = f"spec.limits[{index}]", item.get("type", "")
        problems = label_key_problems(kind)
        for problem in problems:
            yield invalid(f"{path}.type", kind, problem)
        if not problems and "/" not in kind and kind not in _LIMIT_TYPES:
            yield invalid(f"{path}.type", kind, "must be a standard limit type or fully qualified")
        if kind in seen:
            yield duplicate(f"{path}.type", kind)
        seen.add(kind)
        yield from _limit_item_errors(item, path)


def _limit_item_errors(item: Unstructured, path: str) -> Iterator[FieldError]:
    if item.get("type") == "Pod":
        for name in ("default", "defaultRequest"):
            if item.get(name):
                yield forbidden_field(f"{path}.{name}", "may not be specified when `type` is 'Pod'")
    if item.get("type") == "PersistentVolumeClaim" and not item.get("min") and not item.get("max"):
        detail = "either minimum or maximum storage value is required, but neither was provided"
        yield required(f"{path}.limits", detail)
    minimum, maximum = item.get("min") or {}, item.get("max") or {}
    default, request = item.get("default") or {}, item.get("defaultRequest") or {}
    for name in sorted({*minimum, *maximum, *default, *request}):
        low, high = minimum.get(name), maximum.get(name)
        limit, asked = default.get(name), request.get(name)
        yield from _order(f"{path}.min[{name}]", low, low, "min", high, "max")
        if asked:
            where = f"{path}.defaultRequest[{name}]"
            yield from _order(where, asked, low, "min", asked, "default request")
            yield from _order(where, asked, asked, "default request", high, "max")
            yield from _order(where, asked, asked, "default request", limit, "default limit")
        if limit:
            yield from _order(f"{path}.default[{name}]", low, low, "min", limit, "default")
            yield from _order(f"{path}.default[{name}]", high, limit, "default", high, "max")


def _order(
    path: str, shown: str | None, low: str | None, low_name: str, high: str | None, high_name: str
) -> Iterator[FieldError]:
    if low is not None and high is not None and quantity_value(low) > quantity_value(high):
        yield invalid(path, shown, f"{low_name} value {low} is greater than {high_name} value {high}")
