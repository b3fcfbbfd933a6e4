"""What the page is told: the view of nodes, jobs, queues and events, made again only where something changed."""

from __future__ import annotations

import json

import pytest
from tests.embedded.page.feed import Feed, nodes, pod

from windlass.model.unstructured import Unstructured
from windlass.web.page_state import PageState

GPU = "nvidia.com/gpu"


def shown(board: PageState, what: str) -> dict[str, Unstructured]:
    found = json.loads(board.snapshot())[what]
    return {str(view.get("key") or view["name"]): view for view in found}


def with_nodes() -> tuple[Feed, PageState]:
    feed = Feed()
    feed.put("nodes", *nodes())
    return feed, PageState(feed)


def test_every_gpu_of_the_fleet_is_there() -> None:
    _, board = with_nodes()
    views = shown(board, "nodes")
    assert [len(views[name]["gpus"]) for name in ("h100-0", "a100-0", "t4-0", "cpu-0")] == [8, 4, 4, 0]
    assert (views["h100-0"]["rack"], views["h100-7"]["rack"]) == ("rack-0", "rack-1")
    parts = views["a100-0"]["gpus"][0]["parts"]
    assert sorted(part["profile"] for part in parts) == ["1g.10gb", "1g.10gb", "2g.20gb", "3g.40gb"]
    assert (views["t4-0"]["gpus"][0]["mode"], views["t4-0"]["gpus"][0]["slots"]) == ("shared", 4)


def test_a_pod_is_on_the_gpus_that_were_given_to_it() -> None:
    feed, board = with_nodes()
    feed.put("pods", pod("train", {GPU: "2"}, "h100-1", "3,5", gpu_utilization="80"))
    gpus = shown(board, "nodes")["h100-1"]["gpus"]
    assert [gpu["i"] for gpu in gpus if gpu["uses"]] == [3, 5]
    assert gpus[3]["uses"] == [{"pod": "default/train", "job": "default/Pod/train", "milli": 1000, "util": 80}]
    feed.remove("pods", pod("train"))
    assert not [gpu for gpu in shown(board, "nodes")["h100-1"]["gpus"] if gpu["uses"]]
    assert not shown(board, "jobs")


def test_slices_and_shares_find_a_place() -> None:
    feed, board = with_nodes()
    feed.put("pods", *(pod(f"m{n}", {"nvidia.com/mig-3g.40gb": "1"}, "a100-0") for n in range(2)))
    feed.put("pods", *(pod(f"t{n}", {GPU: "1"}, "t4-0") for n in range(5)))
    views = shown(board, "nodes")
    taken = [[part["pod"] for part in gpu["parts"] if "pod" in part] for gpu in views["a100-0"]["gpus"]]
    assert taken == [["default/m0"], ["default/m1"], [], []]
    assert [len(gpu["uses"]) for gpu in views["t4-0"]["gpus"]] == [4, 1, 0, 0]
    assert views["t4-0"]["gpus"][0]["uses"][0]["milli"] == 250


def test_a_waiting_pod_says_why() -> None:
    feed, board = with_nodes()
    message = "0/12 nodes are available: 10 node(s) had untolerated taint {nvidia.com/gpu: present}."
    feed.put("pods", pod("stuck", {GPU: "1"}, waits=("Unschedulable", message)))
    job = shown(board, "jobs")["default/Pod/stuck"]
    assert (job["state"], job["reason"], job["wants"]) == ("waiting", "Unschedulable", "1 GPU")
    assert job["why"] == "10 node(s) had untolerated taint {nvidia.com/gpu: present}."
    assert job["message"] == message


def test_the_sentence_is_about_this_job() -> None:
    feed, board = with_nodes()
    counts = "0/12 nodes are available: 4 Insufficient nvidia.com/gpu, 6 node(s) had untolerated taint(s)."
    own = "0 GPUs are free on nodes that it may use; it would start now with a toleration"
    feed.put("pods", pod("stuck", {GPU: "1"}, waits=("Unschedulable", f"{counts} {own}")))
    assert shown(board, "jobs")["default/Pod/stuck"]["why"] == own


