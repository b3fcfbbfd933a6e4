"""KAI's Queues, PodGroups and labels, decided on without KAI: what its documentation says of them."""

from __future__ import annotations

from typing import Any

import pytest
from tests.engine.plain_objects import START, holds, node, planned, pod

from windlass.model.codec import decode_object
from windlass.model.errors import InputError
from windlass.model.plan import Plan
from windlass.model.unstructured import Unstructured

FREE = {"quota": -1, "limit": -1, "overQuotaWeight": 1}
EVENING = "2026-01-01T11:50:00Z"
"""Ten minutes before the decision."""


def queue(name: str, quota: float = 0, limit: float = -1, parent: str = "", **more: Any) -> Unstructured:
    gpus = {"quota": quota, "limit": limit, "overQuotaWeight": 1}
    spec = {"resources": {"gpu": gpus, "cpu": FREE, "memory": FREE}, **more}
    if parent:
        spec["parentQueue"] = parent
    return {"apiVersion": "scheduling.run.ai/v2", "kind": "Queue", "metadata": {"name": name}, "spec": spec}


def group(name: str, minimum: int, in_queue: str, **more: Any) -> Unstructured:
    spec = {"minMember": minimum, "queue": in_queue, **more}
    meta = {"name": name, "namespace": "default", "creationTimestamp": START}
    return {"apiVersion": "scheduling.run.ai/v2alpha2", "kind": "PodGroup", "metadata": meta, "spec": spec}


def member(name: str, of: str, gpus: int = 1, on: str = "", at: str = START, priority: int = 50) -> Unstructured:
    return pod(name, gpus, on, at, metadata={"annotations": {"pod-group-name": of}}, priority=priority)


def in_queue(name: str, of: str, gpus: int = 1, label: str = "kai.scheduler/queue", **more: Any) -> Unstructured:
    return pod(name, gpus, metadata={"labels": {label: of}}, **more)


def bound(plan: Plan) -> set[str]:
    return {bind.pod.partition("/")[2] for bind in plan.binds}


def evicted(plan: Plan) -> set[str]:
    return {key.partition("/")[2] for evict in plan.evicts for key in evict.pods}


@pytest.mark.parametrize("label", ["kai.scheduler/queue", "runai/queue"])
def test_the_limit_of_a_queue(label: str) -> None:
    pods = [in_queue(f"p{index}", "team", label=label) for index in range(6)]
    plan, _ = planned(node("n1"), queue("team", 1, 2), *pods)
    assert len(plan.binds) == 2
    assert set(holds(plan).values()) == {"KUEUE_QUOTA_INSUFFICIENT"}


@pytest.mark.parametrize(
    ("asked", "text"),
    [
        (3, "over quota: Queue.scheduling.run.ai team has 2 nvidia.com/gpu of its own quota for non-preemptible work"),
        (5, "it never starts: Queue.scheduling.run.ai team can have at most 4 nvidia.com/gpu of its own quota for"),
    ],
)
def test_non_preemptible_work_is_told_what_is_left_of_the_queues_own_quota(asked: int, text: str) -> None:
    kept = {"labels": {"kai.scheduler/queue": "team", "kai.scheduler/preemptibility": "non-preemptible"}}
    objects = [node("n1"), queue("team", 4), queue("other", 4), pod("r", 2, "n1", metadata=kept)]
    plan, _ = planned(*objects, pod("p", asked, metadata=kept))
    (hold,) = plan.holds
    assert hold.verdict.code == "KUEUE_QUOTA_INSUFFICIENT"
    assert hold.verdict.public_message.startswith(text)
    assert hold.verdict.is_infeasible == (asked > 4)


def test_messages_name_the_queue_as_its_owner_does() -> None:
    pods = [in_queue(f"p{index}", "team") for index in range(3)]
    for objects in (
        [queue("team", 1, 2), *pods],
        [queue("org", 2), queue("team", 2, parent="org"), in_queue("p", "org")],
    ):
        plan, _ = planned(node("n1"), *objects)
        (hold,) = plan.holds
        assert "Queue.scheduling.run.ai" in hold.verdict.public_message
        assert "kai/" not in hold.verdict.message + hold.verdict.public_message
        assert "ClusterQueue" not in hold.verdict.message + hold.verdict.public_message


