"""Admission of what is no Job: owners are let go and stopped by the field that their kind has, pods by their gates."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.live.owner_kinds import (
    GATE,
    GROUP_INDEX,
    LWS_NAME,
    QUEUE,
    WORKER_INDEX,
    install_kinds_of_others,
    is_suspended,
    job_set,
    owner,
    play_controllers,
    pods_of,
    reference,
    suspended_owners,
    template,
)
from tests.live.replica import Replica, replica
from tests.live.scenes import GPU, bound, pod, pods
from tests.live.test_live_queues import condition, install_crds, job, queues, workload
from tests.real_cluster.api import Api, Object, until
from tests.real_cluster.fake_kubelet import FakeKubelet, node
from tests.real_cluster.fixtures import Cluster

Kubelets = Callable[..., FakeKubelet]
HIGH = {
    "apiVersion": "scheduling.k8s.io/v1",
    "kind": "PriorityClass",
    "metadata": {"name": "high"},
    "value": 1000,
}


def gated(name: str, gpus: int = 1, **more: object) -> Object:
    """A pod as Kueue's webhook leaves it: it waits behind a gate for its queue."""
    labels = {QUEUE: "main", **more.pop("labels", {})}  # type: ignore[dict-item]
    return pod(name, gpus, labels=labels, schedulingGates=[{"name": GATE}], **more)


def test_owners_are_let_go_and_stopped(cluster: Cluster, kubelets: Kubelets, tmp_path: Path) -> None:
    kubelets()
    api = cluster.api
    install_crds(api)
    install_kinds_of_others(api)
    api.create(HIGH, *(node(f"n{i}", {GPU: "8"}) for i in range(3)), *queues(20, cpu="1k", memory="10Ti"))
    owners = api.create(*suspended_owners())
    size = sum(len(pods_of(one)) for one in owners)
    with replica(cluster.kubeconfig, tmp_path / "log", "--no-leader-elect") as one:
        # A TrainJob's pods are described by the JobSet that its controller makes of it, stopped like itself.
        below = job_set("train")
        (train,) = [each for each in owners if each["kind"] == "TrainJob"]
        del below["metadata"]["labels"]
        below["metadata"]["ownerReferences"] = [reference(train)]
        api.create(below)

        def playing(done: Callable[[], bool]) -> Callable[[], bool]:
            def look() -> bool:
                play_controllers(api, owners)
                return done()

            return look

        until(playing(lambda: len(bound(api)) == size), 120, f"all of them run\n{one.last_lines()}")
        for each in owners:
            found = workload(api, each["metadata"]["name"])
            assert condition(found, "Admitted") == ("True", "Admitted"), each["kind"]
            assert len(found["spec"]["podSets"]) == len(pods_of(each)), each["kind"]
        assert len(api.items("/apis/kueue.x-k8s.io/v1beta2/namespaces/default/workloads")) == len(owners)

        api.create(job("urgent", 20, 1, "high"))  # all of the quota, so that nobody comes back meanwhile
        until(
            playing(lambda: len(bound(api)) == len(bound(api, "urgent")) == 20),
            120,
            f"the urgent Job runs, and nothing else\n{one.last_lines()}",
        )
        for each in owners:
            assert is_suspended(api.get(api.path_of(each))), each["kind"]
            assert condition(workload(api, each["metadata"]["name"]), "Preempted")[0] == "True", each["kind"]


def lws_group(one: Object, index: int) -> list[Object]:
    return [
        gated(
            f"{one['metadata']['name']}-{index}-{worker}",
            labels={GROUP_INDEX: str(index), WORKER_INDEX: str(worker)},
            ownerReferences=[reference(one)],
        )
        for worker in range(2)
    ]


def test_gates_are_lifted_where_there_is_nothing_to_suspend(
    cluster: Cluster, kubelets: Kubelets, tmp_path: Path
) -> None:
    kubelets()
    api = cluster.api
    install_crds(api)
    install_kinds_of_others(api)
    api.create(node("n0", {GPU: "8"}), *queues(4))
    leaders = {"size": 2, "workerTemplate": template(1)}
    with replica(cluster.kubeconfig, tmp_path / "log", "--no-leader-elect") as one:
        api.create(gated("plain"))
        until(lambda: bound(api) == {"plain": "n0"}, 60, one.last_lines)
        group = [gated(f"group-{i}", labels={"kueue.x-k8s.io/pod-group-name": "g"}) for i in range(2)]
        for each in group:
            each["metadata"]["annotations"] = {"kueue.x-k8s.io/pod-group-total-count": "2"}
        api.create(group[0])
        (lws,) = api.create(owner("LeaderWorkerSet", "lws", {"replicas": 2, "leaderWorkerTemplate": leaders}))
        api.create(*lws_group(lws, 0), *lws_group(lws, 1))
        until(lambda: len(bound(api, "lws")) == 2, 60, one.last_lines)
        assert not bound(api, "group"), "half a group is let through by nobody"
        (waiting,) = [number for number in (0, 1) if not bound(api, f"lws-{number}")]
        api.create(group[1])
        until(lambda: all(reasons(api, f"lws-{waiting}", "group")), 60, one.last_lines)
        assert len(bound(api)) == 3, "one GPU is left of the quota, and both want two"
        api.delete("/api/v1/namespaces/default/pods/plain", gracePeriodSeconds=0)
        until(lambda: len(bound(api)) == 4, 60, one.last_lines)
        last = (len(bound(api, f"lws-{waiting}")), len(bound(api, "group")))
        assert sorted(last) == [0, 2], "whole or not at all"


