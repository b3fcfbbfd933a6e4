"""`doctor`: what is said of clusters, nodes and hosts with something wrong with them, and of healthy ones."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.diagnose.objects import GPU, GPU_TAINT, NOW, evidence, node, pod, thing

from windlass.cli.doctor import doctor
from windlass.diagnose.doctor.cluster import examine_cluster, examine_node
from windlass.diagnose.doctor.local_host import Host, examine_here
from windlass.diagnose.doctor.report import Symptom
from windlass.embedded.fleet import default_fleet
from windlass.model.codec import to_unstructured
from windlass.model.fleet import expand_fleet
from windlass.model.unstructured import Unstructured

T4 = {"nvidia.com/gpu.product": "Tesla-T4", "nvidia.com/gpu.count": "4"}
POOL = {"cloud.google.com/gke-nodepool": "gpus"}
DRIVER = "nvidia.com/cuda.driver-version.full"


def checks(*objects: Unstructured) -> dict[str, Symptom]:
    return {symptom.check: symptom for symptom in examine_cluster(evidence(objects), NOW) if symptom.level != "ok"}


def test_a_healthy_cluster_has_nothing_to_report() -> None:
    assert checks(node("g1", 4, labels=T4, taints=[GPU_TAINT]), node("c1")) == {}


@pytest.mark.parametrize(
    ("objects", "check"),
    [
        ([node("c1")], "gpu-nodes"),
        ([node("g1", 4, labels=T4, cordoned=True)], "takes-work"),
        ([node("g1", 3, labels=T4, capacity={GPU: 4})], "allocatable-equals-capacity"),
        ([node("g1", 3, labels=T4)], "expected-count"),
        ([node("g1", 4)], "labels"),
        ([node("g1", 4, labels=T4), pod("web", on="g1")], "gpu-nodes-tainted"),
        ([node("g1", labels=T4)], "advertises-gpus"),
        ([node("g1", labels=T4), pod("web", on="g1")], "device-plugin-absent"),
        ([node("g1", 4, labels=T4 | {"nvidia.com/mig.config.state": "failed"})], "mig-config-not-applied"),
        (
            [
                node("g1", 4, labels=T4 | POOL | {DRIVER: "580.1"}),
                node("g2", 4, labels=T4 | POOL | {DRIVER: "570.1"}),
            ],
            "same-driver",
        ),
        (
            [
                node("g1", 4, labels=T4 | POOL),
                node("g2", 4, labels=POOL | {"nvidia.com/gpu.product": "A100"}),
            ],
            "one-model-per-pool",
        ),
        (
            [
                node("g1", 1, labels=T4 | {"nvidia.com/gpu.count": "1"}),
                node("g2", 4, labels={"nvidia.com/gpu.product": "A100"}),
                pod("busy", 1, on="g1"),
                pod("waits", 1, spec={"nodeSelector": {"nvidia.com/gpu.product": "Tesla-T4"}}),
            ],
            "pins-strand-gpus",
        ),
        (
            [
                node("g1", 4, labels=T4),
                thing("ResourceQuota", "q", {"hard": {"limits.nvidia.com/gpu": 4}}, "v1"),
            ],
            "quota-key",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_wrong_with_a_cluster(objects: list[Unstructured], check: str) -> None:
    assert check in checks(*objects)


def test_the_nodes_of_the_default_fleet_are_fit() -> None:
    """MIG instances and shares are not counted as GPUs, and a node without GPUs lacks none."""
    fleet = evidence([to_unstructured(each) for each in expand_fleet(default_fleet())])
    found = [symptom for name in fleet.nodes for symptom in examine_node(fleet, fleet.nodes[name], NOW)]
    assert [symptom for symptom in (*found, *examine_cluster(fleet, NOW)) if symptom.level != "ok"] == []
    assert "is no GPU node" in next(symptom.saw for symptom in found if symptom.where == "cpu-0")


def test_a_lost_gpu_of_a_partitioned_pool_is_seen() -> None:
    """By the labels, since the instances say nothing."""
    shares = {"nvidia.com/gpu.replicas": "4"}
    labels = [T4 | POOL | shares | {"nvidia.com/gpu.count": count} for count in ("4", "4", "3")]
    found = checks(
        *(node(f"g{i}", 4 * int(each["nvidia.com/gpu.count"]), labels=each) for i, each in enumerate(labels))
    )
    assert found["gpus-per-node"].saw == "has 3 GPUs; most nodes of its pool have 4"


def host(
    tmp_path: Path,
    *,
    library: str = "580.1",
    environment: dict[str, str] | None = None,
    cuda: tuple[int, int] = (0, 1),
) -> Host:
    """A host on which everything is well, but for what is said."""
    for name in ("nvidia0", "nvidiactl", "nvidia-uvm"):
        (tmp_path / "dev").mkdir(exist_ok=True)
        (tmp_path / "dev" / name).touch()
    (tmp_path / "proc/driver/nvidia").mkdir(parents=True)
    (tmp_path / "proc/driver/nvidia/version").write_text("NVRM version: NVIDIA UNIX Kernel Module  580.1  Release")
    (tmp_path / "usr/lib64").mkdir(parents=True)
    (tmp_path / f"usr/lib64/libcuda.so.{library}").touch()
    return Host(tmp_path, environment or {}, lambda: cuda)


def errors(examined: Host) -> set[str]:
    return {symptom.check for symptom in examine_here(examined) if symptom.level == "error"}


def test_a_container_that_sees_its_gpu_is_fit(tmp_path: Path) -> None:
    assert errors(host(tmp_path)) == set()


def test_each_step_on_the_way_to_the_gpu_is_told_apart(tmp_path: Path) -> None:
    assert errors(host(_made(tmp_path / "a"), library="570.9")) == {"driver-versions"}
    assert errors(host(_made(tmp_path / "b"), environment={"CUDA_VISIBLE_DEVICES": ""})) == {"cuda-visible-devices"}
    assert errors(host(_made(tmp_path / "c"), environment={"NVIDIA_VISIBLE_DEVICES": "void"})) == {"visible-devices"}
    assert errors(host(_made(tmp_path / "d"), cuda=(802, 0))) == {"cuda"}
    bare = Host(_made(tmp_path / "e"), {}, lambda: (-1, 0))
    assert errors(bare) == {"device-nodes", "driver", "driver-library", "cuda"}


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def test_a_fabric_that_is_not_up_is_named(tmp_path: Path) -> None:
    found = [symptom for symptom in examine_here(host(tmp_path, cuda=(802, 0))) if symptom.check == "cuda"]
    assert "fabric" in found[0].meaning


def test_the_command_prints_a_document_and_an_exit_code(tmp_path: Path) -> None:
    dump = tmp_path / "dump.json"
    dump.write_text(
        json.dumps({"kind": "List", "apiVersion": "v1", "items": [node("g1", 4, labels=T4, cordoned=True)]})
    )
    result = CliRunner().invoke(doctor, ["cluster", "--from", str(dump), "-o", "json"])
    report = json.loads(result.stdout)
    assert (result.exit_code, report["kind"], report["fit"]) == (1, "DoctorReport", False)
    people = CliRunner().invoke(doctor, ["node", "g1", "--from", str(dump)])
    assert people.exit_code == 1
    assert "kubectl uncordon g1" in people.stdout


@pytest.mark.parametrize(
    ("way", "level"),
    [
        (
            "containerd 2.1.0 with CDI, handlers runc: devices come by CDI (cdi-cri); 26 libraries of the driver in /",
            "ok",
        ),
        ("nothing carries out deviceListStrategy envvar: containerd 1.7.1 has no NVIDIA runtime; install it", "error"),
        ("no container runtime answers; deviceListStrategy envvar", "warning"),
    ],
)
def test_doctor_node_shows_how_containers_get_their_gpus(tmp_path: Path, way: str, level: str) -> None:
    """As the agent found it on the node, with the cluster's RuntimeClasses beside it."""
    machine = node("g1", 4, labels=T4, taints=[GPU_TAINT])
    machine["metadata"]["annotations"] = {"windlass.dev/container-gpus": way}
    runtime = {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "gpu"}, "handler": "nvidia"}
    (tmp_path / "objects.json").write_text(
        json.dumps({"kind": "List", "apiVersion": "v1", "items": [machine, runtime]})
    )
    done = CliRunner().invoke(doctor, ["node", "g1", "--from", str(tmp_path), "-o", "json"])
    (found,) = [each for each in json.loads(done.stdout)["findings"] if each["check"] == "container-gpus"]
    assert (found["level"], found["saw"]) == (level, way)
    assert found["meaning"] == "RuntimeClasses of NVIDIA's runtime: gpu"
    assert done.exit_code == (1 if level == "error" else 0)


def test_pods_with_resource_claims_are_counted_by_the_scheduler_that_they_name() -> None:
    """Before Windlass gets that name: it would hold them."""
    claims = [{"name": "gpu", "resourceClaimName": "mine"}]
    trees = [pod("runs", on="g1"), pod("waits"), pod("plain")]
    for tree in trees[:2]:
        tree["spec"]["resourceClaims"] = claims
    found = checks(node("g1", 4, labels=T4, taints=[GPU_TAINT]), *trees)["resource-claims"]
    assert found.where == f"scheduler {trees[0]['spec'].get('schedulerName', 'default-scheduler')}"
    assert found.saw == "2 of its pods use resource claims, 1 of them wait"
