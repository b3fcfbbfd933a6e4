"""Talkative objects: fields that few people use, to see that each of them comes back as it should."""

from __future__ import annotations

from tests.embedded.api.samples import SELECTOR, container, made, pod, template

from windlass.model.unstructured import Unstructured

RICH_NAMESPACED: list[Unstructured] = [
    pod(
        "rich",
        serviceAccountName="default",
        automountServiceAccountToken=False,
        shareProcessNamespace=True,
        hostname="h",
        subdomain="s",
        setHostnameAsFQDN=True,
        hostAliases=[{"ip": "10.0.0.9", "hostnames": ["a", "b"]}],
        dnsPolicy="None",
        dnsConfig={"nameservers": ["10.0.0.10"], "options": [{"name": "ndots", "value": "2"}]},
        securityContext={"runAsUser": 1000, "fsGroup": 2000, "seccompProfile": {"type": "RuntimeDefault"}},
        initContainers=[
            {**container("side"), "restartPolicy": "Always"},
            container("once", command=["true"]),
        ],
        containers=[
            container(
                stdin=True,
                stdinOnce=False,
                tty=True,
                workingDir="/w",
                env=[
                    {"name": "A", "value": ""},
                    {"name": "CPU", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}},
                    {
                        "name": "KEY",
                        "valueFrom": {"secretKeyRef": {"name": "s", "key": "k", "optional": False}},
                    },
                ],
                envFrom=[{"prefix": "P_", "configMapRef": {"name": "c"}}],
                resources={"limits": {"cpu": "1.0", "memory": "1e9", "ephemeral-storage": "1.5Gi"}},
                securityContext={
                    "capabilities": {"add": ["SYS_ADMIN"], "drop": []},
                    "allowPrivilegeEscalation": True,
                    "readOnlyRootFilesystem": False,
                },
                lifecycle={"preStop": {"sleep": {"seconds": 5}}, "postStart": {"exec": {"command": ["x"]}}},
                volumeMounts=[{"name": "shm", "mountPath": "/dev/shm", "mountPropagation": "None"}],
            )
        ],
        volumes=[
            {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "1024Mi"}},
            {
                "name": "made",
                "ephemeral": {
                    "volumeClaimTemplate": {
                        "spec": {
                            "accessModes": ["ReadWriteOnce"],
                            "resources": {"requests": {"storage": "1Gi"}},
                        }
                    }
                },
            },
            {"name": "net", "nfs": {"server": "n", "path": "/x", "readOnly": False}},
            {"name": "plug", "csi": {"driver": "d.example.com", "readOnly": False}},
            {
                "name": "all",
                "projected": {
                    "sources": [
                        {"configMap": {"name": "c", "items": [{"key": "k", "path": "p"}]}},
                        {
                            "downwardAPI": {
                                "items": [
                                    {
                                        "path": "m",
                                        "resourceFieldRef": {
                                            "containerName": "main",
                                            "resource": "limits.memory",
                                        },
                                    }
                                ]
                            }
                        },
                    ]
                },
            },
        ],
        affinity={
            "nodeAffinity": {
                "preferredDuringSchedulingIgnoredDuringExecution": [
                    {
                        "weight": 5,
                        "preference": {"matchExpressions": [{"key": "a", "operator": "Gt", "values": ["3"]}]},
                    }
                ]
            },
            "podAffinity": {
                "preferredDuringSchedulingIgnoredDuringExecution": [
                    {
                        "weight": 1,
                        "podAffinityTerm": {
                            "topologyKey": "rack",
                            "labelSelector": {},
                            "namespaceSelector": {},
                        },
                    }
                ]
            },
        },
        topologySpreadConstraints=[
            {
                "maxSkew": 2,
                "topologyKey": "rack",
                "whenUnsatisfiable": "DoNotSchedule",
                "labelSelector": SELECTOR,
                "minDomains": 2,
                "nodeAffinityPolicy": "Ignore",
                "matchLabelKeys": ["pod-template-hash"],
            }
        ],
        tolerations=[
            {"operator": "Exists", "effect": "NoExecute"},
            {"key": "a", "value": "b", "effect": "NoExecute", "tolerationSeconds": 0},
        ],
        readinessGates=[{"conditionType": "example.com/ready"}],
        enableServiceLinks=False,
        imagePullSecrets=[{"name": "reg"}],
        preemptionPolicy="PreemptLowerPriority",
    ),
    pod("pod-level", resources={"limits": {"cpu": "2", "memory": "2Gi"}}),
    made(
        "apps/v1",
        "Deployment",
        "rolling",
        spec={
            "replicas": 3,
            "minReadySeconds": 5,
            "revisionHistoryLimit": 0,
            "progressDeadlineSeconds": 60,
            "selector": SELECTOR,
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}},
            "template": template(),
        },
    ),
    made(
        "apps/v1",
        "StatefulSet",
        "rich",
        spec={
            "serviceName": "s",
            "replicas": 2,
            "podManagementPolicy": "Parallel",
            "ordinals": {"start": 3},
            "updateStrategy": {"type": "OnDelete"},
            "persistentVolumeClaimRetentionPolicy": {"whenDeleted": "Delete"},
            "selector": SELECTOR,
            "template": template(),
        },
    ),
    made(
        "apps/v1",
        "DaemonSet",
        "on-delete",
        spec={
            "selector": SELECTOR,
            "updateStrategy": {"type": "OnDelete"},
            "template": template(hostNetwork=True),
        },
    ),
    made(
        "batch/v1",
        "Job",
        "policies",
        spec={
            "completionMode": "Indexed",
            "completions": 4,
            "parallelism": 4,
            "activeDeadlineSeconds": 100,
            "backoffLimit": 0,
            "podFailurePolicy": {
                "rules": [
                    {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]},
                    {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}},
                ]
            },
            "successPolicy": {"rules": [{"succeededIndexes": "0", "succeededCount": 1}]},
            "template": template(restartPolicy="Never"),
        },
    ),
    made(
        "batch/v1",
        "Job",
        "own-selector",
        spec={
            "manualSelector": True,
            "selector": SELECTOR,
            "template": template(restartPolicy="OnFailure"),
        },
    ),
    made(
        "batch/v1",
        "CronJob",
        "rich",
        spec={
            "schedule": "@daily",
            "timeZone": "Etc/UTC",
            "suspend": True,
            "concurrencyPolicy": "Forbid",
            "startingDeadlineSeconds": 10,
            "jobTemplate": {
                "metadata": {"labels": {"a": "b"}},
                "spec": {"backoffLimit": 1, "template": template(restartPolicy="Never")},
            },
        },
    ),
    made(
        "v1",
        "Secret",
        "tls",
        type="kubernetes.io/tls",
        data={"tls.crt": "aGk=", "tls.key": "aGk="},
        immutable=False,
    ),
    made(
        "v1",
        "ServiceAccount",
        "rich",
        secrets=[{"name": "a"}],
        imagePullSecrets=[{"name": "b"}],
        automountServiceAccountToken=False,
    ),
    made(
        "v1",
        "Service",
        "sticky",
        spec={
            "clusterIP": "None",
            "sessionAffinity": "ClientIP",
            "publishNotReadyAddresses": True,
            "ports": [{"name": "a", "port": 80, "targetPort": "web", "protocol": "UDP", "appProtocol": "http"}],
        },
    ),
    made(
        "v1",
        "LimitRange",
        "rich",
        spec={
            "limits": [
                {"type": "Pod", "max": {"cpu": "8", "memory": "1Ti"}},
                {
                    "type": "Container",
                    "default": {"cpu": "0.5"},
                    "maxLimitRequestRatio": {"cpu": "4"},
                    "min": {"cpu": "10m"},
                },
                {"type": "PersistentVolumeClaim", "min": {"storage": "1Gi"}},
            ]
        },
    ),
    made(
        "v1",
        "ResourceQuota",
        "scoped",
        spec={
            "hard": {"pods": "9", "requests.memory": "1.5Gi", "limits.cpu": "10000m"},
            "scopeSelector": {
                "matchExpressions": [{"scopeName": "PriorityClass", "operator": "In", "values": ["none-such"]}]
            },
        },
    ),
    made(
        "v1",
        "PersistentVolumeClaim",
        "rich",
        spec={
            "accessModes": ["ReadWriteMany"],
            "resources": {"requests": {"storage": "1.5Gi"}},
            "storageClassName": "",
            "volumeMode": "Block",
            "selector": SELECTOR,
        },
    ),
    made(
        "policy/v1",
        "PodDisruptionBudget",
        "rich",
        spec={"maxUnavailable": 0, "selector": SELECTOR, "unhealthyPodEvictionPolicy": "AlwaysAllow"},
    ),
    made(
        "coordination.k8s.io/v1",
        "Lease",
        "rich",
        spec={
            "holderIdentity": "a",
            "leaseDurationSeconds": 15,
            "acquireTime": "2026-01-02T03:04:05.123456Z",
            "renewTime": "2026-01-02T05:04:05.000000+02:00",
            "leaseTransitions": 0,
        },
    ),
    made(
        "events.k8s.io/v1",
        "Event",
        "newer",
        metadata={"namespace": "default"},
        eventTime="2026-01-02T03:04:05.123456Z",
        reportingController="example.com/x",
        reportingInstance="x-0",
        action="Did",
        reason="Done",
        note="a note",
        type="Normal",
        regarding={"kind": "Pod", "namespace": "default", "name": "p"},
    ),
]

