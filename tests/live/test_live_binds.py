"""The live scheduler on a real API server: pods are bound, told why they wait, and counted as freed when they end."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.live.replica import replica
from tests.live.scenes import GPU, PODS, bound, condition, overbooked, pod, pods
from tests.real_cluster.api import until
from tests.real_cluster.fake_kubelet import FakeKubelet, node
from tests.real_cluster.fixtures import Cluster

Kubelets = Callable[..., FakeKubelet]


def test_pods_are_bound_and_the_rest_is_told_why(cluster: Cluster, kubelets: Kubelets, tmp_path: Path) -> None:
    kubelet = kubelets()
    api = cluster.api
    api.create(*(node(f"n{i}", {GPU: "8"}) for i in range(2)))
    api.create(*(pod(f"p{i}", 4) for i in range(5)), pod("foreign", 1, "somebody-else"))
    with replica(cluster.kubeconfig, tmp_path / "log", "--no-leader-elect") as one:
        until(lambda: len(bound(api, "p")) == 4, what="four of five fit")
        waiting = until(lambda: [p for p in pods(api, "p").values() if condition(p).get("status") == "False"])
        assert condition(waiting[0])["reason"] == "Unschedulable"
        assert condition(waiting[0])["message"].startswith("0/2 nodes are available: 2 Insufficient nvidia.com/gpu")
        assert not overbooked(api)
        running = next(iter(bound(api, "p")))
        until(lambda: pods(api)[running]["status"]["phase"] == "Running")
        kubelet.finish("default", running)
        until(lambda: len(bound(api, "p")) == 4, what="the freed GPUs are used")
        assert "nodeName" not in api.get(f"{PODS}/foreign")["spec"]
        events = api.items("/apis/events.k8s.io/v1/namespaces/default/events")
        said = {(e["reason"], e["regarding"]["name"]) for e in events}
        assert ("Scheduled", running) in said
        assert any(reason == "FailedScheduling" for reason, _ in said)
        found = one.metrics()
        assert found['scheduler_schedule_attempts_total{profile="windlass",result="scheduled"}'] == 5
        assert one.status("/healthz") == 200
        assert one.stop() == 0, "SIGTERM is a clean end"
