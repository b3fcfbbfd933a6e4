"""`windlass up`: a node gets notice, and the training on it answers and goes on on another one."""

from __future__ import annotations

from typing import Any

from tests.embedded.cluster_up import Up
from tests.real_cluster.api import until

PODS = "/api/v1/namespaces/default/pods"
OPTED_IN = {"windlass.dev/on-preemption": "ask", "sandbox.windlass.dev/answer-after": "2s"}


def running(up: Up) -> dict[str, Any]:
    """Pod → the node on which it runs."""
    found = [pod for pod in up.api.items(PODS) if pod["status"].get("phase") == "Running"]
    return {pod["metadata"]["name"]: pod["spec"]["nodeName"] for pod in found}


def said(up: Up, pod: str) -> dict[str, str]:
    """Reason → what the pod's events say."""
    events = up.api.items("/apis/events.k8s.io/v1/namespaces/default/events")
    return {event["reason"]: event["note"] for event in events if event["regarding"]["name"] == pod}


def test_a_training_moves_off_a_node_that_goes(windlass_up: Up) -> None:
    api = windlass_up.api
    container = {"name": "main", "image": "x", "resources": {"limits": {"nvidia.com/gpu": "8"}}}
    selector = {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}
    spec = {"containers": [container], "restartPolicy": "Never", "nodeSelector": selector}
    spec["tolerations"] = [{"key": "nvidia.com/gpu", "operator": "Exists"}]
    template = {"metadata": {"annotations": OPTED_IN}, "spec": spec}
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "train", "namespace": "default"}}
    api.create(job | {"spec": {"template": template}})
    ((name, leaving),) = until(lambda: running(windlass_up), 60).items()
    before = api.get(f"/api/v1/nodes/{leaving}")["spec"].get("taints") or []
    taint = {"key": "cloud.google.com/impending-node-termination", "effect": "NoSchedule"}
    api.patch(f"/api/v1/nodes/{leaving}", {"spec": {"taints": [*before, taint]}})
    try:
        until(lambda: (found := running(windlass_up)) and name not in found, 60)
        assert leaving not in running(windlass_up).values()
        until(lambda: "Evicted" in said(windlass_up, name), 60)
        why = "node " + leaving + " goes: Google Cloud ends the instance"
        assert why in said(windlass_up, name)["AskedForCheckpoint"]
        assert f"{why}; it answered with a checkpoint" in said(windlass_up, name)["Evicted"]
    finally:
        api.patch(f"/api/v1/nodes/{leaving}", {"spec": {"taints": before}})
