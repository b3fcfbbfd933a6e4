"""The verdict of a pending pod: counts of nodes by reason, the nearest misses, kube-scheduler's own sentence."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from reference.builders import HOST, near, pod_anti_affinity, selector, taint
from reference.park import Desk, gpu_node, mig_node, node, pod


def test_the_sentence_is_kube_schedulers():
    desk = Desk(
        node("a", cpu=1),
        node("b", cpu=1),
        node("c", taints=[taint("gpu")]),
        node("d", cordoned=True, cpu=1),
        pod("p", cpu="4"),
    )
    assert desk.verdict("p").kube_message == (
        "0/4 nodes are available: 1 node(s) had untolerated taint(s), 1 node(s) were unschedulable, 3 Insufficient cpu."
    )


def test_counts_are_sorted_and_every_reason_of_a_node_counts():
    desk = Desk(node("a", cpu=1, memory="1Gi"), node("b", cpu=1), pod("p", cpu="2", asks={"memory": "2Gi"}))
    counts = [(count.nodes, count.kube, count.code) for count in desk.verdict("p").counts]
    assert counts == [
        (2, "Insufficient cpu", "CPU_MEM_INSUFFICIENT"),
        (1, "Insufficient memory", "CPU_MEM_INSUFFICIENT"),
    ]


def test_the_nearest_misses_say_what_is_lacking_and_what_is_free():
    desk = Desk(
        gpu_node("b-both", 2, cpu=1),
        gpu_node("a-gpus", 2, cpu=8),
        gpu_node("c-tainted", 8, cpu=8, taints=[taint("x")]),
        pod("x", 1, on="a-gpus"),
        pod("p", 4, cpu="2500m", asks={"memory": "8Gi"}),
    )
    first, second = desk.verdict("p").nearest
    assert first.node == "a-gpus", "two reasons against it"
    assert first.lacks == {"nvidia.com/gpu": "3", "GPUs": "3"}
    assert first.free == {"cpu": "7", "memory": "64Gi", "nvidia.com/gpu": "1", "pods": "109", "GPUs": "1"}
    assert second.node == "b-both", "three"
    assert second.lacks == {"cpu": "1500m", "nvidia.com/gpu": "2", "GPUs": "2"}
    # A taint is not cured by anything that ends: that node is no near miss.


def test_free_replicas_of_a_sliced_gpu_are_counted_as_gpus():
    desk = Desk(gpu_node("n", 1, replicas=4, cpu=1), pod("p", 3, cpu="2"))
    (miss,) = desk.verdict("p").nearest
    assert miss.lacks == {"cpu": "1"}
    assert miss.free["GPUs"] == "4"


def test_nobody_knows_which_gpu_a_share_would_be_of_where_no_label_tells_replicas_apart():
    """Twenty GPUs are no machine: they are replicas of some, and a share is of one."""
    bare = node("bare", **{"nvidia.com/gpu": 20})
    for share in ({"share": 0.5}, {"memory_mib": 100}):
        desk = Desk(bare, pod("p", **share))
        assert desk.run() == {}
        assert desk.verdict("p").code == "GFD_LABELS_MISSING"
    assert Desk(bare, pod("whole", 2)).run() == {"whole": "bare"}
    assert Desk(gpu_node("n", 5, replicas=4), pod("p", share=0.5)).run() == {"p": "n"}, "the labels tell"


def test_instances_in_use_are_not_less_than_none_free():
    """Two halves are made on the only GPU; a third one lacks one, whatever is in use."""
    desk = Desk(mig_node("n", 1), *[pod(name, mig=("3g.40gb", 1)) for name in ("a", "b", "c")])
    assert sorted(desk.run()) == ["a", "b"]
    (miss,) = desk.verdict("c").nearest
    assert miss.lacks == {"nvidia.com/mig-3g.40gb": "1"}
    assert miss.free["nvidia.com/mig-3g.40gb"] == "0"


def test_what_binds_is_what_the_nodes_that_it_may_use_lack():
    tainted = [node(f"t{i}", taints=[taint("x")]) for i in range(5)]
    desk = Desk(*tainted, node("n", cpu=2), pod("q", cpu="1", on="n"), pod("p", cpu="2"))
    assert desk.verdict("p").code == "CPU_MEM_INSUFFICIENT"
    small = Desk(*tainted, node("n", cpu=1), pod("p", cpu="2"))
    assert small.verdict("p").code == "TAINT_NOT_TOLERATED", "that node can't ever take it"
    assert Desk(node("t", taints=[taint("x")]), pod("p")).verdict("p").code == "TAINT_NOT_TOLERATED"


def test_at_most_three_nearest_misses_the_nearest_first_equal_ones_by_rank():
    nodes = [node(f"n{i}", cpu=1, memory="1Gi" if i < 2 else "64Gi") for i in range(6)]
    desk = Desk(*nodes, pod("p", cpu="2", asks={"memory": "2Gi"}))
    assert [miss.node for miss in desk.verdict("p").nearest] == ["n2", "n3", "n4"]


def test_the_verdict_of_a_gang_is_that_of_the_member_that_found_nothing():
    """The first two members have their places by then: what is left for the third is what the sentence says."""
    waiting = [pod(f"w{i}", 1, group=("job", 3)) for i in range(3)]
    desk = Desk(gpu_node("n", 3), pod("there", 1, on="n"), *waiting)
    verdict = desk.verdict("w0")
    assert verdict.nearest[0].free["GPUs"] == "0"
    assert verdict.nearest[0].lacks == {"nvidia.com/gpu": "1", "GPUs": "1"}


def test_rules_between_pods_are_counted_with_the_rest():
    apart = pod_anti_affinity(near(HOST, selector(app="w")))
    desk = Desk(node("a"), node("b", cpu=1), pod("w", labels={"app": "w"}, on="a"))
    desk.put(pod("p", cpu="2", affinity=apart))
    assert desk.verdict("p").kube_message == (
        "0/2 nodes are available: 1 Insufficient cpu, 1 node(s) didn't match pod anti-affinity rules."
    )


@given(cpus=st.lists(st.integers(0, 9), min_size=1, max_size=6), taken=st.integers(0, 12))
def test_a_pod_that_waits_waits_for_the_reason_that_counts(cpus, taken):
    """With one resource the whole verdict can be said in a line: what every node lacks."""
    desk = Desk(*[node(f"n{i}", cpu=cpu) for i, cpu in enumerate(cpus)], pod("p", cpu=str(taken)))
    if taken <= max(cpus):
        assert len(desk.plan().binds) == 1
        return
    verdict = desk.verdict("p")
    assert verdict.kube_message == f"0/{len(cpus)} nodes are available: {len(cpus)} Insufficient cpu."
    lacks = {miss.node: miss.lacks for miss in verdict.nearest}
    assert lacks == {f"n{i}": {"cpu": str(taken - cpus[i])} for i in range(min(3, len(cpus)))}
