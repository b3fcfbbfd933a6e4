"""Objects of every kind that the embedded server serves: silent ones, to see what is filled in, and talkative ones.

Used side by side on a real API server (`test_against_kubernetes.py`) and alone by the other tests here.
"""

from __future__ import annotations

from typing import Any

from windlass.model.unstructured import Unstructured


def made(api_version: str, kind: str, name: str, **fields: Any) -> Unstructured:
    metadata = {"name": name, **fields.pop("metadata", {})}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **fields}


def pod(name: str = "p", **spec: Any) -> Unstructured:
    """A pod with one container, unless told otherwise."""
    return made("v1", "Pod", name, spec={"containers": [{"name": "main", "image": "busybox"}], **spec})


def container(name: str = "main", **fields: Any) -> Unstructured:
    return {"name": name, "image": "busybox:1.36", **fields}


def template(**spec: Any) -> Unstructured:
    return {"metadata": {"labels": {"app": "x"}}, "spec": {"containers": [container()], **spec}}


SELECTOR = {"matchLabels": {"app": "x"}}

PODS = [
    pod("silent"),
    pod(
        "gpu",
        containers=[container(resources={"limits": {"nvidia.com/gpu": 1, "cpu": "0.5", "memory": "1024Mi"}})],
        tolerations=[{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}],
        nodeSelector={"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"},
        restartPolicy="Never",
        hostNetwork=False,
        terminationGracePeriodSeconds=0,
    ),
    pod(
        "guaranteed",
        containers=[container(resources={"limits": {"cpu": "1", "memory": "1Gi"}})],
        initContainers=[container("init", resources={"limits": {"cpu": 1, "memory": "1Gi"}})],
    ),
    pod("burstable", containers=[container(resources={"requests": {"cpu": "100m"}})]),
    pod(
        "probes",
        hostNetwork=True,
        containers=[
            container(
                ports=[{"containerPort": 80, "name": "web"}],
                livenessProbe={"httpGet": {"port": 80}},
                readinessProbe={"tcpSocket": {"port": "web"}, "periodSeconds": 3},
                startupProbe={"grpc": {"port": 80}},
                lifecycle={"preStop": {"httpGet": {"port": 80}}},
                env=[{"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}],
                securityContext={"privileged": False},
            )
        ],
    ),
    pod(
        "volumes",
        serviceAccountName="default",
        volumes=[
            {"name": "a"},
            {"name": "b", "configMap": {"name": "x"}},
            {"name": "c", "secret": {"secretName": "x"}},
            {"name": "d", "hostPath": {"path": "/tmp"}},
            {"name": "e", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}},
            {
                "name": "f",
                "downwardAPI": {"items": [{"path": "l", "fieldRef": {"fieldPath": "metadata.labels"}}]},
            },
            {"name": "g", "persistentVolumeClaim": {"claimName": "x", "readOnly": False}},
        ],
        containers=[container(volumeMounts=[{"name": "a", "mountPath": "/a", "readOnly": False}])],
    ),
    pod(
        "placed",
        affinity={
            "podAntiAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": [
                    {"labelSelector": SELECTOR, "topologyKey": "kubernetes.io/hostname"}
                ]
            }
        },
        topologySpreadConstraints=[
            {
                "maxSkew": 1,
                "topologyKey": "zone",
                "whenUnsatisfiable": "ScheduleAnyway",
                "labelSelector": SELECTOR,
            }
        ],
        schedulingGates=[{"name": "example.com/hold"}],
        serviceAccountName="default",
        securityContext={"runAsUser": 0},
    ),
]

WORKLOADS = [
    made("apps/v1", "Deployment", "silent", spec={"selector": SELECTOR, "template": template()}),
    made(
        "apps/v1",
        "Deployment",
        "recreate",
        spec={
            "replicas": 0,
            "paused": False,
            "selector": SELECTOR,
            "strategy": {"type": "Recreate"},
            "template": template(),
        },
    ),
    made("apps/v1", "ReplicaSet", "silent", spec={"selector": SELECTOR, "template": template()}),
    made("apps/v1", "DaemonSet", "silent", spec={"selector": SELECTOR, "template": template()}),
    made(
        "apps/v1",
        "StatefulSet",
        "silent",
        spec={
            "serviceName": "s",
            "selector": SELECTOR,
            "template": template(containers=[container(volumeMounts=[{"name": "data", "mountPath": "/data"}])]),
            "volumeClaimTemplates": [
                {
                    "metadata": {"name": "data"},
                    "spec": {
                        "accessModes": ["ReadWriteOnce"],
                        "resources": {"requests": {"storage": "1Gi"}},
                    },
                }
            ],
        },
    ),
    made("apps/v1", "ControllerRevision", "silent", revision=1, data={"spec": {"a": 1}}),
    made("batch/v1", "Job", "silent", spec={"template": template(restartPolicy="Never")}),
    made(
        "batch/v1",
        "Job",
        "indexed",
        spec={
            "completionMode": "Indexed",
            "completions": 3,
            "parallelism": 2,
            "backoffLimitPerIndex": 1,
            "suspend": True,
            "ttlSecondsAfterFinished": 60,
            "template": template(restartPolicy="Never"),
        },
    ),
    made(
        "batch/v1",
        "CronJob",
        "silent",
        spec={
            "schedule": "*/5 * * * *",
            "jobTemplate": {"spec": {"template": template(restartPolicy="OnFailure")}},
        },
    ),
]

