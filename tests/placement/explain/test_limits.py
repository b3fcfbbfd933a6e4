"""The limits of a hold in full: which resource, rule, quota or level is too small, with its numbers."""

from __future__ import annotations

import pytest
from tests.engine.plain_objects import TWO_NODES, node, pod
from tests.placement.explain.held_objects import (
    GPU,
    PRODUCT,
    RACK,
    REQUIRED,
    asking,
    flavor,
    gang,
    gpu_limit,
    having,
    in_queue,
    labelled,
    member,
    of_model,
    queue,
    racks,
    share,
    tainted,
    verdict,
)

from windlass.model.unstructured import Unstructured
from windlass.model.verdict import Limit
from windlass.placement.explain import limits

LATER = "2026-01-01T01:00:00Z"
AFFINITY = "1 node(s) didn't match Pod's node affinity/selector"

# Capacity


@pytest.mark.parametrize(
    ("free", "requested", "text"),
    [
        ((1,), 2, "2 GPUs requested, 1 free on eligible nodes"),
        ((0,), 1, "1 GPU requested, 0 free on eligible nodes"),
        ((3, 4), 8, "8 GPUs requested, 7 free on eligible nodes"),
    ],
)
def test_gpus_that_are_all_in_use(free: tuple[int, ...], requested: int, text: str) -> None:
    nodes = [node(f"n{at}") for at in range(len(free))]
    running = [pod(f"r{at}", 8 - left, on=f"n{at}") for at, left in enumerate(free)]
    found = verdict(*nodes, *running, pod("w", requested))
    assert found.code == "GPU_FULL"
    assert found.limits == (gpu_limit("resource", text, str(requested), str(sum(free)), len(free)),)


def test_gpus_that_are_free_in_pieces() -> None:
    found = verdict(node("n1"), node("n2"), pod("a", 3, on="n1"), pod("b", 2, on="n2"), pod("w", 8))
    text = "11 GPUs are free, but spread over 2 nodes (6, 5): no node has room for a pod with 8 GPUs"
    assert found.code == "GPU_FRAGMENTED"
    assert found.limits == (gpu_limit("fragmentation", text, "8", "11", 2),)


def test_exactly_as_many_free_as_requested_are_fragments_and_one_less_is_too_few() -> None:
    nodes = [node("n1"), node("n2"), pod("a", 4, on="n1")]
    assert verdict(*nodes, pod("b", 4, on="n2"), pod("w", 8)).code == "GPU_FRAGMENTED"
    assert verdict(*nodes, pod("b", 5, on="n2"), pod("w", 8)).code == "GPU_FULL"


def test_a_gang_of_which_some_pods_fit() -> None:
    found = verdict(*TWO_NODES, pod("a", 8, on="n2"), *gang(3, 4))
    assert found.detail == "only 2 of 3 pods fit: 1 Insufficient nvidia.com/gpu"
    assert found.limits == (gpu_limit("resource", "12 GPUs requested, 8 free on eligible nodes", "12", "8", 1),)
    every = verdict(*TWO_NODES, pod("a", 3, on="n1"), pod("b", 2, on="n2"), *gang(3, 4))
    assert every.detail == "only 2 of 3 pods fit", "no node refuses: all of them together take too few"
    assert every.limits == (gpu_limit("resource", "12 GPUs requested, 11 free on eligible nodes", "12", "11", 0),)


def test_a_gang_names_the_pod_set_that_lacks_most() -> None:
    members = [member("w0", 3, 1), member("w1", 3, 4), member("w2", 3, 4)]
    found = verdict(*TWO_NODES, pod("a", 4, on="n1"), pod("b", 5, on="n2"), *members)
    assert found.detail == "only 1 of 2 pods fit: 1 Insufficient nvidia.com/gpu"
    assert found.limits == (gpu_limit("resource", "9 GPUs requested, 7 free on eligible nodes", "9", "7", 1),)


