"""For every right of the scheduler to write, a short scene that needs it: what is made, and what has to come of it.

Used by `test_live_each_right`. All scenes play on one cluster, one after the other, each with objects of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tests.live.bind_policy import refuse_binds
from tests.live.owner_kinds import (
    GATE,
    GROUP_INDEX,
    QUEUE,
    WORKER_INDEX,
    is_suspended,
    job_set,
    owner,
    reference,
    suspended_owners,
    template,
)
from tests.live.rights import Right
from tests.live.scenes import GPU, bound, condition, pod, pods
from tests.live.test_live_queues import job, queues, workload
from tests.real_cluster.api import Api, Object, until
from tests.real_cluster.fake_kubelet import node

from windlass.kube.resources import WATCHED_KINDS

Effect = Callable[[], Any]
"""Whether what has to come of it is there."""
Scene = Callable[[Api], Effect]
EVENTS = "/apis/events.k8s.io/v1/namespaces/default/events"
ARENA = {"arena": "evictions"}
"""Label of the node on which some have to go for others."""


def ground() -> list[Object]:
    """What all scenes stand on."""
    arena = node("arena", {GPU: "8"}, labels=ARENA)
    classes = [
        {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": name},
            "value": value,
        }
        for name, value in (("low", 1), ("high", 1000))
    ]
    later = {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "later"}}
    later |= {"provisioner": "example.com/none", "volumeBindingMode": "WaitForFirstConsumer"}
    return [
        *(node(f"n{i}", {GPU: "8"}) for i in range(2)),
        arena,
        *classes,
        later,
        *queues(100, cpu="1k", memory="10Ti"),
    ]


def gate(api: Api) -> Effect:
    made = pod("gated", 1, labels={QUEUE: "main"}, schedulingGates=[{"name": GATE}])
    api.create(made)
    return lambda: not pods(api)["gated"]["spec"].get("schedulingGates")


def binding(api: Api) -> Effect:
    api.create(pod("plain", 1))
    return lambda: bound(api, "plain")


def status(api: Api) -> Effect:
    api.create(pod("large", 16))
    return lambda: condition(pods(api)["large"])


def claim(api: Api) -> Effect:
    claimed = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "data", "namespace": "default"},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "later",
            "resources": {"requests": {"storage": "1Gi"}},
        },
    }
    api.create(claimed, pod("stored", 0, volumes=[{"name": "d", "persistentVolumeClaim": {"claimName": "data"}}]))
    path = api.path_of(claimed)
    return lambda: "volume.kubernetes.io/selected-node" in (api.get(path)["metadata"].get("annotations") or {})


def local_volume(api: Api) -> Effect:
    """A volume that is there already on a node, and that nobody else gives to the claim."""
    kind = {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "local"}}
    kind |= {"provisioner": "kubernetes.io/no-provisioner", "volumeBindingMode": "WaitForFirstConsumer"}
    where = {"key": "kubernetes.io/hostname", "operator": "In", "values": ["n1"]}
    asked = {"accessModes": ["ReadWriteOnce"], "storageClassName": "local"}
    spec = {**asked, "capacity": {"storage": "1Gi"}, "local": {"path": "/disk"}}
    spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": [{"matchExpressions": [where]}]}}
    volume = {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "disk"}, "spec": spec}
    claimed = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "scratch"}}
    claimed["spec"] = {**asked, "resources": {"requests": {"storage": "1Gi"}}}
    used = {"name": "d", "persistentVolumeClaim": {"claimName": "scratch"}}
    api.create(kind, volume, claimed)
    path = api.path_of(volume)
    until(lambda: (api.get(path).get("status") or {}).get("phase") == "Available", 60, "the volume is free")
    api.create(pod("local", 0, volumes=[used]))
    return lambda: api.get(path)["spec"].get("claimRef")


def event(api: Api) -> Effect:
    api.create(pod("told", 1))
    return lambda: [one for one in api.items(EVENTS) if one["regarding"]["name"] == "told"]


def repeated_event(api: Api) -> Effect:
    """The same is said again: the API server refuses a bind, and refuses it again."""

    def said() -> list[Object]:
        return [one for one in api.items(EVENTS) if one["regarding"]["name"] == "again"]

    refuse_binds(api, ["again"])
    api.create(pod("again", 1, nodeSelector=ARENA))
    until(said, 60, "told first")
    return lambda: [one for one in said() if one.get("series")]


def new_workload(api: Api) -> Effect:
    api.create(job("fresh", 1, 1))
    return lambda: workload(api, "fresh")


def changed_job(api: Api) -> Effect:
    """A Job that waits is made larger, and its Workload has to say so: nobody may run more than was counted."""
    waits = job("grows", 1, 200)
    del waits["spec"]["completions"]
    (made,) = api.create(waits)
    until(lambda: workload(api, "grows"), 60, "it waits")
    api.patch(api.path_of(made), {"spec": {"parallelism": 2}})
    return lambda: workload(api, "grows")["spec"]["podSets"][0]["count"] == 2


def admitted(api: Api) -> Effect:
    api.create(job("queued", 1, 1))
    return lambda: (workload(api, "queued").get("status") or {}).get("admission")


def restored(api: Api) -> Effect:
    """A Job that was admitted with fewer pods is stopped: it is again what its owner wrote."""
    partial = job("restored", 200, 1)
    partial["metadata"]["annotations"] = {"kueue.x-k8s.io/job-min-parallelism": "1"}
    (made,) = api.create(partial)
    path = api.path_of(made)
    until(lambda: api.get(path)["spec"]["parallelism"] < 200, 60, "it runs with fewer pods")
    name = workload(api, "restored")["metadata"]["name"]
    api.patch(f"/apis/kueue.x-k8s.io/v1beta1/namespaces/default/workloads/{name}", {"spec": {"active": False}})
    return lambda: api.get(path)["spec"]["parallelism"] == 200


def queue_status(kind: str) -> Scene:
    def scene(api: Api) -> Effect:
        _, cluster_queue, local_queue = queues(1)
        for one in (cluster_queue, local_queue):
            one["metadata"]["name"] = f"fresh-{kind.lower()}"
        local_queue["spec"]["clusterQueue"] = cluster_queue["metadata"]["name"]
        api.create(cluster_queue, local_queue)
        path = api.path_of(cluster_queue if kind == "ClusterQueue" else local_queue)
        return lambda: api.get(path).get("status")

    return scene


def reservation(api: Api) -> Effect:
    when = {"from": "2099-01-01T08:00:00Z", "until": "2099-01-01T12:00:00Z"}
    made = {
        "apiVersion": "windlass.dev/v1",
        "kind": "Reservation",
        "metadata": {"name": "launch"},
        "spec": {**when, "gpus": 1, "who": {"namespaces": ["default"]}},
    }
    api.create(made)
    return lambda: (api.get(api.path_of(made)).get("status") or {}).get("nodes")


def finish(api: Api, name: str, queue: str) -> None:
    """A pod of the queue runs, and ends well."""
    api.create(pod(name, 1, labels={QUEUE: queue}))
    until(lambda: pods(api)[name]["status"].get("phase") == "Running", 60, f"{name} runs")
    api.patch(f"/api/v1/namespaces/default/pods/{name}/status", {"status": {"phase": "Succeeded"}})


def history(queue: str, runs: int) -> Scene:
    """So many runs of a new queue have ended; the last of them is counted."""

    def scene(api: Api) -> Effect:
        _, _, local_queue = queues(1)
        local_queue["metadata"]["name"] = queue
        api.create(local_queue)
        path = f"/apis/windlass.dev/v1/namespaces/default/runtimehistories/{queue}"

        def counted() -> int:
            periods = api.get(path)["periods"] if api.exists(path) else []
            return sum(count for one in periods for count in one["runs"].values())

        for number in range(1, runs):
            finish(api, f"{queue}-{number}", queue)
            until(lambda number=number: counted() == number, 60, f"{number} runs of {queue} are counted")
        finish(api, f"{queue}-{runs}", queue)
        return lambda: counted() == runs

    return scene


def let_go(kind: str) -> Scene:
    """An owner in a queue is admitted and let go."""

    def scene(api: Api) -> Effect:
        if kind == "Job":
            (made,) = api.create(job("stopped", 1, 1))
        else:
            (wanted,) = [one for one in suspended_owners() if one["kind"] == kind]
            (made,) = api.create(wanted)
        if kind == "TrainJob":
            below = job_set(made["metadata"]["name"])
            del below["metadata"]["labels"]
            below["metadata"]["ownerReferences"] = [reference(made)]
            api.create(below)
        path = api.path_of(made)
        return lambda: not is_suspended({**api.get(path), "kind": kind})

    return scene


def members(name: str, **more: Any) -> list[Object]:
    """Two pods in the arena that leave no room there."""
    return [
        pod(f"{name}-{i}", 4, nodeSelector=ARENA, priorityClassName="low", **_with_index(more, i)) for i in range(2)
    ]


def _with_index(more: dict[str, Any], index: int) -> dict[str, Any]:
    labels = more.get("labels", {})
    return {**more, "labels": {**labels, WORKER_INDEX: str(index)}} if GROUP_INDEX in labels else more


def preempts(api: Api, running: Sequence[Object]) -> None:
    """They run, and something more urgent comes."""
    api.create(*running)
    prefix = running[0]["metadata"]["name"].rpartition("-")[0]
    until(lambda: len(bound(api, prefix)) == len(running), 60, f"{prefix} runs")
    api.create(pod(f"urgent-{prefix}", 8, nodeSelector=ARENA, priorityClassName="high"))


def eviction(api: Api) -> Effect:
    preempts(api, members("victim"))
    return lambda: [one for one in pods(api, "victim").values() if "deletionTimestamp" in one["metadata"]]


def deletion(api: Api) -> Effect:
    """A budget of the borrower's own does not keep lent quota from its owner."""
    lender, borrower = (_queue_of_one(name, quota) for name, quota in (("lender", 1), ("borrower", 0)))
    keeps = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "keeps"}}
    keeps["spec"] = {"minAvailable": 1, "selector": {"matchLabels": {QUEUE: "borrower"}}}
    (kept,) = api.create(*lender, *borrower, keeps, pod("borrowed", 1, labels={QUEUE: "borrower"}))[-1:]
    until(lambda: bound(api, "borrowed"), 60, "it runs on what another queue lends")
    path = api.path_of(keeps)
    until(lambda: (api.get(path).get("status") or {}).get("currentHealthy") == 1, 60, "the budget counts it")
    api.create(pod("owner", 1, labels={QUEUE: "lender"}))
    return lambda: (
        "deletionTimestamp" in pods(api).get("borrowed", kept | {"metadata": {"deletionTimestamp": ""}})["metadata"]
    )


