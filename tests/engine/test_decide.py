"""What `decide` does, rule by rule: each test is one sentence about a small cluster."""

from __future__ import annotations

import pytest

from reference.builders import (
    HOST,
    ZONE,
    host_port,
    near,
    need,
    node_affinity,
    node_term,
    pod_affinity,
    pod_anti_affinity,
    selector,
    spread,
    taint,
)
from reference.park import A100, GPU, H100, Desk, bound, gpu_node, node, pod
from windlass.cluster.delta import Deleted
from windlass.model.pod import Container, ResourceRequirements, SchedulingGate, Toleration, Volume


def zoned(name, zone, **options):
    return node(name, labels={ZONE: zone}, **options)


# Order and gangs


def test_the_urgent_pod_gets_the_last_gpu():
    desk = Desk(gpu_node("n", 1), pod("first", 1), pod("urgent", 1, priority=100))
    assert desk.run() == {"urgent": "n"}
    assert desk.verdict("first").code == "GPU_FULL"


def test_a_pod_that_does_not_fit_lets_smaller_ones_pass():
    desk = Desk(gpu_node("n", 2), pod("large", 4), pod("small", 1))
    assert desk.run() == {"small": "n"}


def test_a_gang_starts_whole():
    desk = Desk(gpu_node("a", 2), gpu_node("b", 2), *[pod(f"w{i}", 2, group=("job", 2)) for i in range(2)])
    assert desk.run() == {"w0": "a", "w1": "b"}


def test_or_not_at_all_and_then_takes_nothing():
    desk = Desk(gpu_node("a", 2), gpu_node("b", 1), policy="pack")
    desk.put(*[pod(f"w{i}", 2, group=("job", 2)) for i in range(2)], pod("next", 1))
    assert desk.run() == {"next": "b"}
    assert {hold.workload for hold in desk.plan().holds} == {"default/job"}, "as one"
    assert desk.verdict("w0") == desk.verdict("w1")
    assert desk.room("a") == [1000, 1000]


def test_so_it_is_for_gangs_with_rules_between_their_pods():
    apart = pod_anti_affinity(near(HOST, selector(app="w")))
    workers = [pod(f"w{i}", labels={"app": "w"}, affinity=apart, group=("job", 3)) for i in range(3)]
    desk = Desk(node("a"), node("b"), *workers)
    assert desk.run() == {}
    assert desk.verdict("w0").code == "POD_AFFINITY_CONFLICT"
    assert (desk.free("a"), desk.free("b")) == (16000, 16000)
    desk.put(node("c"))
    assert sorted(desk.run().values()) == ["a", "b", "c"]


def test_a_gang_that_lacks_members_waits_for_them():
    desk = Desk(gpu_node("n", 8), pod("w0", 1, group=("job", 2)))
    (hold,) = desk.plan().holds
    assert (hold.workload, hold.verdict.code) == ("default/job", "GANG_INCOMPLETE")
    assert hold.verdict.detail == "1 of 2 pods of group default/job exist"
    assert desk.put(pod("w1", 1, group=("job", 2))).run() == {"w0": "n", "w1": "n"}


def test_one_member_that_is_held_holds_its_gang():
    gated = pod("w1", 1, group=("job", 2), scheduling_gates=(SchedulingGate(name="quota"),))
    desk = Desk(gpu_node("n", 8), pod("w0", 1, group=("job", 2)), gated)
    assert desk.run() == {}
    assert desk.verdict("w0").code == "SCHEDULING_GATED"


# Rules of nodes


def test_taints_selectors_and_cordons_are_kept():
    desk = Desk(
        node("cordoned", cordoned=True),
        node("tainted", taints=[taint("gpu")]),
        node("plain", labels={"disk": "ssd"}),
    )
    tolerant = pod("t", tolerations=(Toleration(key="gpu", operator="Exists"),), node_selector={HOST: "tainted"})
    desk.put(pod("p"), tolerant, pod("q", node_selector={"disk": "ssd"}), pod("r", node_selector={"disk": "hdd"}))
    assert desk.run() == {"p": "plain", "t": "tainted", "q": "plain"}
    assert desk.verdict("r").code == "SELECTOR_MISMATCH"


