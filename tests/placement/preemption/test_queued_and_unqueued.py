"""Preemption between queued and unqueued workloads, and admissions withdrawn within one decision."""

from __future__ import annotations

from windlass.model.codec import decode_object
from windlass.model.configuration import Settings
from windlass.model.plan import Plan
from windlass.model.unstructured import Unstructured
from windlass.planner import plan_objects

EPOCH = 1767225600
STAMP = "2026-01-01T00:00:00Z"
GPU = "nvidia.com/gpu"
QUEUE, GROUP = "kueue.x-k8s.io/queue-name", "kueue.x-k8s.io/pod-group-name"
TOTAL = "kueue.x-k8s.io/pod-group-total-count"
KUEUE = "kueue.x-k8s.io/v1beta1"


def node(name: str) -> Unstructured:
    labels = {
        "kubernetes.io/hostname": name,
        "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3",
        "nvidia.com/gpu.count": "8",
        "nvidia.com/gpu.memory": "81559",
    }
    amounts = {"cpu": "64", "memory": "512Gi", GPU: "8", "pods": "110"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "status": {"capacity": amounts, "allocatable": amounts},
    }


def pod(name: str, gpus: int, priority: int = 0, on: str = "", queue: str = "", group: int = 0) -> Unstructured:
    labels: Unstructured = {QUEUE: queue} if queue else {}
    annotations: Unstructured = {}
    if group:
        labels[GROUP], annotations[TOTAL] = name.rpartition("-")[0], str(group)
    spec: Unstructured = {
        "priority": priority,
        "containers": [{"name": "main", "resources": {"limits": {GPU: gpus}, "requests": {GPU: gpus}}}],
    }
    if on:
        spec["nodeName"] = on
    meta = {"name": name, "namespace": "default", "uid": name, "creationTimestamp": STAMP}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {**meta, "labels": labels, "annotations": annotations},
        "spec": spec,
        "status": {"startTime": STAMP} if on else {},
    }


def queue(name: str, gpus: int) -> list[Unstructured]:
    flavors = [{"name": "default", "resources": [{"name": GPU, "nominalQuota": gpus}]}]
    spec = {
        "namespaceSelector": {},
        "resourceGroups": [{"coveredResources": [GPU], "flavors": flavors}],
        "preemption": {"withinClusterQueue": "LowerPriority"},
    }
    return [
        {"apiVersion": KUEUE, "kind": "ClusterQueue", "metadata": {"name": name}, "spec": spec},
        {
            "apiVersion": KUEUE,
            "kind": "LocalQueue",
            "metadata": {"name": name, "namespace": "default"},
            "spec": {"clusterQueue": name},
        },
    ]


FLAVOR = {"apiVersion": KUEUE, "kind": "ResourceFlavor", "metadata": {"name": "default"}, "spec": {}}


def decided(*trees: Unstructured) -> Plan:
    plan, _ = plan_objects([decode_object(tree) for tree in trees], Settings(), EPOCH + 3600)
    return plan


def evicted(plan: Plan) -> dict[str, str]:
    return {evict.workload: evict.for_workload for evict in plan.evicts}


def bound(plan: Plan) -> dict[str, str]:
    return {bind.pod.partition("/")[2]: bind.node for bind in plan.binds}


def test_queued_work_prefers_victims_of_its_own_queue_to_those_in_none() -> None:
    plan = decided(
        node("a"),
        node("b"),
        FLAVOR,
        *queue("team", 16),
        pod("own", 8, 0, "a", "team"),
        pod("stray", 8, 0, "b"),
        pod("urgent", 8, 100, "", "team"),
    )
    assert evicted(plan) == {"default/own": "default/urgent"}
    assert bound(plan) == {"urgent": "a"}


def test_queued_work_takes_nobodys_place_who_is_in_another_queue() -> None:
    plan = decided(
        node("a"),
        FLAVOR,
        *queue("team", 8),
        *queue("other", 8),
        pod("theirs", 8, 0, "a", "other"),
        pod("urgent", 8, 100, "", "team"),
    )
    assert evicted(plan) == {}
    assert [hold.workload for hold in plan.holds] == ["default/urgent"]


def test_queued_work_without_quota_takes_nobodys_place() -> None:
    plan = decided(
        node("a"),
        FLAVOR,
        *queue("team", 4),
        pod("stray", 8, 0, "a"),
        pod("urgent", 8, 100, "", "team"),
    )
    assert evicted(plan) == {}


def test_only_as_many_give_way_as_it_takes_and_the_lowest_first() -> None:
    waiting = [
        pod("top", 8, 1000, "", "team"),
        pod("low", 8, 1, "", "team"),
        pod("lowest", 8, 0, "", "team"),
        *(pod(f"gang-{member}", 8, 100, group=2) for member in range(2)),
    ]
    plan = decided(*map(node, "abcd"), FLAVOR, *queue("team", 32), *waiting)
    assert set(bound(plan)) == {"top", "low", "gang-0", "gang-1"}
    assert evicted(plan) == {}
    (held,) = plan.holds
    assert held.workload == "default/lowest"
    assert "default/gang of higher priority" in held.verdict.kube_message


def small_node(name: str) -> Unstructured:
    made = node(name)
    for key in ("capacity", "allocatable"):
        made["status"][key] = {**made["status"][key], GPU: "4"}
    made["metadata"]["labels"]["nvidia.com/gpu.count"] = "4"
    return made


