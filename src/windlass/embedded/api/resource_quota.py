"""ResourceQuota: what an object uses, whether that is allowed, and the usage afterwards.

`registry.admission_chain` calls `charge` before it stores an object; it raises `exceeded quota: …` or returns the
namespace's quotas with their new status, to be stored with the object. `usage` counts from scratch, for the quota
controller and for new quotas. Messages are the Kubernetes API's (Apache-2.0).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from fractions import Fraction
from typing import Protocol

from windlass.embedded.api.defaults_pod import qos_class
from windlass.embedded.api.errors import ApiError
from windlass.embedded.api.json_trees import nested_value
from windlass.embedded.api.kinds import Kind
from windlass.embedded.api.resource_lists import (
    ResourceAmount,
    ResourceList,
    add_resources,
    parse_resource_list,
    pod_resources,
    subtract_resources,
)
from windlass.model.unstructured import Unstructured

_CORE_COUNTS = (
    *("configmaps", "persistentvolumeclaims", "replicationcontrollers", "resourcequotas", "secrets"),
    "services",
)
_COMPUTE = ("cpu", "memory", "ephemeral-storage")
_ONE = ResourceAmount(Fraction(1), "1")


class Lookup(Protocol):
    """Read access to the store for admission."""

    def get(self, resource: str, namespace: str, name: str) -> Unstructured | None: ...

    def list(self, resource: str, namespace: str) -> Iterable[Unstructured]: ...


def charge(kind: Kind, obj: Unstructured, old: Unstructured | None, lookup: Lookup) -> list[Unstructured]:
    """The namespace's quotas that this write changes; a 403 if one does not allow it."""
    if not kind.namespaced:
        return []
    namespace = obj["metadata"].get("namespace", "")
    quotas = list(lookup.list("resourcequotas", namespace))
    if not quotas:
        return []
    used = used_by(kind, obj)
    used_before = used_by(kind, old) if old is not None else {}
    changed = []
    for quota in quotas:
        if not matches(quota, kind, obj):
            continue
        hard = parse_resource_list(nested_value(quota, "spec", "hard"))
        if old is None and kind.resource == "pods":
            _check_specified(quota, hard, obj, kind)
        counted_before = used_before if old is not None and matches(quota, kind, old) else {}
        delta = {
            name: amount
            for name, amount in subtract_resources(used, counted_before).items()
            if name in hard and amount.value > 0
        }
        if delta:
            changed.append(_charge_quota(quota, hard, delta, kind, obj, lookup))
    return changed


def _charge_quota(
    quota: Unstructured,
    hard: ResourceList,
    delta: ResourceList,
    kind: Kind,
    obj: Unstructured,
    lookup: Lookup,
) -> Unstructured:
    used = parse_resource_list(nested_value(quota, "status", "used"))
    if nested_value(quota, "status", "hard") != nested_value(quota, "spec", "hard") or set(hard) - set(used):
        used = parse_resource_list(usage(quota, lookup))
    after = add_resources(used, delta)
    exceeded = sorted(name for name in delta if after[name].value > hard[name].value)
    if exceeded:
        requested_text, used_text, limited_text = (
            ",".join(f"{name}={amounts[name]}" for name in exceeded) for amounts in (delta, used, hard)
        )
        raise ApiError.forbidden(
            kind,
            obj["metadata"].get("name", ""),
            f"exceeded quota: {quota['metadata']['name']}, requested: {requested_text}, used: {used_text}, "
            f"limited: {limited_text}",
        )
    status = {"hard": dict(quota["spec"]["hard"]), "used": {name: str(after[name]) for name in hard}}
    return {**quota, "status": status}


def usage(quota: Unstructured, lookup: Lookup) -> dict[str, str]:
    """The usage of everything that a quota limits, counted from scratch."""
    namespace = quota["metadata"].get("namespace", "")
    hard = nested_value(quota, "spec", "hard") or {}
    total: ResourceList = {name: ResourceAmount(Fraction(0), "0") for name in hard}
    for resource in sorted({_counted_resource(name) for name in hard}):
        kind = _kind_of(resource)
        for obj in lookup.list(resource, namespace):
            if matches(quota, kind, obj):
                used = used_by(kind, obj)
                total = add_resources(total, {name: amount for name, amount in used.items() if name in hard})
    return {name: str(amount) for name, amount in total.items()}


def _kind_of(resource: str) -> Kind:
    plural, _, group = resource.partition(".")
    return Kind("", plural, group, "")


def _counted_resource(name: str) -> str:
    """The resource that is counted for a limit of this name."""
    if name.startswith("count/"):
        return name.removeprefix("count/")
    if name.startswith("services"):
        return "services"
    if "storageclass.storage.k8s.io/" in name or name == "requests.storage":
        return "persistentvolumeclaims"
    return name if name in _CORE_COUNTS else "pods"


