"""`windlass up`: a node gets notice, and the training on it answers and goes on on another one."""

from __future__ import annotations

import json
from typing import Any

from tests.embedded.cluster_up import Up
from tests.real_cluster.api import until

PODS = "/api/v1/namespaces/default/pods"
OPTED_IN = {"windlass.dev/on-preemption": "ask", "sandbox.windlass.dev/answer-after": "2s"}


def running(up: Up) -> dict[str, Any]:
    """Pod → the node on which it runs."""
    found = [pod for pod in up.api.items(PODS) if pod["status"].get("phase") == "Running"]
    return {pod["metadata"]["name"]: pod["spec"]["nodeName"] for pod in found}


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
        move = api.get("/apis/batch/v1/namespaces/default/jobs/train")["metadata"]["annotations"]
        assert json.loads(move["windlass.dev/last-move"])["answered"], "it had answered before it was evicted"
    finally:
        api.patch(f"/api/v1/nodes/{leaving}", {"spec": {"taints": before}})
