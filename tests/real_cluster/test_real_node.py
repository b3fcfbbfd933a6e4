"""A pod on a real kubelet with containerd and runc: it starts, says something, ends, and can be deleted."""

from __future__ import annotations

from tests.real_cluster.api import Object, until
from tests.real_cluster.images import BUSYBOX
from tests.real_cluster.node import RealNode


def pod(name: str, script: str, node: str, **spec: object) -> Object:
    main = {"name": "main", "image": BUSYBOX, "imagePullPolicy": "Never", "command": ["sh", "-c", script]}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"containers": [main], "nodeName": node, "restartPolicy": "Never", **spec},
    }


def test_pods_run_to_their_end(real_node: RealNode) -> None:
    api = real_node.plane.api

    def phase(name: str) -> str:
        return str(api.get(f"/api/v1/namespaces/default/pods/{name}")["status"].get("phase"))

    api.create(
        pod("good", "echo hello from $HOSTNAME", real_node.name),
        pod("bad", "exit 3", real_node.name),
        pod("long", "sleep 1000", real_node.name, terminationGracePeriodSeconds=1),
    )
    until(lambda: phase("good") == "Succeeded", 60, "the pod has ended well")
    assert api.get("/api/v1/namespaces/default/pods/good/log")["text"] == "hello from good\n"
    until(lambda: phase("bad") == "Failed", 60, "the pod has ended badly")
    (status,) = api.get("/api/v1/namespaces/default/pods/bad")["status"]["containerStatuses"]
    assert status["state"]["terminated"]["exitCode"] == 3
    until(lambda: phase("long") == "Running", 60, "the pod runs")
    api.delete("/api/v1/namespaces/default/pods/long")
    until(lambda: not api.exists("/api/v1/namespaces/default/pods/long"), 60, "the pod is gone")
