"""A victim that does not end: others are considered after its grace period, and its capacity stays in use."""

from __future__ import annotations

from tests.invariants import objects as make
from tests.invariants.objects import EPOCH, stamp
from tests.peers.test_own_cases import NOW, pod, queues

from windlass.cluster.delta import Put
from windlass.cluster.store import Store
from windlass.engine import EngineConfig, decide
from windlass.model.codec import decode_object
from windlass.model.plan import Plan
from windlass.model.pod import STUCK_AFTER_SECONDS
from windlass.model.unstructured import Unstructured


def node(name: str, gpus: int = 1) -> Unstructured:
    return make.node(name, 16, gpus, "a", "r1")


def leaving(tree: Unstructured, since: int) -> Unstructured:
    """The pod, whose grace period ended at `since`."""
    tree["metadata"]["deletionTimestamp"] = stamp(since)
    return tree


def plan_of(*objects: Unstructured) -> Plan:
    store = Store()
    store.apply([Put(decode_object(tree)) for tree in objects])
    return decide(store.snapshot(NOW), EngineConfig(max_explained_holds=8), NOW)


IN_TIME, TOO_LATE = NOW - STUCK_AFTER_SECONDS, NOW - STUCK_AFTER_SECONDS - 1


def scene(since: int, *more: Unstructured) -> Plan:
    """A waiting pod, and a victim that has been told to go."""
    return plan_of(node("n1"), node("n2"), leaving(pod("old", on="n1"), since), pod("urgent", priority=10), *more)


def test_within_its_grace_period_a_victim_is_waited_for() -> None:
    plan = scene(IN_TIME, pod("cheap", on="n2", age=0))
    assert [(bind.pod, bind.node, bind.after) for bind in plan.binds] == [("team/urgent", "n1", ("team/old",))]
    assert not plan.evicts


def test_after_its_grace_period_another_victim_goes() -> None:
    plan = scene(TOO_LATE, pod("cheap", on="n2"))
    assert [evict.workload for evict in plan.evicts] == ["team/cheap"]
    assert [(bind.pod, bind.node, bind.after) for bind in plan.binds] == [("team/urgent", "n2", ("team/cheap",))]


def test_the_capacity_of_a_stuck_victim_stays_in_use() -> None:
    plan = scene(TOO_LATE, pod("higher", on="n2", priority=20))
    assert not plan.binds
    assert not plan.evicts


def test_a_hold_names_the_stuck_pod_its_node_and_the_remedy() -> None:
    (hold,) = scene(TOO_LATE, pod("higher", on="n2", priority=20)).holds
    message = hold.verdict.message
    assert "pod team/old on node n1 should have ended at " + stamp(TOO_LATE) in message
    assert "kubectl delete pod old -n team --force --grace-period=0" in message
    assert "team/old" not in hold.verdict.public_message
    assert stamp(TOO_LATE) in hold.verdict.public_message


def test_a_stuck_pod_whose_end_would_not_help_is_not_named() -> None:
    plan = plan_of(node("n1"), leaving(pod("old", on="n1"), TOO_LATE), pod("big", gpus=2, priority=10))
    assert "team/old" not in plan.holds[0].verdict.message


def gang_with_stuck_member() -> list[Unstructured]:
    members = [pod(f"g{i}", on=f"n{i}", labels={make.GROUP: "g"}) for i in (1, 2)]
    return [node("n1"), node("n2"), make.pod_group("g", 2, EPOCH), *members]


def test_the_other_members_of_a_gang_free_what_they_hold() -> None:
    objects = gang_with_stuck_member()
    leaving(objects[3], TOO_LATE)
    plan = plan_of(*objects, pod("urgent", priority=10))
    assert [bind.node for bind in plan.binds] == ["n2"]
    both = plan_of(*objects, *(pod(f"urgent-{i}", priority=10) for i in (1, 2)))
    assert [bind.node for bind in both.binds] == ["n2"]


def queued(since: int) -> list[Unstructured]:
    """Quota for two GPUs: a lower priority that does not go, and another one."""
    policy = {"withinClusterQueue": "LowerPriority"}
    objects = [node("n1", 4), *queues("q", gpus=2, preemption=policy)]
    return [
        *objects,
        leaving(pod("old", on="n1", queue="q"), since),
        pod("other", on="n1", queue="q", priority=1),
        pod("urgent", queue="q", priority=10),
    ]


def test_in_a_queue_a_victim_is_waited_for_within_its_grace_period() -> None:
    plan = plan_of(*queued(IN_TIME))
    assert not plan.evicts
    assert [bind.after for bind in plan.binds] == [("team/old",)]


def test_in_a_queue_another_victim_goes_after_its_grace_period() -> None:
    plan = plan_of(*queued(TOO_LATE))
    assert [evict.workload for evict in plan.evicts] == ["team/other"]
    assert [bind.after for bind in plan.binds] == [("team/other",)]


def test_a_quota_hold_names_the_stuck_pod() -> None:
    objects = queued(TOO_LATE)
    objects[-2] = pod("other", on="n1", queue="q", priority=20)
    plan = plan_of(*objects)
    assert not plan.binds
    message = next(hold for hold in plan.holds if hold.workload == "team/urgent").verdict.message
    assert "pod team/old on node n1 should have ended at " + stamp(TOO_LATE) in message
