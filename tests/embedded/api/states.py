"""Objects in the middle of their lives, for what `kubectl get` says about them."""

from __future__ import annotations

from typing import Any

from tests.embedded.api.samples import SELECTOR, container, made, template

from windlass.model.unstructured import Unstructured

_THEN = "2026-01-02T03:04:05Z"


def _pod(name: str, status: Unstructured, **spec: Any) -> Unstructured:
    return {
        **made("v1", "Pod", name, spec={"containers": [container("a"), container("b")], **spec}),
        "status": status,
    }


def _container(
    name: str,
    state: Unstructured,
    *,
    ready: bool = False,
    restarts: int = 0,
    last: Unstructured | None = None,
) -> Unstructured:
    status = {
        "name": name,
        "image": "busybox",
        "imageID": "",
        "state": state,
        "ready": ready,
        "restartCount": restarts,
    }
    return {**status, "lastState": last} if last else status


RUNNING: Unstructured = {"running": {"startedAt": _THEN}}
DONE: Unstructured = {"terminated": {"exitCode": 0, "reason": "Completed", "finishedAt": _THEN}}
FAILED: Unstructured = {"terminated": {"exitCode": 1, "reason": "Error", "finishedAt": _THEN}}
_INIT = [container("i"), container("j")]

STATES: list[Unstructured] = [
    _pod("pending", {"phase": "Pending"}),
    _pod(
        "creating",
        {
            "phase": "Pending",
            "containerStatuses": [_container("a", {"waiting": {"reason": "ContainerCreating"}})],
        },
    ),
    _pod(
        "running",
        {
            "phase": "Running",
            "podIP": "10.1.2.3",
            "podIPs": [{"ip": "10.1.2.3"}],
            "conditions": [{"type": "Ready", "status": "True"}],
            "containerStatuses": [_container("a", RUNNING, ready=True), _container("b", RUNNING, ready=True)],
        },
        nodeName="n1",
    ),
    _pod(
        "half",
        {
            "phase": "Running",
            "containerStatuses": [_container("a", RUNNING, ready=True), _container("b", DONE)],
        },
    ),
    _pod(
        "half-ready",
        {
            "phase": "Running",
            "conditions": [{"type": "Ready", "status": "True"}],
            "containerStatuses": [_container("a", RUNNING, ready=True), _container("b", DONE)],
        },
    ),
    _pod(
        "half-failed",
        {"phase": "Running", "containerStatuses": [_container("a", DONE), _container("b", FAILED)]},
    ),
    _pod(
        "crashing",
        {
            "phase": "Running",
            "containerStatuses": [
                _container("a", {"waiting": {"reason": "CrashLoopBackOff"}}, restarts=5, last=FAILED),
                _container("b", RUNNING, ready=True),
            ],
        },
    ),
    _pod("done", {"phase": "Succeeded", "containerStatuses": [_container("a", DONE), _container("b", DONE)]}),
    _pod("failed", {"phase": "Failed", "containerStatuses": [_container("a", FAILED), _container("b", DONE)]}),
    _pod(
        "signal",
        {
            "phase": "Failed",
            "containerStatuses": [_container("a", {"terminated": {"exitCode": 137, "signal": 9}})],
        },
    ),
    _pod("code", {"phase": "Failed", "containerStatuses": [_container("a", {"terminated": {"exitCode": 3}})]}),
    _pod("evicted", {"phase": "Failed", "reason": "Evicted"}),
    _pod("outof", {"phase": "Failed", "reason": "OutOfnvidia.com/gpu"}),
    _pod(
        "init",
        {"phase": "Pending", "initContainerStatuses": [_container("i", DONE), _container("j", RUNNING)]},
        initContainers=_INIT,
    ),
    _pod(
        "init-waits",
        {
            "phase": "Pending",
            "initContainerStatuses": [_container("i", {"waiting": {"reason": "ImagePullBackOff"}})],
        },
        initContainers=_INIT,
    ),
    _pod(
        "init-fails",
        {"phase": "Pending", "initContainerStatuses": [_container("i", FAILED, restarts=2, last=FAILED)]},
        initContainers=_INIT,
    ),
    _pod(
        "beside",
        {
            "phase": "Running",
            "conditions": [{"type": "Initialized", "status": "True"}],
            "initContainerStatuses": [{**_container("s", RUNNING, ready=True), "started": True}],
            "containerStatuses": [_container("a", RUNNING, ready=True)],
        },
        initContainers=[{**container("s"), "restartPolicy": "Always"}],
    ),
    _pod(
        "gate",
        {"phase": "Pending", "conditions": [{"type": "x.y/z", "status": "True"}], "nominatedNodeName": "n2"},
        readinessGates=[{"conditionType": "x.y/z"}, {"conditionType": "x.y/w"}],
    ),
    made(
        "v1",
        "Node",
        "ready",
        metadata={"labels": {"node-role.kubernetes.io/worker": "", "kubernetes.io/role": "gpu"}},
        status={
            "conditions": [{"type": "Ready", "status": "True"}],
            "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}],
            "nodeInfo": {
                "kubeletVersion": "v1.36.3",
                "osImage": "Linux",
                "kernelVersion": "6.1",
                "containerRuntimeVersion": "containerd://2.0",
                "architecture": "amd64",
                "bootID": "",
                "kubeProxyVersion": "",
                "machineID": "",
                "operatingSystem": "linux",
                "systemUUID": "",
            },
        },
    ),
    made(
        "v1",
        "Node",
        "silent-node",
        spec={"unschedulable": True},
        status={"conditions": [{"type": "Ready", "status": "Unknown"}]},
    ),
    {
        **made(
            "v1",
            "Event",
            "old",
            metadata={"namespace": "default"},
            involvedObject={
                "kind": "Pod",
                "namespace": "default",
                "name": "p",
                "fieldPath": "spec.containers{a}",
            },
            reason="Pulled",
            message=" pulled \n",
            type="Normal",
            source={"component": "kubelet", "host": "n1"},
        ),
        "firstTimestamp": _THEN,
        "lastTimestamp": _THEN,
        "count": 3,
    },
    {
        **made(
            "v1",
            "Event",
            "new",
            metadata={"namespace": "default"},
            involvedObject={"kind": "Pod", "namespace": "default", "name": "p"},
            reason="FailedScheduling",
            message="0/4 nodes",
            type="Warning",
        ),
        "eventTime": "2026-01-02T03:04:05.000000Z",
        "reportingComponent": "windlass",
        "reportingInstance": "windlass-0",
        "action": "Scheduling",
        "series": {"count": 7, "lastObservedTime": "2026-01-02T03:04:06.000000Z"},
    },
    made(
        "v1",
        "Service",
        "balanced",
        spec={
            "type": "LoadBalancer",
            "ports": [{"port": 80, "name": "a"}, {"port": 81, "name": "b"}],
            "selector": {"a": "b"},
        },
    ),
    made("v1", "Service", "outside", spec={"type": "ExternalName", "externalName": "example.com"}),
    made(
        "storage.k8s.io/v1",
        "StorageClass",
        "chosen",
        metadata={"annotations": {"storageclass.kubernetes.io/is-default-class": "true"}},
        provisioner="x",
    ),
    made(
        "apps/v1",
        "Deployment",
        "exprs",
        spec={
            "replicas": 0,
            "paused": True,
            "selector": {
                "matchExpressions": [
                    {"key": "app", "operator": "In", "values": ["x", "y"]},
                    {"key": "zzz", "operator": "DoesNotExist"},
                ]
            },
            "template": template(),
        },
    ),
    made("apps/v1", "ReplicaSet", "none", spec={"replicas": 0, "selector": SELECTOR, "template": template()}),
]