@pytest.mark.parametrize("counts", ["2 Insufficient nvidia.com/gpu", "2 Too many pods", "2 node(s) were unschedulable"])
def test_counts_of_any_kind_give_way_to_the_sentence(counts: str) -> None:
    feed, board = with_nodes()
    own = "16 GPUs requested, 3 free on eligible nodes"
    message = f"0/2 nodes are available: {counts}. {own}"
    feed.put("pods", pod("stuck", {GPU: "1"}, waits=("Unschedulable", message)))
    assert shown(board, "jobs")["default/Pod/stuck"]["why"] == own


def test_what_kube_scheduler_says_about_preemption_does_not_replace_the_counts() -> None:
    feed, board = with_nodes()
    counts = "2 Insufficient nvidia.com/gpu."
    preemption = "preemption: 0/2 nodes are available: 2 No preemption victims found for incoming pod."
    message = f"0/2 nodes are available: {counts} {preemption}"
    feed.put("pods", pod("stuck", {GPU: "1"}, waits=("Unschedulable", message)))
    assert shown(board, "jobs")["default/Pod/stuck"]["why"] == counts


def test_mig_instances_are_on_the_gpu_that_the_node_names() -> None:
    feed, board = with_nodes()
    (node,) = [node for node in feed.list("nodes") if node["metadata"]["name"] == "a100-0"]
    cut = "0:7g.80gb,1:3g.40gb,1:3g.40gb,2:1g.10gb"
    node["metadata"]["annotations"]["sandbox.windlass.dev/mig-instances"] = cut
    feed.put("nodes", node)
    gpus = shown(board, "nodes")["a100-0"]["gpus"]
    assert [[part["profile"] for part in gpu["parts"]] for gpu in gpus] == [
        ["7g.80gb"],
        ["3g.40gb", "3g.40gb"],
        ["1g.10gb"],
        [],
    ]


def test_a_job_is_its_pods_and_its_queue() -> None:
    feed, board = with_nodes()
    template = {"spec": {"containers": [{"name": "m", "resources": {"limits": {GPU: "8"}}}]}}
    meta = {"name": "big", "namespace": "default", "labels": {"kueue.x-k8s.io/queue-name": "team"}}
    job = {"metadata": meta, "spec": {"parallelism": 2, "suspend": True, "template": template}}
    for name in ("workloads", "clusterqueues"):
        definition = {"metadata": {"name": f"{name}.kueue.x-k8s.io"}}
        feed.put("customresourcedefinitions.apiextensions.k8s.io", definition)
    feed.put("jobs.batch", job)
    held = {
        "type": "QuotaReserved",
        "status": "False",
        "reason": "Pending",
        "message": "the quota is used up",
    }
    owner = [{"kind": "Job", "name": "big"}]
    workload = {
        "metadata": {"name": "w", "namespace": "default", "ownerReferences": owner},
        "spec": {"queueName": "team"},
        "status": {"conditions": [held]},
    }
    feed.put("workloads.kueue.x-k8s.io", workload)
    view = shown(board, "jobs")["default/Job/big"]
    assert (view["state"], view["why"], view["queue"]) == ("waiting", "The quota is used up", "team")
    assert (view["wants"], view["gpus"]) == ("2 × 8 GPUs", 16)
    feed.put("jobs.batch", {**job, "spec": {**job["spec"], "suspend": False}})
    feed.put("workloads.kueue.x-k8s.io", {**workload, "status": {"conditions": [{**held, "status": "True"}]}})
    feed.put(
        "pods",
        *(pod(f"big-{n}", {GPU: "8"}, f"h100-{n}", "0,1,2,3,4,5,6,7", owner=("Job", "big")) for n in range(2)),
    )
    view = shown(board, "jobs")["default/Job/big"]
    assert (view["state"], view["holds"], view["nodes"]) == ("running", 16, 2)


def test_a_deployments_pods_are_the_deployments() -> None:
    feed, board = with_nodes()
    feed.put(
        "replicasets.apps",
        {
            "metadata": {
                "name": "web-abc",
                "namespace": "default",
                "ownerReferences": [{"kind": "Deployment", "name": "web", "controller": True}],
            }
        },
    )
    feed.put("pods", pod("web-abc-1", {}, "cpu-0", owner=("ReplicaSet", "web-abc")))
    assert list(shown(board, "jobs")) == ["default/Deployment/web"]


