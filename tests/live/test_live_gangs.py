"""Gangs on a real API server: whole or not at all, beside what kube-scheduler makes of the same pods."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from tests.live.replica import replica
from tests.live.scenes import GPU, bound, condition, gang, overbooked, pods
from tests.real_cluster.api import Object, until
from tests.real_cluster.control_plane import ControlPlane
from tests.real_cluster.fake_kubelet import FakeKubelet, node
from tests.real_cluster.fixtures import Cluster

Kubelets = Callable[..., FakeKubelet]


def interleaved(scheduler: str = "windlass") -> list[Object]:
    """Two gangs of eight, their members made in turn."""
    both = zip(gang("red", 8, 8, scheduler), gang("blue", 8, 8, scheduler), strict=True)
    return [one for pair in both for one in pair]


def test_of_two_gangs_one_runs_whole_and_the_other_holds_nothing(
    cluster: Cluster, kubelets: Kubelets, tmp_path: Path
) -> None:
    kubelets()
    api = cluster.api
    api.create(*(node(f"n{i:02}", {GPU: "8"}) for i in range(12)))
    with replica(cluster.kubeconfig, tmp_path / "log", "--no-leader-elect"):
        api.create(*interleaved())
        until(lambda: len(bound(api)) == 8, what="one gang runs")
        until(lambda: all(condition(one) for one in pods(api).values()), what="everybody is told something")
        counts = {name: len(bound(api, name)) for name in ("red", "blue")}
        assert sorted(counts.values()) == [0, 8], counts
        loser = min(counts, key=lambda name: counts[name])
        assert all(condition(one)["status"] == "False" for one in pods(api, loser).values())
        assert not overbooked(api)


def test_kube_scheduler_leaves_both_halfway(control_plane: ControlPlane) -> None:
    """The same pods, for comparison: this is what the gang rule is for."""
    api = control_plane.api
    api.create(*(node(f"n{i:02}", {GPU: "8"}) for i in range(12)))
    peer = control_plane.scheduler()
    peer.start()
    try:
        api.create(*interleaved("default-scheduler"))
        until(lambda: len(bound(api)) == 12, what="it fills all nodes")
        counts = {name: len(bound(api, name)) for name in ("red", "blue")}
        assert 0 < counts["red"] < 8
        assert 0 < counts["blue"] < 8
    finally:
        peer.stop()


def test_a_gang_waits_for_its_last_member(cluster: Cluster, kubelets: Kubelets, tmp_path: Path) -> None:
    kubelets()
    api = cluster.api
    api.create(*(node(f"n{i}", {GPU: "8"}) for i in range(4)))
    *most, last = gang("late", 4)
    with replica(cluster.kubeconfig, tmp_path / "log", "--no-leader-elect"):
        api.create(*most)
        until(lambda: all(condition(one).get("reason") == "WaitingForGang" for one in pods(api).values()))
        assert not bound(api)
        api.create(last)
        until(lambda: len(bound(api)) == 4)


def test_a_member_that_the_kubelet_refuses_is_completed_elsewhere(
    cluster: Cluster, kubelets: Kubelets, tmp_path: Path
) -> None:
    """A Job's gang: the kubelet of one node refuses what it is given once; the Job makes another pod."""
    refused: list[str] = []

    def refuse(one: Object) -> str:
        if not refused and one["spec"]["nodeName"] == "n0":
            refused.append(one["metadata"]["name"])
            return "OutOfnvidia.com/gpu"
        return ""

    kubelets(refuse=refuse)
    api = cluster.api
    api.create(*(node(f"n{i}", {GPU: "8"}) for i in range(4)))
    (template, *_) = gang("job", 4)
    del template["metadata"]["name"], template["metadata"]["namespace"]
    template["spec"]["restartPolicy"] = "Never"
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "job"},
        "spec": {"parallelism": 4, "completions": 4, "template": template},
    }
    with replica(cluster.kubeconfig, tmp_path / "log", "--no-leader-elect"):
        api.create(job)
        until(lambda: bool(refused), what="the kubelet says no")
        until(lambda: len(bound(api)) == 4, seconds=60, what="the gang is whole again")
        time.sleep(1)
        assert len(bound(api)) == 4
        assert not overbooked(api)


def test_a_gang_that_stays_incomplete_is_evicted_whole(cluster: Cluster, kubelets: Kubelets, tmp_path: Path) -> None:
    """Pods that nobody makes again: what is left of the gang goes after its grace, and frees its GPUs."""
    kubelets()
    api = cluster.api
    api.create(*(node(f"n{i}", {GPU: "8"}) for i in range(3)))
    config = tmp_path / "config.yaml"
    config.write_text("apiVersion: windlass.dev/v1\nkind: SchedulerConfiguration\ngangGrace: 3s\n")
    with replica(cluster.kubeconfig, tmp_path / "log", "--no-leader-elect", f"--config={config}") as one:
        api.create(*gang("g", 3))
        until(lambda: len(bound(api, "g")) == 3)
        api.delete("/api/v1/namespaces/default/pods/g-0", gracePeriodSeconds=0)
        until(lambda: not bound(api, "g"), 60, f"the rest is evicted\n{one.last_lines()}")
        api.create(*gang("next", 3))
        until(lambda: len(bound(api, "next")) == 3, 30, one.last_lines)
