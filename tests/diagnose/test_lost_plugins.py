"""Faults of the node's stack that look like another's: a plugin that is gone, a hook, a daemon of the fabric."""

from __future__ import annotations

import pytest
from tests.diagnose.objects import GPU, ask, event, node, plugin, pod, thing

from windlass.model.unstructured import Unstructured

GONE = {"capacity": {GPU: 4}}
"""A node whose GPUs are in capacity, and none of them is allocatable."""
DEPLOY = "nvidia.com/gpu.deploy.device-plugin"


def gated_plugin() -> Unstructured:
    template = {
        "metadata": {"labels": {"app": "p"}},
        "spec": {"containers": [{"name": "c"}], "nodeSelector": {DEPLOY: "true"}},
    }
    return thing("DaemonSet", "nvidia-device-plugin", {"template": template}, namespace="kube-system")


# GPUs whose plugin is gone are not unhealthy


def test_gpus_are_not_called_unhealthy_where_no_plugin_runs() -> None:
    found = ask("pod/asked", node("g1", {GPU: 0}, **GONE, labels={DEPLOY: "false"}), gated_plugin(), pod("asked", 2))
    assert found.code == "DEVICE_PLUGIN_ABSENT"
    assert f"{DEPLOY} is false, not true" in found.headline


def test_a_driver_upgrade_that_has_paused_the_plugin_is_the_cause() -> None:
    labels = {DEPLOY: "paused-for-driver-upgrade", "nvidia.com/gpu-driver-upgrade-state": "drain-required"}
    found = ask("pod/asked", node("g1", {GPU: 0}, **GONE, labels=labels), gated_plugin(), pod("asked", 2))
    assert found.code == "DRIVER_UPGRADE_BLOCKED"


def test_gpus_are_not_called_unhealthy_where_the_plugin_crashes() -> None:
    daemon, there = plugin("g1", restarts=7)
    there["status"]["containerStatuses"][0]["state"] = {"waiting": {"reason": "CrashLoopBackOff"}}
    found = ask("pod/asked", node("g1", {GPU: 0}, **GONE), daemon, there, pod("asked", 2))
    assert found.code == "DEVICE_PLUGIN_FAILING"


def test_gpus_are_unhealthy_where_the_plugin_runs_and_offers_none() -> None:
    found = ask("pod/asked", node("g1", {GPU: 0}, **GONE), *plugin("g1"), pod("asked", 2))
    assert found.code == "DEVICE_UNHEALTHY"


def test_gpus_are_unhealthy_where_some_are_still_offered() -> None:
    found = ask("pod/asked", node("g1", {GPU: 1}, **GONE), *plugin(""), pod("asked", 2))
    assert found.code == "DEVICE_UNHEALTHY"


# Containers that can't be created


@pytest.mark.parametrize(
    "words",
    [
        "runc create failed: error running createContainer hook #1: fork/exec /opt/bin/nvidia-ctk: no such file or dir",
        'error running prestart hook #0: exec: "nvidia-container-cli": executable file not found in $PATH',
        "error running createRuntime hook #0: fork/exec /usr/bin/nvidia-cdi-hook: permission denied",
    ],
)
def test_a_hook_that_is_not_on_the_host_means_a_runtime_that_is_not_configured(words: str) -> None:
    start = {"terminated": {"exitCode": 128, "reason": "StartError", "message": f"OCI runtime: {'a: ' * 90}{words}"}}
    status = {"containerStatuses": [{"name": "main", "restartCount": 9, "ready": False, "state": start}]}
    found = ask("pod/asked", node("g1", 4), pod("asked", 1, on="g1", status=status))
    assert (found.code, found.confidence) == ("RUNTIME_NOT_CONFIGURED", "high")
    assert "nvidia-ctk cdi generate" in found.headline
    assert words.split(": ", 2)[-1].split(":")[0] in found.evidence[0]  # however long the line is


def creating(message: str) -> list[Unstructured]:
    """A pod that has its node for two hours, whose claim can't be prepared."""
    waiting = {"name": "main", "ready": False, "state": {"waiting": {"reason": "ContainerCreating"}}}
    scheduled = {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-03-01T10:00:00Z"}
    status = {"containerStatuses": [waiting], "conditions": [scheduled]}
    asked = pod("asked", 4, on="g1", phase="Pending", status=status)
    said = event("Pod/asked", "FailedPrepareDynamicResources", message, "kubelet") | {"type": "Warning"}
    return [node("g1", 4), node("g2", 4), asked, said]


UNREADY = (
    f"NodePrepareResources failed for claim {'long-name-' * 20}: error asserting ComputeDomain Ready: current node "
    "not ready in ComputeDomain"
)


def imex_daemon(on: str) -> Unstructured:
    spec = {"containers": [{"name": "compute-domain-daemon"}]}
    crash = {"name": "compute-domain-daemon", "restartCount": 9, "state": {"waiting": {"reason": "CrashLoopBackOff"}}}
    return pod(f"domain-7-{on}", on=on, namespace="dra", spec=spec, status={"containerStatuses": [crash]})


def test_the_imex_daemon_of_the_node_is_what_a_compute_domain_waits_for() -> None:
    logs = {"dra/domain-7-g1": "[ERROR] no interface has an address of nodes.cfg\n[ERROR] IMEX exits"}
    found = ask("pod/asked", *creating(UNREADY), imex_daemon("g2"), imex_daemon("g1"), logs=logs)
    assert (found.code, found.confidence) == ("FABRIC_NOT_READY", "high")
    assert "Pod dra/domain-7-g1: compute-domain-daemon is in CrashLoopBackOff" in found.headline
    assert any("no interface has an address" in line for line in found.evidence)


def test_a_compute_domain_without_known_daemons_is_less_certain() -> None:
    assert ask("pod/asked", *creating(UNREADY)).confidence == "low"


def test_what_the_kubelet_says_last_of_a_claim_is_quoted_as_the_fault_of_the_driver() -> None:
    found = ask("pod/asked", *creating("the driver foo.example is not registered"))
    assert found.code == "DEVICE_PLUGIN_FAILING"
    assert any("foo.example" in line for line in found.evidence)