def test_shares_of_gpus() -> None:
    running = [share("a", "0.7", on="n1"), share("b", "0.6", on="n1")]
    found = verdict(node("n1", 2), *running, share("w", "0.5"))
    text = "0.7 GPU are free, all on one node: no GPU has 0.5 free"
    assert found.limits == (gpu_limit("fragmentation", text, "0.5", "0.7", 1),)
    full = verdict(node("n1", 1), share("a", "0.7", on="n1"), share("w", "0.5"))
    assert full.limits == (gpu_limit("resource", "0.5 GPUs requested, 0.3 free on eligible nodes", "0.5", "0.3", 1),)


@pytest.mark.parametrize(
    ("resource", "used", "requested", "nodes", "most"),
    [
        ("cpu", ("60", "50"), "20", 2, "14"),
        ("memory", ("200Gi", "100Gi"), "200Gi", 2, "156Gi"),
        ("cpu", ("60",), "20", 1, "4"),
    ],
)
def test_cpu_and_memory_are_compared_with_what_the_best_node_has_free(
    resource: str, used: tuple[str, ...], requested: str, nodes: int, most: str
) -> None:
    objects = [node(f"n{at}") for at in range(len(used))]
    objects += [asking(pod(f"r{at}", 1, on=f"n{at}"), **{resource: amount}) for at, amount in enumerate(used)]
    found = verdict(*objects, asking(pod("w", 1), **{resource: requested}))
    have = "node has" if nodes == 1 else "nodes have"
    text = (
        f"{nodes} {have} too little {resource} free: {requested} requested per pod, at most {most} free on an "
        "eligible node"
    )
    assert found.code == "CPU_MEM_INSUFFICIENT"
    assert found.limits == (Limit("resource", text, resource=resource, needed=requested, available=most, nodes=nodes),)


def test_nodes_that_a_rule_excludes_are_not_eligible_however_much_they_have() -> None:
    objects = [node("n1"), tainted("n2", ("team", "x", "NoSchedule")), asking(pod("r", 1, on="n1"), cpu=60)]
    found = verdict(*objects, asking(pod("w", 1), cpu=20))
    assert [(limit.kind, limit.available) for limit in found.limits] == [("rules", ""), ("resource", "4")]
    assert found.limits[0] == Limit("rules", "1 node(s) had untolerated taint(s)", nodes=1)


def test_a_node_with_as_many_pods_as_it_may_have() -> None:
    found = verdict(having(node("n1"), pods=1), pod("a", 1, on="n1"), pod("w", 1))
    assert found.code == "POD_COUNT_LIMIT"
    assert found.limits == (Limit("resource", "1 Too many pods", resource="pods", nodes=1),)


def test_no_more_than_four_limits_and_gpus_first() -> None:
    objects = [
        having(node("n1"), pods=1, **{"example.com/nic": 1}),
        tainted("n2", ("team", "x", "NoSchedule")),
        {**node("n3"), "spec": {"unschedulable": True}},
    ]
    waits = asking(pod("w", 8), cpu=65, memory="300Gi", **{"example.com/nic": 2})
    found = verdict(*objects, pod("a", 1, on="n1"), waits)
    assert len(found.limits) == 4
    assert found.limits[0].resource == GPU


# Models and node rules


def test_free_gpus_of_other_models() -> None:
    objects = [of_model("n1", "H100"), of_model("n2", "A100"), pod("a", 8, on="n1"), pod("b", 3, on="n2")]
    found = verdict(*objects, pod("w", 4, nodeSelector={PRODUCT: "H100"}))
    assert found.limits == (
        gpu_limit("resource", "4 GPUs requested, 0 free on eligible nodes", "4", "0", 2),
        Limit("model", "its node selector H100 excludes 5 free GPUs: 5 A100", resource=GPU, available="5", nodes=1),
        Limit("rules", AFFINITY, nodes=1),
    )


def test_models_are_listed_by_free_gpus_then_by_name() -> None:
    terms = [{"matchExpressions": [{"key": PRODUCT, "operator": "In", "values": ["H100", "H200"]}]}]
    rule = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}
    objects = [
        of_model("n1", "H100"),
        of_model("n2", "A100", 3),
        of_model("n3", "B200"),
        of_model("n4", "A10", 3),
        {**of_model("n5", "L4"), "spec": {"unschedulable": True}},
        pod("a", 8, on="n1"),
        pod("b", 3, on="n3"),
    ]
    found = verdict(*objects, pod("w", 4, affinity=rule))
    text = "its node affinity to H100 or H200 excludes 11 free GPUs: 5 B200, 3 A10, 3 A100"
    assert found.limits[1] == Limit("model", text, resource=GPU, available="11", nodes=4)


