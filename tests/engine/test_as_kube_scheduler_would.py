"""Worlds that a maintainer of kube-scheduler and Kueue wrote, each with what those two do there."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from tests.engine.plain_objects import holds, node, planned, pod

from windlass.model.plan import Plan
from windlass.model.unstructured import Unstructured

AGAINST_B: Unstructured = {
    "podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {"labelSelector": {"matchLabels": {"app": "b"}}, "topologyKey": "kubernetes.io/hostname"}
        ]
    }
}
LABEL_B: Unstructured = {"labels": {"app": "b"}}


def binds(plan: Plan) -> dict[str, str]:
    return {bind.pod: bind.node for bind in plan.binds}


def evicted(plan: Plan) -> set[str]:
    return {name for evict in plan.evicts for name in evict.pods}


def with_port(name: str, port: int = 80, **more: Any) -> Unstructured:
    made = pod(name, 0, **more)
    made["spec"]["containers"][0]["ports"] = [{"containerPort": port, "hostPort": port}]
    return made


def budget(name: str, allowed: int, **labels: str) -> Unstructured:
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": name, "namespace": "default", "generation": 1},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": labels}},
        "status": {
            "disruptionsAllowed": allowed,
            "currentHealthy": 1 + allowed,
            "desiredHealthy": 1,
            "expectedPods": 1 + allowed,
            "observedGeneration": 1,
        },
    }


class TestAntiAffinityOfPodsPlacedEarlier:
    """A pod that was placed earlier in the same decision keeps others off, whichever way those are placed."""

    FIRST = pod("first", 1, priority=9, affinity=AGAINST_B)
    LATER = pod("later", 1, metadata=LABEL_B)

    def test_after_a_preemption(self) -> None:
        running, full = pod("running", 4, on="n2", priority=0), pod("full", 4, priority=5)
        plan, _ = planned(node("n1", 3), node("n2", 4), running, full, self.FIRST, self.LATER)
        assert binds(plan) == {"default/first": "n1", "default/full": "n2"}
        assert "default/later" in holds(plan)

    def test_of_a_preemptor(self) -> None:
        plan, _ = planned(node("n1", 4), pod("running", 4, on="n1", priority=0), self.FIRST, self.LATER)
        assert binds(plan) == {"default/first": "n1"}

    @pytest.mark.parametrize("with_gang", [False, True])
    def test_whatever_else_waits(self, with_gang: bool) -> None:
        gang = pod("member", 1, metadata={"namespace": "zz", "labels": {"scheduling.x-k8s.io/pod-group": "g"}})
        plan, _ = planned(node("n1", 8), self.FIRST, self.LATER, *([gang] if with_gang else []))
        assert binds(plan) == {"default/first": "n1"}
        assert holds(plan)["default/later"] == "POD_AFFINITY_CONFLICT"


class TestVictims:
    def test_only_the_holder_of_the_port_goes(self) -> None:
        others = [pod(f"v{i}", 0, on="n1", priority=i) for i in (1, 2, 4)]
        plan, _ = planned(node("n1"), *others, with_port("v3", on="n1", priority=3), with_port("high", priority=99))
        assert evicted(plan) == {"default/v3"}

    def test_a_low_priority_that_holds_a_port_goes_before_a_higher_one_elsewhere(self) -> None:
        taken = with_port("low", on="n1", priority=1)
        full = pod("middle", 8, on="n2", priority=50)
        wants = with_port("high", priority=99)
        wants["spec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": "1"}}
        plan, _ = planned(node("n1"), node("n2"), taken, full, wants)
        assert evicted(plan) == {"default/low"}

    def test_another_set_that_the_budget_allows_goes_before_a_higher_priority(self) -> None:
        """The cheapest set is a1 and a2, of which the budget lets only one go."""
        low = [pod(f"a{i}", 4, on="n1", priority=i, metadata={"labels": {"app": "a"}}) for i in (1, 2)]
        free = pod("a3", 4, on="n1", priority=3)
        middle = pod("b1", 8, on="n2", priority=50)
        objects = [node("n1", 12), node("n2", 8), *low, free, middle, budget("a", 1, app="a")]
        plan, _ = planned(*objects, pod("high", 8, priority=99))
        assert evicted(plan) == {"default/a1", "default/a3"}

    def test_a_hold_names_the_budget_that_keeps_its_victims(self) -> None:
        kept = pod("kept", 8, on="n1", metadata={"labels": {"app": "a"}})
        plan, _ = planned(node("n1"), kept, budget("a", 0, app="a"), pod("high", 8, priority=99))
        verdict = plan.holds[0].verdict
        assert "PodDisruptionBudget default/a doesn't allow the eviction of pod default/kept" in verdict.message
        assert "default/a" not in verdict.public_message

    def test_and_of_a_gang_that_only_goes_whole(self) -> None:
        label = {"scheduling.x-k8s.io/pod-group": "g", "app": "a"}
        members = [pod(f"m{i}", 4, on="n1", metadata={"labels": label}) for i in range(2)]
        group = {
            "apiVersion": "scheduling.x-k8s.io/v1alpha1",
            "kind": "PodGroup",
            "metadata": {"name": "g", "namespace": "default"},
            "spec": {"minMember": 2},
        }
        plan, _ = planned(node("n1"), *members, group, budget("a", 1, app="a"), pod("high", 8, priority=99))
        message = plan.holds[0].verdict.message
        assert "PodDisruptionBudget default/a doesn't allow the eviction of pod default/m0" in message


def priority_class(name: str, value: int) -> Unstructured:
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": name},
        "value": value,
        "globalDefault": True,
    }


@pytest.mark.parametrize("order", list(itertools.permutations(range(2))))
def test_of_two_default_priority_classes_the_lowest_counts_in_any_order(order: tuple[int, ...]) -> None:
    classes = [priority_class("high", 1000), priority_class("low", 1)]
    waits = pod("waits", 8, metadata={"uid": ""})
    plan, _ = planned(node("n1"), pod("running", 8, on="n1", priority=5), *[classes[i] for i in order], waits)
    assert holds(plan) == {"default/waits": "GPU_FULL"}
    assert not plan.evicts


class TestGroupsThatDisagree:
    @pytest.mark.parametrize(
        ("labels", "counts"),
        [
            ({"kueue.x-k8s.io/queue-name": "l"}, ("2", "2")),
            ({"kai.scheduler/queue": "l"}, ("2", "2")),
            ({}, ("2", "3")),
        ],
    )
    def test_a_pod_group_whose_pods_say_different_things_waits(
        self, labels: dict[str, str], counts: tuple[str, str]
    ) -> None:
        group = {"kueue.x-k8s.io/pod-group-name": "g"}
        pods = [
            pod(
                f"m{i}",
                1,
                metadata={
                    "labels": {**group, **(labels if i else {})},
                    "annotations": {"kueue.x-k8s.io/pod-group-total-count": count},
                },
            )
            for i, count in enumerate(counts)
        ]
        plan, _ = planned(node("n1"), *pods)
        assert holds(plan) == {"default/g": "INVALID_OBJECT"}
        assert "the pods of the group" in plan.holds[0].verdict.message
        assert " different " in plan.holds[0].verdict.message

    def test_a_volcano_group_with_a_minimum_for_each_task_is_not_started_by_half(self) -> None:
        tasks = {"volcano.sh/task-spec": "worker"}
        labels = {"annotations": {"scheduling.k8s.io/group-name": "g"}}
        pods = [pod(f"w{i}", 1, metadata={**labels, "labels": tasks}) for i in range(2)]
        ps = pod("z-ps", 1, metadata={**labels, "labels": {"volcano.sh/task-spec": "ps"}})
        group = {
            "apiVersion": "scheduling.volcano.sh/v1beta1",
            "kind": "PodGroup",
            "metadata": {"name": "g", "namespace": "default"},
            "spec": {"minMember": 2, "minTaskMember": {"ps": 1, "worker": 1}},
        }
        plan, _ = planned(node("n1", 2), *pods, ps, group)
        assert not plan.binds
        assert holds(plan) == {"default/g": "NOT_IMPLEMENTED"}
