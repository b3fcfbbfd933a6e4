"""What is kept of a real cluster's objects: enough for every view, and nothing that no view shows."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from windlass.cluster.delta import Deleted, Put
from windlass.web.changes import bring_up_view
from windlass.web.cluster_objects import ClusterObjects, _decode, trimmed_pod
from windlass.web.nodes import node_view
from windlass.web.page_state import PageState
from windlass.web.pods import pod_record

NODE = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "n", "labels": {"nvidia.com/gpu.product": "H100", "windlass.dev/rack": "r1"}},
    "spec": {"taints": [{"key": "a", "effect": "NoSchedule"}], "unschedulable": True},
    "status": {
        "capacity": {"nvidia.com/gpu": "2"},
        "allocatable": {"nvidia.com/gpu": "2", "cpu": "8", "memory": "1Gi"},
        "conditions": [
            {"type": "Ready", "status": "True"},
            {"type": "GpuFault", "status": "True", "message": "Xid 79"},
        ],
        "images": [{"names": ["secret/image"], "sizeBytes": 1}],
    },
}


def pod(**status: Any) -> dict[str, Any]:
    return {
        "metadata": {
            "name": "p",
            "namespace": "a",
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "annotations": {"windlass.dev/allocated-devices": "0,1"},
            "ownerReferences": [{"kind": "Job", "name": "j", "controller": True}],
            "managedFields": [{"manager": "kubectl"}],
        },
        "spec": {
            "nodeName": "n",
            "priority": 5,
            "containers": [
                {
                    "name": "main",
                    "env": [{"name": "PASSWORD", "value": "hunter2"}],
                    "command": ["--password=hunter2"],
                    "resources": {"limits": {"nvidia.com/gpu": "2", "cpu": "4"}},
                }
            ],
            "initContainers": [{"name": "init", "resources": {"limits": {"cpu": "9"}}, "restartPolicy": "Always"}],
        },
        "status": {"phase": "Pending", "startTime": "2026-01-01T00:01:00Z", **status},
    }


def test_the_page_says_of_a_kept_pod_what_it_says_of_the_whole_one() -> None:
    trouble = {"name": "init", "restartCount": 3, "state": {"waiting": {"reason": "ImagePullBackOff", "message": "no"}}}
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes"}
    ended = {"name": "main", "restartCount": 2, "state": {"terminated": {"reason": "OOMKilled", "exitCode": 137}}}
    for status in (
        {"initContainerStatuses": [trouble]},
        {"containerStatuses": [trouble]},
        {"containerStatuses": [ended], "phase": "Failed"},
        {"conditions": [condition]},
        {"phase": "Running"},
    ):
        whole = pod(**status)
        assert pod_record(trimmed_pod(whole), "a/Job/j", "") == pod_record(whole, "a/Job/j", ""), status


def test_nothing_else_is_kept() -> None:
    kept = json.dumps(_decode(msgspec.Raw(json.dumps(pod()).encode()), "Pod", "v1"))
    assert "hunter2" not in kept
    assert "kubectl" not in kept
    node = _decode(msgspec.Raw(json.dumps(NODE).encode()), "Node", "v1")
    assert isinstance(node, dict)
    assert "secret/image" not in json.dumps(node)
    assert node_view(node, []) == node_view(NODE, [])


def test_the_page_follows_what_the_watch_says() -> None:
    objects = ClusterObjects(None)  # type: ignore[arg-type]  # nothing is asked of a server
    state = PageState(objects)
    for kind, tree in (("Node", NODE), ("Pod", pod(phase="Running"))):
        objects._on_deltas([Put(_decode(msgspec.Raw(json.dumps(tree).encode()), kind, "v1"))])  # type: ignore[arg-type]
    shown = json.loads(state.snapshot())
    assert [job["key"] for job in shown["jobs"]] == ["a/Job/j"]
    assert [len(gpu.get("uses", ())) for gpu in shown["nodes"][0]["gpus"]] == [1, 1]
    objects._on_deltas([Deleted("Pod", "a/p"), Deleted("Node", "n")])
    assert json.loads(state.drain_changes())["gone"] == {"nodes": ["n"], "jobs": ["a/Job/j"]}


def test_of_a_node_in_service_only_that_is_kept() -> None:
    step = {"name": "driver", "owner": "host", "state": "Failed", "reason": "DriverMissing"}
    status = {"phase": "NotReady", "stack": "h100", "reason": "DriverMissing", "steps": [step], "bootID": "b"}
    status |= {"devices": [{"index": index, "state": "InService"} for index in range(8)]}
    tree = {"metadata": {"name": "n", "managedFields": [{}]}, "status": status}

    def kept(phase: str) -> dict[str, Any]:
        whole = {**tree, "status": {**status, "phase": phase}}
        found = _decode(msgspec.Raw(json.dumps(whole).encode()), "GPUNode", "windlass.dev/v1alpha1")
        assert isinstance(found, dict)
        assert found.pop("resource") == "gpunodes.windlass.dev"
        assert bring_up_view(found) == bring_up_view(whole)
        return found

    assert kept("Ready") == {"metadata": {"name": "n"}, "status": {"phase": "Ready"}}
    assert "devices" not in kept("NotReady")["status"]
