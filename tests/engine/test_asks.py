"""What opted in is asked before it is evicted; an ask frees nothing, ends at its deadline, and leaves no trace."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.engine.asking import ASKS, NOW, Cluster, node, pod
from tests.engine.test_queue_policy import policed, queued

from windlass.engine import EngineConfig
from windlass.model.codec import decode_object
from windlass.model.decision import Ask, WithdrawAsk
from windlass.model.leaving import request_id
from windlass.model.plan import Plan
from windlass.placement.asks import AskSettings

ON = {"on_preemption": "ask"}


def urgent(name: str = "urgent", gpus: int = 1) -> object:
    return pod(name, priority=5, gpus=gpus)


def open_asks(plan: Plan) -> dict[str, int]:
    """Workload → seconds until the deadline, counted from the start."""
    return {ask.workload: ask.until - NOW for ask in plan.asks}


def test_the_victim_is_asked_and_its_preemptor_waits_for_it() -> None:
    cluster = Cluster(node("n"), pod("low", "n", **ON), urgent())
    plan = cluster.step()
    assert plan.asks == (Ask("a/low", ("a/low",), "a/urgent", "Priority", request_id("low", NOW), NOW, NOW + 60),)
    assert (plan.evicts, [bind.after for bind in plan.binds]) == ((), [("a/low",)])
    assert (cluster.running(), cluster.asked()) == (["a/low"], ["a/low"])
    assert cluster.step(30).asks == plan.asks, "the same ask, however often it is decided"


def test_from_its_answer_on_it_goes_and_loses_nothing() -> None:
    cluster = Cluster(node("n"), pod("low", "n", **ON), urgent())
    cluster.step()
    cluster.answer("a/low")
    (evict,) = cluster.step(10).evicts
    assert (evict.workload, evict.lost_gpu_seconds) == ("a/low", 0)
    assert evict.message.startswith("it answered with a checkpoint of 2026-01-01T")
    assert cluster.running() == ["a/urgent"]
    assert cluster.asked() == []


def test_at_its_deadline_it_goes_without_an_answer_and_what_that_loses_is_said() -> None:
    cluster = Cluster(node("n"), pod("low", "n", **ON), urgent())
    cluster.step()
    assert cluster.step(59).evicts == ()
    (evict,) = cluster.step(1).evicts
    assert evict.lost_gpu_seconds == cluster.now - 1_767_225_600, "since its start"
    assert evict.message == "it had not answered by 2026-01-01T00:07:40Z"


@pytest.mark.parametrize(
    ("declared", "seconds"),
    [({}, 60), ({"checkpoint_grace": "3m"}, 180), ({"checkpoint_grace": "3h"}, 600), ({"checkpoint_grace": "x"}, 60)],
)
def test_the_deadline_is_what_it_declares_within_the_limit(declared: dict[str, str], seconds: int) -> None:
    cluster = Cluster(node("n"), pod("low", "n", **ON, **declared), urgent())
    assert open_asks(cluster.step()) == {"a/low": seconds}


def test_where_the_time_is_nothing_nothing_is_asked() -> None:
    config = EngineConfig(asks=AskSettings(seconds=0))
    cluster = Cluster(node("n"), pod("low", "n", **ON), urgent(), config=config)
    plan = cluster.step()
    assert (plan.asks, [evict.workload for evict in plan.evicts]) == ((), ["a/low"])


def test_work_that_has_not_opted_in_is_not_asked() -> None:
    cluster = Cluster(node("n"), pod("low", "n", on_preemption="kill"), pod("other", **ON), urgent())
    plan = cluster.step()
    assert (plan.asks, [evict.workload for evict in plan.evicts]) == ((), ["a/low"])


@pytest.mark.parametrize(("policy", "seconds"), [({}, 60), ({"max_checkpoint_grace": "20s"}, 20)])
def test_a_queue_bounds_how_long_its_tenants_may_take(policy: dict[str, str], seconds: int) -> None:
    objects = _queue_with_a_victim(**policy)
    assert open_asks(Cluster(*objects).step()) == {"default/low": seconds}


def test_a_queue_may_exclude_asks() -> None:
    plan = Cluster(*_queue_with_a_victim(max_checkpoint_grace="0s")).step()
    assert (plan.asks, [evict.workload for evict in plan.evicts]) == ((), ["default/low"])


def _queue_with_a_victim(**policy: str) -> list[object]:
    low = queued("low", on="n", annotations=ASKS)
    trees = [*policed(1, preempts=True, **policy), low, queued("high", priority=9)]
    return [node("n"), *map(decode_object, trees)]


def test_an_answer_that_is_none_does_not_count() -> None:
    cluster = Cluster(node("n"), pod("low", "n", **ON), urgent())
    cluster.step()
    cluster.answer("a/low", identity="another")
    assert cluster.step(1).asks[0].refused_answer == ""
    cluster.answer("a/low", where="pod:///tmp/last")
    assert cluster.step(1).asks[0].refused_answer == "the checkpoint pod:///tmp/last is lost with the pod"
    cluster.annotate("a/low", "windlass.dev/ask-answer", "soon")
    assert cluster.step(1).asks[0].refused_answer.startswith("'soon' is no answer")
    (evict,) = cluster.step(60).evicts
    assert evict.message.startswith("its answer was refused: 'soon'")


@pytest.mark.parametrize(("place", "counts"), [("node://n/ckpt", False), ("node://m/ckpt", True), ("s3://b/n", True)])
def test_a_checkpoint_on_the_node_that_goes_is_refused(place: str, counts: bool) -> None:
    taint = "karpenter.sh/disrupted"
    cluster = Cluster(node("n"), pod("low", "n", **ON), urgent())
    cluster.step()
    cluster.put(node("n", taint=taint), node("m"), pod("rest", "m", priority=9))
    cluster.put(decode_object(_tolerating(taint)))
    cluster.answer("a/low", where=place)
    plan = cluster.step(1)
    assert bool(plan.evicts) is counts
    if not counts:
        assert plan.asks[0].refused_answer == f"the checkpoint {place} is on node n, which goes"


def _tolerating(taint: str) -> dict[str, object]:
    container = {"name": "c", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
    spec = {"priority": 5, "containers": [container], "tolerations": [{"key": taint, "operator": "Exists"}]}
    metadata = {"name": "urgent", "namespace": "a", "uid": "urgent", "creationTimestamp": "2026-01-01T00:00:00Z"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def test_a_gang_is_asked_whole_and_one_answer_speaks_for_it() -> None:
    members = [pod(f"g-{index}", f"n{index}", gang="g", **ON) for index in range(2)]
    cluster = Cluster(node("n0"), node("n1"), *members, urgent())
    (ask,) = cluster.step().asks
    assert sorted(ask.pods) == cluster.asked() == ["a/g-0", "a/g-1"]
    cluster.answer("a/g-1")
    cluster.step(5)
    assert sorted(cluster.evicted) == ["a/g-0", "a/g-1"]


def test_a_member_that_came_later_is_asked_with_the_same_deadline() -> None:
    members = [pod(f"g-{index}", f"n{index}", gang="g", **ON) for index in range(2)]
    cluster = Cluster(node("n0"), node("n1"), *members, urgent())
    (first,) = cluster.step().asks
    cluster.annotate("a/g-1", "windlass.dev/ask", None)
    (again,) = cluster.step(20).asks
    assert (again, cluster.asked()) == (first, ["a/g-0", "a/g-1"])


def test_victims_of_one_preemptor_go_together() -> None:
    cluster = Cluster(node("n", 2), pod("asked", "n", **ON), pod("plain", "n"), urgent(gpus=2))
    plan = cluster.step()
    assert [(evict.workload, evict.after) for evict in plan.evicts] == [("a/plain", ("a/asked",))]
    assert cluster.running() == ["a/asked", "a/plain"], "alone it would go in vain"
    cluster.answer("a/asked")
    cluster.step(1)
    assert sorted(cluster.evicted) == ["a/asked", "a/plain"]
    assert cluster.running() == ["a/urgent"]


def test_two_asks_of_one_preemptor_are_both_waited_for() -> None:
    cluster = Cluster(node("n", 2), pod("x", "n", **ON), pod("y", "n", **ON), urgent(gpus=2))
    assert set(open_asks(cluster.step())) == {"a/x", "a/y"}
    cluster.answer("a/x")
    plan = cluster.step(1)
    assert set(open_asks(plan)) == {"a/y"}
    assert [(evict.workload, evict.after) for evict in plan.evicts] == [("a/x", ("a/y",))]
    assert cluster.asked() == ["a/x", "a/y"], "an answered ask is not withdrawn while it waits for others"
    cluster.step(59)
    assert sorted(cluster.evicted) == ["a/x", "a/y"]


def test_victims_of_another_preemptor_do_not_wait() -> None:
    cluster = Cluster(node("n0"), node("n1"), pod("asked", "n0", **ON), pod("plain", "n1"), urgent(), urgent("next"))
    plan = cluster.step()
    assert [(evict.workload, evict.after) for evict in plan.evicts] == [("a/plain", ())]
    assert len(cluster.running()) == 2


def test_an_ask_is_withdrawn_when_room_has_come() -> None:
    cluster = Cluster(node("n"), pod("low", "n", **ON), urgent())
    (ask,) = cluster.step().asks
    cluster.put(node("more"))
    plan = cluster.step(1)
    assert plan.withdrawals == (WithdrawAsk("a/low", ("a/low",), ask.id),)
    assert (cluster.asked(), cluster.evicted, cluster.running()) == ([], [], ["a/low", "a/urgent"])


def test_an_ask_is_withdrawn_when_nobody_needs_it_any_more() -> None:
    cluster = Cluster(node("n"), pod("low", "n", **ON), urgent())
    cluster.step()
    cluster.delete("a/urgent")
    cluster.answer("a/low")
    cluster.step(1)
    assert (cluster.asked(), cluster.running()) == ([], ["a/low"])
    assert "windlass.dev/ask-answer" not in cluster.pods["a/low"].metadata.annotations


def test_what_is_asked_stays_the_victim_whatever_becomes_cheaper() -> None:
    old = pod("old", "n0", **ON, last_checkpoint="2026-01-01T00:06:00Z")
    cluster = Cluster(node("n0"), node("n1"), old, pod("other", "n1"), urgent())
    assert set(open_asks(cluster.step())) == {"a/old"}
    cluster.annotate("a/other", "windlass.dev/last-checkpoint", "2026-01-01T00:06:45Z")
    plan = cluster.step(5)
    assert (set(open_asks(plan)), plan.withdrawals) == ({"a/old"}, ())


def test_a_deadline_that_was_moved_by_its_owner_counts_only_within_its_terms() -> None:
    cluster = Cluster(node("n"), pod("low", "n", **ON), urgent())
    cluster.step()
    text = cluster.pods["a/low"].metadata.annotations["windlass.dev/ask"]
    cluster.annotate("a/low", "windlass.dev/ask", text.replace("00:07:40", "23:59:59"))
    assert [evict.workload for evict in cluster.step(60).evicts] == ["a/low"]


NAMES = ("p", "q", "r")
EVENTS = st.sampled_from(["wait", "answer", "urgent", "end", "room"])


@given(
    opted=st.lists(st.booleans(), min_size=3, max_size=3),
    gang=st.booleans(),
    events=st.lists(st.tuples(EVENTS, st.integers(0, 2)), max_size=8),
)
def test_whatever_happens(opted: Sequence[bool], gang: bool, events: Sequence[tuple[str, int]]) -> None:
    """No eviction before an answer or the deadline; gangs whole; no room used twice; in the end no trace."""
    cluster = _random_cluster(opted, gang)
    may_go: dict[str, int] = {}
    urgent_pods = 0
    for event, which in events:
        key = f"a/{NAMES[which]}"
        if event == "wait":
            cluster.now += 25
        elif event == "answer" and key in cluster.asked():
            cluster.answer(key)
            may_go |= dict.fromkeys(_members(key, gang), cluster.now)
        elif event == "urgent":
            urgent_pods += 1
            cluster.put(pod(f"urgent-{urgent_pods}", priority=5, gpus=1 + which % 2))
        elif event == "end" and f"a/urgent-{which}" in cluster.pods:
            cluster.delete(f"a/urgent-{which}")
        elif event == "room":
            cluster.put(node(f"more-{which}"))
        for plan in _settled(cluster, may_go):
            _check(cluster, plan, opted, gang)
    for key in [key for key in cluster.pods if "urgent" in key]:
        cluster.delete(key)
    cluster.settle()
    assert cluster.asked() == []
    traces = [name for known in cluster.pods.values() for name in known.metadata.annotations if "/ask" in name]
    assert traces == []


def _random_cluster(opted: Sequence[bool], gang: bool) -> Cluster:
    objects: list[object] = [node("n0", 2), node("n1", 1)]
    for name, on, asks in zip(NAMES, ("n0", "n0", "n1"), opted, strict=True):
        # The whole gang opts in, or none of it.
        asks = (opted[0] or opted[1]) if gang and name != "r" else asks
        objects.append(pod(name, on, gang="g" if gang and name != "r" else "", **(ON if asks else {})))
    return Cluster(*objects)


def _members(key: str, gang: bool) -> list[str]:
    return ["a/p", "a/q"] if gang and key != "a/r" else [key]


def _settled(cluster: Cluster, may_go: dict[str, int]) -> list[Plan]:
    """Plans until nothing changes; of every eviction it is checked that it was allowed."""
    plans = []
    for _ in range(10):
        before, asked = dict(cluster.pods), cluster.asked()
        gone = len(cluster.evicted)
        plan = cluster.step()
        plans.append(plan)
        for ask in plan.asks:
            for member in ask.pods:
                if member not in asked:
                    may_go[member] = ask.until
        for key in cluster.evicted[gone:]:
            if "windlass.dev/on-preemption" in before[key].metadata.annotations:
                assert key in asked, f"{key} was not asked"
                assert may_go[key] <= cluster.now, f"{key} was evicted too early"
        if cluster.pods == before:
            return plans
    raise AssertionError("asks and evictions never come to rest")


def _check(cluster: Cluster, plan: Plan, opted: Sequence[bool], gang: bool) -> None:
    for ask in plan.asks:
        assert sorted(ask.pods) == _members(ask.pods[0], gang)
    used: dict[str, int] = {}
    for running in (known for known in cluster.pods.values() if known.spec.node_name):
        gpus = int(running.spec.containers[0].resources.limits["nvidia.com/gpu"])
        used[running.spec.node_name] = used.get(running.spec.node_name, 0) + gpus
    assert all(gpus <= (2 if name == "n0" else 1) for name, gpus in used.items()), used
