"""Which holds are explained how: causes, remedies, moves, shared advice, refusals and budgets."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np
import pytest
from tests.engine.plain_objects import NOW, TWO_NODES, node, planned, pod
from tests.placement.explain.held_objects import (
    GPU,
    asking,
    flavor,
    gang,
    having,
    in_queue,
    labelled,
    queue,
    verdict,
)

from windlass.cluster.delta import Put, Refused
from windlass.cluster.store import Store
from windlass.engine import EngineCache, decide
from windlass.model.codec import decode_object
from windlass.model.configuration import Settings
from windlass.model.plan import Plan
from windlass.model.refusal import BIND, EVICTION, Refusal
from windlass.model.times import parse_timestamp
from windlass.model.unstructured import Unstructured
from windlass.placement.explain.dry_runs import MAX_DRY_RUNS, NODE_CHECKS, NODE_CHECKS_LARGE, DryRunBudget
from windlass.placement.explain.move_offers import MAX_PODS, MAX_SEARCHES
from windlass.placement.explain.post_decision import SMALL_CLUSTER_NODES
from windlass.planner import engine_config

LATER = "2026-01-01T01:00:00Z"
OWNED = {
    "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "o", "uid": "o", "controller": True}]
}


@pytest.fixture(autouse=True)
def _overflow() -> Iterator[None]:
    with np.errstate(over="ignore"):
        yield


def movable(name: str, gpus: int, on: str, **more: Any) -> Unstructured:
    return pod(name, gpus, on=on, metadata=OWNED, **more)


# Moves


def test_moves_are_offered_where_gpus_are_fragmented() -> None:
    objects = [*TWO_NODES, movable("a", 1, "n1"), movable("b", 2, "n2"), pod("w", 8)]
    found = verdict(*objects)
    assert [(move.pod, move.from_node, move.to_node) for move in found.moves] == [("default/a", "n1", "n2")]
    seconds = parse_timestamp(NOW) - parse_timestamp("2026-01-01T00:00:00Z")
    assert [move.lost_milli_seconds for move in found.moves] == [1000 * seconds]


def test_no_moves_for_larger_gangs_or_where_they_would_not_help() -> None:
    assert verdict(*TWO_NODES, movable("a", 4, "n1"), movable("b", 5, "n2"), pod("w", 8)).moves == ()
    assert verdict(*TWO_NODES, pod("a", 1, on="n1"), pod("b", 1, on="n2"), pod("w", 8)).moves == ()
    assert verdict(*TWO_NODES, movable("a", 1, "n1"), movable("b", 2, "n2"), pod("w", 9)).moves == ()


@pytest.mark.parametrize(("pods", "offered"), [(MAX_PODS, True), (MAX_PODS + 1, False)])
def test_moves_are_searched_for_gangs_up_to_a_size(pods: int, offered: bool) -> None:
    """The gang fits on its node, once the one pod there has moved."""
    nodes = [having(node("n1", pods), cpu=999), having(node("n2", 2), cpu=999)]
    members = gang(pods, 1, nodeSelector={"kubernetes.io/hostname": "n1"})
    assert bool(verdict(*nodes, movable("a", 1, "n1"), *members).moves) == offered


def test_moves_are_searched_for_the_first_requests_of_a_plan() -> None:
    objects = [*TWO_NODES, movable("a", 1, "n1"), movable("b", 2, "n2")]
    waiting = [asking(pod(f"w{at:02}", 8), cpu=at + 1) for at in range(MAX_SEARCHES + 1)]
    plan, _ = planned(*objects, *waiting)
    offered = [bool(hold.verdict.moves) for hold in plan.holds]
    assert offered == [True] * MAX_SEARCHES + [False]


# Remedies


@pytest.mark.parametrize(
    ("objects", "remedy"),
    [
        ([pod("w", 1)], "add nodes"),
        ([{**node("n1"), "spec": {"unschedulable": True}}, pod("w", 8)], "uncordon nodes, or repair those"),
        ([node("n1"), pod("a", 8, on="n1"), pod("w", 9)], "request fewer or smaller pods, or add nodes"),
        ([node("n1"), pod("a", 8, on="n1"), pod("w", 1)], ""),
        (
            [*TWO_NODES, flavor(), *queue({"f": {"memory": 8}}), pod("w", 1, metadata=in_queue())],
            "add the resource to the queue's coveredResources",
        ),
        (
            [*TWO_NODES, pod("w", 1, metadata=in_queue("none"))],
            "create LocalQueue none in namespace default, or name an existing one",
        ),
    ],
)
def test_the_remedy_fits_the_cause(objects: list[Unstructured], remedy: str) -> None:
    found = verdict(*objects)
    assert found.remedy.startswith(remedy)
    assert bool(found.remedy) == bool(remedy)


def test_a_hold_with_relief_or_changes_has_no_remedy() -> None:
    found = verdict(node("n1"), pod("a", 4, on="n1"), pod("w", 8))
    assert (found.remedy, found.relief is not None, len(found.changes)) == ("", True, 1)


# Codes


def test_a_gang_gets_its_cause_from_the_nodes_of_its_queue() -> None:
    """A node outside of the queue's flavor could take it when it is emptier; it is no node of the queue."""
    nodes = [labelled(node("n1", 4), pool="f"), node("n2")]
    objects = [flavor("f", pool="f"), *queue({"f": {GPU: 99}}), pod("a", 8, on="n2")]
    found = verdict(*nodes, *objects, *gang(2, 3, queue="q"))
    assert found.code == "REQUEST_EXCEEDS_CLUSTER"
    assert verdict(*nodes, *objects, pod("b", 3, on="n1"), *gang(1, 3, queue="q")).code == "GPU_FULL"