OTHERS = [
    made("v1", "ReplicationController", "silent", spec={"replicas": 0, "template": template()}),
    made(
        "networking.k8s.io/v1",
        "Ingress",
        "silent",
        spec={
            "rules": [
                {
                    "host": "a.example.com",
                    "http": {
                        "paths": [
                            {
                                "path": "/",
                                "pathType": "Prefix",
                                "backend": {"service": {"name": "s", "port": {"number": 80}}},
                            }
                        ]
                    },
                }
            ]
        },
    ),
    made(
        "networking.k8s.io/v1",
        "NetworkPolicy",
        "silent",
        spec={"podSelector": SELECTOR, "ingress": [{"ports": [{"port": 80}]}]},
    ),
    made("v1", "ConfigMap", "silent"),
    made("v1", "ConfigMap", "full", data={"a": "1"}, binaryData={"b": "aGk="}, immutable=True),
    made("v1", "Secret", "silent", stringData={"a": "1"}, data={"b": "aGk="}),
    made("v1", "ServiceAccount", "silent"),
    made(
        "v1",
        "Service",
        "headless",
        spec={"clusterIP": "None", "selector": {"app": "x"}, "ports": [{"port": 80}]},
    ),
    made(
        "v1",
        "Endpoints",
        "silent",
        subsets=[{"addresses": [{"ip": "10.1.2.3"}], "ports": [{"port": 80}]}],
    ),
    made(
        "discovery.k8s.io/v1",
        "EndpointSlice",
        "silent",
        addressType="IPv4",
        endpoints=[{"addresses": ["10.1.2.3"]}],
        ports=[{"port": 80}],
    ),
    made(
        "v1",
        "Event",
        "silent",
        metadata={"namespace": "default"},
        involvedObject={"kind": "Pod", "namespace": "default", "name": "p"},
        reason="Tested",
        message="a test",
        type="Normal",
    ),
    made(
        "v1",
        "LimitRange",
        "silent",
        spec={"limits": [{"type": "Container", "max": {"cpu": "4"}, "min": {"memory": "1Mi"}}]},
    ),
    made("v1", "ResourceQuota", "silent", spec={"hard": {"requests.nvidia.com/gpu": "8", "pods": 1000}}),
    made(
        "v1",
        "PersistentVolumeClaim",
        "silent",
        spec={"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1024Mi"}}},
    ),
    made(
        "policy/v1",
        "PodDisruptionBudget",
        "silent",
        spec={"minAvailable": "50%", "selector": SELECTOR},
    ),
    made("coordination.k8s.io/v1", "Lease", "silent", spec={"holderIdentity": "a", "leaseDurationSeconds": 15}),
    made(
        "rbac.authorization.k8s.io/v1",
        "Role",
        "silent",
        rules=[{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}],
    ),
    made(
        "rbac.authorization.k8s.io/v1",
        "RoleBinding",
        "silent",
        roleRef={"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "silent"},
        subjects=[
            {"kind": "User", "name": "a"},
            {"kind": "ServiceAccount", "name": "b", "namespace": "default"},
        ],
    ),
]

CLUSTER_WIDE = [
    made("v1", "Namespace", "silent"),
    made("v1", "Node", "silent"),
    made(
        "v1",
        "Node",
        "full",
        metadata={"labels": {"a": "b"}},
        spec={"taints": [{"key": "a", "effect": "NoSchedule"}], "unschedulable": True},
        status={"capacity": {"cpu": "8", "nvidia.com/gpu": 8, "memory": "64Gi", "pods": 110}},
    ),
    made(
        "v1",
        "PersistentVolume",
        "silent",
        spec={"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/tmp"}},
    ),
    made("scheduling.k8s.io/v1", "PriorityClass", "silent", value=1000),
    made("node.k8s.io/v1", "RuntimeClass", "silent", handler="nvidia"),
    made("storage.k8s.io/v1", "StorageClass", "silent", provisioner="example.com/x"),
    made("storage.k8s.io/v1", "CSIDriver", "silent.example.com"),
    made("storage.k8s.io/v1", "CSINode", "silent", spec={"drivers": [{"name": "d", "nodeID": "n"}]}),
    made(
        "storage.k8s.io/v1",
        "VolumeAttachment",
        "silent",
        spec={"attacher": "a", "nodeName": "n", "source": {"persistentVolumeName": "p"}},
    ),
    made(
        "rbac.authorization.k8s.io/v1",
        "ClusterRole",
        "silent",
        rules=[{"apiGroups": ["apps"], "resources": ["*"], "verbs": ["*"]}],
    ),
    made(
        "rbac.authorization.k8s.io/v1",
        "ClusterRoleBinding",
        "silent",
        roleRef={"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "silent"},
        subjects=[{"kind": "Group", "name": "a"}],
    ),
]

NAMESPACED = [*PODS, *WORKLOADS, *OTHERS]