def test_a_queue_that_does_not_exist_is_named() -> None:
    plan, _ = planned(node("n1"), queue("team", 1), in_queue("p", "other"))
    assert holds(plan) == {"default/p": "KUEUE_QUEUE_MISSING"}
    assert plan.holds[0].verdict.remedy == "create Queue.scheduling.run.ai other, or name an existing one"
    assert "Queue.scheduling.run.ai other doesn't exist" in plan.holds[0].verdict.detail


def test_only_leaves_take_work() -> None:
    plan, _ = planned(node("n1"), queue("org", 4), queue("team", 4, parent="org"), in_queue("p", "org"))
    assert "only those take work" in plan.holds[0].verdict.detail


def test_a_parents_limit_holds_for_its_queues_together() -> None:
    queues = [queue("org", 2, 2), queue("a", 1, parent="org"), queue("b", 1, parent="org"), queue("c", 6)]
    pods = [in_queue(f"{name}{index}", name) for name in ("a", "b") for index in range(2)]
    plan, _ = planned(node("n1"), *queues, *pods)
    assert len(plan.binds) == 2


def test_a_queue_without_a_parent_that_exists_says_so() -> None:
    plan, _ = planned(node("n1"), queue("team", 1, parent="gone"), in_queue("p", "team"))
    assert "its parent queue gone doesn't exist" in plan.holds[0].verdict.detail


def test_unused_quota_is_lent_and_reclaimed() -> None:
    queues = [queue("mine", 4), queue("theirs", 4)]
    running = [pod(f"r{index}", 1, "n1", metadata={"labels": {"kai.scheduler/queue": "theirs"}}) for index in range(8)]
    plan, _ = planned(node("n1"), *queues, *running, in_queue("p", "mine"))
    assert (bound(plan), len(evicted(plan))) == ({"p"}, 1)


@pytest.mark.parametrize(("minimum", "goes"), [("5m", True), ("1h", False)])
class TestMinimumRunTimes:
    def test_of_what_is_reclaimed(self, minimum: str, goes: bool) -> None:
        queues = [queue("mine", 4), queue("theirs", 4, reclaimMinRuntime=minimum)]
        labels = {"labels": {"kai.scheduler/queue": "theirs"}}
        running = [pod(f"r{index}", 1, "n1", EVENING, metadata=labels) for index in range(8)]
        plan, _ = planned(node("n1"), *queues, *running, in_queue("p", "mine"))
        assert bool(evicted(plan)) == goes

    def test_of_the_parent_between_parents(self, minimum: str, goes: bool) -> None:
        """As KAI resolves it: of the queue below the lowest common one, whatever those further down say."""
        queues = [
            queue("org1", 4),
            queue("mine", 4, parent="org1"),
            queue("org2", 4, reclaimMinRuntime=minimum),
            queue("theirs", 4, parent="org2", reclaimMinRuntime="30m"),
        ]
        labels = {"labels": {"kai.scheduler/queue": "theirs"}}
        running = [pod(f"r{index}", 1, "n1", EVENING, metadata=labels) for index in range(8)]
        plan, _ = planned(node("n1"), *queues, *running, in_queue("p", "mine"))
        assert bool(evicted(plan)) == goes

    def test_of_what_is_preempted(self, minimum: str, goes: bool) -> None:
        labels = {"labels": {"kai.scheduler/queue": "team"}}
        running = [pod(f"r{index}", 1, "n1", EVENING, metadata=labels) for index in range(8)]
        urgent = pod("p", 1, metadata=labels, priority=60)
        plan, _ = planned(node("n1"), queue("team", 8, preemptMinRuntime=minimum), *running, urgent)
        assert bool(evicted(plan)) == goes


