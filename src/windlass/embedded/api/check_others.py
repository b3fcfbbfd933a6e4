"""Checks of the smaller kinds: configuration, services, quotas, nodes, budgets, leases, events.

Fed by `api.validation` with decoded, defaulted trees. The wording is the Kubernetes API's (Apache-2.0).
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator

from windlass.embedded.api.check_metadata import label_errors, selector_errors
from windlass.embedded.api.check_networks import ADDRESS_EXAMPLES, is_address
from windlass.embedded.api.check_placement import EFFECTS
from windlass.embedded.api.check_resources import is_extended, quantity_errors
from windlass.embedded.api.check_workloads import int_or_percent_errors
from windlass.embedded.api.errors import (
    FieldError,
    duplicate,
    forbidden_field,
    invalid,
    required,
    too_long,
    unsupported,
)
from windlass.embedded.api.names import (
    config_key_problems,
    dns_label_problems,
    label_key_problems,
    label_value_problems,
)
from windlass.embedded.api.quantities import amount
from windlass.embedded.api.trees import Tree

_PORTS = "must be between 1 and 65535, inclusive"
_MOST_DATA = 1024 * 1024


def config_map_errors(obj: Tree) -> Iterator[FieldError]:
    data, binary = obj.get("data") or {}, obj.get("binaryData") or {}
    for field, values in (("data", data), ("binaryData", binary)):
        for key in values:
            for problem in config_key_problems(key):
                yield invalid(f"{field}[{key}]", key, problem)
            if field == "data" and key in binary:
                yield invalid(f"data[{key}]", key, "duplicate of key present in binaryData")
    total = sum(len(each.encode()) for each in data.values()) + sum(
        len(each) * 3 // 4 for each in binary.values()
    )
    if total > _MOST_DATA:
        yield too_long("[]", _MOST_DATA)


_SECRET_KEYS = {
    "kubernetes.io/tls": ("tls.crt", "tls.key"),
    "kubernetes.io/dockerconfigjson": (".dockerconfigjson",),
    "kubernetes.io/dockercfg": (".dockercfg",),
    "kubernetes.io/ssh-auth": ("ssh-privatekey",),
}


def secret_errors(obj: Tree) -> Iterator[FieldError]:
    data = obj.get("data") or {}
    for key in data:
        for problem in config_key_problems(key):
            yield invalid(f"data[{key}]", key, problem)
    if sum(len(each) * 3 // 4 for each in data.values()) > _MOST_DATA:
        yield too_long("data", _MOST_DATA)
    for key in _SECRET_KEYS.get(obj.get("type", ""), ()):
        if key not in data:
            yield required(f"data[{key}]")


_SERVICE_TYPES = ("ClusterIP", "ExternalName", "LoadBalancer", "NodePort")


def service_errors(obj: Tree) -> Iterator[FieldError]:
    spec = obj["spec"]
    ports, kind = spec.get("ports") or [], spec.get("type")
    if not ports and kind != "ExternalName" and spec.get("clusterIP") != "None":
        yield required("spec.ports")
    if kind == "ExternalName" and not spec.get("externalName"):
        yield required("spec.externalName")
    for index, port in enumerate(ports):
        yield from _service_port_errors(port, f"spec.ports[{index}]", len(ports) > 1)
    yield from label_errors(spec.get("selector") or {}, "spec.selector")
    address = spec.get("clusterIP")
    if address and address != "None" and not is_address(address):
        yield invalid("spec.clusterIPs[0]", address, ADDRESS_EXAMPLES)
    if kind not in _SERVICE_TYPES:
        yield unsupported("spec.type", kind, _SERVICE_TYPES)
    if spec.get("sessionAffinity") not in ("None", "ClientIP"):
        yield unsupported("spec.sessionAffinity", spec.get("sessionAffinity"), ("ClientIP", "None"))


def _service_port_errors(port: Tree, path: str, named: bool) -> Iterator[FieldError]:
    if named and not port.get("name"):
        yield required(f"{path}.name")
    elif port.get("name"):
        for problem in dns_label_problems(port["name"]):
            yield invalid(f"{path}.name", port["name"], problem)
    if not 1 <= port.get("port", 0) <= 65535:
        yield invalid(f"{path}.port", port.get("port", 0), _PORTS)
    target = port.get("targetPort", 0)
    if isinstance(target, int) and not 1 <= target <= 65535:
        yield invalid(f"{path}.targetPort", target, _PORTS)
    if port.get("protocol") not in ("SCTP", "TCP", "UDP"):
        yield unsupported(f"{path}.protocol", port.get("protocol"), ("SCTP", "TCP", "UDP"))


# ---- quotas and limit ranges

_QUOTA_NAMES = {
    "cpu",
    "memory",
    "ephemeral-storage",
    "requests.cpu",
    "requests.memory",
    "requests.storage",
    "requests.ephemeral-storage",
    "limits.cpu",
    "limits.memory",
    "limits.ephemeral-storage",
    "pods",
    "resourcequotas",
    "services",
    "replicationcontrollers",
    "secrets",
    "persistentvolumeclaims",
    "configmaps",
    "services.nodeports",
    "services.loadbalancers",
}
_SCOPES = {
    "Terminating",
    "NotTerminating",
    "BestEffort",
    "NotBestEffort",
    "PriorityClass",
    "CrossNamespacePodAffinity",
    "VolumeAttributesClass",
}
_OF_PODS = {
    name for name in _QUOTA_NAMES if name.startswith(("requests.", "limits.", "cpu", "memory", "ephemeral"))
}


def quota_errors(obj: Tree) -> Iterator[FieldError]:
    spec = obj["spec"]
    for name, value in (spec.get("hard") or {}).items():
        path = f"spec.hard[{name}]"
        for problem in label_key_problems(name):
            yield invalid(path, name, problem)
        if (
            "/" not in name
            and name not in _QUOTA_NAMES
            and not name.startswith(("requests.hugepages", "hugepages-"))
        ):
            yield invalid(path, name, "must be a standard resource type or fully qualified")
            yield invalid(path, name, "must be a standard resource for quota")
        yield from quantity_errors(
            "" if is_extended(name) and "." in name.partition("/")[0] else name, value, path
        )
    yield from _scope_selector_errors(spec)
    scopes = spec.get("scopes") or []
    if any(scope not in _SCOPES for scope in scopes):
        yield invalid("spec.scopes", scopes, "unsupported scope")
    elif scopes and any(
        name not in _OF_PODS | {"pods"} and "/" not in name for name in spec.get("hard") or {}
    ):
        yield invalid("spec.scopes", scopes, "unsupported scope applied to resource")


def _scope_selector_errors(spec: Tree) -> Iterator[FieldError]:
    path = "spec.scopeSelector.matchExpressions"
    for term in (spec.get("scopeSelector") or {}).get("matchExpressions") or ():
        name, operator, values = term.get("scopeName", ""), term.get("operator", ""), term.get("values") or []
        if name not in _SCOPES:
            yield invalid(f"{path}.scopeName", name, "unsupported scope")
        elif name not in ("PriorityClass", "VolumeAttributesClass") and operator != "Exists":
            yield invalid(f"{path}.operator", operator, _ONLY_EXISTS)
        if operator in ("In", "NotIn"):
            if not values:
                what = "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector"
                yield required(f"{path}.values", what)
        elif operator not in ("Exists", "DoesNotExist"):
            yield invalid(f"{path}.operator", operator, "not a valid selector operator")
        elif values:
            what = "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector"
            yield invalid(f"{path}.values", values, what)


_ONLY_EXISTS = (
    "must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, ResourceQuotaScopeNotTerminating, "
    "ResourceQuotaScopeBestEffort, ResourceQuotaScopeNotBestEffort or ResourceQuotaScopeCrossNamespacePodAffinity"
)
_LIMIT_TYPES = ("Container", "Pod", "PersistentVolumeClaim")


def limit_range_errors(obj: Tree) -> Iterator[FieldError]:
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


def _limit_item_errors(item: Tree, path: str) -> Iterator[FieldError]:
    if item.get("type") == "Pod":
        for name in ("default", "defaultRequest"):
            if item.get(name):
                yield forbidden_field(f"{path}.{name}", "may not be specified when `type` is 'Pod'")
    if item.get("type") == "PersistentVolumeClaim" and not item.get("min") and not item.get("max"):
        what = "either minimum or maximum storage value is required, but neither was provided"
        yield required(f"{path}.limits", what)
    least, most = item.get("min") or {}, item.get("max") or {}
    default, request = item.get("default") or {}, item.get("defaultRequest") or {}
    for name in sorted({*least, *most, *default, *request}):
        low, high = least.get(name), most.get(name)
        limit, asked = default.get(name), request.get(name)
        yield from _ordered(f"{path}.min[{name}]", low, low, "min", high, "max")
        if asked:
            yield from _ordered(f"{path}.defaultRequest[{name}]", asked, low, "min", asked, "default request")
            yield from _ordered(
                f"{path}.defaultRequest[{name}]", asked, asked, "default request", high, "max"
            )
            yield from _ordered(
                f"{path}.defaultRequest[{name}]", asked, asked, "default request", limit, "default limit"
            )
        if limit:
            yield from _ordered(f"{path}.default[{name}]", low, low, "min", limit, "default")
            yield from _ordered(f"{path}.default[{name}]", high, limit, "default", high, "max")


def _ordered(
    path: str, shown: str | None, low: str | None, low_name: str, high: str | None, high_name: str
) -> Iterator[FieldError]:
    if low is not None and high is not None and amount(low) > amount(high):
        yield invalid(path, shown, f"{low_name} value {low} is greater than {high_name} value {high}")


# ---- nodes


def node_errors(obj: Tree) -> Iterator[FieldError]:
    seen: set[tuple[str, str]] = set()
    for index, taint in enumerate(obj["spec"].get("taints") or ()):
        path = f"metadata.taints[{index}]"
        key, effect = taint.get("key", ""), taint.get("effect", "")
        for problem in label_key_problems(key):
            yield invalid(f"{path}.key", key, problem)
        for problem in label_value_problems(taint.get("value", "")):
            yield invalid(f"{path}.value", taint["value"], problem)
        if not effect:
            yield required(f"{path}.effect")
        elif effect not in EFFECTS:
            yield unsupported(f"{path}.effect", effect, EFFECTS)
        if (key, effect) in seen:
            shown = {"Key": key, "Value": taint.get("value", ""), "Effect": effect, "TimeAdded": None}
            message = f"{duplicate('', shown).body}: taints must be unique by key and effect pair"
            yield FieldError(path, "FieldValueDuplicate", message)
        seen.add((key, effect))
    status = obj.get("status") or {}
    for field in ("capacity", "allocatable"):
        for name, value in (status.get(field) or {}).items():
            yield from quantity_errors(name, value, f"status.{field}.{name}")
    cidr = obj["spec"].get("podCIDR")
    if cidr and not _is_network(cidr):
        yield invalid(
            "spec.podCIDRs[0]", cidr, "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"
        )


def _is_network(text: str) -> bool:
    try:
        ipaddress.ip_network(text, strict=False)
    except ValueError:
        return False
    return "/" in text


# ---- budgets, leases, events


def budget_errors(obj: Tree) -> Iterator[FieldError]:
    spec = obj["spec"]
    both = spec.get("minAvailable"), spec.get("maxUnavailable")
    if both[0] is not None and both[1] is not None:
        shown = {
            "MinAvailable": both[0],
            "Selector": spec.get("selector"),
            "MaxUnavailable": both[1],
            "UnhealthyPodEvictionPolicy": spec.get("unhealthyPodEvictionPolicy"),
        }
        yield invalid("spec", shown, "minAvailable and maxUnavailable cannot be both set")
    for name in ("minAvailable", "maxUnavailable"):
        yield from int_or_percent_errors(spec.get(name), f"spec.{name}", 100)
    policy = spec.get("unhealthyPodEvictionPolicy")
    if policy is not None and policy not in ("AlwaysAllow", "IfHealthyBudget"):
        yield unsupported("spec.unhealthyPodEvictionPolicy", policy, ("AlwaysAllow", "IfHealthyBudget"))
    yield from selector_errors(spec.get("selector"), "spec.selector")


def lease_errors(obj: Tree) -> Iterator[FieldError]:
    spec = obj["spec"]
    seconds, transitions = spec.get("leaseDurationSeconds"), spec.get("leaseTransitions")
    if seconds is not None and seconds <= 0:
        yield invalid("spec.leaseDurationSeconds", seconds, "must be greater than 0")
    if transitions is not None and transitions < 0:
        yield invalid("spec.leaseTransitions", transitions, "must be greater than or equal to 0")


def event_errors(obj: Tree) -> Iterator[FieldError]:
    involved = obj["involvedObject"].get("namespace", "")
    mine = obj["metadata"].get("namespace", "")
    if involved != mine and (involved or mine not in ("default", "kube-system")):
        yield invalid("involvedObject.namespace", involved, "does not match event.namespace")
