"""Sentences of `why` have the names and numbers that the objects have: limits, node groups, ends of nodes."""

from __future__ import annotations

import pytest
from tests.diagnose.objects import GPU, ask, ended, event, node, pod


def test_the_memory_limit_that_was_exceeded() -> None:
    killed = {"terminated": {"reason": "OOMKilled", "exitCode": 137}}
    status = {"containerStatuses": [{"name": "main", "restartCount": 3, "state": killed}]}
    found = ask("pod/asked", node("g1", 4), pod("asked", 1, on="g1", phase="Failed", status=status))
    assert found.code == "CONTAINER_OOM"
    assert "main exceeded its memory limit of 1Gi and was killed" in found.headline


@pytest.mark.parametrize(
    ("seconds", "said"), [(3600, "activeDeadlineSeconds of 3600"), (None, "activeDeadlineSeconds")]
)
def test_the_deadline_that_it_ran_into(seconds: int | None, said: str) -> None:
    spec = {} if seconds is None else {"activeDeadlineSeconds": seconds}
    status = {"reason": "DeadlineExceeded", "message": "Pod was active on the node longer than the specified deadline"}
    found = ask("pod/asked", node("g1", 4), pod("asked", 1, on="g1", phase="Failed", status=status, spec=spec))
    assert f"t ran into its {said} —" in found.headline


def test_the_node_that_was_shut_down() -> None:
    status = {"reason": "NodeShutdown", "message": "Pod was terminated in response to imminent node shutdown."}
    found = ask("pod/asked", node("g1", 4), pod("asked", 1, on="g1", phase="Failed", status=status))
    assert "ode g1 was shut down or deleted, and the pod with it" in found.headline


def test_a_volume_without_a_size_limit_has_none_to_raise() -> None:
    container = {
        "name": "main",
        "resources": {"limits": {GPU: "1"}},
        "volumeMounts": [{"name": "fast", "mountPath": "/dev/shm"}],
    }
    volumes = [{"name": "fast", "emptyDir": {"medium": "Memory"}}]
    asked = ended(spec={"containers": [container], "volumes": volumes})
    found = ask("pod/asked", node("g1", 4), asked, logs={"team/asked": "insufficient shared memory (shm)"})
    assert "raise the memory limit, which bounds volume fast" in found.headline


@pytest.mark.parametrize(
    ("reason", "source", "message", "said"),
    [
        (
            "NotTriggerScaleUp",
            "cluster-autoscaler",
            "pod didn't trigger scale-up: 2 max node group size reached",
            "2 matching node groups are at their maximum size",
        ),
        (
            "NotTriggerScaleUp",
            "cluster-autoscaler",
            "pod didn't trigger scale-up: 1 max node group size reached",
            "he matching node group is at its maximum size",
        ),
        (
            "FailedScheduling",
            "karpenter",
            'Failed to schedule pod, all available instance types exceed limits for nodepool: "gpus"',
            "he limits of NodePool gpus are reached",
        ),
    ],
)
def test_the_node_groups_of_an_autoscaler(reason: str, source: str, message: str, said: str) -> None:
    found = ask(
        "pod/asked",
        node("g1", 1),
        pod("holds", 1, on="g1"),
        pod("asked", 1),
        event("Pod/asked", reason, message, source),
    )
    assert found.code == "AUTOSCALER_MAX_SIZE"
    assert said in found.headline
