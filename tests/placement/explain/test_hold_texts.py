"""An explained hold keeps the names and numbers of the hold, and its remedy is that of the reason, not of the code."""

from __future__ import annotations

from typing import Any

import pytest
from tests.engine.plain_objects import TWO_NODES, node, planned, pod
from tests.placement.explain.held_objects import labelled, of_model

from windlass.model.unstructured import Unstructured
from windlass.model.verdict import Verdict

VOLCANO = "scheduling.volcano.sh/v1beta1"
IN_RING = {"annotations": {"scheduling.k8s.io/group-name": "ring"}}
ZONE = "topology.kubernetes.io/zone"


def held(*objects: Unstructured) -> Verdict:
    plan, _ = planned(*objects)
    verdict = plan.holds[0].verdict
    assert verdict.is_explained
    return verdict


def volcano_group(**spec: Any) -> Unstructured:
    metadata = {"name": "ring", "namespace": "default"}
    return {"apiVersion": VOLCANO, "kind": "PodGroup", "metadata": metadata, "spec": {"minMember": 1, **spec}}


def member(name: str, total: str = "3", **more: Any) -> Unstructured:
    group = {
        "labels": {"kueue.x-k8s.io/pod-group-name": "ring"},
        "annotations": {"kueue.x-k8s.io/pod-group-total-count": total},
    }
    return pod(name, 1, metadata=group, **more)


def with_claim(**more: Any) -> Unstructured:
    volume = {"name": "v", "persistentVolumeClaim": {"claimName": "data"}}
    return pod("p", 1, volumes=[volume], **more)


def claim(volume: str = "", phase: str = "Pending") -> Unstructured:
    spec = {"volumeName": volume, "storageClassName": "", "resources": {"requests": {"storage": "1Gi"}}}
    metadata = {"name": "data", "namespace": "default"}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": metadata,
        "spec": spec,
        "status": {"phase": phase},
    }