def test_equal_requests_share_their_advice_and_different_ones_dont() -> None:
    objects = [node("n1"), pod("a", 4, on="n1")]
    waiting = [pod("w0", 8), pod("w1", 8), pod("w2", 6), asking(pod("w3", 8), cpu=65)]
    plan, _ = planned(*objects, *waiting)
    texts = {hold.workload: [change.text for change in hold.verdict.changes] for hold in plan.holds}
    assert texts == {
        "default/w0": ["with 4 GPUs per pod instead of 8"],
        "default/w1": ["with 4 GPUs per pod instead of 8"],
        "default/w2": ["with 4 GPUs per pod instead of 6"],
        "default/w3": [],
    }


def test_a_gang_of_which_no_pod_fits_keeps_the_count_of_nodes() -> None:
    found = verdict(node("n1"), pod("a", 8, on="n1"), *gang(2, 4))
    assert "pods fit" not in found.detail
    assert verdict(node("n1"), pod("a", 4, on="n1"), *gang(2, 4)).detail == "only 1 of 2 pods fit"
    alone = verdict(node("n1"), pod("a", 4, on="n1"), *gang(1, 8))
    assert "pods fit" not in alone.detail


def test_rules_between_pods_are_not_answered_from_an_equal_shape() -> None:
    """Two pods of one shape: the second has a rule, and a neighbour against whom it speaks."""
    term = {"labelSelector": {"matchLabels": {"app": "x"}}, "topologyKey": "kubernetes.io/hostname"}
    apart = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    neighbour = pod("a", 1, on="n1", metadata={"labels": {"app": "x"}})
    plan, _ = planned(node("n1"), neighbour, pod("w0", 9), pod("w1", 1, affinity=apart))
    codes = {hold.workload: hold.verdict.code for hold in plan.holds}
    assert codes == {"default/w0": "REQUEST_EXCEEDS_CLUSTER", "default/w1": "POD_AFFINITY_CONFLICT"}


# Refusals and budgets


