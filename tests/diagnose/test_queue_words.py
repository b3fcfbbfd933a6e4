"""What Kueue says of a Workload that it does not admit: each of its reasons, and one that nobody knows."""

from __future__ import annotations

import pytest
from tests.diagnose.objects import GPU, ask, node, thing

from windlass.model.unstructured import Unstructured

TEMPLATE: Unstructured = {"spec": {"containers": [{"name": "c", "resources": {"limits": {GPU: "1"}}}]}}
VERSION = "kueue.x-k8s.io/v1beta1"
PREFIX = "couldn't assign flavors to pod set main: "


def held(message: str, reason: str) -> list[Unstructured]:
    labels = {"kueue.x-k8s.io/queue-name": "q"}
    spec = {"suspend": True, "parallelism": 1, "template": TEMPLATE}
    condition = {"type": "QuotaReserved", "status": "False", "reason": reason, "message": message}
    pods = [{"name": "main", "count": 1, "template": TEMPLATE}]
    status = {"conditions": [condition]}
    return [
        node("g1", 8),
        thing("Job", "j", spec, "batch/v1", labels=labels),
        thing("Workload", "w", {"queueName": "q", "podSets": pods}, VERSION, owner=("Job", "j"), status=status),
    ]


@pytest.mark.parametrize(
    ("message", "reason", "code"),
    [
        (f"{PREFIX}borrowing limit for {GPU} in flavor f exceeded", "Pending", "KUEUE_QUOTA_INSUFFICIENT"),
        ("DeviceClass is not mapped in DRA configuration for podset main", "Inadmissible", "KUEUE_QUOTA_MISCONFIGURED"),
        ("resources didn't satisfy LimitRange constraints: memory", "Inadmissible", "POLICY_DENIED"),
        ("resource validation failed: requests must not exceed its limits", "Inadmissible", "INVALID_OBJECT"),
        (f"{PREFIX}flavor h100 not found", "Pending", "KUEUE_QUEUE_MISSING"),
        (f'{PREFIX}Flavor "f" does not support TopologyAwareScheduling', "Pending", "KUEUE_TOPOLOGY_NOFIT"),
        ("waiting for all admitted workloads to be in PodsReady condition", "Waiting", "ADMISSION_DEFERRED"),
        ("Workload namespace doesn't match ClusterQueue selector", "Inadmissible", "KUEUE_QUEUE_MISSING"),
    ],
)
def test_each_reason_has_its_cause(message: str, reason: str, code: str) -> None:
    assert ask("job/j", *held(message, reason)).code == code


def test_a_reason_that_nobody_knows_is_repeated_and_is_no_missing_queue() -> None:
    found = ask("job/j", *held("the moon is in the wrong phase", "Inadmissible"))
    assert (found.code, found.confidence) == ("UNKNOWN", "low")
    assert "its queue does not admit it: the moon is in the wrong phase" in found.headline.lower()