def test_every_resource_counts():
    full = {"cpu": "1", "memory": "1Gi", "ephemeral-storage": "1Gi", "example.com/nic": "1"}
    for name in full:
        rich = {"cpu": 2, "memory": "2Gi", "ephemeral-storage": "2Gi", "example.com/nic": 2}
        short = {**rich, name: 0}
        desk = Desk(node("n", **short), pod("p", cpu="1", asks=full))
        assert desk.verdict("p").kube_message == f"0/1 nodes are available: 1 Insufficient {name}."
    assert Desk(node("n", pods=0), pod("p")).verdict("p").kube_message == "0/1 nodes are available: 1 Too many pods."


def test_a_resource_may_be_used_to_the_last_unit():
    desk = Desk(node("n", cpu=2), pod("a", cpu="1500m"), pod("b", cpu="500m"), pod("c", cpu="1m"))
    assert desk.run() == {"a": "n", "b": "n"}
    assert desk.verdict("c").nearest[0].lacks == {"cpu": "1m"}


def test_init_containers_and_overhead_are_part_of_the_request():
    init = (Container(resources=ResourceRequirements(limits={"cpu": "3"})),)
    assert Desk(node("n", cpu=3), pod("p", init_containers=init)).run() == {"p": "n"}
    heavier = pod("p", init_containers=init, overhead={"cpu": "250m"})
    assert Desk(node("n", cpu=3), heavier).run() == {}


# Rules between pods, inside one decision


def test_two_pods_of_one_host_port_go_to_two_nodes():
    ports = (Container(ports=(host_port(8080),)),)
    desk = Desk(node("a"), node("b"), *[pod(f"p{i}", containers=ports) for i in range(3)])
    assert sorted(desk.run().values()) == ["a", "b"]
    assert desk.verdict("p2").code == "HOST_PORT_CONFLICT"


def test_a_pod_placed_a_moment_ago_keeps_those_away_that_it_minds():
    """The second pod has no rule of its own, and comes in the same decision."""
    loner = pod("loner", affinity=pod_anti_affinity(near(HOST, selector(app="web"))))
    desk = Desk(node("a"), loner, pod("web", labels={"app": "web"}))
    assert desk.run() == {"loner": "a"}
    kube = "node(s) didn't satisfy existing pods anti-affinity rules"
    assert [count.kube for count in desk.verdict("web").counts] == [kube]


def test_a_pod_follows_one_that_was_placed_a_moment_ago():
    follower = pod("f", affinity=pod_affinity(near(ZONE, selector(app="db"))))
    desk = Desk(zoned("a", "1"), zoned("b", "2", cpu=32), zoned("c", "2"))
    desk.put(pod("db", cpu="20", labels={"app": "db"}), follower)
    placed = desk.run()
    assert placed["db"] == "b"
    assert placed["f"] in ("b", "c")


def test_pods_are_spread_evenly_as_they_are_placed():
    even = (spread(ZONE, selector(app="w")),)
    workers = [pod(f"w{i}", labels={"app": "w"}, topology_spread_constraints=even) for i in range(5)]
    desk = Desk(zoned("a", "1"), zoned("b", "2"), *workers)
    assert sorted(desk.run().values()) in (["a", "a", "a", "b", "b"], ["a", "a", "b", "b", "b"])


def test_pods_placed_by_the_compiled_loop_count_for_rules_of_later_ones():
    even = (spread(ZONE, selector(app="w"), 1),)
    plain = [pod(f"a{i}", labels={"app": "w"}, node_selector={ZONE: "1"}) for i in range(2)]
    desk = Desk(zoned("a", "1"), zoned("b", "2"), *plain)
    desk.put(pod("z", labels={"app": "w"}, topology_spread_constraints=even))
    assert desk.run()["z"] == "b"


def test_what_left_is_counted_no_more():
    apart = pod_anti_affinity(near(HOST, selector(app="w")))
    desk = Desk(node("a"), bound(pod("old", labels={"app": "w"}, affinity=apart), "a"))
    desk.put(pod("new", labels={"app": "w"}, affinity=apart))
    assert desk.run() == {}
    desk.apply(Deleted("Pod", "default/old"))
    assert desk.run() == {"new": "a"}


# Preferences come before the policy's own score


PREFERS_H100 = node_affinity(
    preferred=[
        (100, node_term(need("nvidia.com/gpu.product", "In", H100))),
        (10, node_term(need("nvidia.com/gpu.product", "In", A100))),
    ]
)


