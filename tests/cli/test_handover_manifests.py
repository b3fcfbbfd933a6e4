"""The kube-scheduler of `windlass handover`: which image, and on which node where nobody would place it."""

from __future__ import annotations

from typing import Any

import pytest

from windlass.cli.handover_manifests import HandoverOptions, handover_manifests, node_for_scheduler, release_of


@pytest.mark.parametrize(
    ("version", "release"),
    [
        ("v1.36.3", "v1.36.3"),
        ("v1.33.5+k3s1", "v1.33.5"),
        ("v1.33.5-eks-113cf36", "v1.33.5"),
        ("v1.33.5-gke.1080000", "v1.33.5"),
        ("v1.37.0-rc.1", "v1.37.0-rc.1"),
        ("v1.36.3+windlass.0.1.0", "v1.36.3"),
    ],
)
def test_the_image_is_of_the_release_that_a_vendor_built_on(version: str, release: str) -> None:
    assert release_of(version) == release


def node(name: str, *, ready: bool = True, cordoned: bool = False, gpus: int = 0) -> dict[str, Any]:
    condition = {"type": "Ready", "status": "True" if ready else "False"}
    capacity = {"cpu": "8", **({"nvidia.com/gpu": str(gpus)} if gpus else {})}
    return {
        "metadata": {"name": name},
        "spec": {"unschedulable": True} if cordoned else {},
        "status": {"conditions": [condition], "capacity": capacity},
    }


def test_it_runs_on_a_ready_node_without_gpus() -> None:
    nodes = [node("a", gpus=8), node("b", cordoned=True), node("c", ready=False), node("d"), node("e")]
    assert node_for_scheduler(nodes) == "d"
    assert node_for_scheduler(nodes[:3]) == "a"
    assert node_for_scheduler(nodes[1:3]) == ""


def test_its_pod_needs_no_scheduler_where_windlass_has_the_default_name() -> None:
    placed = pod_of(HandoverOptions("windlass-system", "image", ("default-scheduler",), "d"))
    assert (placed["nodeName"], "schedulerName" in placed) == ("d", False)
    other = pod_of(HandoverOptions("windlass-system", "image", ("windlass",)))
    assert (other["schedulerName"], "nodeName" in other) == ("default-scheduler", False)


def pod_of(options: HandoverOptions) -> dict[str, Any]:
    deployment = handover_manifests(options)[-1]
    found: dict[str, Any] = deployment["spec"]["template"]["spec"]
    return found
