"""What becomes of an object between decoding and validation: status, generation, and what only the server may write.

`prepare_create` and `prepare_update` are fed with decoded, defaulted trees and change them; `metadata.uid` must be set
before (a Job's selector is made of it). They feed `api.validation`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

from windlass.embedded.api.admission import add_default_tolerations
from windlass.embedded.api.decode import zero_value
from windlass.embedded.api.defaults import TEMPLATE_GENERATION, apply_defaults
from windlass.embedded.api.defaults_pod import qos_class
from windlass.embedded.api.json_trees import deep_copy
from windlass.embedded.api.kinds import Kind
from windlass.embedded.api.schema import kind_schema
from windlass.model.unstructured import Unstructured

KINDS_WITH_GENERATION = {
    ("", "Pod"),
    ("", "ReplicationController"),
    ("networking.k8s.io", "Ingress"),
    ("networking.k8s.io", "NetworkPolicy"),
    ("apps", "Deployment"),
    ("apps", "DaemonSet"),
    ("apps", "StatefulSet"),
    ("apps", "ReplicaSet"),
    ("batch", "Job"),
    ("batch", "CronJob"),
    ("policy", "PodDisruptionBudget"),
    ("scheduling.k8s.io", "PriorityClass"),
    ("apiextensions.k8s.io", "CustomResourceDefinition"),
    ("discovery.k8s.io", "EndpointSlice"),
}
"""The built-in kinds whose generation counts the changes of their spec. Custom kinds all do."""

_KEEPS_STATUS = {("", "Node"), ("", "Namespace"), ("apiextensions.k8s.io", "CustomResourceDefinition")}

CONTROLLER_UID = "batch.kubernetes.io/controller-uid"
JOB_NAME = "batch.kubernetes.io/job-name"


def prepare_create(kind: Kind, obj: Unstructured) -> Unstructured:
    """An object that is to be made, of a built-in kind."""
    identity = (kind.group, kind.kind)
    if kind.has_subresource("status") and identity not in _KEEPS_STATUS:
        obj["status"] = empty_status(kind)
    apply_defaults(kind, obj)
    if identity in KINDS_WITH_GENERATION:
        obj["metadata"]["generation"] = 1
    more = _CREATED.get(identity)
    if more is not None:
        more(obj)
    return obj


def empty_status(kind: Kind) -> Unstructured:
    """The status of an object that nobody has looked at yet."""
    node = kind_schema(kind).fields.get("status")
    made: Unstructured = zero_value(node) if node is not None else {}
    return made


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
    """A Job's pods are told apart by its own identity, unless it brings a selector of its own."""
    spec, metadata = obj["spec"], obj["metadata"]
    template = spec["template"].setdefault("metadata", {})
    if spec.get("manualSelector"):
        return
    mine = {
        "controller-uid": metadata.get("uid", ""),
        "job-name": metadata.get("name", ""),
        CONTROLLER_UID: metadata.get("uid", ""),
        JOB_NAME: metadata.get("name", ""),
    }
    labels = template.setdefault("labels", {})
    shared = labels is metadata.get("labels")
    labels.update(mine)
    if shared or not metadata.get("labels"):
        metadata["labels"] = dict(labels)
    selector = spec.setdefault("selector", {})
    selector["matchLabels"] = {**(selector.get("matchLabels") or {}), CONTROLLER_UID: metadata.get("uid", "")}


def _created_service(obj: Unstructured) -> None:
    """Objects only: an address that nothing answers to, but stable and alike."""
    spec = obj["spec"]
    if spec["type"] == "ExternalName":
        return
    if not spec.get("clusterIP"):
        digest = hashlib.sha256(obj["metadata"].get("uid", "").encode()).digest()
        spec["clusterIP"] = f"10.96.{digest[0]}.{1 + digest[1] % 254}"
    spec.setdefault("clusterIPs", [spec["clusterIP"]])
    anything = spec["clusterIP"] == "None" and not spec.get("selector")
    spec.setdefault("ipFamilies", ["IPv4", "IPv6"] if anything else ["IPv4"])
    spec.setdefault("ipFamilyPolicy", "RequireDualStack" if anything else "SingleStack")
    if spec["type"] in ("NodePort", "LoadBalancer"):
        for index, port in enumerate(spec.get("ports", ())):
            if not port.get("nodePort"):
                seed = f"{obj['metadata'].get('uid', '')}/{index}".encode()
                port["nodePort"] = 30000 + int.from_bytes(hashlib.sha256(seed).digest()[:2], "big") % 2768


