"""The whole scheduler on a fake API: it leads, follows, loses the lease, says how it is, and stops in good order."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from tests.apply.objects import condition, custom, job, node, plural_of, pod, queues, reference
from tests.apply.scene import metric
from tests.kube.fake_api import FakeApi, refused
from tests.kube.memory_client import MemoryClient, lost_answer
from tests.kube.virtual_time import in_virtual_time, settle

from windlass.kube.leader_election import NamespaceMissing
from windlass.model.configuration import Settings
from windlass.model.configuration_document import settings_hash
from windlass.model.unstructured import Unstructured
from windlass.scheduler import loop as loop_module
from windlass.scheduler import scheduler as module
from windlass.scheduler.decision_record import replay
from windlass.scheduler.options import SchedulerOptions
from windlass.scheduler.scheduler import Scheduler

LEASE = "windlass-system/windlass-scheduler"


def cluster(*trees: Unstructured) -> FakeApi:
    api = FakeApi()
    api.serve_watched_kinds()
    for tree in (node("n1"), *trees):
        api.store(plural_of(tree), tree)
    return api


class Replica:
    """A scheduler with a client of its own."""

    def __init__(self, api: FakeApi, identity: str = "first", **options: Any) -> None:
        self.api, self.client = api, MemoryClient(api)
        made = SchedulerOptions(identity=identity, **{"warm_up": False, **options})
        self.scheduler = Scheduler(self.client, made)
        self.stop = asyncio.Event()
        self.task = asyncio.create_task(self.scheduler.run(self.stop))

    async def end(self) -> None:
        self.stop.set()
        await self.task

    def node_of(self, name: str) -> str:
        found: str = self.api.get("pods", f"team/{name}")["spec"].get("nodeName", "")
        return found

    def writes(self) -> list[str]:
        """Method and path of what was written, without events and the lease."""
        return [
            f"{request.method} {request.path}"
            for request in self.client.writes()
            if "/events" not in request.path and "/leases" not in request.path
        ]

    def metric(self, name: str, **labels: str) -> float:
        return metric(self.scheduler.metrics, name, **labels)


@asynccontextmanager
async def running(*trees: Unstructured, **options: Any) -> AsyncIterator[Replica]:
    replica = Replica(cluster(*trees), **options)
    await asyncio.sleep(1)
    try:
        yield replica
    finally:
        await replica.end()


def holder(api: FakeApi) -> str:
    found: str = api.get("leases", LEASE)["spec"]["holderIdentity"]
    return found


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
        assert annotations == {"windlass.dev/configuration-hash": settings_hash(settings)}
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
        await asyncio.sleep(15)
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
    assert (tmp_path / "record.jsonl").read_text().count('"assume"') == 2, (
        "binds count from when they are sent"
    )


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
        leads_at = next(
            at for at, request in enumerate(requests) if request.startswith("POST") and "leases" in request
        )
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


# Stopping


@in_virtual_time
async def test_binds_under_way_are_finished_before_the_lease_is_released() -> None:
    replica = Replica(cluster(pod("p")))
    held = replica.client.hold("POST binding")
    await asyncio.sleep(1)
    assert held.requests
    replica.stop.set()
    await asyncio.sleep(5)
    assert not replica.task.done()
    assert holder(replica.api) == "first"
    held.release()
    await replica.task
    assert replica.node_of("p") == "n1"
    assert holder(replica.api) == ""
    events = [event["reason"] for event in replica.api.objects["events"].values()]
    assert events == ["Scheduled"], "its event is sent, too"


@in_virtual_time
async def test_it_stops_within_ten_seconds_even_if_a_bind_has_no_answer() -> None:
    replica = Replica(cluster(pod("p")))
    replica.client.hold("POST binding")
    await asyncio.sleep(1)
    replica.stop.set()
    await asyncio.sleep(9.9)
    assert not replica.task.done()
    await asyncio.wait_for(replica.task, 0.2)
    assert holder(replica.api) == ""


@in_virtual_time
async def test_events_that_cannot_be_sent_are_waited_for_five_seconds() -> None:
    replica = Replica(cluster(pod("p")))
    replica.client.hold("POST events")
    await asyncio.sleep(1)
    replica.stop.set()
    await asyncio.sleep(4.9)
    assert not replica.task.done()
    await asyncio.wait_for(replica.task, 0.2)


@in_virtual_time
async def test_nothing_is_decided_after_the_stop() -> None:
    replica = Replica(cluster(pod("p")))
    held = replica.client.hold("POST binding")
    await asyncio.sleep(1)
    replica.stop.set()
    await settle()
    replica.api.store("pods", pod("late"))
    await asyncio.sleep(5)
    held.release()
    await replica.task
    assert replica.node_of("late") == ""


@in_virtual_time
async def test_what_fails_after_the_stop_is_not_decided_again() -> None:
    replica = Replica(cluster(node("n2"), pod("p"), pod("q")))
    slow, refusing = replica.client.hold("POST pods/q/binding"), replica.client.hold("POST pods/p/binding")
    replica.client.fail("POST pods/p/binding", refused(422, "no"))
    await asyncio.sleep(1)
    replica.stop.set()
    await settle()
    refusing.release()
    await asyncio.sleep(8)
    slow.release()
    await replica.task
    assert len([path for path in replica.writes() if path.endswith("/p/binding")]) == 1
    assert replica.node_of("q"), "what was under way is finished"


@in_virtual_time
async def test_run_times_are_written_before_the_end() -> None:
    labels = {"kueue.x-k8s.io/queue-name": "main"}
    status = {"phase": "Running", "startTime": "2026-01-01T00:00:00Z"}
    replica = Replica(cluster(*queues(), pod("done", on="n1", labels=labels, status=status)))
    await asyncio.sleep(5)
    for name in ("done", "again"):
        for phase in ("Running", "Succeeded"):
            ended = pod(name, on="n1", labels=labels, status={**status, "phase": phase})
            replica.api.store("pods", ended)
            await asyncio.sleep(0.1)
    await replica.end()
    (history,) = replica.api.objects["runtimehistories"].values()
    assert sum(count for period in history["periods"] for count in period["runs"].values()) == 2


# How it is


@in_virtual_time
async def test_it_is_sick_when_the_loop_has_not_turned_for_two_minutes() -> None:
    async with running() as replica:
        scheduler = replica.scheduler
        assert scheduler._unhealthy_reason() == ""
        scheduler.loop.last_cycle_at = time.monotonic() - 119.5
        assert scheduler._unhealthy_reason() == ""
        scheduler.loop.last_cycle_at = time.monotonic() - 121
        assert scheduler._unhealthy_reason() == "no scheduling cycle for 121 s"


@in_virtual_time
async def test_only_who_should_decide_can_be_sick() -> None:
    first = Replica(cluster())
    await asyncio.sleep(1)
    second = Replica(first.api, "second")
    await asyncio.sleep(1)
    second.scheduler.loop.last_cycle_at = time.monotonic() - 1000
    assert second.scheduler._unhealthy_reason() == "", "it follows"
    third = Replica(cluster(), leader_elect=False)
    third.client.fail("GET pods", refused(500, "etcd"))
    await asyncio.sleep(1)
    third.scheduler.loop.last_cycle_at = time.monotonic() - 1000
    assert third.scheduler._unhealthy_reason() == "", "it has not begun"
    for replica in (third, second, first):
        await replica.end()


@in_virtual_time
async def test_it_is_ready_once_everything_is_listed() -> None:
    replica = Replica(cluster())
    replica.client.fail("GET apis", lost_answer())
    await asyncio.sleep(1)
    assert replica.scheduler.not_ready() == "informers not synced: API discovery is under way"
    replica.client.recover()
    replica.client.fail("GET pods", refused(500, "etcd"))
    replica.client.fail("GET /nodes", refused(500, "etcd"))
    await asyncio.sleep(10)
    assert replica.scheduler.not_ready() == "informers not synced: nodes, pods"
    replica.client.recover()
    await asyncio.sleep(15)
    assert replica.scheduler.not_ready() == ""
    await replica.end()


@in_virtual_time
async def test_it_is_not_ready_while_kernels_are_compiled_and_decides_afterwards(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    configured: list[Any] = []
    monkeypatch.setattr(module, "warm_up", configured.append)
    replica = Replica(cluster(pod("p")), warm_up=True)
    scheduler = replica.scheduler
    scheduler.informers.synced.set()
    assert scheduler.not_ready() == "the kernels are being compiled"
    scheduler.informers.synced.clear()
    await asyncio.sleep(1)
    assert len(configured) == 1
    assert scheduler.not_ready() == ""
    assert replica.node_of("p") == "n1"
    await replica.end()


@in_virtual_time
async def test_without_warm_up_nothing_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    configured: list[Any] = []
    monkeypatch.setattr(module, "warm_up", configured.append)
    async with running() as replica:
        assert replica.scheduler.not_ready() == ""
    assert configured == []


@in_virtual_time
async def test_three_decisions_that_fail_make_it_unready_and_it_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real, fails = loop_module.decide_without_explanations, True

    def broken(*arguments: Any) -> Any:
        if fails:
            raise ZeroDivisionError("a bug")
        return real(*arguments)

    monkeypatch.setattr(loop_module, "decide_without_explanations", broken)
    async with running(pod("p")) as replica:
        await asyncio.sleep(5)
        assert (replica.scheduler.loop.consecutive_failures, replica.scheduler.not_ready()) == (2, "")
        await asyncio.sleep(5)
        reason = "3 decisions in a row have failed: ZeroDivisionError: a bug"
        assert replica.scheduler.not_ready() == reason
        fails = False
        await asyncio.sleep(5)
        assert replica.node_of("p") == "n1"
        assert replica.scheduler.not_ready() == ""


@in_virtual_time
async def test_the_metrics_say_how_old_the_cache_is_and_what_is_under_way() -> None:
    async with running(pod("p")) as replica:
        held = replica.client.hold("POST binding")
        replica.api.store("pods", pod("q"))
        replica.api.store("pods", pod("r"))
        await asyncio.sleep(0.1)
        replica.scheduler.recorder.dropped = 7
        replica.client.fail("GET jobs", lost_answer(), times=3)
        for informer in replica.scheduler.informers.informers:
            if informer.resource.plural == "jobs":
                informer.restarts = 3
        await asyncio.sleep(30)
        replica.scheduler._metrics_text()
        assert replica.metric("windlass_binds_in_flight") == 2
        assert replica.metric("windlass_dropped_events") == 7
        assert replica.metric("windlass_watch_restarts", resource="jobs") == 3
        assert replica.metric("windlass_watch_restarts", resource="pods") == 0
        assert 30 < replica.metric("windlass_cache_age_seconds") < 35, (
            "of the watch that was silent the longest"
        )
        held.release()


@in_virtual_time
async def test_a_cache_without_watches_has_no_age() -> None:
    replica = Replica(cluster())
    replica.client.fail("GET apis", lost_answer())
    await asyncio.sleep(100)
    replica.scheduler._metrics_text()
    assert replica.metric("windlass_cache_age_seconds") == 0
    await replica.end()


@in_virtual_time
async def test_events_give_way_to_binds_that_wait() -> None:
    async with running() as replica:
        scheduler = replica.scheduler
        assert not scheduler.recorder.should_yield()
        held = replica.client.hold("POST binding")
        for number in range(100):
            replica.api.store("pods", pod(f"p{number}", gpus=0))
        await asyncio.sleep(0.1)
        assert scheduler.executor.binder.has_backlog
        assert scheduler.recorder.should_yield()
        held.release()
        await asyncio.sleep(1)
        assert not scheduler.recorder.should_yield()


@pytest.mark.asyncio
async def test_health_and_metrics_are_served_where_it_listens() -> None:
    """Over real sockets, and so in real time."""
    options = SchedulerOptions(leader_elect=False, warm_up=False, listen=("127.0.0.1", 0))
    scheduler, stop = Scheduler(MemoryClient(cluster(pod("p"))), options), asyncio.Event()
    task = asyncio.create_task(scheduler.run(stop))
    async with asyncio.timeout(60):
        while scheduler.not_ready() or not scheduler.health_server.port:
            await asyncio.sleep(0.01)
    answers = {}
    async with aiohttp.ClientSession(f"http://127.0.0.1:{scheduler.health_server.port}") as session:
        for path in ("/healthz", "/readyz", "/metrics"):
            async with session.get(path) as response:
                answers[path] = response.status, await response.text()
    assert answers["/healthz"] == answers["/readyz"] == (200, "ok")
    assert "windlass_cycles_total" in answers["/metrics"][1]
    stop.set()
    await asyncio.wait_for(task, 60)
