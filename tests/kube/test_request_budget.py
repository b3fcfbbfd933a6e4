"""A role asks its API server for no more than its rate allows, in order, and its lease never waits."""

from __future__ import annotations

import asyncio
import time
from itertools import pairwise

import pytest
from tests.apply.objects import pod
from tests.kube.fake_server import FakeServer
from tests.kube.virtual_time import in_virtual_time

from windlass.kube.client import KubeClient
from windlass.kube.errors import NotFound
from windlass.kube.freeze import freeze_path
from windlass.kube.request import Request
from windlass.kube.request_budget import RequestBudget, RequestRate
from windlass.model.errors import InputError

PODS, LEASE = "/api/v1/pods", "/apis/coordination.k8s.io/v1/namespaces/a/leases/b"


async def times(budget: RequestBudget, *paths: str) -> list[float]:
    """Seconds after which each of the requests, all asked for at once, may be sent."""
    began, found = time.monotonic(), [0.0] * len(paths)

    async def ask(number: int, path: str) -> None:
        await budget.wait(path)
        found[number] = round(time.monotonic() - began, 3)

    await asyncio.gather(*(ask(number, path) for number, path in enumerate(paths)))
    return found


@in_virtual_time
async def test_after_the_burst_requests_keep_to_the_rate_in_order() -> None:
    budget = RequestBudget(RequestRate(10, 3))
    assert await times(budget, *[PODS] * 6) == [0, 0, 0, 0.1, 0.2, 0.3]
    assert budget.seconds_waited == pytest.approx(0.6)


@in_virtual_time
async def test_a_pause_brings_the_burst_back_and_no_more() -> None:
    budget = RequestBudget(RequestRate(10, 3))
    await times(budget, *[PODS] * 6)
    await asyncio.sleep(100)
    assert await times(budget, *[PODS] * 4) == [0, 0, 0, 0.1]


@in_virtual_time
async def test_no_number_of_requests_exceeds_the_rate() -> None:
    found = await times(RequestBudget(RequestRate(50, 100)), *[PODS] * 1100)
    assert found[-1] == 20
    assert all(late >= early for early, late in pairwise(found))


@in_virtual_time
async def test_leases_and_the_brake_do_not_wait_and_do_not_count() -> None:
    budget = RequestBudget(RequestRate(1, 1))
    assert await times(budget, PODS, PODS, LEASE, freeze_path("windlass-system"), PODS) == [0, 1, 0, 0, 2]


@in_virtual_time
async def test_without_a_rate_nothing_waits() -> None:
    assert await times(RequestBudget(RequestRate()), *[PODS] * 5000) == [0] * 5000


@in_virtual_time
async def test_the_default_burst_is_that_of_two_seconds() -> None:
    assert (await times(RequestBudget(RequestRate(2)), *[PODS] * 5))[-2:] == [0, 0.5]


def test_a_negative_rate_is_refused() -> None:
    with pytest.raises(InputError, match="negative"):
        RequestRate(-1)


@pytest.mark.asyncio
async def test_the_client_keeps_to_its_rate_and_counts(server: FakeServer) -> None:
    await server.put("pods", pod("a"))
    async with KubeClient(server.access, rate=RequestRate(1000, 1)) as client:
        await asyncio.gather(*(client.get(PODS) for _ in range(5)))
        with pytest.raises(NotFound):
            await client.send(Request("PATCH", "/api/v1/namespaces/team/pods/none", body={"metadata": {}}))
        watch = client.stream_lines(Request("GET", PODS, (("watch", "true"), ("resourceVersion", "0"))), 10)
        assert await anext(watch)
        assert client.traffic.open_watches == 1
        await watch.aclose()
        assert client.traffic.open_watches == 0
        assert client.traffic.requests == {("GET", "200"): 5, ("PATCH", "404"): 1, ("WATCH", "200"): 1}
        assert client.traffic.bytes_sent == len(b'{"metadata":{}}')
        assert client.traffic.bytes_received > 5 * len("team")
        assert client.budget.seconds_waited > 0
