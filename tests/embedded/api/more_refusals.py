"""More objects that an API server refuses: the lesser kinds, and the lesser fields of the greater ones."""

from __future__ import annotations

from typing import Any

from tests.embedded.api.refusals import job
from tests.embedded.api.samples import SELECTOR, container, made, pod, template

from windlass.model.unstructured import Unstructured


def _volume(**spec: Any) -> Unstructured:
    return made(
        "v1",
        "PersistentVolume",
        "p",
        spec={"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], **spec},
    )


def _limits(*items: Unstructured) -> Unstructured:
    return made("v1", "LimitRange", "l", spec={"limits": list(items)})


def _scope(**term: Any) -> Unstructured:
    selector = {"matchExpressions": [term]}
    return made("v1", "ResourceQuota", "q", spec={"hard": {"pods": "1"}, "scopeSelector": selector})


def _failure(*rules: Unstructured) -> Unstructured:
    return job(podFailurePolicy={"rules": list(rules)})


def _success(*rules: Unstructured) -> Unstructured:
    return job(completionMode="Indexed", completions=3, successPolicy={"rules": list(rules)})


def _policy(**spec: Any) -> Unstructured:
    return made("networking.k8s.io/v1", "NetworkPolicy", "n", spec={"podSelector": {}, **spec})


_HOST = {"path": "/a"}

MORE: list[Unstructured] = [
    made("apps/v1", "ControllerRevision", "c"),
    made("apps/v1", "ControllerRevision", "c", data=5),
    made("apps/v1", "ControllerRevision", "c", data={}, revision=-1),
    made(
        "node.k8s.io/v1",
        "RuntimeClass",
        "r",
        handler="A",
        overhead={"podFixed": {"cpu": "-1", "gpu": "1"}},
        scheduling={"nodeSelector": {"a b": "c"}, "tolerations": [{"key": "a", "operator": "X"}]},
    ),
    pod(
        volumes=[
            {"name": "a", "downwardAPI": {"items": [{"fieldRef": {"fieldPath": "metadata.name"}}]}},
            {"name": "b", "projected": {}},
            {"name": "c", "csi": {}},
            {"name": "d", "nfs": {}},
            {"name": "e", "configMap": {"items": [{"key": "a"}]}},
        ]
    ),
    pod(
        containers=[
            container(lifecycle={"preStop": {}}),
            container("b", lifecycle={"postStart": {"exec": {}}}),
            container("d", lifecycle={"preStop": {"httpGet": {"port": 0}}}),
        ]
    ),
    _volume(hostPath={}),
    _volume(local={}),
    _volume(local={"path": "/a"}),
    _volume(local={"path": "/a"}, nodeAffinity={}),
    _volume(hostPath=_HOST, nodeAffinity={"required": {}}),
    _volume(nfs={}),
    _volume(csi={}),
    _volume(hostPath=_HOST, nfs={"server": "a", "path": "/b"}),
    _volume(hostPath=_HOST, persistentVolumeReclaimPolicy="X", volumeMode="Y"),
    _volume(hostPath=_HOST, storageClassName="A"),
    made("storage.k8s.io/v1", "CSINode", "c", spec={"drivers": [{"name": "", "nodeID": ""}]}),
    made(
        "storage.k8s.io/v1",
        "CSINode",
        "c",
        spec={"drivers": [{"name": "a", "nodeID": "b"}, {"name": "a", "nodeID": "c"}]},
    ),
    made("storage.k8s.io/v1", "VolumeAttachment", "c", spec={}),
    made("storage.k8s.io/v1", "VolumeAttachment", "c", spec={"attacher": "a", "nodeName": "n", "source": {}}),
    made("v1", "Endpoints", "e", subsets=[{}]),
    made("v1", "Endpoints", "e", subsets=[{"addresses": [{"ip": "x"}], "ports": [{"port": 0}]}]),
    made("discovery.k8s.io/v1", "EndpointSlice", "e"),
    made("discovery.k8s.io/v1", "EndpointSlice", "e", addressType="X", endpoints=[{"addresses": []}]),
    made("discovery.k8s.io/v1", "EndpointSlice", "e", addressType="IPv4", endpoints=[{"addresses": ["x"]}]),
    _policy(ingress=[{"ports": [{"port": -1}, {"port": "A b", "protocol": "X"}]}]),
    _policy(policyTypes=["X"]),
    _policy(podSelector={"matchLabels": {"a b": "c"}}),
    made("storage.k8s.io/v1", "StorageClass", "s", provisioner="-1"),
    made("storage.k8s.io/v1", "StorageClass", "s", provisioner="A/b"),
    made(
        "v1",
        "PersistentVolumeClaim",
        "c",
        spec={
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}},
            "storageClassName": "A",
            "volumeMode": "X",
        },
    ),
    _limits({}),
    _limits({"type": "x"}),
    _limits({"type": "PersistentVolumeClaim"}),
    _limits({"type": "Container"}, {"type": "Container"}),
    _scope(scopeName="PriorityClass", operator="In"),
    _scope(scopeName="X", operator="In", values=["a"]),
    _scope(scopeName="PriorityClass", operator="X"),
    _scope(scopeName="BestEffort", operator="In", values=["a"]),
    _scope(scopeName="PriorityClass", operator="Exists", values=["a"]),
    made(
        "apps/v1",
        "StatefulSet",
        "s",
        spec={
            "serviceName": "-1",
            "selector": SELECTOR,
            "template": template(),
            "volumeClaimTemplates": [{"spec": {"accessModes": ["X"]}}],
            "ordinals": {"start": -1},
            "persistentVolumeClaimRetentionPolicy": {"whenDeleted": "X"},
        },
    ),
    _failure({}),
    _failure({"action": "X", "onExitCodes": {"operator": "Y", "values": []}}),
    _failure({"action": "FailIndex", "onPodConditions": [{"type": ""}]}),
    _failure({"action": "Ignore", "onExitCodes": {"operator": "In", "values": [0, 1, 1]}}),
    _failure(
        {
            "action": "Count",
            "onExitCodes": {"operator": "In", "values": [1], "containerName": "zz"},
            "onPodConditions": [{"type": "A"}],
        }
    ),
    _success(),
    _success({}),
    _success({"succeededCount": -1}),
    _success({"succeededIndexes": "x"}),
    made(
        "networking.k8s.io/v1",
        "Ingress",
        "i",
        spec={
            "rules": [
                {
                    "host": "A b",
                    "http": {
                        "paths": [
                            {"path": "x", "pathType": "Prefix", "backend": {"service": {"name": "s"}}},
                            {"pathType": "Exact", "backend": {}},
                        ]
                    },
                }
            ]
        },
    ),
    made(
        "rbac.authorization.k8s.io/v1",
        "ClusterRole",
        "a/b",
        rules=[{"verbs": ["get"], "nonResourceURLs": ["x"], "resources": ["pods"]}],
    ),
    job(successPolicy={"rules": [{"succeededIndexes": "0", "succeededCount": 1}]}),
    made("v1", "Service", "s", spec={"clusterIP": "x", "ports": [{"port": 80}]}),
    made("v1", "Service", "s", spec={"clusterIP": "None", "selector": {"a b": "c"}, "ports": [{"port": 80}]}),
    made(
        "rbac.authorization.k8s.io/v1",
        "ClusterRoleBinding",
        "r",
        roleRef={"apiGroup": "x", "kind": "ClusterRole", "name": "view"},
    ),
    made("apps/v1", "DaemonSet", "d", spec={"template": template()}),
    made("apps/v1", "StatefulSet", "d", spec={"template": template()}),
    made("apps/v1", "ReplicaSet", "d", spec={"template": template()}),
    # of the wrong type altogether
    pod(overhead={"cpu": {}}),
    pod(overhead=5),
    pod(activeDeadlineSeconds=1.5),
    pod(containers=[{"name": 1.5, "image": "x"}]),
    made("v1", "Secret", "s", data=[]),
    made("coordination.k8s.io/v1", "Lease", "l", spec={"renewTime": {}}),
]