def test_a_gang_of_two_jobs_is_one_and_each_job_again_when_its_pods_leave_it() -> None:
    feed, board = with_nodes()
    template = {"spec": {"containers": [{"name": "m", "resources": {"limits": {GPU: "8"}}}]}}
    pods = []
    for name in ("leader", "workers"):
        meta = {"name": name, "namespace": "default"}
        feed.put("jobs.batch", {"metadata": meta, "spec": {"parallelism": 1, "template": template}})
        pods.append(pod(f"{name}-0", {GPU: "8"}, owner=("Job", name)))
    jobs = {"default/Job/leader", "default/Job/workers"}
    assert set(shown(board, "jobs")) == jobs
    for tree in pods:
        tree["metadata"]["labels"] = {"scheduling.x-k8s.io/pod-group": "ring"}
    feed.put("pods", *pods)
    (view,) = shown(board, "jobs").values()
    assert (view["key"], view["count"]) == ("default/Group/ring", 2)
    for tree in pods:
        feed.put("pods", {**tree, "metadata": {**tree["metadata"], "labels": {}}})
    assert set(shown(board, "jobs")) == jobs


def test_ill_gpus_and_closed_nodes() -> None:
    feed, board = with_nodes()
    node = feed.list("nodes")[0]
    node["metadata"]["annotations"]["windlass.dev/unhealthy-devices"] = "6"
    node["spec"]["unschedulable"] = True
    feed.put("nodes", node)
    view = shown(board, "nodes")["h100-0"]
    assert [gpu["i"] for gpu in view["gpus"] if gpu.get("ill")] == [6]
    assert view["cordoned"] is True


def test_only_what_changed_is_told() -> None:
    feed, board = with_nodes()
    assert len(json.loads(board.drain_changes())["nodes"]) == 12
    assert board.drain_changes() == b""
    feed.put("pods", pod("one", {GPU: "1"}, "h100-2", "0"))
    told = json.loads(board.drain_changes())
    assert [view["name"] for view in told["nodes"]] == ["h100-2"]
    assert [view["key"] for view in told["jobs"]] == ["default/Pod/one"]
    feed.put("pods", pod("one", {GPU: "1"}, "h100-2", "0"))  # the same again
    assert board.drain_changes() == b""
    feed.remove("pods", pod("one", {GPU: "1"}, "h100-2", "0"))
    told = json.loads(board.drain_changes())
    assert told["gone"] == {"jobs": ["default/Pod/one"]}


def test_what_comes_and_goes_while_nobody_looks_is_not_kept() -> None:
    feed, board = with_nodes()
    board.drain_changes()
    for number in range(300):
        feed.put("pods", pod(f"p{number}", {GPU: "1"}, "h100-0", "0"))
        feed.put("events", {"metadata": {"name": f"e{number}", "uid": f"e{number}"}, "message": str(number)})
        feed.remove("pods", pod(f"p{number}", {GPU: "1"}, "h100-0", "0"))
    told = json.loads(board.drain_changes())
    assert sorted(told) == ["events"]
    assert len(told["events"]) == 200
    assert told["events"][-1]["message"] == "299"


def test_events_are_told_once_and_the_newest_word_counts() -> None:
    feed, board = with_nodes()
    board.drain_changes()
    event = {
        "metadata": {"name": "e", "uid": "e", "namespace": "default"},
        "reason": "Scheduled",
        "message": "a",
    }
    feed.put("events", event)
    feed.put("events", {**event, "count": 2, "message": "b"})
    told = json.loads(board.drain_changes())["events"]
    assert [(update["message"], update["count"]) for update in told] == [("b", 2)]
    assert board.drain_changes() == b""


def test_an_object_that_cannot_be_understood_hides_nothing_else() -> None:
    feed, board = with_nodes()
    odd = feed.list("nodes")[0]
    odd["metadata"]["annotations"]["windlass.dev/devices-layout"] = "nonsense"
    feed.put("nodes", odd)
    feed.put("pods", pod("odd", {GPU: "many"}, "h100-1"))
    views = shown(board, "nodes")
    assert views["h100-0"]["gpus"] == []
    assert len(views["h100-1"]["gpus"]) == 8
    assert shown(board, "jobs")["default/Pod/odd"]["state"] == "running"
