"""Objects that an API server refuses, for the wording of its refusals. Used on a real one and on ours."""

from __future__ import annotations

from tests.embedded.api.samples import SELECTOR, container, made, pod, template

from windlass.model.unstructured import Unstructured


def limited(limits: Unstructured, requests: Unstructured | None = None) -> Unstructured:
    resources = {"limits": limits} if requests is None else {"limits": limits, "requests": requests}
    return pod(containers=[container(resources=resources)])


def job(**spec: object) -> Unstructured:
    return made("batch/v1", "Job", "j", spec={"template": template(restartPolicy="Never"), **spec})


def deployment(**spec: object) -> Unstructured:
    return made("apps/v1", "Deployment", "d", spec={"selector": SELECTOR, "template": template(), **spec})


PODS: list[Unstructured] = [
    limited({"nvidia.com/gpu": "0.5"}),
    limited({"nvidia.com/gpu": "500m"}),
    limited({"nvidia.com/gpu": 1}, {"nvidia.com/gpu": 2}),
    limited({"nvidia.com/gpu": 2}, {"nvidia.com/gpu": 1}),
    pod(containers=[container(resources={"requests": {"nvidia.com/gpu": 1}})]),
    limited({"nvidia.com/gpu": -1}),
    limited({"cpu": "1"}, {"cpu": "2"}),
    limited({"gpu": 1}),
    limited({"nvidia.com/": 1}),
    limited({"cpu": "-1"}),
    limited({"requests.nvidia.com/gpu": "1"}),
    limited({"hugepages-2Mi": "1Mi"}, {"hugepages-2Mi": "2Mi"}),
    made("v1", "Pod", "p", spec={}),
    made("v1", "Pod", "p"),
    made("v1", "Pod", "Bad_Name", spec=pod()["spec"]),
    made("v1", "Pod", "x" * 254, spec=pod()["spec"]),
    made("v1", "Pod", "p", metadata={"labels": {"a b": "c"}}, spec=pod()["spec"]),
    made("v1", "Pod", "p", metadata={"labels": {"a": "-c"}}, spec=pod()["spec"]),
    made("v1", "Pod", "p", metadata={"labels": {"a/b/c": "x" * 64}}, spec=pod()["spec"]),
    made("v1", "Pod", "p", metadata={"annotations": {"bad key": "x"}}, spec=pod()["spec"]),
    made("v1", "Pod", "p", metadata={"annotations": {"a": "x" * 300000}}, spec=pod()["spec"]),
    made("v1", "Pod", "p", metadata={"finalizers": ["bad"]}, spec=pod()["spec"]),
    made("v1", "Pod", "p", metadata={"finalizers": ["foo bar", "c d", "", "a/b/c"]}, spec=pod()["spec"]),
    made("v1", "Pod", "p", metadata={"ownerReferences": [{"name": "a"}]}, spec=pod()["spec"]),
    pod(containers=[{"image": "x"}]),
    pod(containers=[{"name": "a"}]),
    pod(containers=[container("A")]),
    pod(containers=[container(), container()]),
    pod(containers=[container(image=" x")]),
    pod(initContainers=[container()]),
    pod(restartPolicy="Sometimes"),
    pod(dnsPolicy="x"),
    pod(terminationGracePeriodSeconds=-1),
    pod(activeDeadlineSeconds=0),
    pod(containers=[container(imagePullPolicy="x")]),
    pod(containers=[container(terminationMessagePolicy="x")]),
    pod(containers=[container(ports=[{"containerPort": 0}])]),
    pod(containers=[container(ports=[{"containerPort": 70000, "protocol": "X"}])]),
    pod(containers=[container(ports=[{"containerPort": 80, "name": "A"}])]),
    pod(containers=[container(env=[{"name": "a=b"}])]),
    pod(containers=[container(env=[{"value": "x"}])]),
    pod(
        containers=[
            container(env=[{"name": "a", "value": "x", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}])
        ]
    ),
    pod(containers=[container(env=[{"name": "a", "valueFrom": {"fieldRef": {"fieldPath": "spec.foo"}}}])]),
    pod(containers=[container(volumeMounts=[{"name": "a", "mountPath": "/a"}])]),
    pod(containers=[container(volumeMounts=[{"name": "a"}])], volumes=[{"name": "a"}]),
    pod(volumes=[{"name": "a"}, {"name": "a"}]),
    pod(volumes=[{"name": "A"}]),
    pod(volumes=[{"name": "a", "emptyDir": {}, "hostPath": {"path": "/x"}}]),
    pod(volumes=[{"name": "a", "hostPath": {}}]),
    pod(volumes=[{"name": "a", "persistentVolumeClaim": {}}]),
    pod(containers=[container(livenessProbe={"periodSeconds": 1})]),
    pod(containers=[container(livenessProbe={"httpGet": {"port": 0}})]),
    pod(containers=[container(livenessProbe={"exec": {}})]),
    pod(containers=[container(livenessProbe={"tcpSocket": {"port": 1}, "successThreshold": 2})]),
    pod(tolerations=[{"operator": "Equal"}]),
    pod(tolerations=[{"key": "a", "operator": "Exists", "value": "b"}]),
    pod(tolerations=[{"key": "a", "effect": "X"}]),
    pod(tolerations=[{"key": "a", "operator": "X"}]),
    pod(tolerations=[{"key": "a", "effect": "NoSchedule", "tolerationSeconds": 1}]),
    pod(nodeSelector={"a b": "c"}),
    pod(nodeSelector={"a": "b c"}),
    pod(
        affinity={
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "In"}]}]
                }
            }
        }
    ),
    pod(affinity={"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {}}}),
    pod(affinity={"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"labelSelector": SELECTOR}]}}),
    pod(topologySpreadConstraints=[{"maxSkew": 0, "topologyKey": "", "whenUnsatisfiable": "X"}]),
    pod(schedulingGates=[{"name": "a b"}]),
    pod(schedulingGates=[{"name": "a"}, {"name": "a"}]),
    pod(schedulingGates=[{"name": "a"}], nodeName="n"),
    pod(hostname="A"),
    pod(serviceAccountName="A"),
    pod(nodeName="A b"),
    pod(priorityClassName="nope"),
    pod(priority=5),
    pod(hostNetwork=True, containers=[container(ports=[{"containerPort": 80, "hostPort": 81}])]),
    pod(overhead={"cpu": "1"}),
    pod(imagePullSecrets=[{}]),
]

WORKLOADS: list[Unstructured] = [
    deployment(selector={"matchLabels": {"app": "y"}}),
    deployment(selector=None),
    deployment(selector={}),
    deployment(selector={"matchLabels": {"a b": "c"}}),
    deployment(selector={"matchExpressions": [{"key": "a", "operator": "X"}]}),
    deployment(replicas=-1),
    deployment(template=template(restartPolicy="Never")),
    deployment(template=template(containers=[])),
    deployment(template=template(activeDeadlineSeconds=5)),
    deployment(strategy={"type": "X"}),
    deployment(strategy={"type": "Recreate", "rollingUpdate": {"maxSurge": 1}}),
    deployment(strategy={"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 0}}),
    deployment(strategy={"rollingUpdate": {"maxSurge": "abc"}}),
    deployment(minReadySeconds=-1),
    deployment(progressDeadlineSeconds=0),
    deployment(revisionHistoryLimit=-1),
    made("apps/v1", "Deployment", "d"),
    made("apps/v1", "ReplicaSet", "d", spec={"selector": SELECTOR}),
    made("apps/v1", "ReplicaSet", "d", spec={"selector": {"matchLabels": {"a": "b"}}, "template": template()}),
    made("apps/v1", "DaemonSet", "d", spec={"selector": SELECTOR, "template": template(restartPolicy="Never")}),
    made(
        "apps/v1",
        "DaemonSet",
        "d",
        spec={
            "selector": {"matchLabels": {"a": "b"}},
            "template": template(),
            "updateStrategy": {"type": "X"},
        },
    ),
    made(
        "apps/v1",
        "StatefulSet",
        "d",
        spec={"selector": SELECTOR, "template": template(), "podManagementPolicy": "X", "replicas": -1},
    ),
    made(
        "apps/v1",
        "StatefulSet",
        "d",
        spec={
            "selector": {"matchLabels": {"a": "b"}},
            "template": template(),
            "updateStrategy": {"type": "X"},
        },
    ),
    job(template=template()),
    job(template=template(restartPolicy="Always")),
    job(parallelism=-1),
    job(completions=-1, backoffLimit=-1),
    job(completionMode="Indexed"),
    job(completionMode="X"),
    job(ttlSecondsAfterFinished=-1),
    job(activeDeadlineSeconds=-1),
    job(backoffLimitPerIndex=1),
    job(maxFailedIndexes=1),
    job(selector=SELECTOR),
    job(manualSelector=True),
    job(podReplacementPolicy="X"),
    job(template={}),
    made("batch/v1", "Job", "j"),
    made("batch/v1", "Job", "x" * 64, spec=job()["spec"]),
    made(
        "batch/v1",
        "CronJob",
        "c",
        spec={"schedule": "x", "jobTemplate": {"spec": {"template": template(restartPolicy="Never")}}},
    ),
    made(
        "batch/v1",
        "CronJob",
        "c",
        spec={"jobTemplate": {"spec": {"template": template()}}, "concurrencyPolicy": "X"},
    ),
]

OTHERS: list[Unstructured] = [
    made("coordination.k8s.io/v1", "Lease", "l", spec={"renewTime": "2026-01-02T03:04:05Z"}),
    made("coordination.k8s.io/v1", "Lease", "l", spec={"renewTime": "yesterday"}),
    made("v1", "ReplicationController", "r", spec={}),
    made("v1", "ConfigMap", "c.d", data={"": "x"}),
    made("v1", "ConfigMap", "c", data={"a b": "x"}),
    made("v1", "ConfigMap", "c", data={"a": "x"}, binaryData={"a": "aGk="}),
    made("v1", "ConfigMap", "c", data={"a": "x" * (1024 * 1024 + 1)}),
    made("v1", "Secret", "c", data={"a b": "aGk="}),
    made("v1", "Secret", "c", type="kubernetes.io/tls"),
    made("v1", "Secret", "c", type="kubernetes.io/dockerconfigjson"),
    made("v1", "ServiceAccount", "A"),
    made("v1", "Service", "1a", spec={"ports": [{"port": 80}]}),
    made("v1", "Service", "a", spec={"ports": []}),
    made("v1", "Service", "a", spec={"ports": [{"port": 0}]}),
    made("v1", "Service", "a", spec={"ports": [{"port": 80}, {"port": 81}]}),
    made("v1", "Service", "a", spec={"type": "X", "ports": [{"port": 80}]}),
    made("v1", "Service", "a", spec={"type": "ExternalName"}),
    made("v1", "ResourceQuota", "q", spec={"hard": {"pods": "-1"}}),
    made("v1", "ResourceQuota", "q", spec={"hard": {"pods": "0.5"}}),
    made("v1", "ResourceQuota", "q", spec={"hard": {"nope": "1"}}),
    made("v1", "ResourceQuota", "q", spec={"hard": {"requests.nvidia.com/gpu": "0.5"}}),
    made("v1", "ResourceQuota", "q", spec={"hard": {"nvidia.com/gpu": "5"}}),
    made("v1", "ResourceQuota", "q", spec={"hard": {"limits.nvidia.com/gpu": "5"}}),
    made("v1", "ResourceQuota", "q", spec={"hard": {"pods": "5"}, "scopes": ["X"]}),
    made("v1", "ResourceQuota", "q", spec={"hard": {"services": "5"}, "scopes": ["Terminating"]}),
    made(
        "v1",
        "LimitRange",
        "l",
        spec={"limits": [{"type": "Container", "max": {"cpu": "1"}, "min": {"cpu": "2"}}]},
    ),
    made(
        "v1",
        "LimitRange",
        "l",
        spec={"limits": [{"type": "Container", "default": {"cpu": "3"}, "max": {"cpu": "2"}}]},
    ),
    made("v1", "LimitRange", "l", spec={"limits": [{"type": "Pod", "default": {"cpu": "3"}}]}),
    made("v1", "PersistentVolumeClaim", "c", spec={}),
    made(
        "v1",
        "PersistentVolumeClaim",
        "c",
        spec={"accessModes": ["X"], "resources": {"requests": {"storage": "0"}}},
    ),
    made(
        "policy/v1",
        "PodDisruptionBudget",
        "b",
        spec={"minAvailable": 1, "maxUnavailable": 1, "selector": SELECTOR},
    ),
    made("policy/v1", "PodDisruptionBudget", "b", spec={"minAvailable": -1}),
    made("policy/v1", "PodDisruptionBudget", "b", spec={"minAvailable": "abc"}),
    made(
        "policy/v1",
        "PodDisruptionBudget",
        "b",
        spec={"maxUnavailable": "150%", "unhealthyPodEvictionPolicy": "X"},
    ),
    made("coordination.k8s.io/v1", "Lease", "l", spec={"leaseDurationSeconds": 0, "leaseTransitions": -1}),
    made("rbac.authorization.k8s.io/v1", "Role", "r", rules=[{"apiGroups": [""], "resources": ["pods"]}]),
    made("rbac.authorization.k8s.io/v1", "Role", "r", rules=[{"resources": ["pods"], "verbs": ["get"]}]),
    made("rbac.authorization.k8s.io/v1", "RoleBinding", "r", roleRef={"kind": "X", "name": ""}),
    made(
        "rbac.authorization.k8s.io/v1",
        "RoleBinding",
        "r",
        roleRef={"kind": "Role", "name": "a"},
        subjects=[{"kind": "X", "name": ""}],
    ),
    made("v1", "Event", "e", metadata={"namespace": "default"}, involvedObject={"namespace": "other"}),
]

CLUSTER_WIDE: list[Unstructured] = [
    made("v1", "Namespace", "a.b"),
    made("v1", "Node", "n", spec={"taints": [{"key": "a", "effect": "X"}]}),
    made("v1", "Node", "n", spec={"taints": [{"key": "a b", "value": "b c", "effect": "NoSchedule"}]}),
    made("v1", "Node", "n", spec={"taints": [{"key": "a"}]}),
    made(
        "v1",
        "Node",
        "n",
        spec={"taints": [{"key": "a", "effect": "NoExecute"}, {"key": "a", "effect": "NoExecute"}]},
    ),
    made("v1", "Node", "n", spec={"podCIDR": "x"}),
    made("v1", "Node", "n", status={"capacity": {"nvidia.com/gpu": "0.5"}}),
    made("v1", "PersistentVolume", "p", spec={}),
    made(
        "v1",
        "PersistentVolume",
        "p",
        spec={"capacity": {"cpu": "1"}, "accessModes": ["X"], "hostPath": {"path": "/x"}},
    ),
    made("scheduling.k8s.io/v1", "PriorityClass", "p", value=2000000000),
    made("scheduling.k8s.io/v1", "PriorityClass", "system-p", value=2),
    made("scheduling.k8s.io/v1", "PriorityClass", "p", value=2, preemptionPolicy="X"),
    made("node.k8s.io/v1", "RuntimeClass", "r"),
    made("storage.k8s.io/v1", "StorageClass", "s"),
    made("storage.k8s.io/v1", "StorageClass", "s", provisioner="a", reclaimPolicy="X", volumeBindingMode="Y"),
]

NAMESPACED = [*PODS, *WORKLOADS, *OTHERS]