def test_replicas_of_a_shared_gpu_count_for_its_own_model_only() -> None:
    sharing = {"nvidia.com/gpu.count": "4", "nvidia.com/gpu.replicas": "2"}
    shared = labelled(of_model("n2", "A100"), **sharing, **{"nvidia.com/gpu.sharing-strategy": "time-slicing"})
    objects = [of_model("n1", "H100"), shared, of_model("n3", "T4", 2), pod("a", 8, on="n1"), pod("b", 3, on="n2")]
    found = verdict(*objects, pod("w", 4, nodeSelector={PRODUCT: "H100"}))
    text = "its node selector H100 excludes 7 free GPUs: 5 A100, 2 T4"
    assert found.limits[1] == Limit("model", text, resource=GPU, available="7", nodes=2)


def test_a_requested_model_is_named_as_such() -> None:
    notes = {"alibabacloud.com/gpu-card-model": "H100", "alibabacloud.com/gpu-count": "4"}
    waits = pod("w", 0, metadata={"annotations": {**notes, "alibabacloud.com/gpu-milli": "1000"}})
    objects = [of_model("n1", "H100"), of_model("n2", "A100"), pod("a", 8, on="n1"), pod("b", 3, on="n2")]
    found = verdict(*objects, waits)
    text = "its request for GPU model H100 excludes 5 free GPUs: 5 A100"
    assert found.limits[1] == Limit("model", text, resource=GPU, available="5", nodes=1)
    assert found.limits[2] == Limit("rules", "1 node(s) didn't have the requested GPU model", nodes=1)


def test_any_selector_is_named_with_its_labels_and_gpus_without_a_model_as_such() -> None:
    objects = [labelled(node("n1"), a="1"), labelled(node("n2"), b="2")]
    found = verdict(*objects, pod("w", 4, nodeSelector={"b": "2", "a": "1"}))
    matches_none = "its node selector a=1, b=2 matches 0 of 2 nodes"
    text = "its node selector a=1, b=2 excludes 16 free GPUs: 16 of unknown model"
    assert found.limits == (
        Limit("selector", matches_none, nodes=2),
        Limit("model", text, resource=GPU, available="16", nodes=2),
    )


def test_labels_of_the_flavor_exclude_gpus_too() -> None:
    nodes = [labelled(node("n1"), pool="f1"), labelled(node("n2"), pool="f2"), node("n3")]
    objects = [flavor("f1", pool="f1"), *queue({"f1": {GPU: 8}}), pod("a", 7, on="n1")]
    found = verdict(*nodes, *objects, pod("w", 2, metadata=in_queue()))
    text = "its queue's flavor with node labels pool=f1 excludes 16 free GPUs: 16 of unknown model"
    assert found.limits[:2] == (
        gpu_limit("resource", "2 GPUs requested, 1 free on eligible nodes", "2", "1", 3),
        Limit("model", text, resource=GPU, available="16", nodes=2),
    )


# Size


def test_a_gang_that_is_larger_than_the_empty_cluster() -> None:
    found = verdict(node("n1"), node("n2", 4), *gang(4, 4))
    text = "on the empty cluster only 3 of 4 pods would fit"
    assert found.code == "REQUEST_EXCEEDS_CLUSTER"
    assert found.limits == (
        Limit("size", text, needed="4", available="3"),
        gpu_limit("resource", "16 GPUs requested, 12 free on eligible nodes", "16", "12", 0),
    )


def test_a_pod_that_is_larger_than_every_node() -> None:
    found = verdict(node("n1"), node("n2", 4), pod("r", 2, on="n1"), pod("w", 9))
    assert found.is_infeasible
    text = "a pod requests 9 nvidia.com/gpu, the largest eligible node has 8"
    assert found.limits[0] == Limit("size", text, resource=GPU, needed="9", available="8")
    exact = verdict(node("n1"), pod("r", 1, on="n1"), pod("w", 8))
    assert not exact.is_infeasible