def volume_in_zone(zone: str) -> Unstructured:
    metadata = {"name": "disk", "labels": {ZONE: zone}}
    return {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": metadata, "spec": {}}


def in_zone(zone: str) -> Unstructured:
    made = node("n1")
    made["metadata"]["labels"][ZONE] = zone
    return made


CASES = {
    "gang that lacks pods": (
        [member("a"), member("b")],
        "GANG_INCOMPLETE",
        "2 of 3 pods of group default/ring exist",
        "create the missing pods",
    ),
    "gang without its PodGroup": (
        [pod("p", 1, metadata=IN_RING)],
        "GANG_INCOMPLETE",
        "PodGroup ring (scheduling.volcano.sh) doesn't exist",
        "create the PodGroup, or correct its name in the pods",
    ),
    "field of a group that is not implemented": (
        [volcano_group(subGroupPolicy=[{"name": "x"}]), pod("p", 1, metadata=IN_RING)],
        "NOT_IMPLEMENTED",
        "spec.subGroupPolicy",
        "set spec.schedulerName to a scheduler that supports it",
    ),
    "group whose pods contradict one another": (
        [member("a", "2"), member("b", "3")],
        "INVALID_OBJECT",
        '"2" on default/a and "3" on default/b',
        "correct the field that the message names",
    ),
    "missing claim": ([with_claim()], "STORAGE_INSUFFICIENT", '"data" not found', "create the claim"),
    "unbound claim": (
        [claim(), with_claim()],
        "STORAGE_INSUFFICIENT",
        "unbound immediate PersistentVolumeClaims: data",
        "check the claim's events",
    ),
    "gang whose member lacks its claim": (
        [member("a", "1", volumes=with_claim()["spec"]["volumes"])],
        "STORAGE_INSUFFICIENT",
        '"data" not found',
        "create the claim",
    ),
    "gate": (
        [pod("p", 1, schedulingGates=[{"name": "a/b"}])],
        "SCHEDULING_GATED",
        "[a/b]",
        "remove it from spec.schedulingGates",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_hold_for_an_objects_sake_keeps_its_names_and_numbers(case: str) -> None:
    objects, code, text, remedy = CASES[case]
    found = held(*TWO_NODES, *objects)
    assert found.code == code
    assert found.limits[0].kind == "object"
    assert text in found.limits[0].text
    assert text in found.public_message
    assert remedy in found.remedy


def test_a_volume_in_another_zone_is_not_an_unbound_claim() -> None:
    found = held(in_zone("east"), volume_in_zone("west"), claim("disk", "Bound"), with_claim())
    assert found.code == "STORAGE_INSUFFICIENT"
    assert "1 node(s) had no available volume zone" in found.public_message
    assert "bound" not in found.public_message
    assert "zone" in found.remedy


def test_a_volume_that_excludes_some_nodes_is_not_the_cause_where_another_node_is_only_full() -> None:
    """One node has the volume's zone and no GPU free; two nodes are in another zone."""
    nodes = [in_zone("west")]
    for name in ("n2", "n3"):
        other = node(name)
        other["metadata"]["labels"][ZONE] = "east"
        nodes.append(other)
    found = held(*nodes, pod("busy", 8, on="n1"), volume_in_zone("west"), claim("disk", "Bound"), with_claim())
    assert found.code == "GPU_FULL"
    assert found.counts[0].code == "STORAGE_INSUFFICIENT", "most nodes are excluded for the volume"


def test_the_remedy_of_node_affinity_is_not_that_of_a_node_name() -> None:
    terms = [{"matchExpressions": [{"key": "pool", "operator": "In", "values": ["gpu"]}]}]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    found = held(*TWO_NODES, pod("p", 1, affinity={"nodeAffinity": required}))
    assert found.code == "SELECTOR_MISMATCH"
    assert found.remedy.startswith("compare nodeSelector and nodeAffinity with the node's labels")


def test_the_remedy_of_a_request_that_is_too_large_is_not_less_gpu_memory() -> None:
    found = held(node("n1"), pod("busy", 8, on="n1"), pod("p", 9))
    assert found.code == "REQUEST_EXCEEDS_CLUSTER"
    assert found.remedy == "request fewer or smaller pods, or add nodes"


def test_a_resource_that_no_node_has_is_not_waited_for() -> None:
    waits = pod("p", 0)
    waits["spec"]["containers"][0]["resources"]["limits"] = {"example.com/nic": "1"}
    found = held(*TWO_NODES, waits)
    assert found.code == "RESOURCE_NAME_MISMATCH"
    assert found.remedy == "request a resource that the nodes advertise"


def test_a_limit_range_is_named_with_its_own_remedy() -> None:
    limit_range = {
        "apiVersion": "v1",
        "kind": "LimitRange",
        "metadata": {"name": "small", "namespace": "default"},
        "spec": {"limits": [{"type": "Container", "max": {"cpu": "1"}}]},
    }
    template = {"spec": pod("x", 1)["spec"]}
    template["spec"]["containers"][0]["resources"]["limits"]["cpu"] = "2"
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "j", "namespace": "default"},
        "spec": {"template": template},
    }
    found = held(*TWO_NODES, limit_range, job)
    assert found.code == "POLICY_DENIED"
    assert "LimitRange" in found.remedy
    assert found.limits[0].text == found.detail


def test_the_models_of_the_cluster_are_named_where_the_model_is_the_reason() -> None:
    """No node of the zone has the model, and all others are full, so that no other request would start."""
    nodes = [labelled(of_model("n0", "NVIDIA-H100"), zone="y"), *(of_model(f"n{at}", "NVIDIA-A100") for at in (1, 2))]
    full = [pod(f"r{at}", 8, on=f"n{at}") for at in range(3)]
    wanted = {"annotations": {"alibabacloud.com/gpu-card-model": "NVIDIA-H100"}}
    others = [labelled(one, zone="x") for one in nodes[1:]]
    picky = pod("w", 1, metadata=wanted, nodeSelector={"zone": "x"})
    found = held(nodes[0], *others, *full, picky)
    assert found.remedy == "allow one of the GPU models that the cluster has: NVIDIA-A100, NVIDIA-H100"
    elsewhere = held(nodes[0], *others, *full, pod("w", 1, nodeSelector={"zone": "z"}))
    assert elsewhere.remedy.startswith("compare nodeSelector")
