"""What can't be read is said to its owner once, and a loop whose decisions fail says so and goes on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.kube.fake_server import FakeServer

from windlass.kube.client import KubeClient
from windlass.scheduler import loop as module
from windlass.scheduler.options import SchedulerOptions
from windlass.scheduler.scheduler import Scheduler

pytestmark = pytest.mark.asyncio
NODE = {
    "metadata": {"name": "n0"},
    "status": {
        "allocatable": {"cpu": "8", "memory": "8Gi", "pods": "10"},
        "conditions": [{"type": "Ready", "status": "True"}],
    },
}


def pod(name: str, scheduler: str = "windlass", **spec: Any) -> dict[str, Any]:
    containers = [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]
    return {
        "metadata": {"name": name, "namespace": "a"},
        "spec": {"schedulerName": scheduler, "containers": containers, **spec},
    }


ODD = [{"key": "gpu", "operator": "SomethingNew"}]
"""An operator of a Kubernetes that is newer than Windlass."""


@asynccontextmanager
async def running(server: FakeServer, client: KubeClient) -> AsyncIterator[Scheduler]:
    scheduler = Scheduler(client, SchedulerOptions(leader_elect=False, warm_up=False))
    stop = asyncio.Event()
    task = asyncio.create_task(scheduler.run(stop))
    try:
        yield scheduler
    finally:
        stop.set()
        await asyncio.wait_for(task, 30)


async def until(look: Callable[[], object], seconds: float = 20.0) -> None:
    async with asyncio.timeout(seconds):
        while not look():
            await asyncio.sleep(0.02)


def condition(server: FakeServer, name: str) -> dict[str, Any]:
    found = server.get("pods", f"a/{name}").get("status", {}).get("conditions", ())
    return next((one for one in found if one["type"] == "PodScheduled"), {})


def events(server: FakeServer, name: str) -> list[dict[str, Any]]:
    found = server.objects.get("events", {}).values()
    return [one for one in found if one["regarding"]["name"] == name and one["reason"] == "Unreadable"]


async def test_the_owner_of_a_pod_that_cannot_be_read_hears_of_it_once(
    server: FakeServer, client: KubeClient
) -> None:
    await server.put("nodes", NODE)
    await server.put("pods", pod("odd", tolerations=ODD))
    await server.put("pods", pod("theirs", "default-scheduler", tolerations=ODD))
    await server.put("pods", pod("good"))
    async with running(server, client) as scheduler:
        await until(lambda: server.get("pods", "a/good")["spec"].get("nodeName"))
        await until(lambda: condition(server, "odd") and events(server, "odd"))
        said = condition(server, "odd")
        assert (said["status"], said["reason"]) == ("False", "Misconfigured")
        assert "spec.tolerations[0].operator" in said["message"]
        assert not condition(server, "theirs"), "that one is not ours to tell"
        await server.put("pods", pod("more"))
        await until(lambda: server.get("pods", "a/more")["spec"].get("nodeName"))
        text = scheduler.metrics.text().decode()
        assert 'windlass_unreadable_objects_total{kind="Pod"} 2.0' in text
        writes = [path for method, path, _ in server.requests if method == "PATCH" and "/odd/" in path]
        assert len(writes) == 1, "and not with every decision"
        (event,) = events(server, "odd")
        assert event["type"] == "Warning"


async def test_three_decisions_that_fail_make_it_unready_and_the_loop_goes_on(
    server: FakeServer, client: KubeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, fails = module.decide_without_explanations, True

    def broken(*arguments: Any) -> Any:
        if fails:
            raise ZeroDivisionError("a bug")
        return real(*arguments)

    monkeypatch.setattr(module, "decide_without_explanations", broken)
    monkeypatch.setattr(module, "RETRY_SECONDS", 0.0)
    monkeypatch.setattr(module, "TICK_SECONDS", 0.05)
    await server.put("nodes", NODE)
    await server.put("pods", pod("good"))
    async with running(server, client) as scheduler:
        await until(lambda: scheduler.loop.consecutive_failures == 2)
        await until(lambda: "ZeroDivisionError: a bug" in scheduler.not_ready())
        assert scheduler.loop.consecutive_failures >= 3
        fails = False
        await until(lambda: server.get("pods", "a/good")["spec"].get("nodeName"))
        await until(lambda: scheduler.not_ready() == "")
