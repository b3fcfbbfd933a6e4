"""Queued Jobs on a real API server without Kueue: admitted, counted, evicted whole and sent back as Kueue would."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.cluster.api import Api, Object, until
from tests.cluster.fake_kubelet import FakeKubelet, node
from tests.cluster.fixtures import Cluster
from tests.live.replica import replica
from tests.live.scenes import GPU, bound, pod, pods

from windlass.cli.install_crds import crds

Kubelets = Callable[..., FakeKubelet]
KUEUE = "/apis/kueue.x-k8s.io/v1beta2"


def install_crds(api: Api) -> None:
    api.create(*crds())
    for crd in crds():
        path = api.path_of(crd)
        until(
            lambda path=path: (
                {"type": "Established", "status": "True"}.items() <= established(api, path).items()
            )
        )


def established(api: Api, path: str) -> Object:
    found = [
        one for one in api.get(path).get("status", {}).get("conditions") or () if one["type"] == "Established"
    ]
    return found[0] if found else {}


def queues(quota: int) -> list[Object]:
    version = "kueue.x-k8s.io/v1beta1"
    flavor = {"name": "any", "resources": [{"name": GPU, "nominalQuota": quota}]}
    return [
        {"apiVersion": version, "kind": "ResourceFlavor", "metadata": {"name": "any"}, "spec": {}},
        {
            "apiVersion": version,
            "kind": "ClusterQueue",
            "metadata": {"name": "team"},
            "spec": {
                "namespaceSelector": {},
                "resourceGroups": [{"coveredResources": [GPU], "flavors": [flavor]}],
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
