"""A pod that Windlass can't read, on a real API server: its owner sees what is wrong, and the others run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.live.replica import replica
from tests.live.scenes import GPU, bound, condition, pod, pods
from tests.real_cluster.api import Object, until
from tests.real_cluster.fake_kubelet import FakeKubelet, node
from tests.real_cluster.fixtures import Cluster

Kubelets = Callable[..., FakeKubelet]


def test_the_owner_sees_what_is_wrong(cluster: Cluster, kubelets: Kubelets, tmp_path: Path) -> None:
    kubelets()
    api = cluster.api
    api.create(node("n0", {GPU: "8"}))
    api.create(pod("odd", 0, annotations={"gpu-fraction": "a half"}), pod("good", 1))

    def events() -> list[Object]:
        found = api.items("/apis/events.k8s.io/v1/namespaces/default/events")
        return [one for one in found if (one["regarding"]["name"], one["reason"]) == ("odd", "Unreadable")]

    with replica(cluster.kubeconfig, tmp_path / "log", "--no-leader-elect") as one:
        until(lambda: bound(api, "good"), 60, one.last_lines)
        until(lambda: condition(pods(api)["odd"]).get("reason") == "Misconfigured", 60, one.last_lines)
        assert "gpu-fraction" in condition(pods(api)["odd"])["message"]
        (event,) = until(events, 60, one.last_lines)
        assert event["type"] == "Warning"
        assert one.metrics()['windlass_unreadable_objects_total{kind="Pod"}'] == 1
        assert one.status("/readyz") == 200
