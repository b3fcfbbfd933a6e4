"""A pod with GPUs on a real kubelet: placed by Windlass, started, ended, and its GPUs free again."""

from __future__ import annotations

from pathlib import Path

from tests.live.replica import replica
from tests.live.scenes import GPU, condition, pod, pods
from tests.real_cluster.api import Object, until
from tests.real_cluster.control_plane import ControlPlane
from tests.real_cluster.images import BUSYBOX
from tests.real_cluster.node import RealNode


def sleeper(name: str, gpus: int, seconds: int) -> Object:
    made = pod(name, gpus, restartPolicy="Never")
    container = made["spec"]["containers"][0]
    container |= {"image": BUSYBOX, "imagePullPolicy": "Never", "command": ["sleep", str(seconds)]}
    return made


def test_gpus_are_used_and_freed(control_plane: ControlPlane, real_node: RealNode, tmp_path: Path) -> None:
    api = control_plane.api
    room = {"capacity": {GPU: "4"}, "allocatable": {GPU: "4"}}
    api.patch(f"/api/v1/nodes/{real_node.name}/status", {"status": room})
    with replica(control_plane.kubeconfig, tmp_path / "log", "--no-leader-elect") as one:
        api.create(sleeper("first", 3, 5))
        until(lambda: pods(api)["first"]["status"].get("phase") == "Running", 60, one.last_lines)
        api.create(sleeper("second", 3, 1))
        until(lambda: condition(pods(api)["second"]).get("reason") == "Unschedulable", 30, one.last_lines)
        until(lambda: pods(api)["first"]["status"]["phase"] == "Succeeded", 60)
        until(lambda: pods(api)["second"]["status"]["phase"] == "Succeeded", 60, one.last_lines)
        assert pods(api)["second"]["spec"]["nodeName"] == real_node.name