class TestWorkThatIsNotPreemptible:
    def test_uses_its_queues_own_quota_only(self) -> None:
        pods = [in_queue(f"p{index}", "team", priority=100) for index in range(4)]
        plan, _ = planned(node("n1"), queue("team", 2), *pods)
        assert len(plan.binds) == 2

    def test_is_not_preempted(self) -> None:
        labels = {"labels": {"kai.scheduler/queue": "team"}}
        running = [pod(f"r{index}", 1, "n1", metadata=labels, priority=100) for index in range(8)]
        plan, _ = planned(node("n1"), queue("team", 8), *running, in_queue("p", "team", priority=125))
        assert not plan.evicts

    def test_may_say_otherwise(self) -> None:
        labels = {"kai.scheduler/queue": "team", "kai.scheduler/preemptibility": "preemptible"}
        pods = [pod(f"p{index}", 1, metadata={"labels": labels}, priority=100) for index in range(4)]
        plan, _ = planned(node("n1"), queue("team", 2), *pods)
        assert len(plan.binds) == 4


class TestPodGroups:
    def test_all_or_nothing(self) -> None:
        members = [member(f"m{index}", "g") for index in range(3)]
        plan, _ = planned(node("n1", 2), queue("team", 8), group("g", 3, "team"), *members)
        assert bound(plan) == set()
        plan, _ = planned(node("n1", 3), queue("team", 8), group("g", 3, "team"), *members)
        assert bound(plan) == {"m0", "m1", "m2"}

    def test_in_the_queue_that_its_spec_names(self) -> None:
        members = [member(f"m{index}", "g") for index in range(3)]
        plan, _ = planned(node("n1"), queue("team", 2, 2), group("g", 3, "team"), *members)
        assert holds(plan) == {"default/g": "KUEUE_QUOTA_INSUFFICIENT"}

    def test_sub_groups_that_cover_all_pods(self) -> None:
        parts = [{"name": "lead", "minMember": 1}, {"name": "work", "minMember": 2}]
        members = [member(f"m{index}", "g") for index in range(3)]
        plan, _ = planned(node("n1"), queue("team", 8), group("g", 3, "team", subGroups=parts), *members)
        assert bound(plan) == {"m0", "m1", "m2"}

    def test_sub_groups_with_more_pods_than_their_minimums_are_refused_by_name(self) -> None:
        parts = [{"name": "lead", "minMember": 1}, {"name": "work", "minMember": 1}]
        members = [member(f"m{index}", "g") for index in range(3)]
        plan, _ = planned(node("n1"), queue("team", 8), group("g", 2, "team", subGroups=parts), *members)
        assert holds(plan) == {"default/g": "NOT_IMPLEMENTED"}

    def test_a_number_of_sub_groups_is_refused_by_name(self) -> None:
        plan, _ = planned(node("n1"), queue("team", 8), group("g", 1, "team", minSubGroup=2), member("m", "g"))
        assert "spec.minSubGroup" in plan.holds[0].verdict.detail


class TestJobs:
    def job(self, **annotations: str) -> Unstructured:
        template = {"spec": {"containers": [{"name": "c", "resources": {"limits": {"nvidia.com/gpu": "1"}}}]}}
        meta = {"name": "j", "labels": {"kai.scheduler/queue": "team"}, "annotations": annotations}
        spec = {"parallelism": 4, "completions": 4, "template": template}
        return {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": spec}

    def placed(self, gpus: int, **annotations: str) -> int:
        plan, _ = planned(node("n1", gpus), queue("team", 8), self.job(**annotations))
        return sum(sum(part.nodes.values()) for admit in plan.admits for part in admit.pod_sets)

    def test_pods_start_one_by_one(self) -> None:
        assert self.placed(3) == 3

    def test_unless_it_has_a_minimum(self) -> None:
        minimum = {"kai.scheduler/batch-min-member": "4"}
        assert (self.placed(3, **minimum), self.placed(4, **minimum)) == (0, 4)


def test_a_negative_quota_is_refused_with_its_path() -> None:
    with pytest.raises(InputError) as refused:
        decode_object(queue("team", -2))
    assert refused.value.path == "spec.resources.gpu.quota"