# ---- what one object uses


def used_by(kind: Kind, obj: Unstructured) -> ResourceList:
    """Usage by the names that quotas use."""
    used: ResourceList = {f"count/{kind.resource}": _ONE}
    if kind.resource in _CORE_COUNTS:
        used[kind.resource] = _ONE
    if kind.resource == "pods":
        used.update(_used_by_pod(obj))
    elif kind.resource == "persistentvolumeclaims":
        used.update(_used_by_claim(obj))
    elif kind.resource == "services":
        used.update(_used_by_service(obj))
    return used


def _used_by_pod(pod: Unstructured) -> Iterator[tuple[str, ResourceAmount]]:
    """A finished pod uses nothing but its object count."""
    if nested_value(pod, "status", "phase") in ("Succeeded", "Failed"):
        return
    yield "pods", _ONE
    spec = pod.get("spec") or {}
    for name, amount in pod_resources(spec, "requests").items():
        yield f"requests.{name}", amount
        if name in _COMPUTE:
            yield name, amount
    for name, amount in pod_resources(spec, "limits").items():
        if name in _COMPUTE:
            yield f"limits.{name}", amount


def _used_by_claim(claim: Unstructured) -> Iterator[tuple[str, ResourceAmount]]:
    storage = parse_resource_list(nested_value(claim, "spec", "resources", "requests")).get("storage")
    name = nested_value(claim, "spec", "storageClassName")
    if storage is not None:
        yield "requests.storage", storage
    if name:
        yield f"{name}.storageclass.storage.k8s.io/persistentvolumeclaims", _ONE
        if storage is not None:
            yield f"{name}.storageclass.storage.k8s.io/requests.storage", storage


def _used_by_service(service: Unstructured) -> Iterator[tuple[str, ResourceAmount]]:
    kind, ports = nested_value(service, "spec", "type"), nested_value(service, "spec", "ports") or ()
    if kind == "LoadBalancer":
        yield "services.loadbalancers", _ONE
    if kind in ("NodePort", "LoadBalancer"):
        yield "services.nodeports", ResourceAmount(Fraction(len(ports)), "0")


def _check_specified(quota: Unstructured, hard: ResourceList, pod: Unstructured, kind: Kind) -> None:
    """If CPU or memory is limited, every container has to specify it."""
    missing: dict[str, set[str]] = {}
    spec = pod["spec"]
    pod_level = spec.get("resources") or {}
    for name in hard:
        field, _, resource = name.rpartition(".")
        field = field or "requests"
        if resource not in ("cpu", "memory") or field not in ("requests", "limits"):
            continue
        if resource in (pod_level.get(field) or {}):
            continue
        for container in (*spec.get("containers", ()), *spec.get("initContainers", ())):
            if resource not in ((container.get("resources") or {}).get(field) or {}):
                missing.setdefault(name, set()).add(container["name"])
    if missing:
        listed = "; ".join(f"{name} for: {','.join(sorted(missing[name]))}" for name in sorted(missing))
        raise ApiError.forbidden(
            kind,
            pod["metadata"].get("name", ""),
            f"failed quota: {quota['metadata']['name']}: must specify {listed}",
        )


# ---- scopes


def matches(quota: Unstructured, kind: Kind, obj: Unstructured) -> bool:
    """Whether a quota applies to this object: all its scopes must match, and only pods have scopes."""
    spec = quota.get("spec") or {}
    terms = [{"scopeName": scope, "operator": "Exists"} for scope in spec.get("scopes") or ()]
    terms += nested_value(spec, "scopeSelector", "matchExpressions") or ()
    if not terms:
        return True
    return kind.resource == "pods" and all(_in_scope(term, obj) for term in terms)


def _in_scope(term: Unstructured, pod: Unstructured) -> bool:
    spec, name = pod["spec"], term.get("scopeName")
    if name == "PriorityClass":
        return _matches_priority_class(term, spec.get("priorityClassName", ""))
    if name in ("Terminating", "NotTerminating"):
        limited = spec.get("activeDeadlineSeconds") is not None
        return bool(limited == (name == "Terminating"))
    if name in ("BestEffort", "NotBestEffort"):
        return bool((qos_class(spec) == "BestEffort") == (name == "BestEffort"))
    return False


def _matches_priority_class(term: Unstructured, name: str) -> bool:
    operator, values = term.get("operator"), term.get("values") or ()
    if operator in ("In", "NotIn"):
        return bool((name in values) == (operator == "In"))
    return bool(name) == (operator == "Exists")
