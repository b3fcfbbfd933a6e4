"""Nodes that are starting, coming or promised to others: taints of agents, scale-ups, rollouts, other plugins."""

from __future__ import annotations

from typing import Any

import pytest
from tests.diagnose.causal_scenes import PRESENT, crashing
from tests.diagnose.objects import GPU_TAINT, TOLERATES, ask, event, node, pod, thing

from windlass.diagnose.finding import Diagnosis
from windlass.model.unstructured import Unstructured

TEMPLATE: Unstructured = {"template": {"spec": {"containers": [{"name": "c"}]}}}


# Taints that an agent of the node takes away

STARTUP = ["node.cilium.io/agent-not-ready", "ebs.csi.aws.com/agent-not-ready", "karpenter.sh/unregistered"]


@pytest.mark.parametrize("key", STARTUP)
def test_a_node_that_is_starting_is_not_to_be_tolerated(key: str) -> None:
    agent = crashing("agent-1", "g1", owner=("DaemonSet", "agent"))
    tainted = node("g1", 4, taints=[{"key": key, "effect": "NoExecute"}])
    found = ask("pod/asked", tainted, agent, pod("asked", 1))
    assert found.code == "NODE_UNSCHEDULABLE"
    assert key in found.headline
    assert "agent-1" in " ".join(found.evidence)
    assert not found.patches
    tolerates = pod("fits", 1, on="g1", spec={"tolerations": [{"operator": "Exists"}]})
    assert ask("pod/fits", tainted, tolerates).code == "NONE"


def test_a_taint_that_reserves_nodes_still_has_to_be_tolerated() -> None:
    tainted = node("g1", 4, taints=[{"key": "team.example.com/ready-for-research", "effect": "NoSchedule"}])
    assert ask("pod/asked", tainted, pod("asked", 1)).code == "TAINT_NOT_TOLERATED"


def test_the_agent_that_may_not_run_on_the_node_is_the_cause_behind_its_taint() -> None:
    tainted = node("g1", 4, taints=[GPU_TAINT, {"key": STARTUP[0], "effect": "NoExecute"}], labels=PRESENT)
    asked, agent = pod("asked", 1, spec={"tolerations": TOLERATES}), {"tolerations": [{"key": STARTUP[0]}]}
    daemon = thing("DaemonSet", "cilium", {"template": {"spec": {**TEMPLATE["template"]["spec"], **agent}}})
    found = ask("pod/asked", tainted, daemon, asked)
    assert (found.code, found.changed_by) == ("TAINT_NOT_TOLERATED", "a cluster administrator")
    assert "DaemonSet team/cilium" in found.headline
    assert not found.patches
    daemon["spec"]["template"]["spec"]["tolerations"] = [{"operator": "Exists"}]
    assert ask("pod/asked", tainted, daemon, asked).code == "NODE_UNSCHEDULABLE"


# Nodes that an autoscaler adds


def scaled(reason: str, message: str, at: str, *more: Unstructured) -> Diagnosis:
    said = event("Pod/asked", reason, message, "karpenter") | {"lastTimestamp": at}
    return ask("pod/asked", node("c1"), pod("asked", 1), said, *more)


SOON, LONG_AGO = "2026-03-01T11:55:00Z", "2026-03-01T11:00:00Z"


def test_a_node_that_is_being_added_is_waited_for() -> None:
    found = scaled("TriggeredScaleUp", "pod triggered scale-up: [{gpus 0->1 (max: 4)}]", SOON)
    assert (found.code, found.state, found.confidence) == ("GPU_NOT_YET_ADVERTISED", "waiting", "high")
    late = scaled("TriggeredScaleUp", "pod triggered scale-up: [{gpus 0->1 (max: 4)}]", LONG_AGO)
    assert (late.code, late.confidence) == ("RESOURCE_NAME_MISMATCH", "low")


