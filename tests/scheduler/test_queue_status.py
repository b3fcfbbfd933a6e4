"""The status of queues in Kueue's form: counts, usage and Active, written when they change and never beside Kueue."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.apply.objects import admission, condition, decoded, local_queue, queues, workload
from tests.apply.scene import Scene
from tests.kube.fake_api import refused
from tests.kube.memory_client import lost_answer
from tests.kube.virtual_time import in_virtual_time, settle

from windlass.kube.request import Request
from windlass.model.kueue import queue_system
from windlass.model.names.nvidia import GPU_RESOURCE
from windlass.model.pod import Pod
from windlass.model.queue import QueueSystem
from windlass.model.unstructured import Unstructured
from windlass.model.workload import Admission, PodSet, PodSetAssignment, Workload
from windlass.scheduler.queue_status import QueueStatusWriter, queue_statuses


def system_of(*trees: Unstructured) -> QueueSystem:
    return queue_system([decoded(tree) for tree in trees])


def member(
    name: str, gpus: int = 0, *, queue: str = "main", flavor: str = "default", namespace: str = "team"
) -> Workload:
    """Admitted with so many GPUs, or waiting."""
    held = None
    if gpus:
        assignment = PodSetAssignment("main", 1, {GPU_RESOURCE: flavor}, {GPU_RESOURCE: 1000 * gpus})
        held = Admission("cluster", (assignment,))
    pod_sets = (PodSet("main", 1, Pod()),)
    return Workload(f"{namespace}/{name}", "Workload", pod_sets, queue_name=queue, admission=held)


def usage(status: Unstructured) -> dict[str, tuple[str, str]]:
    """Flavor → total and borrowed GPUs."""
    assert status["flavorsUsage"] == status["flavorsReservation"]
    return {
        flavor["name"]: (flavor["resources"][0]["total"], flavor["resources"][0]["borrowed"])
        for flavor in status["flavorsUsage"]
    }


def active(status: Unstructured) -> tuple[str, str, str]:
    (found,) = status["conditions"]
    assert found["type"] == "Active"
    return found["status"], found["reason"], found["message"]


def test_members_are_counted_in_both_queues_and_their_usage_summed() -> None:
    system = system_of(*queues(quota=8), local_queue("second"))
    members = [member("a", 2), member("b", 3), member("c"), member("d", 1, queue="second")]
    statuses = queue_statuses(system, members)
    assert statuses.keys() == {
        ("ClusterQueue", "cluster"),
        ("LocalQueue", "team/main"),
        ("LocalQueue", "team/second"),
    }
    cluster, main, second = (statuses[key] for key in sorted(statuses))
    counts = [
        (status["pendingWorkloads"], status["reservingWorkloads"], status["admittedWorkloads"])
        for status in (cluster, main, second)
    ]
    assert counts == [(1, 3, 3), (1, 2, 2), (0, 1, 1)]
    assert [usage(status)["default"] for status in (cluster, main, second)] == [
        ("6", "0"),
        ("5", "0"),
        ("1", "0"),
    ]


def test_workloads_of_no_queue_of_another_or_of_a_missing_one_do_not_count() -> None:
    system = system_of(*queues())
    others = [member("a", 2, queue=""), member("b", 2, queue="missing"), member("c", 2, namespace="other")]
    for status in queue_statuses(system, others).values():
        assert (status["pendingWorkloads"], status["admittedWorkloads"]) == (0, 0)
        assert usage(status) == {"default": ("0", "0")}


@pytest.mark.parametrize(
    ("cohort", "gpus", "borrowed"),
    [
        ({"cohortName": "all"}, 6, "4"),
        ({"cohortName": "all"}, 2, "0"),
        ({"cohortName": "all"}, 1, "0"),
        ({}, 6, "0"),
    ],
)
def test_what_goes_beyond_the_nominal_quota_is_borrowed_from_the_cohort(
    cohort: dict[str, str], gpus: int, borrowed: str
) -> None:
    system = system_of(*queues(quota=2, **cohort))
    status = queue_statuses(system, [member("a", gpus)])["ClusterQueue", "cluster"]
    assert usage(status) == {"default": (str(gpus), borrowed)}


def test_usage_is_told_apart_by_flavor() -> None:
    quotas = [{"name": name, "resources": [{"name": GPU_RESOURCE, "nominalQuota": 4}]} for name in ("default", "spot")]
    groups = [{"coveredResources": [GPU_RESOURCE], "flavors": quotas}]
    spot = queues()[0] | {"metadata": {"name": "spot"}}
    system = system_of(spot, *queues(resourceGroups=groups))
    status = queue_statuses(system, [member("a", 1), member("b", 3, flavor="spot")])["ClusterQueue", "cluster"]
    assert usage(status) == {"default": ("1", "0"), "spot": ("3", "0")}


@pytest.mark.parametrize(
    ("cluster_queue", "expected"),
    [
        ({}, ("True", "Ready", "Can admit new workloads")),
        ({"stopPolicy": "None"}, ("True", "Ready", "Can admit new workloads")),
        ({"stopPolicy": "Hold"}, ("False", "Stopped", "spec.stopPolicy of ClusterQueue cluster is Hold")),
        (
            {"stopPolicy": "HoldAndDrain"},
            ("False", "Stopped", "spec.stopPolicy of ClusterQueue cluster is HoldAndDrain"),
        ),
    ],
)
def test_a_queue_is_active_unless_it_is_stopped(cluster_queue: dict[str, Any], expected: tuple[str, str, str]) -> None:
    statuses = queue_statuses(system_of(*queues(**cluster_queue)), [])
    assert active(statuses["ClusterQueue", "cluster"]) == expected
    local = active(statuses["LocalQueue", "team/main"])
    if expected[0] == "True":
        assert local == ("True", "Ready", "Can submit new workloads to localQueue")
    else:
        assert local == expected


def test_a_field_that_is_not_implemented_makes_a_queue_inactive_and_is_named() -> None:
    statuses = queue_statuses(system_of(*queues(somethingNew=1)), [])
    status, reason, message = active(statuses["ClusterQueue", "cluster"])
    assert (status, reason) == ("False", "NotImplemented")
    assert "somethingNew" in message


def test_a_local_queue_without_its_cluster_queue_says_so_and_still_counts() -> None:
    system = system_of(local_queue("main", "nowhere"))
    statuses = queue_statuses(system, [member("a")])
    assert active(statuses["LocalQueue", "team/main"]) == (
        "False",
        "ClusterQueueDoesNotExist",
        "ClusterQueue nowhere doesn't exist",
    )
    assert statuses["LocalQueue", "team/main"]["pendingWorkloads"] == 1
    assert statuses["LocalQueue", "team/main"]["flavorsUsage"] == []


@given(
    gpus=st.lists(st.integers(0, 5), max_size=8),
    names=st.lists(st.sampled_from(["main", "second"]), max_size=8),
)
def test_the_counts_of_local_queues_add_up_to_their_cluster_queue(gpus: list[int], names: list[str]) -> None:
    system = system_of(*queues(quota=3, cohortName="all"), local_queue("second"))
    members = [
        member(f"w{number}", amount, queue=name) for number, (amount, name) in enumerate(zip(gpus, names, strict=False))
    ]
    statuses = queue_statuses(system, members)
    cluster = statuses.pop(("ClusterQueue", "cluster"))
    for field in ("pendingWorkloads", "admittedWorkloads", "reservingWorkloads"):
        assert cluster[field] == sum(status[field] for status in statuses.values())
    total = sum(int(usage(status)["default"][0]) for status in statuses.values())
    assert usage(cluster)["default"] == (str(total), str(max(0, total - 3)))


# Writing


class Writing:
    def __init__(self, *trees: Unstructured) -> None:
        self.scene = Scene(*trees)
        self.writer = QueueStatusWriter(
            self.scene.client, self.scene.cache, lambda: self.scene.leads, self.scene.client.resource_for
        )

    async def observe(self, *trees: Unstructured) -> list[Request]:
        """What is written after these changes and a decision, three seconds later."""
        before = len(self.scene.client.sent)
        self.scene.put(*trees)
        self.scene.watch()
        self.writer.observe(self.scene.snapshot())
        await asyncio.sleep(3)
        return self.scene.client.sent[before:]

    def active_since(self) -> str:
        found: str = condition(self.scene.api.get("clusterqueues", "cluster"), "Active")["lastTransitionTime"]
        return found


@asynccontextmanager
async def writing(*trees: Unstructured) -> AsyncIterator[Writing]:
    made = Writing(*trees)
    task = asyncio.create_task(made.writer.run())
    try:
        yield made
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert task.cancelled(), "the writer has failed"


def names(requests: Sequence[Request]) -> list[str]:
    return sorted(request.path.split("/")[-2] for request in requests)


WAITS = workload("w")


@in_virtual_time
async def test_statuses_are_written_once_and_again_when_they_change() -> None:
    async with writing(*queues()) as made:
        assert names(await made.observe()) == ["cluster", "main"]
        assert made.scene.api.get("clusterqueues", "cluster")["status"]["pendingWorkloads"] == 0
        assert await made.observe() == []
        assert names(await made.observe(WAITS)) == ["cluster", "main"]
        assert made.scene.get("localqueues", "main")["status"]["pendingWorkloads"] == 1
        (sent,) = [request for request in made.scene.client.sent[-2:] if "localqueues" in request.path]
        assert sent.path == "/apis/kueue.x-k8s.io/v1beta2/namespaces/team/localqueues/main/status"


@in_virtual_time
async def test_active_has_the_time_of_its_last_change() -> None:
    async with writing(*queues()) as made:
        await made.observe()
        assert made.active_since() == "2026-01-01T00:06:40Z"
        await made.observe(WAITS)
        assert made.active_since() == "2026-01-01T00:06:40Z", "it has not changed"
        await asyncio.sleep(54)
        await made.observe(queues(stopPolicy="Hold")[1])
        assert made.active_since() == "2026-01-01T00:07:40Z"


@in_virtual_time
async def test_many_changes_are_written_every_two_seconds() -> None:
    async with writing(*queues()) as made:
        made.writer.observe(made.scene.snapshot())
        await settle()
        assert len(made.scene.client.sent) == 2
        for number in range(10):
            made.scene.put(workload(f"w{number}"))
            made.scene.watch()
            made.writer.observe(made.scene.snapshot())
        await asyncio.sleep(1.9)
        assert len(made.scene.client.sent) == 2
        await asyncio.sleep(0.2)
        assert len(made.scene.client.sent) == 4, "only the newest"
        assert made.scene.get("localqueues", "main")["status"]["pendingWorkloads"] == 10


@in_virtual_time
async def test_what_changes_back_before_it_was_written_is_not_written() -> None:
    async with writing(*queues()) as made:
        made.writer.observe(made.scene.snapshot())
        await settle()
        sent = len(made.scene.client.sent)
        made.scene.put(WAITS)
        made.scene.watch()
        made.writer.observe(made.scene.snapshot())
        made.scene.api.remove("workloads", "team/w")
        made.scene.watch()
        made.writer.observe(made.scene.snapshot())
        await asyncio.sleep(10)
        assert len(made.scene.client.sent) == sent


@pytest.mark.parametrize("error", [refused(500, "etcd"), refused(404, "gone"), lost_answer()])
@in_virtual_time
async def test_what_failed_is_written_with_the_next_decision(error: Exception) -> None:
    async with writing(*queues()) as made:
        made.scene.client.fail("PATCH clusterqueues/cluster/status", error, times=1)
        assert len(await made.observe()) == 2
        assert names(await made.observe()) == ["cluster"]
        assert await made.observe() == []


@in_virtual_time
async def test_a_follower_writes_nothing_and_as_leader_everything() -> None:
    async with writing(*queues()) as made:
        made.scene.leads = False
        assert await made.observe() == []
        made.scene.leads = True
        assert names(await made.observe()) == ["cluster", "main"]


@in_virtual_time
async def test_a_new_leader_trusts_nothing_that_it_wrote_in_an_earlier_term() -> None:
    async with writing(*queues()) as made:
        await made.observe()
        made.scene.api.respond(
            "PATCH",
            "/apis/kueue.x-k8s.io/v1beta2/clusterqueues/cluster/status",
            {},
            {"status": {"pendingWorkloads": 7}},
        )  # by another leader
        made.writer.start_leading()
        assert names(await made.observe()) == ["cluster", "main"]
        assert made.scene.api.get("clusterqueues", "cluster")["status"]["pendingWorkloads"] == 0


@in_virtual_time
async def test_a_queue_that_is_made_anew_gets_its_status_anew() -> None:
    async with writing(*queues()) as made:
        await made.observe()
        made.scene.api.remove("localqueues", "team/main")
        await made.observe()
        again = local_queue("main")
        again["metadata"]["uid"] = "another"
        assert names(await made.observe(again)) == ["main"]
        made.scene.api.remove("localqueues", "team/main")
        third = local_queue("main")
        third["metadata"]["uid"] = "third"
        assert names(await made.observe(third)) == ["main"], "with no decision in between"


@in_virtual_time
async def test_a_live_kueue_writes_them_itself() -> None:
    async with writing(*queues()) as made:
        made.scene.cache.responsibility.kueue_is_live = True
        assert await made.observe() == []


@in_virtual_time
async def test_without_queues_there_is_nothing_to_write() -> None:
    async with writing() as made:
        assert await made.observe(WAITS) == []
        assert names(await made.observe(local_queue("main", "nowhere"))) == ["main"]


@in_virtual_time
async def test_a_cluster_queue_that_is_only_named_is_not_written() -> None:
    async with writing(local_queue("main", "nowhere")) as made:
        assert names(await made.observe(WAITS)) == ["main"]


@in_virtual_time
async def test_a_queue_that_is_deleted_before_its_turn_is_not_written() -> None:
    async with writing(*queues()) as made:
        made.writer.observe(made.scene.snapshot())
        made.scene.api.remove("localqueues", "team/main")
        made.scene.watch()
        made.scene.cache.drain_inbox()
        await asyncio.sleep(3)
        assert names(made.scene.client.sent) == ["cluster"]


@in_virtual_time
async def test_kinds_that_are_not_served_any_more_are_not_written() -> None:
    async with writing(*queues()) as made:
        del made.scene.api.groups["kueue.x-k8s.io/v1beta2"]
        assert await made.observe() == []


@in_virtual_time
async def test_admitted_workloads_use_quota() -> None:
    running = workload("w", gpus=3, status={"admission": admission(gpus=3)})
    async with writing(*queues(quota=8)) as made:
        await made.observe(running)
        status = made.scene.api.get("clusterqueues", "cluster")["status"]
        assert usage(status) == {"default": ("3", "0")}
        assert (status["pendingWorkloads"], status["admittedWorkloads"]) == (0, 1)