def test_a_gang_that_is_larger_than_every_domain() -> None:
    found = verdict(*racks(8, 8, 8, 8), *gang(5, 4, annotations={REQUIRED: RACK}))
    text = "the largest rack has room for 4 of 5 pods when it is empty"
    assert found.limits == (
        Limit("size", text, level=RACK, needed="5", available="8"),
        Limit(
            "topology",
            "no rack has room for all 5 pods: at most 4 fit",
            level=RACK,
            needed="5",
            available="4",
        ),
    )


# Topology


@pytest.mark.parametrize(("used", "fits"), [((5, 0, 4, 0), 3), ((5, 0, 5, 0), 2), ((8, 4, 8, 8), 1)])
def test_a_level_with_too_little_in_every_domain(used: tuple[int, ...], fits: int) -> None:
    running = [pod(f"r{at}", gpus, on=f"n{at}") for at, gpus in enumerate(used) if gpus]
    found = verdict(*racks(8, 8, 8, 8), *running, *gang(4, 4, annotations={REQUIRED: RACK}))
    text = f"no rack has room for all 4 pods: at most {fits} fit"
    assert found.limits[0] == Limit("topology", text, level=RACK, needed="4", available=str(fits))


def test_a_gang_of_one_says_its_pod() -> None:
    running = [pod(f"r{at}", 6, on=f"n{at}") for at in range(2)]
    found = verdict(*racks(8, 8), *running, *gang(1, 4, annotations={REQUIRED: RACK}))
    assert found.limits[0].text == "no rack has room for its pod"


# Quota


def quota_limit(resource: str, left: str, needed: str, most: str = "", name: str = "f") -> Limit:
    text = f"over quota: ClusterQueue q has {left} {resource} left in flavor {name}, {needed} requested"
    if most:
        text = (
            f"it never starts: ClusterQueue q can have at most {most} {resource} in flavor {name}, {needed} requested"
        )
    return Limit("quota", text, queue="q", flavor=name, resource=resource, needed=needed, available=left)


def test_quota_that_others_use_and_quota_that_is_too_small() -> None:
    objects = [*TWO_NODES, flavor(), *queue({"f": {GPU: 8, "cpu": 100}})]
    used = [pod("r1", 3, on="n1", metadata=in_queue()), pod("r2", 2, on="n1", metadata=in_queue())]
    found = verdict(*objects, *used, pod("w", 6, metadata=in_queue()))
    assert found.limits == (quota_limit(GPU, "3", "6"),)
    assert not found.is_infeasible
    found = verdict(*objects, *used, pod("w", 9, metadata=in_queue()))
    assert found.limits[0] == quota_limit(GPU, "3", "9", "8")
    assert found.is_infeasible
    assert not verdict(*objects, *used, pod("w", 8, metadata=in_queue())).is_infeasible


def test_every_resource_with_too_little_quota_in_the_flavor_that_has_most() -> None:
    nodes = [labelled(node("n1"), pool="f1"), labelled(node("n2"), pool="f2")]
    flavors = [flavor("f1", pool="f1"), flavor("f2", pool="f2")]
    quotas = {"f1": {GPU: 2, "cpu": "5"}, "f2": {GPU: 3, "cpu": "5"}}
    found = verdict(*nodes, *flavors, *queue(quotas), asking(pod("w", 4, metadata=in_queue()), cpu=6))
    assert found.limits == (quota_limit("cpu", "5", "6", "5", "f1"), quota_limit(GPU, "3", "4", "3", "f2"))


def test_quota_counts_all_pods_of_a_gang_and_half_gpus_by_half() -> None:
    objects = [*TWO_NODES, flavor()]
    found = verdict(*objects, *queue({"f": {GPU: 5}}), *gang(3, 2, queue="q"))
    assert found.limits == (quota_limit(GPU, "5", "6", "5"),)


