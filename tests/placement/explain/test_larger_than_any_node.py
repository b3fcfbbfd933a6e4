"""Requests for parts of GPUs that no node could hold even empty: infeasible, with the code of every other resource."""

from __future__ import annotations

import pytest
from tests.invariants import objects as make
from tests.invariants.objects import EPOCH, GROUP, MIG

from windlass.cluster.delta import Put
from windlass.cluster.store import Store
from windlass.engine import EngineConfig, decide
from windlass.model.codec import decode_object
from windlass.model.plan import Plan
from windlass.model.unstructured import Unstructured

TOO_LARGE = "REQUEST_EXCEEDS_CLUSTER"


def plan_of(*objects: Unstructured) -> Plan:
    store = Store()
    store.apply([Put(decode_object(tree)) for tree in objects])
    return decide(store.snapshot(EPOCH), EngineConfig(max_explained_holds=8), EPOCH)


def advertises(name: str, **instances: int) -> Unstructured:
    """A node with fixed MIG instances, such as `g1=7`."""
    tree = make.node(name, 16, 0, "a", "r1")
    labels = {"nvidia.com/gpu.product": make.H100, "nvidia.com/mig.strategy": "mixed", "nvidia.com/gpu.count": "1"}
    tree["metadata"]["labels"] |= labels
    for amounts in (tree["status"]["capacity"], tree["status"]["allocatable"]):
        amounts |= {MIG + PROFILES[profile]: str(count) for profile, count in instances.items()}
    return tree


PROFILES = {"g1": "1g.10gb", "g3": "3g.40gb", "g4": "4g.40gb", "g7": "7g.80gb"}


def creates(name: str, gpus: int) -> Unstructured:
    return make.mig_node(name, 16, gpus, "a", "r1")


def pod(name: str, **instances: int) -> Unstructured:
    devices = {MIG + PROFILES[profile]: str(count) for profile, count in instances.items()}
    resources = {"requests": {"cpu": "1", **devices}, "limits": devices}
    return make.pod(name, {"containers": [{"name": "main", "resources": resources}]}, created=EPOCH)


@pytest.mark.parametrize(
    ("nodes", "request_"),
    [
        ([advertises("n1", g1=7), advertises("n2", g1=7)], {"g1": 8}),
        ([advertises("n1", g1=4, g3=1), advertises("n2", g1=1, g3=2)], {"g1": 2, "g3": 2}),
        ([creates("n1", 1)], {"g1": 8}),
        ([creates("n1", 1)], {"g3": 3}),
        ([creates("n1", 1), creates("n2", 1)], {"g7": 2}),
        ([creates("n1", 4)], {"g1": 9}),
        ([advertises("n1", g1=2), creates("n2", 1)], {"g1": 8}),
    ],
)
def test_more_instances_than_any_node_has(nodes: list[Unstructured], request_: dict[str, int]) -> None:
    (hold,) = plan_of(*nodes, pod("a", **request_)).holds
    assert (hold.verdict.code, hold.verdict.is_infeasible) == (TOO_LARGE, True)
    assert hold.verdict.relief is None


@pytest.mark.parametrize(
    ("nodes", "request_"),
    [
        ([advertises("n1", g1=7)], {"g1": 7}),
        ([creates("n1", 1)], {"g1": 7}),
        ([creates("n1", 2)], {"g1": 8}),
        ([creates("n1", 1)], {"g3": 2}),
        ([creates("n1", 2)], {"g7": 2}),
    ],
)
def test_what_an_empty_node_holds_is_not_infeasible(nodes: list[Unstructured], request_: dict[str, int]) -> None:
    assert len(plan_of(*nodes, pod("a", **request_)).binds) == 1
    occupied = plan_of(*nodes, pod("a", **request_), pod("b", g1=1))
    assert [hold.verdict.is_infeasible for hold in occupied.holds] in ([], [False])


def test_the_public_message_says_what_the_largest_node_holds() -> None:
    (hold,) = plan_of(creates("n1", 1), creates("n2", 2), pod("a", g3=5)).holds
    text = "a pod requests 5 nvidia.com/mig-3g.40gb, the largest eligible node has 4"
    assert text in hold.verdict.public_message


def test_a_gang_with_more_instances_than_all_nodes() -> None:
    members = [pod(f"g{i}", g7=1) for i in range(3)]
    for member in members:
        member["metadata"]["labels"] = {GROUP: "g"}
    (hold,) = plan_of(creates("n1", 2), make.pod_group("g", 3, EPOCH), *members).holds
    assert (hold.verdict.code, hold.verdict.is_infeasible) == (TOO_LARGE, True)


@pytest.mark.parametrize("nodes", [[creates("n1", 1)], [advertises("n1", g1=7)]])
def test_a_gang_whose_pod_sets_together_request_too_many_instances(nodes: list[Unstructured]) -> None:
    """Each set fits on its own: four instances of one pod, or twice two; the nodes have seven."""
    members = [pod("g0", g1=4), pod("g1", g1=2), pod("g2", g1=2)]
    for member in members:
        member["metadata"]["labels"] = {GROUP: "g"}
    (hold,) = plan_of(*nodes, make.pod_group("g", 3, EPOCH), *members).holds
    assert (hold.verdict.code, hold.verdict.is_infeasible) == (TOO_LARGE, True)
    text = "request 8 nvidia.com/mig-1g.10gb in all, and the nodes that they may use have 7"
    assert text in hold.verdict.message


def test_a_gang_whose_pod_sets_together_request_too_much() -> None:
    members = [make.pod(f"g{i}", make.pod_spec(1 + i % 2, 4), created=EPOCH, labels={GROUP: "g"}) for i in range(6)]
    nodes = [make.node(f"n{i}", 16, 8, "a", "r1") for i in range(2)]
    (hold,) = plan_of(*nodes, make.pod_group("g", 6, EPOCH), *members).holds
    assert (hold.verdict.code, hold.verdict.is_infeasible) == (TOO_LARGE, True)
    assert "request 24 nvidia.com/gpu in all, and the nodes that they may use have 16" in hold.verdict.message


def test_shares_of_more_devices_than_any_node_has() -> None:
    annotations = {"gpu-fraction-num-devices": "3"}
    waiting = make.pod("a", make.pod_spec(1), created=EPOCH, share="0.5", annotations=annotations)
    (hold,) = plan_of(make.node("n1", 16, 2, "a", "r1"), waiting).holds
    assert (hold.verdict.code, hold.verdict.is_infeasible) == (TOO_LARGE, True)
