"""A NIM manifest is planned as what its operator makes of it; in a dump, what it has made counts, and nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from windlass.dump.cluster_loader import load_cluster
from windlass.dump.nim_manifests import nim_objects
from windlass.model.configuration import Settings
from windlass.planner import plan_objects

GPU = {"limits": {"nvidia.com/gpu": 2}}


def nim(kind: str, **spec: Any) -> dict[str, Any]:
    metadata = {"name": "llm", "namespace": "nim", "labels": {"kueue.x-k8s.io/queue-name": "team"}}
    return {"apiVersion": "apps.nvidia.com/v1alpha1", "kind": kind, "metadata": metadata, "spec": spec}


def made(tree: dict[str, Any]) -> list[tuple[str, str, Any]]:
    """Kind, name, and replicas or size of what the operator makes."""
    return [
        (each["kind"], each["metadata"]["name"], each["spec"].get("leaderWorkerTemplate", each["spec"]).get("size"))
        for each in nim_objects(tree)
    ]


def test_a_service_is_a_deployment() -> None:
    (found,) = nim_objects(nim("NIMService", replicas=3, resources=GPU, nodeSelector={"pool": "a"}))
    assert (found["kind"], found["spec"]["replicas"]) == ("Deployment", 3)
    assert found["metadata"]["labels"] == {"kueue.x-k8s.io/queue-name": "team"}
    pod = found["spec"]["template"]["spec"]
    assert pod["nodeSelector"] == {"pool": "a"}
    assert pod["containers"][0]["resources"]["limits"] == {"nvidia.com/gpu": 2}


def test_one_that_scales_begins_with_its_least() -> None:
    scaled = nim("NIMService", replicas=1, scale={"enabled": True, "hpa": {"minReplicas": 2}})
    assert nim_objects(scaled)[0]["spec"]["replicas"] == 2


def test_one_of_several_nodes_is_a_group() -> None:
    wide = nim("NIMService", resources=GPU, multiNode={"parallelism": {"pipeline": 4, "tensor": 8}})
    assert made(wide) == [("LeaderWorkerSet", "llm-lws", 4)]


def test_a_pipeline_is_its_enabled_services() -> None:
    services = [{"name": name, "enabled": name != "b", "spec": {"resources": GPU}} for name in ("a", "b", "c")]
    assert [name for _, name, _ in made(nim("NIMPipeline", services=services))] == ["a", "c"]


def test_a_cache_is_a_job() -> None:
    (found,) = nim_objects(nim("NIMCache", resources={"requests": {"cpu": "1"}}))
    assert (found["kind"], found["spec"]["template"]["spec"]["restartPolicy"]) == ("Job", "Never")


def test_claims_are_kept() -> None:
    (found,) = nim_objects(nim("NIMService", draResources=[{"resourceClaimTemplateName": "gpu"}]))
    assert found["spec"]["template"]["spec"]["resourceClaims"] == [
        {"name": "claim-0", "resourceClaimTemplateName": "gpu"}
    ]


@pytest.mark.parametrize(
    "other",
    [
        nim("NIMService", inferencePlatform="kserve"),
        nim("NemoCustomizer"),
        {"apiVersion": "apps/v1", "kind": "NIMService", "spec": {}},
    ],
)
def test_what_is_left_alone(other: dict[str, Any]) -> None:
    assert nim_objects(other) == []


def test_in_a_manifest_it_is_decided_on_and_in_a_dump_it_is_not(tmp_path: Path) -> None:
    room = {"cpu": "8", "memory": "8Gi", "pods": "10", "nvidia.com/gpu": "4"}
    status = {"capacity": room, "allocatable": room}
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}, "status": status}
    service = nim("NIMService", replicas=2, resources=GPU)
    del service["metadata"]["labels"]
    nodes, services, both = tmp_path / "nodes.yaml", tmp_path / "nim.yaml", tmp_path / "both.yaml"
    nodes.write_text(yaml.safe_dump(node))
    services.write_text(yaml.safe_dump(service))
    both.write_text(yaml.safe_dump_all([node, service]))
    loaded = load_cluster(nodes, [services])
    plan, _ = plan_objects(loaded.objects, Settings(), 1_800_000_000)
    (admit,) = plan.admits
    assert sum(sum(part.nodes.values()) for part in admit.pod_sets) == 2
    assert plan_objects(load_cluster(both, ()).objects, Settings(), 1_800_000_000)[0].admits == ()


def test_an_invalid_amount_names_its_file(tmp_path: Path) -> None:
    file = tmp_path / "nim.yaml"
    file.write_text(yaml.safe_dump(nim("NIMService", replicas="many")))
    with pytest.raises(Exception, match=r"nim\.yaml"):
        load_cluster(None, [file])
