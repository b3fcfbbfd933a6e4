"""Per-kind preparation between decoding and validation: status, generation, and fields that only the server writes.

`machinery` passes decoded, defaulted objects, which are changed; `metadata.uid` must be set before, since a Job's
selector contains it. `registry` and the server read the sets of kinds at the end: how they are updated and deleted.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

from windlass.embedded.api.admission import add_default_tolerations
from windlass.embedded.api.decode import zero_value
from windlass.embedded.api.defaults import TEMPLATE_GENERATION, apply_defaults
from windlass.embedded.api.defaults_pod import qos_class
from windlass.embedded.api.json_trees import copy_field, deep_copy
from windlass.embedded.api.kinds import Kind
from windlass.embedded.api.numbers import parse_decimal
from windlass.embedded.api.schema import kind_schema
from windlass.model.names.kubernetes import JOB_CONTROLLER_UID_LABEL, JOB_NAME_LABEL
from windlass.model.unstructured import Unstructured

KINDS_WITH_GENERATION = {
    *(("", "Pod"), ("", "ReplicationController")),
    *(("networking.k8s.io", "Ingress"), ("networking.k8s.io", "NetworkPolicy")),
    *(("apps", kind) for kind in ("Deployment", "DaemonSet", "StatefulSet", "ReplicaSet")),
    *(("batch", "Job"), ("batch", "CronJob")),
    ("policy", "PodDisruptionBudget"),
    ("scheduling.k8s.io", "PriorityClass"),
    ("apiextensions.k8s.io", "CustomResourceDefinition"),
    ("discovery.k8s.io", "EndpointSlice"),
}
"""Built-in kinds whose generation counts changes of their spec. All custom kinds do."""

_CREATED_WITH_STATUS = {("", "Node"), ("", "Namespace"), ("apiextensions.k8s.io", "CustomResourceDefinition")}


def prepare_create(kind: Kind, obj: Unstructured) -> Unstructured:
    """A new object of a built-in kind."""
    identity = (kind.group, kind.kind)
    if kind.has_subresource("status") and identity not in _CREATED_WITH_STATUS:
        status = kind_schema(kind).fields.get("status")
        obj["status"] = zero_value(status) if status is not None else {}
    apply_defaults(kind, obj)
    if identity in KINDS_WITH_GENERATION:
        obj["metadata"]["generation"] = 1
    prepare = _PREPARE_CREATE.get(identity)
    if prepare is not None:
        prepare(obj)
    return obj


def _created_pod(obj: Unstructured) -> None:
    obj["status"] = {"phase": "Pending", "qosClass": qos_class(obj["spec"])}
    if obj["spec"].get("schedulingGates"):
        obj["status"]["conditions"] = [
            {
                "type": "PodScheduled",
                "status": "False",
                "lastProbeTime": None,
                "lastTransitionTime": obj["metadata"].get("creationTimestamp"),
                "reason": "SchedulingGated",
                "message": "Scheduling is blocked due to non-empty scheduling gates",
            }
        ]


def _created_daemon_set(obj: Unstructured) -> None:
    obj["metadata"].setdefault("annotations", {})[TEMPLATE_GENERATION] = "1"


def _created_namespace(obj: Unstructured) -> None:
    obj["status"] = {"phase": "Active"}
    finalizers = obj["spec"].get("finalizers") or []
    if "kubernetes" not in finalizers:
        obj["spec"]["finalizers"] = [*finalizers, "kubernetes"]


def _created_job(obj: Unstructured) -> None:
    """Generates labels and selector from the Job's UID, unless it has a selector of its own."""
    spec, metadata = obj["spec"], obj["metadata"]
    template = spec["template"].setdefault("metadata", {})
    if spec.get("manualSelector"):
        return
    generated = {
        "controller-uid": metadata.get("uid", ""),
        "job-name": metadata.get("name", ""),
        JOB_CONTROLLER_UID_LABEL: metadata.get("uid", ""),
        JOB_NAME_LABEL: metadata.get("name", ""),
    }
    labels = template.setdefault("labels", {})
    shared = labels is metadata.get("labels")
    labels.update(generated)
    if shared or not metadata.get("labels"):
        metadata["labels"] = dict(labels)
    selector = spec.setdefault("selector", {})
    own = {JOB_CONTROLLER_UID_LABEL: metadata.get("uid", "")}
    selector["matchLabels"] = {**(selector.get("matchLabels") or {}), **own}


