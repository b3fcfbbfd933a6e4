"""`why`, `dump` and `doctor` on a real control plane: the same verdict live and from a dump, and a patch that works."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml
from click.testing import CliRunner, Result
from tests.real_cluster.api import until
from tests.real_cluster.fake_kubelet import node
from tests.real_cluster.node import RealNode
from tests.real_cluster.test_real_node import pod as busybox

from windlass.cli.check import check
from windlass.cli.doctor import doctor
from windlass.cli.dump import dump
from windlass.cli.why import why_command

TAINT = {"key": "nvidia.com/gpu", "value": "true", "effect": "NoSchedule"}
PODS = "/api/v1/namespaces/default/pods"


def server() -> dict[str, Any]:
    container = {"name": "main", "image": "x", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
    labels = {"app": "server"}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "server", "namespace": "default"},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
        },
    }


def ask(kubeconfig: Path, *arguments: str) -> Result:
    return CliRunner().invoke(why_command, [*arguments, "--kubeconfig", str(kubeconfig)])


def test_live_and_from_a_dump_the_answer_is_the_same(cluster: Any, tmp_path: Path) -> None:
    cluster.api.create(node("g1", {"nvidia.com/gpu": "8"}, taints=[TAINT]), node("c1", {}), server())
    until(lambda: cluster.api.items(PODS), what="the deployment's pod")
    tried = json.loads(ask(cluster.kubeconfig, "deploy/server", "-o", "json").stdout)
    assert [patch["dryRun"]["result"] for patch in tried["patches"]] == ["accepted"]
    live = json.loads(ask(cluster.kubeconfig, "deploy/server", "-o", "json", "--no-dry-run").stdout)
    assert live["code"] == "TAINT_NOT_TOLERATED"
    target = tmp_path / "dump"
    written = CliRunner().invoke(dump, [str(target), "--redact", "--kubeconfig", str(cluster.kubeconfig)])
    assert written.exit_code == 0, written.output
    offline = CliRunner().invoke(why_command, ["deploy/server", "--from", str(target), "-o", "json"])
    assert json.loads(offline.stdout) == live
    assert "managedFields" not in "".join(file.read_text() for file in target.glob("*.json"))


def test_the_patch_makes_the_real_scheduler_place_it(control_plane: Any) -> None:
    scheduler = control_plane.scheduler()
    scheduler.start()
    try:
        control_plane.api.create(node("g1", {"nvidia.com/gpu": "8"}, taints=[TAINT]), server())
        until(lambda: control_plane.api.items(PODS), what="the deployment's pod")
        printed = ask(control_plane.kubeconfig, "deploy/server", "--patch")
        patch = yaml.safe_load(printed.stdout)
        control_plane.api.patch("/apis/apps/v1/namespaces/default/deployments/server", patch, "strategic")
        until(
            lambda: [pod for pod in control_plane.api.items(PODS) if pod["spec"].get("nodeName") == "g1"],
            what="a pod on g1",
        )
    finally:
        scheduler.stop()


def test_with_rights_in_one_namespace_it_says_what_it_could_not_see(control_plane: Any) -> None:
    reader = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "Role",
        "metadata": {"name": "reader", "namespace": "default"},
        "rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["get", "list"]}],
    }
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": {"name": "reader", "namespace": "default"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reader"},
        "subjects": [{"kind": "User", "name": "researcher", "apiGroup": "rbac.authorization.k8s.io"}],
    }
    control_plane.api.create(reader, binding, node("g1", {"nvidia.com/gpu": "8"}, taints=[TAINT]), server())
    until(lambda: control_plane.api.items(PODS), what="the deployment's pod")
    answer = json.loads(ask(control_plane.user("researcher", ()), "deploy/server", "-o", "json").stdout)
    assert answer["code"] == "UNKNOWN"
    assert any("nodes" in missing["what"] for missing in answer["missing_evidence"])


def test_doctor_examines_a_live_cluster(cluster: Any) -> None:
    cluster.api.create(node("g1", {"nvidia.com/gpu": "8"}))
    result = CliRunner().invoke(doctor, ["cluster", "--kubeconfig", str(cluster.kubeconfig), "-o", "json"])
    report = json.loads(result.stdout)
    assert {finding["check"] for finding in report["findings"]} >= {"gpu-nodes", "labels"}


def test_check_finds_a_pull_secret_that_does_not_exist_and_reads_none(cluster: Any, tmp_path: Path) -> None:
    cluster.api.create(
        node("g1", {"nvidia.com/gpu": "8"}),
        {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "there", "namespace": "default"}},
    )
    made = server()
    made["spec"]["template"]["spec"]["imagePullSecrets"] = [{"name": "there"}, {"name": "gone"}]
    file = tmp_path / "server.yaml"
    file.write_text(yaml.safe_dump(made))
    arguments = ["-f", str(file), "--live", "--kubeconfig", str(cluster.kubeconfig), "--rule", "pull-secret-exists"]
    found = json.loads(CliRunner().invoke(check, [*arguments, "-o", "json"]).stdout)["findings"]
    assert [finding["message"] for finding in found] == ["pull secret gone does not exist in namespace default"]
    assert found[0]["path"].endswith("imagePullSecrets[1].name")


def test_exec_looks_inside_the_container_and_only_with_the_flag(real_node: RealNode) -> None:
    """On a real kubelet: a container without nvidia-smi, and a program whose log says what it misses."""
    api = real_node.plane.api
    script = "echo 'RuntimeError: No CUDA GPUs are available'; sleep 1000"
    runs = busybox("looks", script, real_node.name, terminationGracePeriodSeconds=1)
    api.create(runs)
    path = "/api/v1/namespaces/default/pods/looks"
    until(lambda: api.get(path)["status"].get("phase") == "Running", 60, "the pod runs")
    until(lambda: "CUDA" in api.get(f"{path}/log")["text"], 60, "the program has said it")
    plain = json.loads(ask(real_node.plane.kubeconfig, "pod/looks", "-o", "json").stdout)
    assert any("No CUDA GPUs" in line for line in plain["evidence"])
    looked = json.loads(ask(real_node.plane.kubeconfig, "pod/looks", "--exec", "-o", "json").stdout)
    assert any("nvidia-smi" in line for line in looked["evidence"]), json.dumps(looked)