RICH_CLUSTER_WIDE: list[Unstructured] = [
    made(
        "v1",
        "Node",
        "rich",
        spec={"podCIDR": "10.5.0.0/24", "podCIDRs": ["10.5.0.0/24"], "providerID": "x://y"},
        status={
            "capacity": {"cpu": "8", "memory": "16Gi", "nvidia.com/gpu": "4"},
            "allocatable": {"cpu": "7500m", "memory": "15Gi", "nvidia.com/gpu": "4"},
            "addresses": [{"type": "InternalIP", "address": "10.0.0.3"}],
            "images": [{"names": ["a:1"], "sizeBytes": 5}],
        },
    ),
    made(
        "v1",
        "PersistentVolume",
        "local",
        spec={
            "capacity": {"storage": "10Gi"},
            "accessModes": ["ReadWriteOnce"],
            "persistentVolumeReclaimPolicy": "Delete",
            "storageClassName": "fast",
            "local": {"path": "/mnt"},
            "nodeAffinity": {
                "required": {
                    "nodeSelectorTerms": [{"matchExpressions": [{"key": "h", "operator": "In", "values": ["n"]}]}]
                }
            },
        },
    ),
    made(
        "scheduling.k8s.io/v1",
        "PriorityClass",
        "rich",
        value=-5,
        globalDefault=False,
        preemptionPolicy="Never",
        description="lowest",
    ),
    made(
        "node.k8s.io/v1",
        "RuntimeClass",
        "rich",
        handler="nvidia",
        overhead={"podFixed": {"cpu": "0.25", "memory": "120Mi"}},
        scheduling={"nodeSelector": {"a": "b"}, "tolerations": [{"operator": "Exists"}]},
    ),
    made(
        "storage.k8s.io/v1",
        "StorageClass",
        "rich",
        provisioner="x",
        parameters={"a": "b"},
        reclaimPolicy="Retain",
        volumeBindingMode="WaitForFirstConsumer",
        allowVolumeExpansion=True,
        mountOptions=["ro"],
    ),
    made(
        "storage.k8s.io/v1",
        "CSIDriver",
        "rich.example.com",
        spec={
            "attachRequired": False,
            "volumeLifecycleModes": ["Ephemeral"],
            "tokenRequests": [{"audience": ""}],
        },
    ),
    made(
        "storage.k8s.io/v1",
        "CSINode",
        "rich",
        spec={"drivers": [{"name": "d", "nodeID": "n", "topologyKeys": ["t"], "allocatable": {"count": 0}}]},
    ),
    made(
        "rbac.authorization.k8s.io/v1",
        "ClusterRole",
        "rich",
        rules=[{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}],
    ),
]