def _created_claim(obj: Unstructured) -> None:
    obj["status"] = {"phase": "Pending"}


_CREATED: dict[tuple[str, str], Callable[[Unstructured], None]] = {
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
    """An object that is to take the place of `old`: what the request may not touch is `old`'s."""
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
        _copy(new, old, "status")
    if not kind.custom:
        _updated(kind, new, old)
    if kind.custom or (kind.group, kind.kind) in KINDS_WITH_GENERATION:
        _count(new, old, kind)
    return new


def _keep_identity(new: Unstructured, old: Unstructured) -> None:
    """Metadata that is the server's alone."""
    mine, theirs = new["metadata"], old["metadata"]
    for name in (
        "uid",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "generation",
        "selfLink",
    ):
        if name in theirs:
            mine[name] = theirs[name]
        elif name != "uid":
            mine.pop(name, None)
    mine["name"] = theirs["name"]
    for name in ("namespace", "generateName"):
        if name in theirs:
            mine.setdefault(name, theirs[name])


def _status_only(kind: Kind, new: Unstructured, old: Unstructured) -> Unstructured:
    made = {**deep_copy(old), **({"status": new["status"]} if "status" in new else {})}
    made["metadata"]["resourceVersion"] = new["metadata"].get("resourceVersion", "")
    if "managedFields" in new["metadata"]:
        made["metadata"]["managedFields"] = new["metadata"]["managedFields"]
    if "status" not in new:
        made.pop("status", None)
    if (kind.group, kind.kind) == ("", "Pod") and "qosClass" in old.get("status", {}):
        made["status"].setdefault("qosClass", old["status"]["qosClass"])
    if not kind.custom:
        for name in ("labels", "annotations", "finalizers", "ownerReferences"):
            _copy(made["metadata"], new["metadata"], name)
        apply_defaults(kind, made)
    return made


def _copy(target: Unstructured, source: Unstructured, name: str) -> None:
    if name in source:
        target[name] = deep_copy(source[name])
    else:
        target.pop(name, None)


def _updated(kind: Kind, new: Unstructured, old: Unstructured) -> None:
    identity = (kind.group, kind.kind)
    if identity == ("", "Service"):
        for name in ("clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"):
            if not new["spec"].get(name) and old["spec"].get(name):
                new["spec"][name] = deep_copy(old["spec"][name])
    elif identity == ("batch", "Job") and not new["spec"].get("selector"):
        _copy(new["spec"], old["spec"], "selector")
    elif identity == ("apps", "DaemonSet"):
        before = (old["metadata"].get("annotations") or {}).get(TEMPLATE_GENERATION, "0")
        changed = new["spec"].get("template") != old["spec"].get("template")
        counted = str(int(before) + changed) if before.isdigit() else before
        new["metadata"].setdefault("annotations", {})[TEMPLATE_GENERATION] = counted
    elif identity == ("", "Namespace"):
        new["spec"]["finalizers"] = deep_copy(old["spec"].get("finalizers", []))
    apply_defaults(kind, new)
    if identity == ("", "Pod"):
        _updated_pod(new["spec"], old["spec"])


def _updated_pod(new: Unstructured, old: Unstructured) -> None:
    """What admission has put in stays, also where the client has left it out."""
    for name in ("priority", "preemptionPolicy", "priorityClassName", "serviceAccountName", "serviceAccount"):
        if name in old:
            new.setdefault(name, old[name])
    add_default_tolerations(new)


def _count(new: Unstructured, old: Unstructured, kind: Kind) -> None:
    before: Any = old["metadata"].get("generation", 0)
    moved = _counted(new, kind) != _counted(old, kind)
    if kind.kind == "Deployment":
        moved = moved or new["metadata"].get("annotations", {}) != old["metadata"].get("annotations", {})
    new["metadata"]["generation"] = before + moved


def _counted(obj: Unstructured, kind: Kind) -> Unstructured:
    """What a change of generation is about: everything but metadata, and status where that is a resource of its own."""
    left_out = {"metadata", "status"} if kind.has_subresource("status") else {"metadata"}
    return {key: value for key, value in obj.items() if key not in left_out}
