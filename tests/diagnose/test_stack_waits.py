"""Components that wait in an init container: the layer that they wait for, unless it is there."""

from __future__ import annotations

import pytest
from tests.diagnose.causal_scenes import PRESENT, running
from tests.diagnose.objects import ask, node, pod

from windlass.model.unstructured import Unstructured

LONG_AGO, JUST_NOW = "2026-03-01T10:00:00Z", "2026-03-01T11:58:00Z"


def waiting(name: str, container: str, since: str = LONG_AGO) -> Unstructured:
    status = {"initContainerStatuses": [{"name": container, "state": {"running": {"startedAt": since}}}]}
    return pod(name, on="g1", namespace="gpu-operator", phase="Pending", status=status)


@pytest.mark.parametrize(
    ("container", "code"),
    [("driver-validation", "DRIVER_MISSING"), ("toolkit-validation", "RUNTIME_NOT_CONFIGURED")],
)
def test_the_layer_that_the_plugin_waits_for(container: str, code: str) -> None:
    plugin = waiting("nvidia-device-plugin-daemonset-1", container)
    found = ask("pod/asked", node("g1", labels=PRESENT), plugin, pod("asked", 1))
    assert (found.code, found.confidence) == (code, "low")
    assert "has waited" in found.headline


def test_the_lowest_of_those_that_wait() -> None:
    parts = (
        waiting("nvidia-driver-daemonset-1", "mofed-validation"),
        waiting("nvidia-device-plugin-daemonset-1", "toolkit-validation"),
    )
    found = ask("pod/asked", node("g1", labels=PRESENT), *parts, pod("asked", 1))
    assert found.code == "DRIVER_MISSING"
    assert "nvidia-driver-daemonset-1" in found.headline


def test_a_layer_that_is_ready_is_not_waited_for() -> None:
    parts = (
        running("nvidia-container-toolkit-daemonset-1", "g1", LONG_AGO),
        waiting("nvidia-device-plugin-daemonset-1", "toolkit-validation"),
    )
    assert ask("pod/asked", node("g1", labels=PRESENT), *parts, pod("asked", 1)).code != "RUNTIME_NOT_CONFIGURED"


def test_who_has_just_begun_to_wait_may_wait() -> None:
    plugin = waiting("nvidia-device-plugin-daemonset-1", "driver-validation", JUST_NOW)
    assert ask("pod/asked", node("g1", labels=PRESENT), plugin, pod("asked", 1)).code != "DRIVER_MISSING"