def _created_service(obj: Unstructured) -> None:
    """Assigns an address on which nothing listens, but which is stable."""
    spec = obj["spec"]
    if spec["type"] == "ExternalName":
        return
    if not spec.get("clusterIP"):
        digest = hashlib.sha256(obj["metadata"].get("uid", "").encode()).digest()
        spec["clusterIP"] = f"10.96.{digest[0]}.{1 + digest[1] % 254}"
    spec.setdefault("clusterIPs", [spec["clusterIP"]])
    is_headless_without_selector = spec["clusterIP"] == "None" and not spec.get("selector")
    spec.setdefault("ipFamilies", ["IPv4", "IPv6"] if is_headless_without_selector else ["IPv4"])
    spec.setdefault("ipFamilyPolicy", "RequireDualStack" if is_headless_without_selector else "SingleStack")
    if spec["type"] in ("NodePort", "LoadBalancer"):
        for index, port in enumerate(spec.get("ports", ())):
            if not port.get("nodePort"):
                seed = f"{obj['metadata'].get('uid', '')}/{index}".encode()
                port["nodePort"] = 30000 + int.from_bytes(hashlib.sha256(seed).digest()[:2], "big") % 2768


def _created_claim(obj: Unstructured) -> None:
    obj["status"] = {"phase": "Pending"}


_PREPARE_CREATE: dict[tuple[str, str], Callable[[Unstructured], None]] = {
    ("", "Pod"): _created_pod,
    ("", "Namespace"): _created_namespace,
    ("", "Service"): _created_service,
    ("", "PersistentVolumeClaim"): _created_claim,
    ("", "PersistentVolume"): _created_claim,
    ("apps", "DaemonSet"): _created_daemon_set,
    ("batch", "Job"): _created_job,
}


# ---- updates


def prepare_update(kind: Kind, new: Unstructured, old: Unstructured, subresource: str = "") -> Unstructured:
    """The object that replaces `old`; fields that the request may not change are `old`'s."""
    _keep_identity(new, old)
    if subresource == "status":
        return _status_only(kind, new, old)
    if subresource == "finalize":
        finalizers = new["spec"].get("finalizers") or []
        return {
            **deep_copy(old),
            "metadata": new["metadata"],
            "spec": {**old["spec"], "finalizers": finalizers},
        }
    if kind.has_subresource("status"):
        copy_field(new, old, "status")
    if not kind.custom:
        _prepare_kind_update(kind, new, old)
    if kind.custom or (kind.group, kind.kind) in KINDS_WITH_GENERATION:
        _set_generation(new, old, kind)
    return new


_SERVER_METADATA = (
    *("uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation"),
    "selfLink",
)


def _keep_identity(new: Unstructured, old: Unstructured) -> None:
    """Metadata that only the server writes."""
    metadata, old_metadata = new["metadata"], old["metadata"]
    for name in _SERVER_METADATA:
        if name in old_metadata:
            metadata[name] = old_metadata[name]
        elif name != "uid":
            metadata.pop(name, None)
    metadata["name"] = old_metadata["name"]
    for name in ("namespace", "generateName"):
        if name in old_metadata:
            metadata.setdefault(name, old_metadata[name])


def _status_only(kind: Kind, new: Unstructured, old: Unstructured) -> Unstructured:
    result: Unstructured = deep_copy(old)
    result["metadata"]["resourceVersion"] = new["metadata"].get("resourceVersion", "")
    if "managedFields" in new["metadata"]:
        result["metadata"]["managedFields"] = new["metadata"]["managedFields"]
    copy_field(result, new, "status")
    if (kind.group, kind.kind) == ("", "Pod") and "qosClass" in old.get("status", {}):
        result["status"].setdefault("qosClass", old["status"]["qosClass"])
    if not kind.custom:
        for name in ("labels", "annotations", "finalizers", "ownerReferences"):
            copy_field(result["metadata"], new["metadata"], name)
        apply_defaults(kind, result)
    return result