def test_who_is_in_nobodys_way_stays_though_it_would_be_the_first_to_go() -> None:
    waiting = [
        pod("top", 8, 1000, "", "team"),
        pod("low", 8, 1, "", "team"),
        pod("lowest", 4, 0, "", "team"),
        pod("gang-0", 8, 100, group=1),
    ]
    plan = decided(node("a"), node("b"), small_node("c"), FLAVOR, *queue("team", 32), *waiting)
    assert set(bound(plan)) == {"top", "lowest", "gang-0"}


def test_who_gives_way_may_find_another_place() -> None:
    small = [small_node("c")]
    waiting = [
        pod("top", 8, 1000, "", "team"),
        pod("low-a", 4, 0, "", "team"),
        pod("low-b", 4, 0, "", "team"),
        pod("gang-0", 8, 100, group=1),
    ]
    plan = decided(node("a"), node("b"), *small, FLAVOR, *queue("team", 32), *waiting)
    places = bound(plan)
    assert {"top", "gang-0"} <= set(places)
    assert len({name for name in places if name.startswith("low")}) == 1


def test_nobody_gives_way_to_an_equal() -> None:
    waiting = [
        pod("top", 8, 1000, "", "team"),
        pod("same", 8, 100, "", "team"),
        pod("gang-0", 8, 100, group=1),
    ]
    plan = decided(node("a"), node("b"), FLAVOR, *queue("team", 32), *waiting)
    assert set(bound(plan)) == {"top", "same"}


def test_a_pod_goes_before_queued_work_below_it_though_other_queued_work_is_above() -> None:
    """All queued work is decided in one go. The urgent job fits nowhere; the unimportant one must not take the node
    that the pod would take from it in the next decision: that went round and round."""
    plan = decided(
        *(node("n1"), FLAVOR, *queue("q", 64)),
        pod("urgent", 9, priority=1000, queue="q"),
        pod("unimportant", 8, priority=0, queue="q"),
        pod("between", 8, priority=100),
    )
    assert bound(plan) == {"between": "n1"}


def test_a_queued_job_takes_one_queued_and_one_unqueued_victim() -> None:
    plan = decided(
        *(node("a"), node("b"), FLAVOR, *queue("team", 16)),
        pod("own", 4, 0, "a", "team"),
        pod("stray", 4, 0, "a"),
        pod("protected", 8, 1000, "b"),
        pod("urgent", 8, 100, "", "team"),
    )
    assert evicted(plan) == dict.fromkeys(("default/own", "default/stray"), "default/urgent")
    assert {evict.reason for evict in plan.evicts} == {"InClusterQueue", "Priority"}
    assert bound(plan) == {"urgent": "a"}


def test_a_queued_gang_takes_queued_work_on_one_node_and_unqueued_work_on_the_other() -> None:
    plan = decided(
        *(node("a"), node("b"), FLAVOR, *queue("team", 16)),
        pod("own", 8, 0, "a", "team"),
        pod("stray", 8, 0, "b"),
        *(pod(f"gang-{member}", 8, 100, "", "team", group=2) for member in range(2)),
    )
    assert evicted(plan) == dict.fromkeys(("default/own", "default/stray"), "default/gang")
    assert bound(plan).keys() == {"gang-0", "gang-1"}


def test_of_two_places_a_queued_job_takes_the_one_with_less_unqueued_work_to_lose() -> None:
    plan = decided(
        *(node("a"), node("b"), FLAVOR, *queue("team", 24)),
        *(pod("own-a", 4, 0, "a", "team"), pod("stray-a", 4, 0, "a")),
        *(pod("own-b", 6, 0, "b", "team"), pod("stray-b", 2, 0, "b")),
        pod("urgent", 8, 100, "", "team"),
    )
    assert evicted(plan) == dict.fromkeys(("default/own-b", "default/stray-b"), "default/urgent")


def test_queued_and_unqueued_work_gives_way_to_an_unqueued_pod_and_to_an_unqueued_gang() -> None:
    crowd = [
        *(node("a"), FLAVOR, *queue("team", 16)),
        pod("own", 4, 0, "a", "team"),
        pod("stray", 4, 0, "a"),
    ]
    plan = decided(*crowd, pod("urgent", 8, 100))
    assert evicted(plan) == dict.fromkeys(("default/own", "default/stray"), "default/urgent")
    plan = decided(*crowd, *(pod(f"gang-{member}", 4, 100, group=2) for member in range(2)))
    assert evicted(plan) == dict.fromkeys(("default/own", "default/stray"), "default/gang")


def test_the_plan_says_what_is_lost_and_what_is_lost_at_least() -> None:
    plan = decided(
        *(node("a"), node("b"), FLAVOR, *queue("team", 16)),
        *(pod("own", 4, 0, "a", "team"), pod("stray", 4, 0, "a")),
        pod("protected", 8, 1000, "b"),
        pod("urgent", 8, 100, "", "team"),
    )
    lost = {evict.workload: (evict.lost_gpu_seconds, evict.least_gpu_seconds) for evict in plan.evicts}
    assert lost == dict.fromkeys(("default/own", "default/stray"), (4 * 3600, 8 * 3600))


def test_the_plan_says_what_is_lost_for_a_gang_at_least() -> None:
    crowd = [node("a"), pod("one", 4, 0, "a"), pod("other", 4, 0, "a")]
    plan = decided(*crowd, *(pod(f"gang-{member}", 4, 100, group=2) for member in range(2)))
    lost = {evict.workload: (evict.lost_gpu_seconds, evict.least_gpu_seconds) for evict in plan.evicts}
    assert lost == dict.fromkeys(("default/one", "default/other"), (4 * 3600, 8 * 3600))
