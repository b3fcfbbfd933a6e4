"""What the kubelet's reasons say where no pattern knows its words, and which of nested errors counts."""

from __future__ import annotations

import pytest
from tests.diagnose.objects import ask, event, node, pod
from tests.diagnose.test_lost_plugins import creating

from windlass.diagnose.nested_errors import innermost


@pytest.mark.parametrize(
    ("reason", "code"),
    [
        ("SysctlForbidden", "POLICY_DENIED"),
        ("VolumeAttachmentLimitExceeded", "STORAGE_INSUFFICIENT"),
        ("NodePorts", "HOST_PORT_CONFLICT"),
    ],
)
def test_the_reason_of_a_refusal_is_enough(reason: str, code: str) -> None:
    refused = pod("asked", 1, on="g1", phase="Failed", status={"reason": reason, "message": "it is so"})
    found = ask("pod/asked", node("g1", 4), refused)
    assert (found.code, found.confidence) == (code, "high")
    assert "it is so" in found.headline


def starting(reason: str, message: str) -> list[dict[str, object]]:
    parts = creating("")
    return [*parts[:-1], event("Pod/asked", reason, message, "kubelet") | {"type": "Warning"}]


@pytest.mark.parametrize(
    ("reason", "code"),
    [("FailedMapVolume", "STORAGE_INSUFFICIENT"), ("FailedPrepareDynamicResources", "DEVICE_PLUGIN_FAILING")],
)
def test_the_reason_of_an_event_names_the_layer_that_the_pod_waits_for(reason: str, code: str) -> None:
    found = ask("pod/asked", *starting(reason, "outer: middle: the thing that went wrong at last"))
    assert found.code == code
    assert "the thing that went wrong at last" in found.headline
    assert "outer" not in found.headline


def test_a_pod_whose_container_was_started_waits_for_no_layer() -> None:
    crash = {"name": "main", "restartCount": 2, "state": {"waiting": {"reason": "CrashLoopBackOff"}}}
    failing = pod("asked", 1, on="g1", status={"containerStatuses": [crash]})
    said = event("Pod/asked", "FailedMapVolume", "some old trouble", "kubelet") | {"type": "Warning"}
    assert ask("pod/asked", node("g1", 4), failing, said).code != "STORAGE_INSUFFICIENT"


def test_an_empty_cdi_spec_lacks_the_device_nodes() -> None:
    found = ask("pod/asked", *creating("can't write the spec: invalid CDI Spec: invalid device, empty device edits"))
    assert found.code == "DEVICE_NODES_MISSING"


@pytest.mark.parametrize(
    ("message", "inner"),
    [
        ("a: b: context deadline exceeded while it waited", "context deadline exceeded while it waited"),
        ("failed to mount: exit status 32", "failed to mount: exit status 32"),
        ("one error without parts.", "one error without parts"),
        ("", ""),
    ],
)
def test_of_nested_errors_the_innermost_that_says_enough(message: str, inner: str) -> None:
    assert innermost(message) == inner