def _prepare_kind_update(kind: Kind, new: Unstructured, old: Unstructured) -> None:
    identity = (kind.group, kind.kind)
    if identity == ("", "Service"):
        for name in ("clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"):
            if not new["spec"].get(name) and old["spec"].get(name):
                new["spec"][name] = deep_copy(old["spec"][name])
    elif identity == ("batch", "Job") and not new["spec"].get("selector"):
        copy_field(new["spec"], old["spec"], "selector")
    elif identity == ("apps", "DaemonSet"):
        generation = (old["metadata"].get("annotations") or {}).get(TEMPLATE_GENERATION, "0")
        changed = new["spec"].get("template") != old["spec"].get("template")
        number = parse_decimal(generation)
        new_generation = generation if number is None else str(number + changed)
        new["metadata"].setdefault("annotations", {})[TEMPLATE_GENERATION] = new_generation
    elif identity == ("", "Namespace"):
        new["spec"]["finalizers"] = deep_copy(old["spec"].get("finalizers", []))
    apply_defaults(kind, new)
    if identity == ("", "Pod"):
        _keep_admitted_fields(new["spec"], old["spec"])


def _keep_admitted_fields(new: Unstructured, old: Unstructured) -> None:
    """Fields that admission has set stay, also if the client has left them out."""
    for name in ("priority", "preemptionPolicy", "priorityClassName", "serviceAccountName", "serviceAccount"):
        if name in old:
            new.setdefault(name, old[name])
    add_default_tolerations(new)


def _set_generation(new: Unstructured, old: Unstructured, kind: Kind) -> None:
    generation: Any = old["metadata"].get("generation", 0)
    changed = _generation_fields(new, kind) != _generation_fields(old, kind)
    if kind.kind == "Deployment":
        changed = changed or new["metadata"].get("annotations", {}) != old["metadata"].get("annotations", {})
    new["metadata"]["generation"] = generation + changed


def _generation_fields(obj: Unstructured, kind: Kind) -> Unstructured:
    """Everything but metadata, and status if that is a subresource."""
    left_out = {"metadata", "status"} if kind.has_subresource("status") else {"metadata"}
    return {key: value for key, value in obj.items() if key not in left_out}


# ---- kinds with other rules for updates and deletions, as in Kubernetes' API server (Apache-2.0)

NO_UNCONDITIONAL_UPDATE = {
    *("leases.coordination.k8s.io", "poddisruptionbudgets.policy", "runtimeclasses.node.k8s.io"),
    *(f"{name}.storage.k8s.io" for name in ("csidrivers", "csinodes", "volumeattachments")),
    "customresourcedefinitions.apiextensions.k8s.io",
}
"""An update has to give the version that it replaces; so do updates of custom objects."""
_RBAC_PLURALS = ("roles", "rolebindings", "clusterroles", "clusterrolebindings")
CREATE_ON_UPDATE = {
    *("leases.coordination.k8s.io", "runtimeclasses.node.k8s.io"),
    *(f"{name}.rbac.authorization.k8s.io" for name in _RBAC_PLURALS),
    *("limitranges", "events", "services", "endpoints"),
}
RETURN_DELETED_OBJECT = {
    *("pods", "services", "serviceaccounts", "namespaces", "resourcequotas", "podtemplates"),
    *("persistentvolumes", "persistentvolumeclaims"),
    *(f"{name}.storage.k8s.io" for name in ("csidrivers", "csinodes", "storageclasses", "volumeattachments")),
}
"""A deletion returns the object; for all other kinds a Status."""


def allows_unconditional_update(kind: Kind) -> bool:
    return not kind.custom and kind.resource not in NO_UNCONDITIONAL_UPDATE
