"""Priority among pods that are in no queue, on a real API server: who has to go goes first, and is told why."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from tests.live.replica import replica
from tests.live.scenes import GPU, PODS, bound, condition, pod, pods
from tests.real_cluster.api import Api, Object, until
from tests.real_cluster.fake_kubelet import FakeKubelet, node
from tests.real_cluster.fixtures import Cluster

Kubelets = Callable[..., FakeKubelet]
SLOW = "example.com/slow-to-go"
"""A finalizer: the pod stays until the test lets it go, as one that saves its work would."""


def priority_class(name: str, value: int) -> Object:
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": name},
        "value": value,
    }


def victim(name: str) -> Object:
    made = pod(name, 4, priorityClassName="low")
    made["metadata"]["finalizers"] = [SLOW]
    return made


def leaving(api: Api) -> set[str]:
    return {name for name, one in pods(api).items() if "deletionTimestamp" in one["metadata"]}


def test_victims_leave_before_the_pod_comes(cluster: Cluster, kubelets: Kubelets, tmp_path: Path) -> None:
    kubelets()
    api = cluster.api
    api.create(priority_class("low", 10), priority_class("high", 1000), node("n0", {GPU: "8"}))
    with replica(cluster.kubeconfig, tmp_path / "log", "--no-leader-elect") as one:
        api.create(victim("secret-a"), victim("secret-b"))
        until(lambda: len(bound(api, "secret")) == 2, 60, one.last_lines)
        api.create(pod("same", 8, priorityClassName="low"))  # made in the same second, it might go first by its name
        until(lambda: condition(pods(api)["same"]).get("reason") == "Unschedulable", 60, one.last_lines)
        api.create(pod("urgent", 8, priorityClassName="high"))
        until(lambda: leaving(api) == {"secret-a", "secret-b"}, 60, one.last_lines)
        urgent = until(lambda: told_to_wait(api), 60, one.last_lines)
        assert urgent["status"]["nominatedNodeName"] == "n0"
        assert "secret" not in condition(urgent)["message"], "whose place it gets is nobody's business"
        for name in leaving(api):
            target = condition(pods(api)[name], "DisruptionTarget")
            assert (target["status"], target["reason"]) == ("True", "EvictionByEvictionAPI")
        until(lambda: preempted(api) == {"secret-a", "secret-b"}, 60, one.last_lines)
        let_go(api, "secret-a")
        deadline = time.monotonic() + 3
        while time.monotonic() < deadline:
            assert not bound(api, "urgent"), "half of its place is still taken"
            time.sleep(0.2)
        let_go(api, "secret-b")
        until(lambda: bound(api) == {"urgent": "n0"}, 60, one.last_lines)
        assert not bound(api, "same"), "nobody made way for its equal"


def told_to_wait(api: Api) -> Object:
    one = pods(api)["urgent"]
    return one if condition(one).get("reason") == "WaitingForVictims" else {}


def preempted(api: Api) -> set[str]:
    found = api.items("/apis/events.k8s.io/v1/namespaces/default/events")
    return {one["regarding"]["name"] for one in found if one["reason"] == "Preempted"}


def let_go(api: Api, name: str) -> None:
    api.patch(f"{PODS}/{name}", {"metadata": {"finalizers": None}})
    until(lambda: not api.exists(f"{PODS}/{name}"), what=f"{name} is gone")