def stateful_set(name: str) -> Object:
    """One that makes no pods by itself."""
    labels = {"made": "by-hand"}
    made = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "main", "image": "none"}]}}
    spec = {"replicas": 0, "serviceName": name, "selector": {"matchLabels": labels}, "template": made}
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": name, "namespace": "default"},
        "spec": spec,
    }


def test_a_group_that_comes_pod_by_pod_is_completed_before_another_begins(
    cluster: Cluster, kubelets: Kubelets, tmp_path: Path
) -> None:
    """As LeaderWorkerSet's controller makes them: StatefulSets in between, workers after their leader."""
    kubelets()
    api = cluster.api
    install_crds(api)
    install_kinds_of_others(api)
    api.create(node("n0", {GPU: "8"}), *queues(3))
    leaders = {"size": 2, "workerTemplate": template(1)}
    (lws,) = api.create(owner("LeaderWorkerSet", "lws", {"replicas": 2, "leaderWorkerTemplate": leaders}))
    (between,) = api.create(stateful_set("lws"))
    (leader, worker), others = (lws_group(between, number) for number in (0, 1))
    for each in (leader, worker, *others):
        each["metadata"]["labels"][LWS_NAME] = lws["metadata"]["name"]
    with replica(cluster.kubeconfig, tmp_path / "log", "--no-leader-elect") as one:
        api.create(leader)
        until(lambda: bound(api, "lws-0"), 60, one.last_lines)
        api.create(*others)
        until(lambda: all(reasons(api, "lws-1")), 60, one.last_lines)
        api.create(worker)
        until(lambda: len(bound(api, "lws-0")) == 2, 60, one.last_lines)
        assert not bound(api, "lws-1"), "one GPU is left of the quota"


def reasons(api: Api, *prefixes: str) -> list[bool]:
    """Whether the pods are told that they wait for quota."""
    found = [each for prefix in prefixes for each in pods(api, prefix).values()]
    return [condition(each, "PodScheduled") == ("False", "WaitingForQuota") for each in found]


def annotations(api: Api, path: str) -> dict[str, str]:
    return dict(api.get(path)["metadata"].get("annotations") or {})


def member(name: str, group: str) -> Object:
    return pod(name, 4, labels={"scheduling.x-k8s.io/pod-group": group, QUEUE: "main"})


def test_a_group_without_a_workload_remembers_that_it_had_to_go(
    cluster: Cluster, kubelets: Kubelets, tmp_path: Path
) -> None:
    kubelets()
    api = cluster.api
    install_crds(api)
    install_kinds_of_others(api)
    api.create(HIGH, node("n0", {GPU: "8"}), *queues(8))
    group = {
        "apiVersion": "scheduling.x-k8s.io/v1alpha1",
        "kind": "PodGroup",
        "metadata": {"name": "g", "namespace": "default"},
        "spec": {"minMember": 2},
    }
    api.create(group)
    path = api.path_of(group)
    with replica(cluster.kubeconfig, tmp_path / "log", "--no-leader-elect") as one:
        play_evictions(api, one, path)


def play_evictions(api: Api, one: Replica, path: str) -> None:
    api.create(*(member(f"m{i}", "g") for i in range(2)))
    until(lambda: len(bound(api, "m")) == 2, 60, one.last_lines)
    api.create(job("urgent", 1, 8, "high"))
    until(lambda: len(bound(api, "urgent")) == 1, 60, one.last_lines)
    assert not pods(api, "m"), "its pods went whole"
    assert annotations(api, path)["windlass.dev/evictions"] == "1"
    assert "windlass.dev/requeued-at" not in annotations(api, path)
    api.delete("/apis/batch/v1/namespaces/default/jobs/urgent", propagationPolicy="Background")
    until(lambda: not pods(api, "urgent"), 60)
    api.patch(path, {"metadata": {"annotations": {"windlass.dev/duration": "1s"}}})
    api.create(*(member(f"again{i}", "g") for i in range(2)))
    until(lambda: "windlass.dev/requeued-at" in annotations(api, path), 60, one.last_lines)
    until(lambda: not pods(api, "again"), 60, "its time was over")
    assert annotations(api, path)["windlass.dev/evictions"] == "1", "that was for nobody's sake"
