"""Defaulting of every built-in kind: `apply_defaults`.

`strategy`, `admission` and `server_side_apply` pass decoded objects, which are changed in place. Custom kinds have
defaults in their schema (`structural_schema`). Compared with a real API server in
`tests/embedded/api/test_against_kubernetes.py`.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from functools import partial
from typing import Any

from windlass.embedded.api.defaults_pod import default_pod, default_template
from windlass.embedded.api.json_trees import deep_copy
from windlass.embedded.api.kinds import Kind
from windlass.model.names.kubernetes import NAMESPACE_NAME_LABEL
from windlass.model.unstructured import Unstructured

_RBAC = "rbac.authorization.k8s.io"


def apply_defaults(kind: Kind, obj: Unstructured) -> None:
    fill = _FILLERS.get((kind.group, kind.kind))
    if fill is not None:
        fill(obj)


def _fill(tree: Unstructured, values: dict[str, Any]) -> None:
    for name, value in values.items():
        if tree.get(name) is None:
            tree[name] = deep_copy(value)


def _pod(obj: Unstructured) -> None:
    default_pod(obj["spec"])


def _template(spec: Unstructured) -> None:
    default_template(spec["template"]["spec"])


def _deployment(obj: Unstructured) -> None:
    spec = obj["spec"]
    _fill(spec, {"replicas": 1, "revisionHistoryLimit": 10, "progressDeadlineSeconds": 600})
    strategy = spec["strategy"]
    strategy.setdefault("type", "RollingUpdate")
    if strategy["type"] == "RollingUpdate":
        _fill(strategy, {"rollingUpdate": {}})
        _fill(strategy["rollingUpdate"], {"maxUnavailable": "25%", "maxSurge": "25%"})
    _template(spec)


TEMPLATE_GENERATION = "deprecated.daemonset.template.generation"


def _daemon_set(obj: Unstructured) -> None:
    spec = obj["spec"]
    obj["metadata"].setdefault("annotations", {}).setdefault(TEMPLATE_GENERATION, "0")
    _fill(spec, {"revisionHistoryLimit": 10})
    strategy = spec["updateStrategy"]
    strategy.setdefault("type", "RollingUpdate")
    if strategy["type"] == "RollingUpdate":
        _fill(strategy, {"rollingUpdate": {}})
        _fill(strategy["rollingUpdate"], {"maxUnavailable": 1, "maxSurge": 0})
    _template(spec)


def _stateful_set(obj: Unstructured) -> None:
    spec = obj["spec"]
    _fill(spec, {"podManagementPolicy": "OrderedReady", "replicas": 1, "revisionHistoryLimit": 10})
    strategy = spec["updateStrategy"]
    if "type" not in strategy:
        strategy["type"] = "RollingUpdate"
        _fill(strategy, {"rollingUpdate": {}})
    if strategy["type"] == "RollingUpdate" and strategy.get("rollingUpdate") is not None:
        _fill(strategy["rollingUpdate"], {"partition": 0})
    _fill(spec, {"persistentVolumeClaimRetentionPolicy": {}})
    _fill(spec["persistentVolumeClaimRetentionPolicy"], {"whenDeleted": "Retain", "whenScaled": "Retain"})
    for claim in spec.get("volumeClaimTemplates", ()):
        _claim(claim)
        claim.update(apiVersion="v1", kind="PersistentVolumeClaim")
    _template(spec)


def _replication_controller(obj: Unstructured) -> None:
    spec = obj["spec"]
    _fill(spec, {"replicas": 1})
    labels = ((spec.get("template") or {}).get("metadata") or {}).get("labels")
    if labels:
        spec["selector"] = spec.get("selector") or dict(labels)
        obj["metadata"]["labels"] = obj["metadata"].get("labels") or dict(labels)
    if spec.get("template"):
        _template(spec)


def _network_policy(obj: Unstructured) -> None:
    spec = obj["spec"]
    if not spec.get("policyTypes"):
        spec["policyTypes"] = ["Ingress", "Egress"] if spec.get("egress") else ["Ingress"]
    for rule in (*spec.get("ingress", ()), *spec.get("egress", ())):
        for port in rule.get("ports", ()):
            _fill(port, {"protocol": "TCP"})


def _replica_set(obj: Unstructured) -> None:
    _fill(obj["spec"], {"replicas": 1})
    _template(obj["spec"])


def _job(obj: Unstructured) -> None:
    labels = (obj["spec"]["template"].get("metadata") or {}).get("labels")
    if labels and not obj["metadata"].get("labels"):
        obj["metadata"]["labels"] = labels  # the same object: the generated labels are added to both
    _job_spec(obj["spec"])


def _job_spec(spec: Unstructured) -> None:
    if spec.get("completions") is None and spec.get("parallelism") is None:
        spec["completions"] = 1
    _fill(
        spec,
        {
            "parallelism": 1,
            "backoffLimit": 6 if spec.get("backoffLimitPerIndex") is None else 2**31 - 1,
            "completionMode": "NonIndexed",
            "suspend": False,
            "podReplacementPolicy": "Failed" if "podFailurePolicy" in spec else "TerminatingOrFailed",
            "manualSelector": False,
        },
    )
    for rule in (spec.get("podFailurePolicy") or {}).get("rules") or ():
        for pattern in rule.get("onPodConditions") or ():
            pattern["status"] = pattern.get("status") or "True"
    _template(spec)


def _cron_job(obj: Unstructured) -> None:
    limits = {"successfulJobsHistoryLimit": 3, "failedJobsHistoryLimit": 1}
    _fill(obj["spec"], {"concurrencyPolicy": "Allow", "suspend": False, **limits})
    _template(obj["spec"]["jobTemplate"]["spec"])


def _service(obj: Unstructured) -> None:
    spec = obj["spec"]
    _fill(spec, {"sessionAffinity": "None", "type": "ClusterIP"})
    if spec["sessionAffinity"] == "None":
        spec.pop("sessionAffinityConfig", None)
    else:
        _fill(spec, {"sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 10800}}})
    for port in spec.get("ports", ()):
        port.setdefault("protocol", "TCP")
        if port.get("targetPort") in (None, 0, ""):
            port["targetPort"] = port["port"]
    if spec["type"] in ("NodePort", "LoadBalancer"):
        _fill(spec, {"externalTrafficPolicy": "Cluster"})
    if spec["type"] != "ExternalName":
        _fill(spec, {"internalTrafficPolicy": "Cluster"})
    if spec["type"] == "LoadBalancer":
        _fill(spec, {"allocateLoadBalancerNodePorts": True})


def _secret(obj: Unstructured) -> None:
    """`stringData` is write-only: it is moved into `data`."""
    obj.setdefault("type", "Opaque")
    plain = obj.pop("stringData", None)
    if plain:
        encoded = {key: base64.b64encode(value.encode()).decode() for key, value in plain.items()}
        obj["data"] = {**(obj.get("data") or {}), **encoded}


def _namespace(obj: Unstructured) -> None:
    if obj["metadata"].get("name"):
        obj["metadata"].setdefault("labels", {})[NAMESPACE_NAME_LABEL] = obj["metadata"]["name"]
    obj["status"].setdefault("phase", "Active")


def _node(obj: Unstructured) -> None:
    status = obj["status"]
    if status.get("capacity") and not status.get("allocatable"):
        status["allocatable"] = dict(status["capacity"])


def _volume(obj: Unstructured) -> None:
    _fill(obj["spec"], {"persistentVolumeReclaimPolicy": "Retain", "volumeMode": "Filesystem"})
    if "hostPath" in obj["spec"]:
        obj["spec"]["hostPath"].setdefault("type", "")
    obj["status"].setdefault("phase", "Pending")


def _claim(obj: Unstructured) -> None:
    _fill(obj["spec"], {"volumeMode": "Filesystem"})
    obj["status"].setdefault("phase", "Pending")


def _endpoints(obj: Unstructured) -> None:
    for subset in obj.get("subsets", ()):
        for port in subset.get("ports", ()):
            port.setdefault("protocol", "TCP")


def _endpoint_slice(obj: Unstructured) -> None:
    for port in obj.get("ports") or ():
        _fill(port, {"name": "", "protocol": "TCP"})


def _limit_range(obj: Unstructured) -> None:
    for item in obj["spec"]["limits"] or ():
        if item["type"] != "Container":
            continue
        limits = {**(item.get("max") or {}), **(item.get("default") or {})}
        requests = {**(item.get("min") or {}), **limits, **(item.get("defaultRequest") or {})}
        for name, values in (("default", limits), ("defaultRequest", requests)):
            if values:
                item[name] = values


def _role_binding(obj: Unstructured) -> None:
    obj["roleRef"]["apiGroup"] = obj["roleRef"].get("apiGroup") or _RBAC
    for subject in obj.get("subjects", ()):
        if subject.get("kind") in ("User", "Group"):
            subject.setdefault("apiGroup", _RBAC)


def _csi_driver(obj: Unstructured) -> None:
    _fill(
        obj["spec"],
        {
            "attachRequired": True,
            "podInfoOnMount": False,
            "storageCapacity": False,
            "fsGroupPolicy": "ReadWriteOnceWithFSType",
            "volumeLifecycleModes": ["Persistent"],
            "requiresRepublish": False,
            "seLinuxMount": False,
        },
    )


def _definition(obj: Unstructured) -> None:
    spec = obj["spec"]
    names = spec["names"]
    if names.get("kind"):
        names["singular"] = names.get("singular") or names["kind"].lower()
        names["listKind"] = names.get("listKind") or names["kind"] + "List"
    _fill(spec, {"conversion": {"strategy": "None"}})


_FILLERS: dict[tuple[str, str], Callable[[Unstructured], None]] = {
    ("", "Pod"): _pod,
    ("", "Service"): _service,
    ("", "Secret"): _secret,
    ("", "Namespace"): _namespace,
    ("", "Node"): _node,
    ("", "PersistentVolume"): _volume,
    ("", "PersistentVolumeClaim"): _claim,
    ("", "Endpoints"): _endpoints,
    ("", "LimitRange"): _limit_range,
    ("", "ReplicationController"): _replication_controller,
    ("networking.k8s.io", "NetworkPolicy"): _network_policy,
    ("apps", "Deployment"): _deployment,
    ("apps", "DaemonSet"): _daemon_set,
    ("apps", "StatefulSet"): _stateful_set,
    ("apps", "ReplicaSet"): _replica_set,
    ("batch", "Job"): _job,
    ("batch", "CronJob"): _cron_job,
    ("discovery.k8s.io", "EndpointSlice"): _endpoint_slice,
    (_RBAC, "RoleBinding"): _role_binding,
    (_RBAC, "ClusterRoleBinding"): _role_binding,
    ("storage.k8s.io", "StorageClass"): partial(
        _fill, values={"reclaimPolicy": "Delete", "volumeBindingMode": "Immediate"}
    ),
    ("storage.k8s.io", "CSIDriver"): _csi_driver,
    ("scheduling.k8s.io", "PriorityClass"): partial(_fill, values={"preemptionPolicy": "PreemptLowerPriority"}),
    ("apiextensions.k8s.io", "CustomResourceDefinition"): _definition,
}
