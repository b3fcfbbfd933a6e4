"""Whose job it is: pods of administrators own it, and nothing that a tenant writes takes it away from the agent."""

from __future__ import annotations

from typing import Any

import pytest

from windlass.node.owners import conflict_message, doubt_message, find_owners

APPS = [
    ("nvidia-device-plugin-daemonset", "plugin"),
    ("nvidia-dcgm-exporter", "exporter"),
    ("gpu-feature-discovery", "labels"),
    ("nvidia-mig-manager", "mig"),
]
HOST_VOLUME = {"name": "kubelet", "hostPath": {"path": "/var/lib/kubelet/device-plugins"}}


def operand(app: str, *, label: str = "app", namespace: str = "gpu-operator", phase: str = "Running") -> dict[str, Any]:
    """A pod as NVIDIA's operator makes it."""
    owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": app, "uid": "1", "controller": True}
    metadata = {"name": "p", "namespace": namespace, "labels": {label: app}, "ownerReferences": [owner]}
    return {"metadata": metadata, "spec": {"volumes": [HOST_VOLUME], "containers": []}, "status": {"phase": phase}}


@pytest.mark.parametrize(("app", "part"), APPS)
def test_the_operators_pods_are_recognised(app: str, part: str) -> None:
    owners = find_owners([operand(app)])
    assert owners == ({part: "gpu-operator/p"}, {})
    label = f"nvidia.com/gpu.deploy.{app.removeprefix('nvidia-').removesuffix('-daemonset')}"
    assert label in conflict_message(part, owners.trusted[part])


def test_googles_plugin_is_recognised_by_its_own_label() -> None:
    pod = operand("nvidia-gpu-device-plugin", label="k8s-app", namespace="kube-system")
    assert find_owners([pod]).trusted == {"plugin": "kube-system/p"}


def test_a_privileged_pod_needs_no_volume_of_the_host() -> None:
    pod = operand("nvidia-mig-manager")
    pod["spec"] = {"containers": [{"securityContext": {"privileged": True}}]}
    assert find_owners([pod]).trusted == {"mig": "gpu-operator/p"}


def test_a_pod_that_has_ended_owns_nothing() -> None:
    assert find_owners([operand("nvidia-mig-manager", phase="Succeeded")]) == ({}, {})


def in_a_namespace_of_its_own(pod: dict[str, Any]) -> None:
    pod["metadata"]["namespace"] = "team"


def without_an_owner(pod: dict[str, Any]) -> None:
    pod["metadata"]["ownerReferences"] = None


def of_a_job(pod: dict[str, Any]) -> None:
    pod["metadata"]["ownerReferences"] = [{"kind": "Job", "name": "j", "controller": True}]


def of_a_daemon_set_that_is_not_its_controller(pod: dict[str, Any]) -> None:
    pod["metadata"]["ownerReferences"] = [{"kind": "DaemonSet", "name": "d"}]


def without_the_host(pod: dict[str, Any]) -> None:
    pod["spec"] = {"volumes": [{"name": "v", "emptyDir": {}}], "containers": [{"securityContext": None}]}


@pytest.mark.parametrize(("app", "part"), APPS)
@pytest.mark.parametrize(
    "change",
    [
        in_a_namespace_of_its_own,
        without_an_owner,
        of_a_job,
        of_a_daemon_set_that_is_not_its_controller,
        without_the_host,
    ],
)
def test_a_label_that_a_tenant_can_write_takes_no_job(app: str, part: str, change: Any) -> None:
    pod = operand(app)
    change(pod)
    owners = find_owners([pod])
    assert owners.trusted == {}
    (owner,) = owners.doubtful.values()
    assert "--trusted-namespaces" in doubt_message(part, owner)


def test_namespaces_are_the_administrators_choice() -> None:
    pod = operand("nvidia-mig-manager", namespace="our-gpus")
    assert find_owners([pod], ["our-gpus"]).trusted == {"mig": "our-gpus/p"}
    assert find_owners([operand("nvidia-mig-manager")], ["our-gpus"]).trusted == {}


def test_a_doubtful_pod_does_not_hide_a_trusted_one() -> None:
    tenants = operand("nvidia-mig-manager", namespace="team")
    assert find_owners([tenants, operand("nvidia-mig-manager")]).trusted == {"mig": "gpu-operator/p"}
