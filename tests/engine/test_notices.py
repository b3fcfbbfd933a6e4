"""Work whose node goes is asked, evicted whole once it has answered or at the latest by then, and starts elsewhere."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from tests.engine.asking import NOW, Cluster, node, pod

from windlass.cluster.delta import Refused
from windlass.engine import EngineConfig
from windlass.model.decision import Ask, Evict
from windlass.model.node import Node, NodeCondition, Taint
from windlass.model.pod import Toleration
from windlass.model.refusal import EVICTION, Refusal
from windlass.model.times import format_timestamp
from windlass.placement.asks import AskSettings

ON = {"on_preemption": "ask"}
SPOT = "aws-node-termination-handler/spot-itn"
REBALANCE = "aws-node-termination-handler/rebalance-recommendation"
LEAVING = "windlass.dev/leaving"


def leaving(name: str, taint: str = SPOT, value: str = "", gpus: int = 1, effect: str = "NoSchedule") -> Node:
    found: Node = node(name, gpus=gpus)
    spec = msgspec.structs.replace(found.spec, taints=(Taint(taint, effect, value),))
    return msgspec.structs.replace(found, spec=spec)


def tolerating(found: Any, *tolerations: Toleration) -> Any:
    return msgspec.structs.replace(found, spec=msgspec.structs.replace(found.spec, tolerations=tolerations))


def gang(size: int = 2, **annotations: str) -> list[Any]:
    return [pod(f"g-{index}", f"n{index}", gang="g", size=size, **annotations) for index in range(size)]


def test_it_is_asked_and_once_it_has_answered_it_starts_elsewhere() -> None:
    cluster = Cluster(node("n"), node("m"), pod("low", "n", **ON))
    assert cluster.step().asks == (), "no notice, no ask"
    cluster.put(leaving("n"))
    (ask,) = cluster.step().asks
    assert (ask.workload, ask.for_workload, ask.until) == ("a/low", "", NOW + 60)
    assert ask.notice == "node n goes: AWS interrupts the spot instance"
    cluster.answer("a/low")
    (evict,) = cluster.step(9).evicts
    assert (evict.reason, evict.pods, evict.lost_gpu_seconds) == ("LeaveNotice", ("a/low",), 0)
    assert evict.message.startswith(f"{ask.notice}; it answered with a checkpoint of 2026-01-01T")
    cluster.step()
    assert cluster.pods["a/low"].spec.node_name == "m"
    assert cluster.asked() == []


def test_without_an_answer_it_leaves_at_the_deadline() -> None:
    cluster = Cluster(leaving("n"), node("m"), pod("low", "n", **ON))
    assert cluster.step(0).evicts == cluster.step(59).evicts == ()
    (evict,) = cluster.step(1).evicts
    assert evict.message == (
        "node n goes: AWS interrupts the spot instance; it had not answered by 2026-01-01T00:07:40Z"
    )


@pytest.mark.parametrize(
    ("taint", "value", "declared", "seconds"),
    [
        (SPOT, "event-17", "5m", 90),
        ("cloud.google.com/impending-node-termination", "", "5m", 15),
        ("ToBeDeletedByClusterAutoscaler", str(NOW - 60), "5m", 300),
        ("karpenter.sh/disrupted", "", "5m", 300),
        (LEAVING, str(NOW + 40), "5m", 40),
        (LEAVING, str(NOW + 4000), "5m", 300),
        (LEAVING, "tomorrow", "5m", 300),
        (LEAVING, "", "20s", 20),
    ],
)
def test_how_long_there_is(taint: str, value: str, declared: str, seconds: int) -> None:
    cluster = Cluster(leaving("n", taint, value), pod("low", "n", checkpoint_grace=declared, **ON))
    first = cluster.step().asks
    assert [ask.until - NOW for ask in first] == [seconds]
    assert cluster.step(5).asks == first, "counted from when it was asked"


def test_work_that_has_not_opted_in_stays() -> None:
    cluster = Cluster(leaving("n"), node("m"), pod("low", "n"), pod("other", **ON))
    plan = cluster.step()
    assert (plan.asks, plan.evicts) == ((), ())


def test_where_asks_are_off_it_moves_without_one() -> None:
    config = EngineConfig(asks=AskSettings(seconds=0))
    cluster = Cluster(leaving("n"), node("m"), pod("low", "n", **ON), config=config)
    assert [evict.message for evict in cluster.step().evicts] == ["node n goes: AWS interrupts the spot instance"]


def test_a_gang_goes_whole_at_the_first_notice_of_its_nodes() -> None:
    cluster = Cluster(node("n0"), leaving("n1"), node("m0"), node("m1"), *gang(**ON))
    (ask,) = cluster.step().asks
    assert sorted(ask.pods) == cluster.asked() == ["a/g-0", "a/g-1"]
    cluster.answer("a/g-0")
    cluster.step(3)
    assert sorted(cluster.evicted) == ["a/g-0", "a/g-1"]
    cluster.settle()
    nodes = {pod.spec.node_name for pod in cluster.pods.values()}
    assert len(nodes) == 2
    assert "n1" not in nodes


def test_of_two_notices_the_more_urgent_one_counts() -> None:
    google = "cloud.google.com/impending-node-termination"
    cluster = Cluster(leaving("n0", LEAVING, str(NOW + 50)), leaving("n1", google), *gang(**ON))
    (ask,) = cluster.step().asks
    assert (ask.until - NOW, ask.notice) == (15, "node n1 goes: Google Cloud ends the instance")


def test_the_ask_is_withdrawn_when_the_notice_goes() -> None:
    cluster = Cluster(leaving("n"), pod("low", "n", **ON))
    cluster.step()
    assert cluster.asked() == ["a/low"]
    cluster.put(node("n"))
    assert [withdrawal.workload for withdrawal in cluster.step(3).withdrawals] == ["a/low"]
    assert cluster.asked() == []
    assert cluster.settle()[-1].withdrawals == ()


def test_only_a_hard_taint_is_a_notice() -> None:
    cluster = Cluster(leaving("n", effect="PreferNoSchedule"), pod("low", "n", **ON))
    assert cluster.step().asks == ()


def test_what_tolerates_the_taint_by_name_stays() -> None:
    stays = tolerating(pod("low", "n", **ON), Toleration(key=SPOT, operator="Exists"))
    assert Cluster(leaving("n"), stays).step().asks == ()


def test_a_toleration_of_everything_is_none_of_a_node_that_goes() -> None:
    tolerant = tolerating(pod("low", "n", **ON), Toleration(operator="Exists"))
    cluster = Cluster(leaving("n"), tolerant)
    cluster.step()
    cluster.answer("a/low")
    plans = cluster.settle()
    assert cluster.running() == [], "it is not placed on the node that goes again"
    assert plans[-1].holds[0].verdict.code == "NODE_UNSCHEDULABLE"


def test_a_likely_notice_moves_only_what_starts_elsewhere() -> None:
    cluster = Cluster(leaving("n0", REBALANCE), node("n1"), *gang(**ON))
    assert cluster.step().asks == (), "only one other node"
    cluster.put(node("m"))
    (ask,) = cluster.step().asks
    assert ask.notice == "node n0 goes: AWS may soon interrupt the spot instance"
    cluster.put(pod("rest", "m", priority=9))
    assert [withdrawal.workload for withdrawal in cluster.step(1).withdrawals] == ["a/g"]


def test_a_machine_that_shuts_down_has_given_notice() -> None:
    found: Node = node("n0")
    message = "[container runtime is down, node is shutting down]"
    status = msgspec.structs.replace(found.status, conditions=(NodeCondition("Ready", "False", message),))
    cluster = Cluster(found, node("n1"), *gang(**ON))
    cluster.step()
    cluster.put(msgspec.structs.replace(found, status=status))
    (ask,) = cluster.step().asks
    assert (ask.until - NOW, ask.notice) == (15, "node n0 goes: the machine is shut down")


def test_a_pod_that_is_told_to_leave_is_asked_with_its_gang() -> None:
    members = gang(**ON)
    cluster = Cluster(node("n0"), node("n1"), *members)
    cluster.step()
    until = format_timestamp(NOW + 30)
    cluster.annotate("a/g-1", "windlass.dev/leave", f'{{"until": "{until}", "cause": "repair of gpu 3"}}')
    (ask,) = cluster.step().asks
    assert (sorted(ask.pods), ask.until, ask.notice) == (["a/g-0", "a/g-1"], NOW + 30, "repair of gpu 3")
    cluster.annotate("a/g-1", "windlass.dev/leave", '{"until": "soon"}')
    assert [withdrawal.workload for withdrawal in cluster.step(1).withdrawals] == ["a/g"], "it can't be read"


def test_a_preemption_of_the_same_work_ends_with_its_node() -> None:
    urgent = pod("urgent", priority=5)
    cluster = Cluster(node("n"), pod("low", "n", checkpoint_grace="5m", **ON), urgent)
    assert [ask.until for ask in cluster.step().asks] == [NOW + 300]
    cluster.put(leaving("n", LEAVING, str(NOW + 100)))
    cluster.put(tolerating(urgent, Toleration(key=LEAVING, operator="Exists")))
    (ask,) = cluster.step(1).asks
    assert (ask.for_workload, ask.until, ask.notice) == ("a/urgent", NOW + 100, "")


def test_room_elsewhere_is_kept_from_what_comes_after_it() -> None:
    cluster = Cluster(leaving("n"), node("m"), pod("low", "n", priority=3, **ON))
    cluster.step()
    cluster.put(pod("newcomer"), pod("urgent", priority=9))
    plan = cluster.step()
    assert [bind.pod for bind in plan.binds] == ["a/urgent"], "what comes before it starts"
    cluster.delete("a/urgent")
    plan = cluster.step(1)
    assert (plan.binds, [hold.workload for hold in plan.holds]) == ((), ["a/newcomer"])
    (verdict,) = [hold.verdict for hold in plan.holds]
    assert (verdict.code, verdict.is_explained) == ("RESERVED_FOR_OTHERS", True)
    assert verdict.detail == "its room is kept for a/low, which has to leave its node"
    assert "a/low" not in verdict.public_message
    cluster.answer("a/low")
    cluster.settle()
    assert cluster.running() == ["a/low"]
    assert cluster.pods["a/low"].spec.node_name == "m"


def test_room_is_kept_only_where_that_is_enough() -> None:
    cluster = Cluster(leaving("n0"), leaving("n1"), node("m"), *gang(**ON), pod("newcomer"))
    assert [bind.pod for bind in cluster.step().binds] == ["a/newcomer"]


def test_nothing_waits_for_what_may_not_be_evicted() -> None:
    cluster = Cluster(leaving("n"), node("m"), pod("low", "n", priority=1, **ON), pod("newcomer"))
    refusal = Refusal(EVICTION, "a/low", NOW + 60, "low", message="a budget")
    cluster.store.apply([Refused(refusal)])
    assert [bind.pod for bind in cluster.step().binds] == ["a/newcomer"]


def test_no_more_waits_than_is_needed() -> None:
    newcomers = [pod(f"new-{index}") for index in range(3)]
    cluster = Cluster(leaving("n"), node("m", gpus=3), pod("low", "n", priority=1, **ON), *newcomers)
    plan = cluster.step()
    assert [bind.pod for bind in plan.binds] == ["a/new-0", "a/new-1"]
    assert [hold.workload for hold in plan.holds] == ["a/new-2"]


def test_an_ask_by_a_notice_is_the_same_after_a_restart() -> None:
    cluster = Cluster(leaving("n"), pod("low", "n", **ON))
    (first,) = cluster.step().asks
    again = Cluster(*cluster.store.snapshot(NOW).nodes.objects, *cluster.pods.values())
    again.now = NOW + 20
    assert again.step().asks == (first,)
    assert isinstance(first, Ask)
    assert not any(isinstance(found, Evict) for found in again.step().evicts)
