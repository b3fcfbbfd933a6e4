"""Queued Jobs on a real API server without Kueue: admitted, counted, evicted whole and sent back as Kueue would."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.live.replica import replica
from tests.live.scenes import GPU, bound, pod, pods
from tests.real_cluster.api import Api, Object, until
from tests.real_cluster.fake_kubelet import FakeKubelet, node
from tests.real_cluster.fixtures import Cluster

from windlass.cli.install_crds import crds

Kubelets = Callable[..., FakeKubelet]
KUEUE = "/apis/kueue.x-k8s.io/v1beta2"


def install_crds(api: Api) -> None:
    api.create(*crds())
    for crd in crds():
        path = api.path_of(crd)
        until(lambda path=path: {"type": "Established", "status": "True"}.items() <= established(api, path).items())


def established(api: Api, path: str) -> Object:
    found = [one for one in api.get(path).get("status", {}).get("conditions") or () if one["type"] == "Established"]
    return found[0] if found else {}


def queues(quota: int, **others: str) -> list[Object]:
    """`others`: quota of other resources."""
    version = "kueue.x-k8s.io/v1beta1"
    amounts = {GPU: quota, **others}
    cells = [{"name": name, "nominalQuota": amount} for name, amount in amounts.items()]
    flavor = {"name": "any", "resources": cells}
    return [
        {"apiVersion": version, "kind": "ResourceFlavor", "metadata": {"name": "any"}, "spec": {}},
        {
            "apiVersion": version,
            "kind": "ClusterQueue",
            "metadata": {"name": "team"},
            "spec": {
                "namespaceSelector": {},
                "resourceGroups": [{"coveredResources": list(amounts), "flavors": [flavor]}],
                "preemption": {"withinClusterQueue": "LowerPriority"},
            },
        },
        {
            "apiVersion": version,
            "kind": "LocalQueue",
            "metadata": {"name": "main", "namespace": "default"},
            "spec": {"clusterQueue": "team"},
        },
    ]


def job(name: str, size: int, gpus: int, priority_class: str = "") -> Object:
    template = pod(name, gpus, restartPolicy="Never")
    del template["apiVersion"], template["kind"], template["metadata"]
    if priority_class:
        template["spec"]["priorityClassName"] = priority_class
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "labels": {"kueue.x-k8s.io/queue-name": "main"}},
        "spec": {"suspend": True, "parallelism": size, "completions": size, "template": template},
    }


def workload(api: Api, name: str) -> Object:
    found = api.items(f"{KUEUE}/namespaces/default/workloads")
    mine = [one for one in found if one["metadata"]["ownerReferences"][0]["name"] == name]
    return mine[0] if mine else {}


def condition(one: Object, kind: str) -> tuple[str, str]:
    for each in one.get("status", {}).get("conditions", ()):
        if each["type"] == kind:
            return each["status"], each["reason"]
    return "", ""


def test_queued_jobs(cluster: Cluster, kubelets: Kubelets, tmp_path: Path) -> None:
    kubelet = kubelets()
    api = cluster.api
    install_crds(api)
    api.create(*(node(f"n{i}", {GPU: "8"}) for i in range(2)))
    api.create(
        {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": "high"},
            "value": 1000,
        }
    )
    api.create(*queues(8))
    api.create(job("first", 2, 4))
    with replica(cluster.kubeconfig, tmp_path / "log", "--no-leader-elect") as one:
        until(lambda: len(bound(api, "first")) == 2, what=f"the first Job runs\n{one.last_lines()}")
        assert condition(workload(api, "first"), "Admitted") == ("True", "Admitted")
        held = workload(api, "first")["status"]["admission"]["podSetAssignments"][0]
        assert held["flavors"] == {GPU: "any"}
        assert held["resourceUsage"] == {GPU: "8"}
        api.create(job("second", 1, 4))
        until(lambda: condition(workload(api, "second"), "QuotaReserved") == ("False", "Pending"))
        assert api.get("/apis/batch/v1/namespaces/default/jobs/second")["spec"]["suspend"] is True

        def status() -> Object:
            return dict(api.get(f"{KUEUE}/clusterqueues/team").get("status", {}))

        until(lambda: (status().get("pendingWorkloads"), status().get("admittedWorkloads")) == (1, 1))
        assert status()["flavorsUsage"][0]["resources"][0] == {"name": GPU, "total": "8", "borrowed": "0"}

        api.create(job("urgent", 1, 8, "high"))
        until(lambda: len(bound(api, "urgent")) == 1, 60, f"the urgent Job runs\n{one.last_lines()}")
        assert not bound(api, "first"), "its victim went whole"
        assert api.get("/apis/batch/v1/namespaces/default/jobs/first")["spec"]["suspend"] is True
        assert condition(workload(api, "first"), "Preempted") == ("True", "InClusterQueue")

        # Made in the same second as the first, it might go before it.
        api.delete("/apis/batch/v1/namespaces/default/jobs/second", propagationPolicy="Background")
        until(lambda: not workload(api, "second"))
        (name,) = pods(api, "urgent")
        until(lambda: pods(api)[name]["status"].get("phase") == "Running")
        kubelet.finish("default", name)
        until(lambda: condition(workload(api, "urgent"), "Finished") == ("True", "Succeeded"))
        until(lambda: len(bound(api, "first")) == 2, 60, f"the first Job comes back\n{one.last_lines()}")


def admitted(api: Api, name: str) -> bool:
    return condition(workload(api, name), "Admitted")[0] == "True"


def test_a_workload_keeps_in_step_with_its_job(cluster: Cluster, kubelets: Kubelets, tmp_path: Path) -> None:
    """Changed while it waits, deactivated while it runs, and left admitted but stopped by a leader that was killed."""
    kubelets()
    api = cluster.api
    install_crds(api)
    api.create(node("n0", {GPU: "8"}), *queues(8))
    jobs = "/apis/batch/v1/namespaces/default/jobs"
    with replica(cluster.kubeconfig, tmp_path / "log", "--no-leader-elect") as one:
        api.create(job("first", 1, 4))
        until(lambda: bound(api, "first"), 60, one.last_lines)
        grows = job("grows", 1, 8)
        del grows["spec"]["completions"]
        api.create(grows)
        until(lambda: workload(api, "grows"), 60, one.last_lines)
        api.patch(f"{jobs}/grows", {"spec": {"parallelism": 2}})
        until(lambda: workload(api, "grows")["spec"]["podSets"][0]["count"] == 2, 60, one.last_lines)
        assert not admitted(api, "grows"), "sixteen are more than there is"
        api.delete(f"{jobs}/grows", propagationPolicy="Background")

        name = workload(api, "first")["metadata"]["name"]
        path = f"{KUEUE}/namespaces/default/workloads/{name}"
        api.patch(path, {"spec": {"active": False}})
        until(lambda: not bound(api, "first"), 60, f"deactivated\n{one.last_lines()}")
        until(lambda: condition(workload(api, "first"), "Evicted") == ("True", "Deactivated"))
        assert condition(workload(api, "first"), "Preempted") == ("", ""), "it went for nobody's sake"
        assert api.get(f"{jobs}/first")["spec"]["suspend"] is True
        api.patch(path, {"spec": {"active": True}})
        until(lambda: bound(api, "first"), 60, f"active again\n{one.last_lines()}")
    api.patch(f"{jobs}/first", {"spec": {"suspend": True}})
    until(lambda: not bound(api, "first"), 60)
    assert admitted(api, "first"), "as after a kill between the two writes of an admission"
    with replica(cluster.kubeconfig, tmp_path / "log", "--no-leader-elect") as one:
        until(lambda: bound(api, "first"), 60, f"it is let go\n{one.last_lines()}")


def test_a_queue_that_is_drained(cluster: Cluster, kubelets: Kubelets, tmp_path: Path) -> None:
    """Kueue's word for it is in the conditions, and the Job comes back with its queue."""
    kubelets()
    api = cluster.api
    install_crds(api)
    api.create(node("n0", {GPU: "8"}), *queues(8))
    queue = f"{KUEUE}/clusterqueues/team"
    with replica(cluster.kubeconfig, tmp_path / "log", "--no-leader-elect") as one:
        api.create(job("first", 1, 4))
        until(lambda: bound(api, "first"), 60, one.last_lines)
        api.patch(queue, {"spec": {"stopPolicy": "HoldAndDrain"}})
        until(lambda: not bound(api, "first"), 60, one.last_lines)
        until(lambda: condition(workload(api, "first"), "Evicted") == ("True", "ClusterQueueStopped"))
        assert condition(workload(api, "first"), "Preempted") == ("", "")
        until(lambda: condition(api.get(queue), "Active") == ("False", "Stopped"), 60, one.last_lines)
        api.patch(queue, {"spec": {"stopPolicy": "None"}})
        until(lambda: bound(api, "first"), 60, one.last_lines)