@pytest.mark.parametrize(
    ("registered", "at", "code"),
    [
        ("Unknown", LONG_AGO, "NODE_UNSCHEDULABLE"),
        ("Unknown", SOON, "GPU_NOT_YET_ADVERTISED"),
        ("True", LONG_AGO, "RESOURCE_NAME_MISMATCH"),
    ],
)
def test_a_machine_that_was_started_and_has_not_joined(registered: str, at: str, code: str) -> None:
    status = {"conditions": [{"type": "Launched", "status": "True"}, {"type": "Registered", "status": registered}]}
    machine = thing("NodeClaim", "gpu-x", {}, "karpenter.sh/v1", status=status)
    assert scaled("Nominated", "Pod should schedule on: nodeclaim/gpu-x", at, machine).code == code


# Rollouts


def rollout(gpus: int, strategy: Unstructured, replicas: int = 1, **old: Any) -> Diagnosis:
    owner = thing("Deployment", "web", {"replicas": replicas, "strategy": strategy, **TEMPLATE})
    sets = [thing("ReplicaSet", name, {}, owner=("Deployment", "web")) for name in ("web-1", "web-2")]
    before = pod("web-1-a", 1, on="g1", owner=("ReplicaSet", "web-1"), **old)
    busy = pod("busy", gpus - 1, on="g1") if gpus > 1 else pod("idle", on="g1")
    asked = pod("asked", 1, owner=("ReplicaSet", "web-2"))
    return ask("pod/asked", node("g1", gpus, labels=PRESENT), owner, *sets, before, busy, asked)


def test_a_rollout_whose_old_pod_has_the_last_gpu_never_ends_by_itself() -> None:
    found = rollout(1, {})
    assert (found.code, found.state) == ("GPU_FULL", "blocked")
    assert "Pod team/web-1-a of the same Deployment holds 1" in found.headline
    assert "maxSurge: 0" in found.headline


@pytest.mark.parametrize(
    ("gpus", "strategy", "replicas"),
    [
        (2, {}, 1),
        (1, {"rollingUpdate": {"maxUnavailable": 1}}, 1),
        (1, {"rollingUpdate": {"maxUnavailable": "100%"}}, 1),
        (1, {}, 4),
        (1, {"type": "Recreate"}, 1),
    ],
)
def test_a_rollout_that_may_end_old_pods_or_has_room_waits(gpus: int, strategy: Unstructured, replicas: int) -> None:
    found = rollout(gpus, strategy, replicas)
    assert (found.code, found.state) == ("GPU_FULL", "waiting")


# Plugins of other devices


def test_the_plugin_of_a_device_that_is_no_gpu() -> None:
    limits = {"nvidia.com/gpu": "1", "rdma/hca_shared": "1"}
    asked = pod("asked", spec={"containers": [{"name": "main", "resources": {"limits": limits}}]})
    daemon = thing("DaemonSet", "rdma-shared-dp", TEMPLATE, namespace="gpu-operator")
    crashed = crashing("rdma-shared-dp-x", "g1", owner=("DaemonSet", "rdma-shared-dp"))
    has = node("g1", 4, labels=PRESENT)
    found = ask("pod/asked", has, asked, daemon, crashed)
    assert (found.code, found.confidence) == ("DEVICE_PLUGIN_FAILING", "low")  # its log is not there
    assert "rdma-shared-dp" in found.headline
    assert ask("pod/asked", has, asked).code == "RESOURCE_NAME_MISMATCH"


# Pods that do not go


def test_a_deleted_pod_that_stays_on_a_working_node_is_not_well() -> None:
    running = {"name": "main", "ready": True, "state": {"running": {"startedAt": "2026-03-01T09:00:00Z"}}}
    asked = pod("asked", 1, on="g1", status={"containerStatuses": [running]})
    asked["metadata"] |= {"deletionTimestamp": "2026-03-01T11:59:30Z", "finalizers": ["example.com/cleanup"]}
    assert ask("pod/asked", node("g1", 4), asked).code == "NONE"
    asked["metadata"]["deletionTimestamp"] = "2026-03-01T10:00:00Z"
    found = ask("pod/asked", node("g1", 4), asked)
    assert (found.code, found.confidence) == ("UNKNOWN", "low")
    assert "example.com/cleanup" in found.headline
