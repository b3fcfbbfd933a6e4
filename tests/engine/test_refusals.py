"""The next decision respects what the API server refused: other victims, another node, or a hold with the reason."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from tests.engine.plain_objects import node as plain_node
from tests.engine.plain_objects import pod as plain_pod
from tests.engine.test_queued_kinds import QUEUE, queues

from windlass.cluster.delta import Deleted, Put, Refused
from windlass.cluster.store import Store
from windlass.engine import EngineConfig, decide
from windlass.model.codec import decode_object
from windlass.model.plan import Plan
from windlass.model.refusal import BIND, EVICTION, Refusal

NOW = 1_767_226_000
GPU = "nvidia.com/gpu"
GANG = "kueue.x-k8s.io/pod-group-name"


def node(name: str, gpus: int = 1, **labels: str) -> Any:
    room = {GPU: str(gpus), "cpu": "8", "memory": "8Gi", "pods": "10"}
    status = {"allocatable": room, "conditions": [{"type": "Ready", "status": "True"}]}
    metadata = {"name": name, "labels": labels}
    return decode_object({"apiVersion": "v1", "kind": "Node", "metadata": metadata, "status": status})


def pod(name: str, on: str = "", priority: int = 0, gang: str = "", **annotations: str) -> Any:
    metadata: dict[str, Any] = {"name": name, "namespace": "a", "uid": name}
    metadata["creationTimestamp"] = "2026-01-01T00:00:00Z"
    metadata["annotations"] = annotations
    if gang:
        metadata["labels"] = {GANG: gang}
        metadata["annotations"] = {"kueue.x-k8s.io/pod-group-total-count": "2", **annotations}
    container = {"name": "c", "resources": {"limits": {GPU: "1"}}}
    spec = {"priority": priority, "nodeName": on, "containers": [container]}
    return decode_object({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})


def store(*objects: Any) -> Store:
    made = Store()
    made.apply([Put(obj) for obj in objects])
    return made


def plan(some: Store, now: int = NOW) -> Plan:
    return decide(some.snapshot(now), EngineConfig(), now)


def victims(some: Store, now: int = NOW) -> list[str]:
    return [evict.workload for evict in plan(some, now).evicts]


def kept(name: str, until: int = NOW + 60, budget: str = "a/b") -> Refused:
    message = "Cannot evict pod as it would violate the pod's disruption budget."
    uid = name.removeprefix("a/")
    return Refused(Refusal(EVICTION, name, until, uid, for_workload="a/urgent", budget=budget, message=message))


def preempting(*more: Any) -> Store:
    """`urgent` needs a node; the pod that has run for less would go first."""
    runs = [pod("young", "n0"), pod("old", "n1")]
    runs[1] = msgspec.structs.replace(
        runs[1], status=msgspec.structs.replace(runs[1].status, start_time="2025-12-31T00:00:00Z")
    )
    return store(node("n0"), node("n1"), *runs, pod("urgent", priority=5), *more)


def test_another_victim_is_chosen_until_the_refusal_ends() -> None:
    some = preempting()
    assert victims(some) == ["a/young"]
    some.apply([kept("a/young")])
    assert victims(some) == ["a/old"]
    assert victims(some, NOW + 60) == ["a/young"], "it has ended"


def test_a_hold_names_the_budget_where_nobody_else_would_do() -> None:
    some = preempting()
    some.apply([kept("a/young"), kept("a/old")])
    found = plan(some)
    assert not found.evicts
    (hold,) = found.holds
    assert "PodDisruptionBudget a/b doesn't allow the eviction of pod a/young for it" in hold.verdict.message
    assert (
        "a PodDisruptionBudget doesn't allow the eviction of a pod that would make room" in hold.verdict.public_message
    )
    assert "a/young" not in hold.verdict.public_message, "it may be somebody else's"
    assert hold.verdict.code == "GPU_FULL"


def test_a_budget_that_changes_is_asked_again() -> None:
    some = preempting()
    some.apply([kept("a/young")])
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "b", "namespace": "a"},
        "spec": {"selector": {"matchLabels": {"no": "pod"}}, "minAvailable": 0},
    }
    some.apply([Put(decode_object(budget))])
    assert victims(some) == ["a/young"]


def test_the_next_pod_of_the_name_is_another_one() -> None:
    some = preempting()
    again = pod("young", "n0")
    metadata = msgspec.structs.replace(again.metadata, uid="another")
    some.apply([kept("a/young"), Deleted("Pod", "a/young")])
    some.apply([Put(msgspec.structs.replace(again, metadata=metadata))])
    assert victims(some) == ["a/young"]


def test_one_member_that_may_not_go_keeps_its_gang() -> None:
    gang = [pod("g-0", "n0", gang="g"), pod("g-1", "n1", gang="g")]
    some = store(*(node(f"n{i}") for i in range(3)), *gang, pod("p", "n2"), pod("urgent", priority=5))
    assert victims(some) == ["a/p"], "one pod costs less than two"
    some.apply([kept("a/p")])
    assert victims(some) == ["a/g"]
    some.apply([kept("a/g-1")])
    assert victims(some) == []


def refused(name: str, *nodes: str, until: int = NOW + 30) -> list[Refused]:
    uid = name.removeprefix("a/")
    return [Refused(Refusal(BIND, name, until, uid, node=node, message="webhook says no")) for node in nodes]


def places(some: Store, now: int = NOW) -> dict[str, str]:
    return {bind.pod: bind.node for bind in plan(some, now).binds}


def test_another_node_is_chosen_and_others_of_the_shape_are_not_meant() -> None:
    some = store(node("n0", 1), node("n1", 1), pod("p"), pod("q"))
    assert places(some) == {"a/p": "n0", "a/q": "n1"}
    some.apply(refused("a/p", "n0"))
    assert places(some) == {"a/p": "n1", "a/q": "n0"}
    assert places(some, NOW + 30) == {"a/p": "n0", "a/q": "n1"}


def test_a_hold_says_what_the_server_said() -> None:
    some = store(node("n0", 8), node("n1", 8), pod("p"))
    some.apply(refused("a/p", "n0", "n1"))
    (hold,) = plan(some).holds
    assert hold.verdict.code == "POLICY_DENIED"
    assert "2 node(s) to which the pod's binding was just refused" in hold.verdict.kube_message
    assert "binding it to n0 was refused: webhook says no" in hold.verdict.public_message


@pytest.mark.parametrize("topology", [{}, {"kueue.x-k8s.io/podset-required-topology": "rack"}])
def test_a_member_of_a_gang_goes_elsewhere(topology: dict[str, str]) -> None:
    nodes = [node(f"n{i}", rack="r0") for i in range(3)]
    gang = [pod(f"g-{i}", gang="g", **topology) for i in range(2)]
    some = store(*nodes, *gang)
    first = places(some)
    assert set(first.values()) == {"n0", "n1"}
    some.apply(refused("a/g-0", first["a/g-0"]))
    second = places(some)
    assert len(second) == 2
    assert second["a/g-0"] != first["a/g-0"]


def test_a_plan_with_refusals_survives_json() -> None:
    some = preempting()
    some.apply([kept("a/young"), kept("a/old")])
    found = plan(some)
    assert msgspec.json.decode(msgspec.json.encode(found), type=Plan) == found


def test_texts_name_refusals_in_the_order_of_the_pods() -> None:
    plans = []
    for names in (("a/young", "a/old"), ("a/old", "a/young")):
        some = preempting()
        some.apply([kept(name) for name in names])
        plans.append(plan(some))
    assert plans[0] == plans[1]


def test_a_stop_is_not_tried_again_until_the_refusal_ends() -> None:
    over = pod("over", "n0", **{"windlass.dev/duration": "10m"})
    over = msgspec.structs.replace(over, status=msgspec.structs.replace(over.status, start_time="2025-12-31T00:00:00Z"))
    some = store(node("n0"), over, pod("next"))
    assert victims(some) == ["a/over"]
    some.apply([kept("a/over")])
    found = plan(some)
    assert not found.evicts
    assert found.holds[0].verdict.planned_start == NOW + 60, "its node is free when it may be evicted"
    assert victims(some, NOW + 60) == ["a/over"]


def test_a_drained_queue_evicts_once_the_refusal_has_ended() -> None:
    queued = plain_pod("runs", 1, "n1", metadata={"labels": {QUEUE: "main"}})
    flavor, queue, local = queues(1)
    queue["spec"]["stopPolicy"] = "HoldAndDrain"
    some = store(*map(decode_object, (plain_node("n1", 1), flavor, queue, local, queued)))
    assert victims(some) == ["default/runs"]
    some.apply([Refused(Refusal(EVICTION, "default/runs", NOW + 60, "runs"))])
    assert victims(some) == []
    assert victims(some, NOW + 60) == ["default/runs"]