def _queue_of_one(name: str, quota: int) -> list[Object]:
    _, cluster_queue, local_queue = queues(quota, cpu="10", memory="10Gi")
    cluster_queue["metadata"]["name"] = local_queue["metadata"]["name"] = local_queue["spec"]["clusterQueue"] = name
    cluster_queue["spec"] |= {"cohort": "lent", "preemption": {"reclaimWithinCohort": "Any"}}
    return [cluster_queue, local_queue]


def noted(kind: str, group: str) -> Scene:
    """Something that only its pods run by has to go, and remembers it."""

    def scene(api: Api) -> Effect:
        made, more = _standing_for(kind, group)
        (there,) = api.create(made)
        if kind == "LeaderWorkerSet":
            more = {"labels": {GROUP_INDEX: "0"}, "ownerReferences": [reference(there)]}
        preempts(api, members(made["metadata"]["name"], **more))
        path = api.path_of(made)
        return lambda: "windlass.dev/evictions" in (api.get(path)["metadata"].get("annotations") or {})

    return scene


def _standing_for(kind: str, group: str) -> tuple[Object, dict[str, Any]]:
    """The object, and what its pods carry."""
    if kind == "LeaderWorkerSet":
        workers = {"size": 2, "workerTemplate": template(4)}
        return owner(kind, "leaders", {"replicas": 1, "leaderWorkerTemplate": workers}, queue=""), {}
    (known,) = [one for one in WATCHED_KINDS if (one.kind, one.group) == (kind, group)]
    version = "v1alpha2" if group == "scheduling.k8s.io" else known.versions[0]
    name = f"group-{group.split('.')[1]}"
    made = {"apiVersion": f"{group}/{version}", "kind": kind, "metadata": {"name": name}}
    specs: dict[str, tuple[Object, dict[str, Any]]] = {
        "scheduling.x-k8s.io": ({"minMember": 2}, {"labels": {"scheduling.x-k8s.io/pod-group": name}}),
        "scheduling.volcano.sh": (
            {"minMember": 2},
            {"annotations": {"scheduling.k8s.io/group-name": name}},
        ),
        "scheduling.run.ai": ({"minMember": 2}, {"annotations": {"pod-group-name": name}}),
        "scheduling.k8s.io": (
            {"schedulingPolicy": {"gang": {"minCount": 2}}},
            {"schedulingGroup": {"podGroupName": name}},
        ),
    }
    spec, more = specs[group]
    return {**made, "spec": spec}, more


