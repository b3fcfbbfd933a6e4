"""The rows of all kinds but pods in a Table: one function per kind, cells in the order of the columns in `tables`.

Called with an object and the time. The content follows kubectl's printers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from windlass.embedded.api.events import to_core_v1
from windlass.embedded.api.json_trees import nested_value
from windlass.embedded.api.timestamps import age, human_duration, seconds_since
from windlass.model.names.kubernetes import EVENTS_API_VERSION
from windlass.model.unstructured import Unstructured

NONE = "<none>"
Cells = list[Any]


def name_of(obj: Unstructured) -> str:
    return str(obj["metadata"].get("name", ""))


def age_of(obj: Unstructured, now: float) -> str:
    return age(obj["metadata"].get("creationTimestamp"), now)


def fields(*paths: str) -> Callable[[Unstructured, float], Cells]:
    """The row of a kind whose columns are its name, plain fields, and its age."""

    def cells(obj: Unstructured, now: float) -> Cells:
        return [
            name_of(obj),
            *(nested_value(obj, *path.split(".")) or "" for path in paths),
            age_of(obj, now),
        ]

    return cells


def _containers(spec: Unstructured) -> tuple[str, str]:
    containers = nested_value(spec, "template", "spec", "containers") or ()
    names = ",".join(container.get("name", "") for container in containers)
    return names, ",".join(container.get("image", "") for container in containers)


def labels_text(labels: Any) -> str:
    return ",".join(f"{key}={value}" for key, value in sorted((labels or {}).items())) or NONE


def selector_text(selector: Any) -> str:
    """A LabelSelector in one line."""
    if selector is None:
        return NONE
    terms = [(key, f"{key}={value}") for key, value in (selector.get("matchLabels") or {}).items()]
    for expression in selector.get("matchExpressions") or ():
        key, operator = expression.get("key", ""), expression.get("operator")
        values = ",".join(sorted(expression.get("values") or ()))
        text = {
            "In": f"{key} in ({values})",
            "NotIn": f"{key} notin ({values})",
            "DoesNotExist": f"!{key}",
        }.get(operator, key)
        terms.append((key, text))
    return ",".join(text for _, text in sorted(terms)) or NONE


def replica_set(obj: Unstructured, now: float) -> Cells:
    spec, status = obj["spec"], obj.get("status") or {}
    counts = [spec.get("replicas") or 0, status.get("replicas", 0), status.get("readyReplicas", 0)]
    return [name_of(obj), *counts, age_of(obj, now), *_containers(spec), selector_text(spec.get("selector"))]


def replication_controller(obj: Unstructured, now: float) -> Cells:
    return [
        *replica_set({**obj, "spec": {**obj["spec"], "selector": None}}, now)[:-1],
        labels_text(obj["spec"].get("selector")),
    ]


def ingress(obj: Unstructured, now: float) -> Cells:
    spec = obj["spec"]
    hosts = [item["host"] for item in spec.get("rules") or () if item.get("host")]
    return [
        name_of(obj),
        spec.get("ingressClassName") or NONE,
        _first_three(hosts, "*"),
        ",".join(_load_balancer_addresses(obj)),
        "80, 443" if spec.get("tls") else "80",
        age_of(obj, now),
    ]


def network_policy(obj: Unstructured, now: float) -> Cells:
    return [name_of(obj), selector_text(obj["spec"].get("podSelector")), age_of(obj, now)]


def deployment(obj: Unstructured, now: float) -> Cells:
    spec, status = obj["spec"], obj.get("status") or {}
    return [
        name_of(obj),
        f"{status.get('readyReplicas', 0)}/{spec.get('replicas') or 0}",
        status.get("updatedReplicas", 0),
        status.get("availableReplicas", 0),
        age_of(obj, now),
        *_containers(spec),
        selector_text(spec.get("selector")),
    ]


def stateful_set(obj: Unstructured, now: float) -> Cells:
    spec, status = obj["spec"], obj.get("status") or {}
    ready = f"{status.get('readyReplicas', 0)}/{spec.get('replicas') or 0}"
    return [name_of(obj), ready, age_of(obj, now), *_containers(spec)]


_DAEMON_COUNTS = (
    *("desiredNumberScheduled", "currentNumberScheduled", "numberReady"),
    *("updatedNumberScheduled", "numberAvailable"),
)


def daemon_set(obj: Unstructured, now: float) -> Cells:
    spec, status = obj["spec"], obj.get("status") or {}
    return [
        name_of(obj),
        *(status.get(field, 0) for field in _DAEMON_COUNTS),
        labels_text(nested_value(spec, "template", "spec", "nodeSelector")),
        age_of(obj, now),
        *_containers(spec),
        selector_text(spec.get("selector")),
    ]


def job(obj: Unstructured, now: float) -> Cells:
    spec, status = obj["spec"], obj.get("status") or {}
    return [
        name_of(obj),
        _job_status(obj, status),
        _completions(spec, status),
        _job_duration(status, now),
        age_of(obj, now),
        *_containers(spec),
        selector_text(spec.get("selector")),
    ]


def _completions(spec: Unstructured, status: Unstructured) -> str:
    done, wanted, parallel = status.get("succeeded", 0), spec.get("completions"), spec.get("parallelism") or 0
    if wanted is not None:
        return f"{done}/{wanted}"
    return f"{done}/1 of {parallel}" if parallel > 1 else f"{done}/1"


def _job_duration(status: Unstructured, now: float) -> str:
    started = seconds_since(status.get("startTime"), now)
    if started is None:
        return ""
    ended = seconds_since(status.get("completionTime"), now)
    return human_duration(started if ended is None else started - ended)


_JOB_STATUSES = ("Complete", "Failed", "Terminating", "Suspended", "FailureTarget", "SuccessCriteriaMet")
"""Conditions of a Job, and that it is being deleted, which is none."""


def _job_status(obj: Unstructured, status: Unstructured) -> str:
    true = {item.get("type") for item in status.get("conditions") or () if item.get("status") == "True"}
    if obj["metadata"].get("deletionTimestamp"):
        true.add("Terminating")
    return next((word for word in _JOB_STATUSES if word in true), "Running")


def cron_job(obj: Unstructured, now: float) -> Cells:
    spec, status = obj["spec"], obj.get("status") or {}
    last = status.get("lastScheduleTime")
    job_spec = nested_value(spec, "jobTemplate", "spec") or {}
    return [
        name_of(obj),
        spec.get("schedule", ""),
        spec.get("timeZone") or NONE,
        {True: "True", False: "False"}.get(spec.get("suspend"), "<unset>"),
        len(status.get("active") or ()),
        age(last, now) if last else NONE,
        age_of(obj, now),
        *_containers(job_spec),
        selector_text(job_spec.get("selector")),
    ]


BUDGET_FIELDS = ("minAvailable", "maxUnavailable")


def pod_disruption_budget(obj: Unstructured, now: float) -> Cells:
    spec = obj["spec"]
    limits = ["N/A" if (limit := spec.get(name)) is None else str(limit) for name in BUDGET_FIELDS]
    return [name_of(obj), *limits, nested_value(obj, "status", "disruptionsAllowed") or 0, age_of(obj, now)]


def service(obj: Unstructured, now: float) -> Cells:
    spec = obj["spec"]
    return [
        name_of(obj),
        spec.get("type", ""),
        (spec.get("clusterIPs") or [NONE])[0],
        _external(obj, spec),
        ",".join(_port(port) for port in spec.get("ports") or ()) or NONE,
        age_of(obj, now),
        labels_text(spec.get("selector")),
    ]


def _port(port: Unstructured) -> str:
    node = f":{port['nodePort']}" if port.get("nodePort") else ""
    return f"{port.get('port', 0)}{node}/{port.get('protocol', '')}"


def _external(obj: Unstructured, spec: Unstructured) -> str:
    kind, own = spec.get("type"), spec.get("externalIPs") or []
    if kind == "ExternalName":
        return str(spec.get("externalName", ""))
    if kind == "LoadBalancer":
        return ",".join([*_load_balancer_addresses(obj), *own]) or "<pending>"
    return ",".join(own) or NONE


def _load_balancer_addresses(obj: Unstructured) -> list[str]:
    entries = nested_value(obj, "status", "loadBalancer", "ingress") or ()
    return sorted({item.get("ip") or item.get("hostname") or "" for item in entries} - {""})


def endpoints(obj: Unstructured, now: float) -> Cells:
    targets: list[str] = []
    for subset in obj.get("subsets") or ():
        addresses = [address.get("ip", "") for address in subset.get("addresses") or ()]
        ports = subset.get("ports") or ()
        targets += [f"{ip}:{port['port']}" for port in ports for ip in addresses] if ports else addresses
    return [name_of(obj), _first_three(targets), age_of(obj, now)]


def _first_three(values: list[str], none: str = NONE) -> str:
    if not values:
        return none
    more = f" + {len(values) - 3} more..." if len(values) > 3 else ""
    return ",".join(values[:3]) + more


def endpoint_slice(obj: Unstructured, now: float) -> Cells:
    ports = [str(item["port"]) if item.get("port") else "*" for item in obj.get("ports") or ()]
    addresses = [ip for item in obj.get("endpoints") or () for ip in item.get("addresses") or ()]
    return [
        name_of(obj),
        obj.get("addressType", ""),
        _first_three(ports, "<unset>"),
        _first_three(addresses, "<unset>"),
        age_of(obj, now),
    ]


_ROLE = "node-role.kubernetes.io/"


def node(obj: Unstructured, now: float) -> Cells:
    status = obj.get("status") or {}
    info = status.get("nodeInfo") or {}
    kernel = info.get("kernelVersion") or "<unknown>"
    if info.get("architecture"):
        kernel += f" ({info['architecture']})"
    return [
        name_of(obj),
        _node_status(obj, status),
        _roles(obj["metadata"].get("labels") or {}),
        age_of(obj, now),
        info.get("kubeletVersion", ""),
        _address(status, "InternalIP"),
        _address(status, "ExternalIP"),
        info.get("osImage") or "<unknown>",
        kernel,
        info.get("containerRuntimeVersion") or "<unknown>",
    ]


def _node_status(obj: Unstructured, status: Unstructured) -> str:
    words = ["Unknown"]
    for condition in status.get("conditions") or ():
        if condition.get("type") == "Ready":
            words = ["Ready" if condition.get("status") == "True" else "NotReady"]
    if nested_value(obj, "spec", "unschedulable"):
        words.append("SchedulingDisabled")
    return ",".join(words)


def _roles(labels: Unstructured) -> str:
    roles = {key.removeprefix(_ROLE) for key in labels if key.startswith(_ROLE)}
    roles.add(labels.get("kubernetes.io/role", ""))
    return ",".join(sorted(roles - {""})) or NONE


def _address(status: Unstructured, kind: str) -> str:
    return next((item["address"] for item in status.get("addresses") or () if item.get("type") == kind), NONE)


def event(obj: Unstructured, now: float) -> Cells:
    if obj.get("apiVersion") == EVENTS_API_VERSION:
        obj = to_core_v1(obj)
    about, source, series = obj.get("involvedObject") or {}, obj.get("source") or {}, obj.get("series")
    first = age(obj.get("firstTimestamp") or obj.get("eventTime"), now)
    last = age(obj["lastTimestamp"], now) if obj.get("lastTimestamp") else first
    count = obj.get("count") or 1
    if series is not None:
        last, count = age(series.get("lastObservedTime"), now), series.get("count", 0)
    kind = str(about.get("kind", "")).lower()
    component = source.get("component") or obj.get("reportingComponent") or ""
    host = source.get("host") or obj.get("reportingInstance") or ""
    return [
        last,
        obj.get("type", ""),
        obj.get("reason", ""),
        f"{kind}/{about['name']}" if about.get("name") else kind,
        about.get("fieldPath", ""),
        f"{component}, {host}" if host else component,
        str(obj.get("message", "")).strip(),
        first,
        count,
        name_of(obj),
    ]


def secret(obj: Unstructured, now: float) -> Cells:
    return [name_of(obj), obj.get("type", ""), len(obj.get("data") or ()), age_of(obj, now)]


def config_map(obj: Unstructured, now: float) -> Cells:
    return [name_of(obj), len(obj.get("data") or ()) + len(obj.get("binaryData") or ()), age_of(obj, now)]


def quota(obj: Unstructured, now: float) -> Cells:
    status = obj.get("status") or {}
    hard, used = status.get("hard") or {}, status.get("used") or {}
    requests: list[str] = []
    limits: list[str] = []
    for name in sorted(hard):
        column = limits if name.startswith("limits.") else requests
        column.append(f"{name}: {used.get(name, '0')}/{hard[name]}")
    return [name_of(obj), ", ".join(requests), ", ".join(limits), age_of(obj, now)]


def priority_class(obj: Unstructured, now: float) -> Cells:
    default = bool(obj.get("globalDefault"))
    return [name_of(obj), obj.get("value", 0), default, age_of(obj, now), obj.get("preemptionPolicy") or ""]


def controller_revision(obj: Unstructured, now: float) -> Cells:
    owners = obj["metadata"].get("ownerReferences") or ()
    owner = next((reference for reference in owners if reference.get("controller")), None)
    controller = NONE
    if owner is not None:
        group = owner["apiVersion"].rpartition("/")[0]
        controller = f"{owner['kind']}.{group}".rstrip(".").lower() + f"/{owner['name']}"
    return [name_of(obj), controller, obj.get("revision", 0), age_of(obj, now)]


def role_binding(obj: Unstructured, now: float) -> Cells:
    role, subjects = obj["roleRef"], obj.get("subjects") or ()
    by_kind = {kind: ", ".join(_subjects(subjects, kind)) for kind in ("User", "Group", "ServiceAccount")}
    return [name_of(obj), f"{role.get('kind')}/{role.get('name')}", age_of(obj, now), *by_kind.values()]


def _subjects(subjects: Any, kind: str) -> list[str]:
    found = [subject for subject in subjects if subject.get("kind") == kind]
    if kind == "ServiceAccount":
        return [f"{subject.get('namespace', '')}/{subject.get('name', '')}" for subject in found]
    return [subject.get("name", "") for subject in found]


def scale(obj: Unstructured, now: float) -> Cells:
    return [name_of(obj), obj["spec"].get("replicas", 0), obj["status"].get("replicas", 0), age_of(obj, now)]


def default_row(obj: Unstructured, now: float) -> Cells:
    """Kinds without columns of their own: name and creation time."""
    return [name_of(obj), obj["metadata"].get("creationTimestamp")]
