"""The operator on a real API server, with no other rights than `windlass install operator` prints.

The server compiles and evaluates the CEL rules of the CRDs. Agents of nodes are played by the test; there is no
kubelet.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.live.scenes import GPU
from tests.real_cluster.api import Api, ApiError, until
from tests.real_cluster.control_plane import ControlPlane
from tests.real_cluster.fake_kubelet import node

from windlass.cli.install_operator import OperatorInstallOptions, operator_manifests
from windlass.cli.install_operator_crds import operator_crds

USER = "operator-under-test"
DEFAULTS = OperatorInstallOptions()
ROOT = "/apis/windlass.dev/v1alpha1"
MIG, STATE = "nvidia.com/mig.config", "nvidia.com/mig.config.state"
LABELS = {
    "pool": "a",
    "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3",
    "nvidia.com/gpu.count": "8",
    "nvidia.com/cuda.driver-version.full": "580.95.05",
}
STACK = {"nodes": {"matchLabels": {"pool": "a"}}, "mig": {"config": "all-disabled"}, "maxUnavailable": 2}
CHANGE = {
    "stack": "a",
    "mig": {"config": "all-1g.10gb"},
    "waves": [{"nodes": 1, "bake": "2s"}, {"nodes": "100%", "bake": "1s"}],
}
CONTAINER = {
    "nodes": {"matchLabels": {"pool": "b"}},
    "driver": {"source": "container", "image": "registry.example.com/driver", "version": "580.95.05"},
}


def ours(kind: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": "windlass.dev/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec}


@pytest.fixture
def api(control_plane: ControlPlane) -> Api:
    return install_operator(control_plane.api)


def install_operator(found: Api, choices: OperatorInstallOptions = DEFAULTS) -> Api:
    """The kinds, and the printed rights for the user of the tests."""
    found.create(*operator_crds())
    subject = {"kind": "User", "name": USER, "apiGroup": "rbac.authorization.k8s.io"}
    for one in operator_manifests(choices):
        if one["kind"].endswith("RoleBinding"):
            found.create({**one, "subjects": [subject]})
        elif one["kind"] in ("Namespace", "ClusterRole", "Role"):
            found.create(one)
    for crd in operator_crds():
        path = f"{ROOT}/{crd['spec']['names']['plural']}"
        until(lambda path=path: found.exists(path), 30, path)
    return found


@contextlib.contextmanager
def operator(kubeconfig: Path, log: Path, *options: str) -> Iterator[subprocess.Popen[bytes]]:
    program = str(Path(sys.executable).with_name("windlass"))
    command = [program, "operator", f"--kubeconfig={kubeconfig}", "--log-format=text", "--lease-seconds=3", *options]
    with log.open("ab") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, stdin=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize(
    ("kind", "spec", "words"),
    [
        ("FleetChange", CHANGE | {"driver": {"version": "590.1"}}, "exactly one component"),
        ("FleetChange", {"stack": "a"}, "exactly one component"),
        ("FleetChange", CHANGE | {"gates": [{"name": "g", "query": "x"}]}, "a gate without a limit never fails"),
        ("GPUStack", STACK | {"nodes": {}}, "it would select every node"),
        ("GPUStack", STACK | {"driver": {"source": "container"}}, "a driver container needs image and version"),
        (
            *("GPUStack", STACK | {"driver": {"source": "gpu-operator", "version": "590.1"}}),
            "the NVIDIADriver says image and version",
        ),
        ("GPUStack", STACK | {"takeOver": ["driver"]}, "spec.takeOver"),
        ("GPUStack", STACK | {"maxUnavailable": "many"}, "spec.maxUnavailable"),
    ],
)
def test_the_server_refuses_what_the_operator_would(api: Api, kind: str, spec: dict[str, Any], words: str) -> None:
    with pytest.raises(ApiError, match=words):
        api.create(ours(kind, "x", spec))


def test_nodes_come_up_and_a_change_reaches_them_with_the_printed_rights(
    control_plane: ControlPlane, api: Api, tmp_path: Path
) -> None:
    taint = {"key": "windlass.dev/gpu-not-ready", "effect": "NoSchedule"}
    names = [f"n{number}" for number in range(3)]
    for name in names:
        api.create(node(name, {GPU: "8"}, LABELS, taints=[taint]))
    api.create(node("bare", {}, {"pool": "b"}), ours("GPUStack", "a", STACK), ours("GPUStack", "b", CONTAINER))
    log = tmp_path / "log"

    def play_agents() -> None:
        for name in names:
            labels = api.get(f"/api/v1/nodes/{name}")["metadata"]["labels"]
            if labels.get(MIG) and labels.get(STATE) != "success":
                api.patch(f"/api/v1/nodes/{name}", {"metadata": {"labels": {STATE: "success"}}})

    def are_open() -> bool:
        play_agents()
        nodes = [api.get(f"/api/v1/nodes/{name}") for name in names]
        conditions = [condition for each in nodes for condition in each["status"]["conditions"]]
        ready = [c for c in conditions if (c["type"], c["status"]) == ("windlass.dev/GPUReady", "True")]
        return len(ready) == 3 and not any("taints" in each["spec"] for each in nodes)

    def phase() -> str:
        play_agents()
        return str(api.get(f"{ROOT}/fleetchanges/mig").get("status", {}).get("phase", ""))

    with operator(control_plane.user(USER), log):
        until(are_open, 60, log.read_text())
        driver = api.items("/apis/apps/v1/namespaces/windlass-node/daemonsets")
        assert [one["spec"]["template"]["spec"]["containers"][0]["image"] for one in driver] == [
            "registry.example.com/driver:580.95.05"
        ]
        api.create(ours("FleetChange", "mig", CHANGE))
        until(lambda: phase() == "Baking", 60, log.read_text())
    with pytest.raises(ApiError, match="start another"):
        api.patch(f"{ROOT}/fleetchanges/mig", {"spec": {"mig": {"config": "other"}}})
    with operator(control_plane.user(USER), log):  # the first one was killed
        until(lambda: phase() == "Succeeded", 60, log.read_text())
        until(are_open, 60, log.read_text())
        labels = [api.get(f"/api/v1/nodes/{name}")["metadata"]["labels"][MIG] for name in names]
        assert labels == ["all-1g.10gb"] * 3
        fault = msgspec.json.encode([{"device": 2, "fault": "Xid 48", "action": "reset"}]).decode()
        api.patch("/api/v1/nodes/n1", {"metadata": {"annotations": {"windlass.dev/device-faults": fault}}})
        held = "windlass.dev/held-devices"
        until(lambda: api.get("/api/v1/nodes/n1")["metadata"]["annotations"].get(held) == "2", 90, log.read_text())
    assert " 403 " not in log.read_text()
    assert "WARNING" not in log.read_text(), log.read_text()