SCENES: dict[Right, Scene] = {
    ("", "pods", "patch"): gate,
    ("", "pods/binding", "create"): binding,
    ("", "pods/status", "patch"): status,
    ("", "pods/eviction", "create"): eviction,
    ("", "pods", "delete"): deletion,
    ("", "persistentvolumeclaims", "patch"): claim,
    ("", "persistentvolumes", "patch"): local_volume,
    ("batch", "jobs/status", "patch"): restored,
    ("events.k8s.io", "events", "create"): event,
    ("events.k8s.io", "events", "patch"): repeated_event,
    ("kueue.x-k8s.io", "workloads", "create"): new_workload,
    ("kueue.x-k8s.io", "workloads", "patch"): changed_job,
    ("kueue.x-k8s.io", "workloads/status", "patch"): admitted,
    ("kueue.x-k8s.io", "clusterqueues/status", "patch"): queue_status("ClusterQueue"),
    ("kueue.x-k8s.io", "localqueues/status", "patch"): queue_status("LocalQueue"),
    ("windlass.dev", "reservations/status", "patch"): reservation,
    ("windlass.dev", "runtimehistories", "create"): history("first-run", 1),
    ("windlass.dev", "runtimehistories", "patch"): history("second-run", 2),
}
for _kind in WATCHED_KINDS:
    if _kind.kind in ("LeaderWorkerSet", "PodGroup"):
        SCENES[_kind.group, _kind.plural, "patch"] = noted(_kind.kind, _kind.group)
    elif _kind.kind == "Job" or _kind.kind in {one["kind"] for one in suspended_owners()}:
        SCENES[_kind.group, _kind.plural, "patch"] = let_go(_kind.kind)
