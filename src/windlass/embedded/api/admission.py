"""Admission: what the server adds to a new object, or refuses, because of other objects.

`registry.admission_chain` calls it with a decoded object, which is changed in place. In the order of Kubernetes'
API server: limit ranges, service account, runtime class, priority, tolerations. Quotas come after validation
(`resource_quota`). Messages are the Kubernetes API's (Apache-2.0).
"""

from __future__ import annotations

from windlass.embedded.api import limit_range
from windlass.embedded.api.defaults import apply_defaults
from windlass.embedded.api.errors import ApiError
from windlass.embedded.api.json_trees import deep_copy, nested_value
from windlass.embedded.api.kinds import Kind
from windlass.embedded.api.resource_quota import Lookup
from windlass.model.names.kubernetes import NOT_READY_TAINT, UNREACHABLE_TAINT
from windlass.model.unstructured import Unstructured

SYSTEM_CLASSES = {"system-node-critical": 2_000_001_000, "system-cluster-critical": 2_000_000_000}
"""Priority classes that exist even without their objects."""

_TOLERATED_TAINTS = (NOT_READY_TAINT, UNREACHABLE_TAINT)
_DEFAULT_TOLERATION_SECONDS = 300


def admit(kind: Kind, obj: Unstructured, lookup: Lookup) -> None:
    """Admits a new object. Raises 403."""
    if kind.custom:
        return
    if kind.resource == "pods":
        _admit_pod(kind, obj, lookup)
    elif kind.resource == "persistentvolumeclaims":
        namespace = obj["metadata"].get("namespace", "")
        limit_range.check_claim(kind, obj, lookup.list("limitranges", namespace))
    elif kind.resource == "priorityclasses.scheduling.k8s.io":
        _admit_priority_class(kind, obj, lookup)


def _admit_pod(kind: Kind, pod: Unstructured, lookup: Lookup) -> None:
    apply_defaults(kind, pod)
    ranges = list(lookup.list("limitranges", pod["metadata"].get("namespace", "")))
    if ranges:
        limit_range.fill_defaults(pod, ranges)
    _admit_service_account(kind, pod, lookup)
    _admit_runtime_class(kind, pod, lookup)
    _admit_priority(kind, pod, lookup)
    add_default_tolerations(pod["spec"])
    if ranges:
        limit_range.check_pod(kind, pod, ranges)


def _forbidden(kind: Kind, obj: Unstructured, reason: str) -> ApiError:
    return ApiError.forbidden(kind, obj["metadata"].get("name", ""), reason)


def _admit_service_account(kind: Kind, pod: Unstructured, lookup: Lookup) -> None:
    """Pods run as `default` unless they name another account, which has to exist."""
    spec = pod["spec"]
    name = spec.get("serviceAccountName") or "default"
    namespace = pod["metadata"].get("namespace", "")
    if name != "default" and lookup.get("serviceaccounts", namespace, name) is None:
        reason = f'error looking up service account {namespace}/{name}: serviceaccount "{name}" not found'
        raise _forbidden(kind, pod, reason)
    spec["serviceAccountName"] = spec["serviceAccount"] = name


def _admit_runtime_class(kind: Kind, pod: Unstructured, lookup: Lookup) -> None:
    spec = pod["spec"]
    name = spec.get("runtimeClassName")
    if not name:
        if spec.get("overhead"):
            reason = "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead"
            raise _forbidden(kind, pod, reason)
        return
    runtime_class = lookup.get("runtimeclasses.node.k8s.io", "", name)
    if runtime_class is None:
        raise _forbidden(kind, pod, f'pod rejected: RuntimeClass "{name}" not found')
    overhead = nested_value(runtime_class, "overhead", "podFixed")
    if spec.get("overhead") not in (None, overhead):
        reason = "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead"
        raise _forbidden(kind, pod, reason)
    if overhead:
        spec["overhead"] = dict(overhead)
    _merge_runtime_scheduling(kind, pod, runtime_class.get("scheduling") or {})


