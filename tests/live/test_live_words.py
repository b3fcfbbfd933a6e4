"""What waiting pods are told: a reason by which no autoscaler buys a node in vain, and nothing about others."""

from __future__ import annotations

from pathlib import Path

from tests.live.replica import replica
from tests.live.scenes import GPU, bound, condition, gang, pod, pods
from tests.real_cluster.api import Object, until
from tests.real_cluster.control_plane import ControlPlane
from tests.real_cluster.fake_kubelet import FakeKubelet, node

SECRETS = ("hidden", "secret-value")


def waiting() -> dict[str, tuple[Object, str, str]]:
    """Pod → the same, the reason that it is told, and a part of the message."""
    claim = {"name": "data", "persistentVolumeClaim": {"claimName": "absent"}}
    found = [
        (pod("full", 8), "Unschedulable", "Insufficient nvidia.com/gpu"),
        (pod("nowhere", 1, nodeSelector={"pool": "none"}), "Unschedulable", "node affinity/selector"),
        (pod("volume", 0, volumes=[claim]), "WaitingForVolume", 'persistentvolumeclaim "absent" not found'),
        (
            pod("device", 1, resourceClaims=[{"name": "card", "resourceClaimName": "c"}]),
            "NotImplemented",
            "does not allocate: card",
        ),
        (gang("few", 3, 1)[0], "WaitingForGang", "1 of 3 pods of group"),
        (pod("gated", 1, schedulingGates=[{"name": "example.com/mine"}]), "SchedulingGated", "gates"),
    ]
    return {one["metadata"]["name"]: (one, reason, part) for one, reason, part in found}


def test_reasons_and_what_they_keep_to_themselves(control_plane: ControlPlane, tmp_path: Path) -> None:
    api = control_plane.api
    secret = {"key": "team", "value": "secret-value", "effect": "NoSchedule"}
    api.create(node("n0", {GPU: "8"}), node("n1", {GPU: "8"}, taints=[secret]))
    api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "hidden-tenant"}})
    other = pod("hidden-workload", 8)
    other["metadata"]["namespace"] = "hidden-tenant"
    expected = waiting()
    with FakeKubelet(api), replica(control_plane.kubeconfig, tmp_path / "log", "--no-leader-elect") as one:
        api.create(other)
        until(lambda: api.get(api.path_of(other))["spec"].get("nodeName"), 60, one.last_lines)
        api.create(*(made for made, _, _ in expected.values()))
        for name, (_, reason, part) in expected.items():
            told = until(lambda name=name: condition(pods(api)[name]), 60, f"{name}\n{one.last_lines()}")
            assert (told["status"], told["reason"]) == ("False", reason), name
            assert part in told["message"], name
        assert not bound(api)
        events = api.items("/apis/events.k8s.io/v1/namespaces/default/events")
        said = [condition(each)["message"] for each in pods(api).values()] + [each["note"] for each in events]
        assert not [text for text in said if any(secret in text for secret in SECRETS)]
