"""Manifests that guides print and that can't work, or not as meant, each under its own name: `check` says why.

Every file is written anew with the guide's mistake in it.
"""

from __future__ import annotations

from pathlib import Path

from tests.diagnose.test_check import MANIFESTS, cluster

from windlass.diagnose.check.manifest import read_manifests
from windlass.diagnose.check.rule import CheckFinding, check_all
from windlass.diagnose.evidence import load_evidence

A100 = "{gpu-type: a100, example.com/fabric: rack-1}"
TAINTED = "[{key: nvidia.com/gpu, value: present, effect: NoSchedule}]"
OTHER_TAINT = "[{key: gpu, value: 'true', effect: NoSchedule}]"


def said(file: str, dump: Path | None = None) -> list[CheckFinding]:
    return check_all(read_manifests([MANIFESTS / file]), load_evidence(dump) if dump else None, 0)


def of(findings: list[CheckFinding], rule: str) -> list[CheckFinding]:
    return [finding for finding in findings if finding.rule == rule]


def test_a_plugin_that_is_placed_by_a_resources_name_and_has_no_socket() -> None:
    found = of(said("guide-plugin-by-resource-name.yaml"), "plugin-daemonset")
    assert {(finding.level, finding.line) for finding in found} == {("error", 18), ("warning", 12)}
    assert any("/var/lib/kubelet/device-plugins" in finding.message for finding in found)
    assert any("not set by feature discovery" in finding.message for finding in found)


def test_the_same_plugin_on_a_cluster_reaches_no_gpu_node(tmp_path: Path) -> None:
    dump = cluster(tmp_path, labels=A100)
    found = of(said("guide-plugin-by-resource-name.yaml", dump), "plugin-daemonset")
    assert any("matches none of 1 GPU node(s)" in finding.message for finding in found)


def test_a_queue_without_namespaces_that_covers_gpus_only() -> None:
    found = said("guide-queue-of-gpus.yaml")
    assert [finding.level for finding in of(found, "cluster-queue-admits-namespaces")] == ["info"]
    covers = of(found, "cluster-queue-covers-requests")
    assert [(finding.level, finding.line) for finding in covers] == [("warning", 7)]
    assert "cpu and memory" in covers[0].message


def test_a_quota_with_a_limits_key_beside_the_right_one() -> None:
    found = of(said("guide-quota-both-ways.yaml"), "quota-key")
    assert [(finding.level, finding.line) for finding in found] == [("error", 8)]
    assert "requests.nvidia.com/gpu" in found[0].fix


def test_affinity_without_a_toleration(tmp_path: Path) -> None:
    file = "guide-affinity-without-toleration.yaml"
    assert [finding.level for finding in of(said(file), "tolerates-gpu-taints")] == ["warning"]
    against = of(said(file, cluster(tmp_path, labels=A100, taints=TAINTED)), "tolerates-gpu-taints")
    assert [finding.level for finding in against] == ["error"]
    assert "nvidia.com/gpu=present:NoSchedule" in against[0].message


def test_tolerating_a_taint_that_the_nodes_dont_have(tmp_path: Path) -> None:
    file = "guide-toleration-of-another-taint.yaml"
    assert of(said(file), "tolerates-gpu-taints")
    assert of(said(file, cluster(tmp_path, taints=TAINTED)), "tolerates-gpu-taints")[0].level == "error"
    assert not of(said(file, cluster(tmp_path, taints=OTHER_TAINT)), "tolerates-gpu-taints")


def test_a_slice_and_a_whole_gpu(tmp_path: Path) -> None:
    file = "guide-slice-and-whole-gpu.yaml"
    assert of(said(file), "mig-and-whole-gpu")[0].level == "warning"
    assert of(said(file, cluster(tmp_path)), "mig-and-whole-gpu")[0].level == "error"


def test_workers_that_must_be_near_somebody_who_never_comes(tmp_path: Path) -> None:
    file = "guide-near-nobody.yaml"
    offline = of(said(file), "affinity-satisfiable")
    assert [finding.level for finding in offline] == ["warning"]
    assert "app=train" in offline[0].message
    without_label = of(said(file, cluster(tmp_path)), "affinity-satisfiable")
    assert any("example.com/fabric" in finding.message and finding.level == "error" for finding in without_label)
    labelled = of(said(file, cluster(tmp_path, labels=A100)), "affinity-satisfiable")
    assert [finding.level for finding in labelled] == ["error"]


def test_several_gpus_and_the_default_shared_memory() -> None:
    assert of(said("guide-two-gpus-plain.yaml"), "shared-memory")