def decided(*objects: Unstructured, refused: tuple[Refusal, ...] = (), explain: int = 32) -> Plan:
    store = Store()
    store.apply([Put(decode_object(object_)) for object_ in objects])
    store.apply([Refused(one) for one in refused])
    config = msgspec.structs.replace(engine_config(Settings()), max_explained_holds=explain)
    now = parse_timestamp(NOW)
    return decide(store.snapshot(now), config, now, EngineCache())


def budget(name: str, app: str, allowed: int) -> Unstructured:
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"selector": {"matchLabels": {"app": app}}, "maxUnavailable": allowed},
    }


def covered(name: str, gpus: int, on: str, app: str, priority: int = 0) -> Unstructured:
    return pod(name, gpus, on=on, metadata={"labels": {"app": app}}, priority=priority)


def test_a_budget_that_protects_who_would_make_room_is_named() -> None:
    objects = [*TWO_NODES, covered("a", 8, "n1", "x"), covered("b", 8, "n2", "y", 9), budget("keep", "x", 0)]
    found = verdict(*objects, pod("w", 8, priority=5))
    assert found.refusals == (
        Refusal(EVICTION, "default/a", 0, budget="default/keep", message="it allows no more disruptions now"),
    )
    for objects_, priority in ((objects, 0), ([*objects[:3], objects[3], budget("keep", "z", 0)], 0)):
        assert verdict(*objects_, pod("w", 8, priority=priority)).refusals == ()
    never = pod("w", 8, priority=5, preemptionPolicy="Never")
    assert verdict(*objects, never).refusals == ()


def test_budgets_are_not_the_cause_where_even_without_them_there_is_no_room() -> None:
    objects = [node("n1"), covered("a", 4, "n1", "x"), covered("b", 4, "n1", "y", 9), budget("keep", "x", 0)]
    assert verdict(*objects, pod("w", 5, priority=5)).refusals == ()
    assert len(verdict(*objects, pod("w", 4, priority=5)).refusals) == 1


def test_three_budgets_at_most_and_each_once() -> None:
    nodes = [node(f"n{at}") for at in range(5)]
    pods = [covered(f"p{at}", 8, f"n{at}", f"x{max(at, 1)}") for at in range(5)]
    budgets = [budget(f"b{at}", f"x{at}", 0) for at in range(1, 5)]
    found = verdict(*nodes, *pods, *budgets, pod("w", 8, priority=5))
    assert [refusal.budget for refusal in found.refusals] == ["default/b1", "default/b2", "default/b3"]


# The budget of dry runs


def test_small_and_large_clusters_have_their_own_budget() -> None:
    assert DryRunBudget(SMALL_CLUSTER_NODES).left == NODE_CHECKS
    assert DryRunBudget(SMALL_CLUSTER_NODES + 1).left == NODE_CHECKS_LARGE
    assert MAX_DRY_RUNS > 0


def test_members_above_the_minimum_are_explained_for_themselves() -> None:
    """Two of three members are the minimum and run; the third waits for room."""
    group = {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": "ring", "namespace": "default"},
        "spec": {"minMember": 2},
    }
    notes = {"annotations": {"scheduling.k8s.io/group-name": "ring"}}
    running = [pod(f"r{at}", 3, on="n1", metadata=notes) for at in range(2)]
    plan, _ = planned(node("n1"), group, *running, pod("r2", 3, metadata=notes))
    (hold,) = plan.holds
    assert hold.verdict.is_explained
    assert [change.text for change in hold.verdict.changes] == ["with 2 GPUs per pod instead of 3"]


def test_a_bind_that_the_api_server_refused_is_named() -> None:
    refusal = Refusal(BIND, "default/w", parse_timestamp(NOW) + 60, uid="w", node="n1", message="no")
    plan = decided(node("n1"), pod("w", 1), refused=(refusal,))
    assert [hold.verdict.refusals for hold in plan.holds] == [(refusal,)]
