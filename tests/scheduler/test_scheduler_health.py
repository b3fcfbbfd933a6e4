"""The whole scheduler says how it is, and stops in good order."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import aiohttp
import pytest
from tests.apply.objects import node, pod, queues
from tests.kube.fake_api import refused
from tests.kube.memory_client import MemoryClient, lost_answer
from tests.kube.virtual_time import in_virtual_time, settle
from tests.scheduler.replicas import Replica, cluster, holder, running

from windlass.isolation import IsolatingEngine
from windlass.scheduler import scheduler as module
from windlass.scheduler.options import SchedulerOptions
from windlass.scheduler.scheduler import Scheduler

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
    assert holder(replica.api) == "first", "the bind may still be under way: the lease expires"


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
async def test_a_decision_that_fails_makes_it_unready_and_it_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real, fails = IsolatingEngine.decide_without_explanations, True

    def broken(*arguments: Any) -> Any:
        if fails:
            raise ZeroDivisionError("a bug")
        return real(*arguments)

    monkeypatch.setattr(IsolatingEngine, "decide_without_explanations", broken)
    async with running(pod("p")) as replica:
        for count in (1, 2):
            reason = f"{count} decisions in a row have failed: ZeroDivisionError: a bug"
            assert replica.scheduler.not_ready() == reason
            await asyncio.sleep(5)
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
        assert 30 < replica.metric("windlass_cache_age_seconds") < 35, "of the watch that was silent the longest"
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
