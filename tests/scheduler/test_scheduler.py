"""The whole scheduler on a fake API: it works, leads, follows, and loses the lease without doing harm."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.apply.objects import condition, custom, job, node, pod, queues, reference
from tests.kube.fake_api import refused
from tests.kube.memory_client import lost_answer
from tests.kube.virtual_time import in_virtual_time
from tests.scheduler.replicas import LEASE, Replica, cluster, holder, running

from windlass.kube.leader_election import NamespaceMissing
from windlass.model.configuration import Settings
from windlass.model.configuration_document import settings_hash
from windlass.scheduler.decision_record import replay

# It works


@in_virtual_time
async def test_pods_are_bound_and_others_told_why_they_wait() -> None:
    async with running(pod("p"), pod("large", gpus=99)) as replica:
        assert replica.node_of("p") == "n1"
        assert condition(replica.api.get("pods", "team/large"), "PodScheduled")["reason"] == "Unschedulable"
        replica.api.store("pods", pod("q"))
        await asyncio.sleep(0.1)
        assert replica.node_of("q") == "n1", "news are decided on at once"
        events = {event["reason"] for event in replica.api.objects["events"].values()}
        assert events == {"Scheduled", "FailedScheduling"}


@in_virtual_time
async def test_queued_jobs_are_admitted_and_queues_get_their_status() -> None:
    async with running(*queues(), job("train")) as replica:
        await asyncio.sleep(5)
        assert replica.api.get("jobs", "team/train")["spec"]["suspend"] is False
        assert replica.api.get("clusterqueues", "cluster")["status"]["admittedWorkloads"] == 1


@in_virtual_time
async def test_the_leader_publishes_its_configuration_and_its_hash() -> None:
    settings = Settings(seed=5)
    async with running(settings=settings) as replica:
        await asyncio.sleep(5)
        assert holder(replica.api) == "first"
        annotations = replica.api.get("leases", LEASE)["metadata"]["annotations"]
        assert annotations == {
            "windlass.dev/configuration-hash": settings_hash(settings),
            "windlass.dev/obeys-freeze": "windlass-freeze",
        }
        published = replica.api.get("configmaps", "windlass-system/windlass-scheduler-configuration")
        assert "seed: 5" in published["data"]["config.yaml"]
        assert replica.metric("windlass_leading") == 1


@in_virtual_time
async def test_without_leader_election_there_is_no_lease() -> None:
    async with running(pod("p"), leader_elect=False) as replica:
        assert replica.node_of("p") == "n1"
        assert "leases" not in replica.api.objects
    assert "leases" not in replica.api.objects


@in_virtual_time
async def test_a_shadow_reads_and_writes_nothing() -> None:
    async with running(
        *queues(),
        pod("p"),
        job("train"),
        pod("odd", spec={"priority": "high"}),
        shadow=True,
        leader_elect=False,
    ) as replica:
        await asyncio.sleep(60)
        assert replica.client.writes() == []
        assert replica.metric("windlass_cycles_total") > 5
        assert replica.metric("windlass_unreadable_objects_total", kind="Pod") == 1


@in_virtual_time
async def test_beside_a_live_kueue_its_queues_are_left_alone() -> None:
    api = cluster(*queues(), job("train"), pod("p"))
    api.groups["admissionregistration.k8s.io/v1"] = ("validatingwebhookconfigurations",)
    webhook = {"metadata": {"name": "kueue-validating-webhook-configuration"}}
    api.store("validatingwebhookconfigurations", webhook)
    replica = Replica(api)
    await asyncio.sleep(20)
    assert replica.node_of("p") == "n1"
    assert api.get("jobs", "team/train")["spec"]["suspend"] is True
    assert not api.objects.get("workloads")
    await replica.end()


@in_virtual_time
async def test_nothing_is_decided_before_it_is_known_whether_kueue_is_live() -> None:
    api = cluster(pod("p"))
    replica = Replica(api)
    replica.client.fail("GET leases/c1f6bfd2.kueue.x-k8s.io", lost_answer())
    await asyncio.sleep(60)
    assert replica.node_of("p") == ""
    replica.client.recover()
    await asyncio.sleep(20)
    assert replica.node_of("p") == "n1"
    await replica.end()


@in_virtual_time
async def test_a_pod_waits_for_the_owner_that_was_not_seen_yet() -> None:
    async with running(pod("p", ownerReferences=[reference(job("late"))]), pod("q")) as replica:
        await asyncio.sleep(2)
        assert (replica.node_of("p"), replica.node_of("q")) == ("", "n1")
        await asyncio.sleep(50)
        assert replica.node_of("p") == ""
        await asyncio.sleep(25)
        assert replica.node_of("p") == "n1", "though not for ever"


@in_virtual_time
async def test_the_nodes_of_a_reservation_are_written_to_its_status() -> None:
    spec = {
        "gpus": 2,
        "from": "2026-01-01T08:00:00Z",
        "until": "2026-01-01T12:00:00Z",
        "who": {"namespaces": ["team"]},
    }
    launch = custom("windlass.dev/v1", "Reservation", "launch", metadata={"namespace": ""}, spec=spec)
    async with running(launch) as replica:
        await asyncio.sleep(5)
        assert replica.api.get("reservations", "launch")["status"] == {"nodes": {"n1": 2}}


@in_virtual_time
async def test_a_record_can_be_replayed_after_the_end(tmp_path: Path) -> None:
    async with running(pod("p"), record=tmp_path, leader_elect=False) as replica:
        replica.api.store("pods", pod("q"))
        await asyncio.sleep(30)
    outcome = replay(tmp_path)
    assert outcome.decisions >= 3
    assert outcome.difference == ""
    assert (tmp_path / "record.jsonl").read_text().count('"assume"') == 2, "binds count from when they are sent"


# Leading and following


@in_virtual_time
async def test_a_second_replica_follows_and_takes_over_when_the_first_stops() -> None:
    first = Replica(cluster(pod("p")))
    await asyncio.sleep(1)
    second = Replica(first.api, "second")
    await asyncio.sleep(30)
    assert holder(first.api) == "first"
    assert second.writes() == []
    assert second.metric("windlass_leading") == 0
    assert second.scheduler.not_ready() == "", "a follower is ready"
    await first.end()
    assert holder(first.api) == "", "the lease is released"
    await asyncio.sleep(3)
    assert holder(first.api) == "second"
    first.api.store("pods", pod("q"))
    await asyncio.sleep(0.1)
    assert second.node_of("q") == "n1"
    assert second.metric("windlass_leading") == 1
    await second.end()
    assert second.metric("windlass_leading") == 0


@in_virtual_time
async def test_a_new_leader_lists_again_before_it_decides() -> None:
    """Its watch may be behind what the last leader bound and admitted."""
    async with running(pod("p")) as replica:
        requests = [f"{request.method} {request.path}" for request in replica.client.sent]
        leads_at = next(at for at, request in enumerate(requests) if request.startswith("POST") and "leases" in request)
        binds_at = next(at for at, request in enumerate(requests) if request.endswith("/binding"))
        between = requests[leads_at:binds_at]
        for collection in ("/api/v1/pods", "/api/v1/nodes", "/apis/kueue.x-k8s.io/v1beta2/workloads"):
            assert f"GET {collection}" in between
        assert "GET /apis/batch/v1/jobs" not in between


@in_virtual_time
async def test_a_leader_that_cannot_renew_writes_nothing_until_it_leads_again() -> None:
    async with running(pod("p")) as replica:
        replica.client.fail("PUT leases/windlass-scheduler", lost_answer())
        await asyncio.sleep(12)
        assert replica.metric("windlass_leading") == 0
        replica.api.store("pods", pod("q"))
        before = len(replica.writes())
        await asyncio.sleep(5)
        assert len(replica.writes()) == before
        replica.client.recover()
        await asyncio.sleep(20)
        assert replica.node_of("q") == "n1"
        assert replica.metric("windlass_leading") == 1


@in_virtual_time
async def test_a_renewal_without_an_answer_ends_the_term_and_not_the_scheduler() -> None:
    async with running() as replica:
        held = replica.client.hold("PUT leases/windlass-scheduler")
        for number in range(150):
            replica.api.store("nodes", node("n1", labels={"news": str(number)}))
            await asyncio.sleep(0.1)
        assert replica.metric("windlass_leading") == 0
        held.release()
        replica.api.store("pods", pod("p"))
        await asyncio.sleep(30)
        assert replica.metric("windlass_leading") == 1
        assert replica.node_of("p") == "n1"


@in_virtual_time
async def test_a_leader_in_its_second_term_writes_its_messages_again() -> None:
    async with running(*queues(), pod("large", gpus=99)) as replica:
        await asyncio.sleep(5)
        replica.client.fail("PUT leases/windlass-scheduler", lost_answer())
        await asyncio.sleep(20)
        other = {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Theirs",
            "message": "by another leader",
        }
        replica.api.store("pods", pod("large", gpus=99, status={"conditions": [other]}))
        status = replica.api.get("clusterqueues", "cluster")["status"]
        replica.api.store("clusterqueues", queues()[1] | {"status": {**status, "pendingWorkloads": 9}})
        replica.client.recover()
        await asyncio.sleep(30)
        told = condition(replica.api.get("pods", "team/large"), "PodScheduled")
        assert told["reason"] == "Unschedulable"
        assert replica.api.get("clusterqueues", "cluster")["status"]["pendingWorkloads"] == 0


@in_virtual_time
async def test_runs_that_end_between_two_terms_are_not_counted() -> None:
    """They are the other leader's to count."""
    labels = {"kueue.x-k8s.io/queue-name": "main"}
    runs = {"phase": "Running", "startTime": "2026-01-01T00:00:00Z"}
    async with running(*queues(), pod("done", on="n1", labels=labels, status=runs)) as replica:
        replica.client.fail("PUT leases/windlass-scheduler", lost_answer())
        await asyncio.sleep(20)
        replica.api.store("pods", pod("done", on="n1", labels=labels, status={**runs, "phase": "Succeeded"}))
        replica.client.recover()
        await asyncio.sleep(60)
        assert replica.metric("windlass_leading") == 1
        assert not replica.api.objects.get("runtimehistories")


@in_virtual_time
async def test_a_namespace_that_may_not_be_made_ends_it_with_the_reason() -> None:
    replica = Replica(cluster())
    replica.client.fail("POST leases", refused(404, 'namespaces "windlass-system" not found', "NotFound"))
    replica.client.fail("POST namespaces", refused(403, "no"))
    with pytest.raises(NamespaceMissing, match="kubectl create namespace windlass-system"):
        await asyncio.wait_for(replica.task, 60)