def _merge_runtime_scheduling(kind: Kind, pod: Unstructured, scheduling: Unstructured) -> None:
    spec = pod["spec"]
    node_selector = spec.get("nodeSelector") or {}
    for key, value in (scheduling.get("nodeSelector") or {}).items():
        if node_selector.get(key, value) != value:
            reason = (
                f"conflict: runtimeClass.scheduling.nodeSelector[{key}] = {value}; "
                f"pod.spec.nodeSelector[{key}] = {node_selector[key]}"
            )
            raise _forbidden(kind, pod, reason)
        spec["nodeSelector"] = {**(spec.get("nodeSelector") or {}), key: value}
    added = [
        toleration
        for toleration in scheduling.get("tolerations") or ()
        if toleration not in (spec.get("tolerations") or ())
    ]
    if added:
        spec["tolerations"] = [*(spec.get("tolerations") or ()), *deep_copy(added)]


def _admit_priority(kind: Kind, pod: Unstructured, lookup: Lookup) -> None:
    """Sets the value of the pod's priority class."""
    spec = pod["spec"]
    name = spec.get("priorityClassName", "")
    if name:
        priority_class = lookup.get("priorityclasses.scheduling.k8s.io", "", name)
        if priority_class is None and name in SYSTEM_CLASSES:
            priority_class = {"value": SYSTEM_CLASSES[name]}
        if priority_class is None:
            raise _forbidden(kind, pod, f"no PriorityClass with name {name} was found")
    else:
        priority_class = default_priority_class(lookup)
        if priority_class is not None:
            spec["priorityClassName"] = priority_class["metadata"]["name"]
    value = priority_class.get("value", 0) if priority_class is not None else 0
    policy = (priority_class or {}).get("preemptionPolicy") or "PreemptLowerPriority"
    if spec.get("priority") not in (None, value):
        reason = (
            f"the integer value of priority ({spec['priority']}) must not be provided in pod spec; "
            f"priority admission controller computed {value} from the given PriorityClass name"
        )
        raise _forbidden(kind, pod, reason)
    if spec.get("preemptionPolicy") not in (None, policy):
        reason = (
            f"the string value of PreemptionPolicy ({spec['preemptionPolicy']}) must not be provided in pod spec; "
            f"priority admission controller computed {policy} from the given PriorityClass name"
        )
        raise _forbidden(kind, pod, reason)
    spec["priority"], spec["preemptionPolicy"] = value, policy


def default_priority_class(lookup: Lookup) -> Unstructured | None:
    """The class of pods that name none; the one with the lowest value if there are several."""
    classes = lookup.list("priorityclasses.scheduling.k8s.io", "")
    defaults = [priority_class for priority_class in classes if priority_class.get("globalDefault")]
    return min(defaults, key=lambda priority_class: priority_class.get("value", 0)) if defaults else None


def _admit_priority_class(kind: Kind, obj: Unstructured, lookup: Lookup) -> None:
    if not obj.get("globalDefault"):
        return
    existing = default_priority_class(lookup)
    if existing is not None and existing["metadata"]["name"] != obj["metadata"].get("name"):
        reason = (
            f"PriorityClass {existing['metadata']['name']} is already marked as default. Only one default can exist"
        )
        raise _forbidden(kind, obj, reason)


def add_default_tolerations(spec: Unstructured) -> None:
    """A pod stays 300 seconds on a node that is not ready or unreachable, unless it says otherwise."""
    tolerations = spec.get("tolerations") or []
    missing = [key for key in _TOLERATED_TAINTS if not any(_tolerates(present, key) for present in tolerations)]
    if missing:
        rule = {"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": _DEFAULT_TOLERATION_SECONDS}
        spec["tolerations"] = [*tolerations, *({"key": key, **rule} for key in missing)]


def _tolerates(toleration: Unstructured, key: str) -> bool:
    return toleration.get("key", "") in ("", key) and toleration.get("effect", "") in ("", "NoExecute")
