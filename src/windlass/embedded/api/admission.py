"""Admission: what a server adds to an object, or refuses, because of other objects around it.

Fed by the server with a decoded tree that is about to be created, which is changed in place. In the order of a
Kubernetes API server: limit ranges, service account, runtime class, priority, tolerations. Quotas come after validation
(`api.quota`), and namespaces are the server's own check. The wording is the Kubernetes API's (Apache-2.0).
"""

from __future__ import annotations

from windlass.embedded.api import limit_range
from windlass.embedded.api.defaults import apply_defaults
from windlass.embedded.api.errors import ApiError
from windlass.embedded.api.json_trees import deep_copy, nested_value
from windlass.embedded.api.kinds import Kind
from windlass.embedded.api.resource_quota import Lookup
from windlass.model.unstructured import Unstructured

SYSTEM_CLASSES = {"system-node-critical": 2_000_001_000, "system-cluster-critical": 2_000_000_000}
"""Priority classes that every cluster has, whether somebody has made the objects or not."""

_TOLERATED = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
_TOLERATED_SECONDS = 300


def admit(kind: Kind, obj: Unstructured, lookup: Lookup) -> None:
    """An object that is to be made. Raises 403."""
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
    _service_account(kind, pod, lookup)
    _runtime_class(kind, pod, lookup)
    _priority(kind, pod, lookup)
    add_default_tolerations(pod["spec"])
    if ranges:
        limit_range.check_pod(kind, pod, ranges)


def _refused(kind: Kind, obj: Unstructured, why: str) -> ApiError:
    return ApiError.forbidden(kind, obj["metadata"].get("name", ""), why)


def _service_account(kind: Kind, pod: Unstructured, lookup: Lookup) -> None:
    """Pods run as `default` unless they say otherwise; another account has to exist."""
    spec = pod["spec"]
    name = spec.get("serviceAccountName") or "default"
    namespace = pod["metadata"].get("namespace", "")
    if name != "default" and lookup.get("serviceaccounts", namespace, name) is None:
        why = f'error looking up service account {namespace}/{name}: serviceaccount "{name}" not found'
        raise _refused(kind, pod, why)
    spec["serviceAccountName"] = spec["serviceAccount"] = name


def _runtime_class(kind: Kind, pod: Unstructured, lookup: Lookup) -> None:
    spec = pod["spec"]
    name = spec.get("runtimeClassName")
    if not name:
        if spec.get("overhead"):
            why = "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead"
            raise _refused(kind, pod, why)
        return
    found = lookup.get("runtimeclasses.node.k8s.io", "", name)
    if found is None:
        raise _refused(kind, pod, f'pod rejected: RuntimeClass "{name}" not found')
    overhead = nested_value(found, "overhead", "podFixed")
    if spec.get("overhead") not in (None, overhead):
        why = "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead"
        raise _refused(kind, pod, why)
    if overhead:
        spec["overhead"] = dict(overhead)
    _runtime_scheduling(kind, pod, found.get("scheduling") or {})


def _runtime_scheduling(kind: Kind, pod: Unstructured, scheduling: Unstructured) -> None:
    spec = pod["spec"]
    mine = spec.get("nodeSelector") or {}
    for key, value in (scheduling.get("nodeSelector") or {}).items():
        if mine.get(key, value) != value:
            why = (
                f"conflict: runtimeClass.scheduling.nodeSelector[{key}] = {value}; "
                f"pod.spec.nodeSelector[{key}] = {mine[key]}"
            )
            raise _refused(kind, pod, why)
        spec["nodeSelector"] = {**(spec.get("nodeSelector") or {}), key: value}
    more = [
        each for each in scheduling.get("tolerations") or () if each not in (spec.get("tolerations") or ())
    ]
    if more:
        spec["tolerations"] = [*(spec.get("tolerations") or ()), *deep_copy(more)]


def _priority(kind: Kind, pod: Unstructured, lookup: Lookup) -> None:
    """The number behind a priority class, which is what everybody looks at."""
    spec = pod["spec"]
    name = spec.get("priorityClassName", "")
    if name:
        found = lookup.get("priorityclasses.scheduling.k8s.io", "", name)
        if found is None and name in SYSTEM_CLASSES:
            found = {"value": SYSTEM_CLASSES[name]}
        if found is None:
            raise _refused(kind, pod, f"no PriorityClass with name {name} was found")
    else:
        found = default_priority_class(lookup)
        if found is not None:
            spec["priorityClassName"] = found["metadata"]["name"]
    value = found.get("value", 0) if found is not None else 0
    policy = (found or {}).get("preemptionPolicy") or "PreemptLowerPriority"
    if spec.get("priority") not in (None, value):
        why = (
            f"the integer value of priority ({spec['priority']}) must not be provided in pod spec; "
            f"priority admission controller computed {value} from the given PriorityClass name"
        )
        raise _refused(kind, pod, why)
    if spec.get("preemptionPolicy") not in (None, policy):
        why = (
            f"the string value of PreemptionPolicy ({spec['preemptionPolicy']}) must not be provided in pod spec; "
            f"priority admission controller computed {policy} from the given PriorityClass name"
        )
        raise _refused(kind, pod, why)
    spec["priority"], spec["preemptionPolicy"] = value, policy


def default_priority_class(lookup: Lookup) -> Unstructured | None:
    """The priority class of pods that name none; the lowest, should there be several."""
    classes = lookup.list("priorityclasses.scheduling.k8s.io", "")
    found = [each for each in classes if each.get("globalDefault")]
    return min(found, key=lambda each: each.get("value", 0)) if found else None


def _admit_priority_class(kind: Kind, obj: Unstructured, lookup: Lookup) -> None:
    if not obj.get("globalDefault"):
        return
    found = default_priority_class(lookup)
    if found is not None and found["metadata"]["name"] != obj["metadata"].get("name"):
        why = (
            f"PriorityClass {found['metadata']['name']} is already marked as default. "
            "Only one default can exist"
        )
        raise _refused(kind, obj, why)


def add_default_tolerations(spec: Unstructured) -> None:
    """A pod stays five minutes on a node that went silent, unless it says otherwise."""
    mine = spec.get("tolerations") or []
    more = [key for key in _TOLERATED if not any(_tolerates(each, key) for each in mine)]
    if more:
        spec["tolerations"] = [
            *mine,
            *(
                {
                    "key": key,
                    "operator": "Exists",
                    "effect": "NoExecute",
                    "tolerationSeconds": _TOLERATED_SECONDS,
                }
                for key in more
            ),
        ]


def _tolerates(toleration: Unstructured, key: str) -> bool:
    return toleration.get("key", "") in ("", key) and toleration.get("effect", "") in ("", "NoExecute")