def test_a_job_that_its_namespaces_quota_forbids_is_not_admitted(
    cluster: Cluster, kubelets: Kubelets, tmp_path: Path
) -> None:
    """Its controller could make half of its pods: it would hold the queue's quota and never start."""
    kubelets()
    api = cluster.api
    install_crds(api)
    api.create(node("n0", {GPU: "8"}), *queues(8))
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "gpus", "namespace": "default"},
        "spec": {"hard": {f"requests.{GPU}": "4"}},
    }
    api.create(quota)
    path = api.path_of(quota)
    until(lambda: (api.get(path).get("status") or {}).get("used"), 60, "the quota is counted")
    with replica(cluster.kubeconfig, tmp_path / "log", "--no-leader-elect") as one:
        api.create(job("wide", 4, 2))
        until(lambda: condition(workload(api, "wide"), "QuotaReserved") == ("False", "Pending"), 60)
        api.create(job("slim", 2, 2))
        until(lambda: len(bound(api, "slim")) == 2, 60, f"what fits goes ahead\n{one.last_lines()}")
        assert not admitted(api, "wide")
        said = [each["message"] for each in workload(api, "wide")["status"]["conditions"]]
        assert any("ResourceQuota of its namespace" in text for text in said)
        api.delete("/apis/batch/v1/namespaces/default/jobs/slim", propagationPolicy="Background")
        api.patch(path, {"spec": {"hard": {f"requests.{GPU}": "8"}}})
        until(lambda: len(bound(api, "wide")) == 4, 60, one.last_lines)