@pytest.mark.parametrize("policy", ["windlass", "pack", "first-fit", "random"])
def test_prefer_h100_fall_back_to_a100(policy):
    nodes = [gpu_node("a-t4", 1, model="Tesla-T4"), gpu_node("b-a100", 1, model=A100), gpu_node("c-h100", 8)]
    desk = Desk(*nodes, policy=policy)
    assert desk.put(pod("p", 8, affinity=PREFERS_H100)).run() == {"p": "c-h100"}
    assert desk.put(pod("q", 1, affinity=PREFERS_H100)).run() == {"q": "b-a100"}
    assert desk.put(pod("r", 1, affinity=PREFERS_H100)).run() == {"r": "a-t4"}


def test_among_equally_preferred_nodes_the_policy_decides():
    nodes = [gpu_node("a-h100", 8), gpu_node("b-h100", 1), gpu_node("c-a100", 1, model=A100)]
    assert Desk(*nodes, pod("p", 1, affinity=PREFERS_H100), policy="pack").run() == {"p": "b-h100"}


def test_a_node_that_would_rather_not_is_the_last_choice():
    desk = Desk(node("a", cpu=1, taints=[taint("old", effect="PreferNoSchedule")]), node("b", cpu=1))
    assert desk.put(pod("p"), pod("q")).run() == {"p": "b", "q": "a"}


def test_soft_spread_and_soft_affinity_are_followed_while_they_can_be():
    soft = (spread(HOST, selector(app="w"), soft=True),)
    workers = [pod(f"w{i}", labels={"app": "w"}, topology_spread_constraints=soft) for i in range(4)]
    desk = Desk(node("a", cpu=2), node("b", cpu=3), *workers)
    assert sorted(desk.run().values()) == ["a", "a", "b", "b"]
    close = pod_affinity(preferred=[(50, near(HOST, selector(app="w")))])
    desk = Desk(node("a"), node("b"), pod("w", labels={"app": "w"}, on="b"), pod("p", affinity=close))
    assert desk.run() == {"p": "b"}


# What is held before any node is looked at


def test_gates_hold_a_pod():
    desk = Desk(node("n"), pod("p", scheduling_gates=(SchedulingGate(name="quota"), SchedulingGate(name="x"))))
    verdict = desk.verdict("p")
    assert (verdict.code, verdict.detail) == ("SCHEDULING_GATED", "waiting for scheduling gates: [quota x]")
    assert verdict.kube_message == "0/1 nodes are available: waiting for scheduling gates: [quota x]."


@pytest.mark.parametrize(
    ("broken", "words"),
    [
        (pod("p", cpu="lots"), "spec.containers[0].resources.limits.cpu"),
        (pod("p", asks={GPU: "0.5"}), f"spec.containers[0].resources.limits.{GPU}"),
        (pod("p", share="1.5"), "metadata.annotations.gpu-fraction"),
        (pod("p", 1, share="0.5"), "two ways at once"),
        (
            pod("p", asks={f"example.com/r{i}": "1" for i in range(30)}),
            "32 different resources; the limit is 24",
        ),
    ],
)
def test_a_pod_that_cant_be_read_is_held_with_the_field_and_holds_nobody_up(broken, words):
    desk = Desk(gpu_node("n", 1), broken, pod("q"))
    assert desk.run() == {"q": "n"}
    verdict = desk.verdict("p")
    assert verdict.code == ("FRACTIONAL_GPU_REQUEST" if words.endswith(GPU) else "INVALID_OBJECT")
    assert "Pod default/p" in verdict.detail
    assert words in verdict.detail


def test_a_pod_with_ordinary_volumes_is_like_one_without():
    desk = Desk(gpu_node("n", 1), pod("p", 1, volumes=(Volume(name="kube-api-access-x7x2v"), Volume(name="tmp"))))
    assert desk.run() == {"p": "n"}
    snapshot = desk.store.snapshot()
    assert snapshot.pods.node_local.tolist() == [1], "it goes through the compiled loop"


# Nothing to decide


def test_without_pods_or_nodes_there_is_nothing_to_do():
    assert list(Desk().plan().decisions) == []
    assert list(Desk(node("n")).plan().decisions) == []
    (hold,) = Desk(pod("p")).plan().decisions
    assert hold.verdict.kube_message == "no nodes available to schedule pods"


def test_gangs_are_decided_before_their_equals_and_holds_come_in_that_order():
    desk = Desk(node("n", cpu=1), *[pod(f"p{i}", cpu="2") for i in range(3)], pod("g", group=("g", 2)))
    holds = desk.plan().holds
    assert [hold.workload for hold in holds] == ["default/g", "default/p0", "default/p1", "default/p2"]
    assert holds[0].verdict.code == "GANG_INCOMPLETE"