def test_a_resource_without_quota_is_named_once() -> None:
    found = verdict(*TWO_NODES, flavor(), *queue({"f": {"memory": 8}}), pod("w", 1, metadata=in_queue()))
    assert found.limits == (Limit("quota", "ClusterQueue q has no quota for nvidia.com/gpu", queue="q", resource=GPU),)


def test_only_flavors_that_the_pod_may_use_count() -> None:
    nodes = [labelled(node("n1"), pool="f1"), labelled(node("n2"), pool="f2")]
    objects = [*nodes, flavor("f1", pool="f1"), flavor("f2", pool="f2"), *queue({"f1": {GPU: 8}, "f2": {GPU: 2}})]
    picky = pod("w", 4, metadata=in_queue(), nodeSelector={"pool": "f2"})
    found = verdict(*objects, picky)
    assert found.limits == (quota_limit(GPU, "2", "4", "2", "f2"),)
    assert found.is_infeasible
    assert "f1" not in found.public_message


def test_quota_that_is_left_in_flavors_that_do_not_go_together() -> None:
    nodes = [labelled(node("n1"), pool="f1"), labelled(node("n2"), pool="f2")]
    objects = [*nodes, flavor("f1", pool="f1"), flavor("f2", pool="f2")]
    found = verdict(
        *objects,
        *queue({"f1": {GPU: 8, "cpu": "1"}, "f2": {GPU: 2, "cpu": "8"}}),
        asking(pod("w", 4, metadata=in_queue()), cpu=6),
    )
    assert found.code == "KUEUE_QUOTA_INSUFFICIENT"
    text = "ClusterQueue q has quota left, but not in flavors that its pods can use together: "
    assert [limit.text for limit in found.limits] == [f"{text}8 cpu in flavor f2, 8 {GPU} in flavor f1"]
    assert found.public_message.startswith(text)


# Order and plans


def test_the_head_of_a_strict_queue_and_those_behind_it() -> None:
    objects = [*TWO_NODES, flavor(), *queue({"f": {GPU: 8}}, queueingStrategy="StrictFIFO")]
    waiting = [pod("r", 2, on="n1", metadata=in_queue()), pod("head", 8, metadata=in_queue())]
    found = verdict(*objects, *waiting, pod("w", 1, at=LATER, metadata=in_queue()))
    text = "quota suffices, but a workload ahead of it in ClusterQueue q waits and has to start first (StrictFIFO)"
    assert found.limits == (Limit("order", text, queue="q", behind="default/head"),)


def planned_starts() -> list[Unstructured]:
    """`first` is planned for when `soon` ends, `second` for when `late` does; two GPUs are free on each node."""
    return [
        node("n1"),
        node("n2"),
        pod("soon", 6, on="n1", activeDeadlineSeconds=50_000),
        pod("late", 6, on="n2", activeDeadlineSeconds=60_000),
        pod("first", 8),
        pod("second", 8, at=LATER),
    ]


def test_a_planned_start_that_keeps_others_out_is_named() -> None:
    found = verdict(*planned_starts(), pod("w", 2, at="2026-01-01T02:00:00Z"))
    assert found.code == "RESERVED_FOR_OTHERS"
    (limit,) = found.limits
    assert limit.text.startswith("room is free, but kept for work that is planned to begin at 2026-01-01T")
    assert (limit.kind, limit.behind) == ("plan", "default/first")


def test_resources_behind_one_without_quota_are_counted_too() -> None:
    """`cpu` has no quota, and of GPUs there is too little; where undeclared resources don't count, only the latter."""
    objects = [*TWO_NODES, flavor(), *queue({"f": {GPU: 2}})]
    found = verdict(*objects, asking(pod("w", 4, metadata=in_queue()), cpu=6))
    assert [(limit.kind, limit.resource) for limit in found.limits] == [("quota", "cpu"), ("quota", GPU)]


def test_the_workload_that_is_not_ready_is_read_out_of_the_message() -> None:
    assert limits._unready_workload("waits until the pods of team/w are ready (…)") == "team/w"
    assert limits._unready_workload("waits until the pods of another queue are ready") == ""
    assert limits._unready_workload("team/w is not ready") == ""
