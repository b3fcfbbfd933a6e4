"""A replica that is stopped does nothing, and is late when it goes on; one that has crashed does nothing more."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from typing import Any

import pytest
from tests.kube.virtual_time import in_virtual_time, settle
from tests.loop.stopped_process import PROCESS, Process, task_factory


def start(process: Process, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
    asyncio.get_running_loop().set_task_factory(task_factory)
    token = PROCESS.set(process)
    task = asyncio.create_task(work)
    PROCESS.reset(token)
    return task


async def tick(times: list[float]) -> None:
    while True:
        await asyncio.sleep(1.0)
        times.append(time.time())


@in_virtual_time
async def test_nothing_happens_while_it_is_stopped_and_it_goes_on_late() -> None:
    process, times = Process(), []
    began = time.time()
    task = start(process, tick(times))
    await asyncio.sleep(2.5)
    process.stop()
    await asyncio.sleep(10.0)
    assert len(times) == 2
    process.go_on()
    await settle()
    assert [round(moment - began, 1) for moment in times] == [1.0, 2.0, 12.5]
    task.cancel()


@in_virtual_time
async def test_what_it_starts_is_stopped_with_it() -> None:
    process, times = Process(), []

    async def parent() -> None:
        await asyncio.gather(asyncio.create_task(tick(times)))

    task = start(process, parent())
    await asyncio.sleep(1.5)
    process.stop()
    await asyncio.sleep(5.0)
    assert len(times) == 1
    process.kill()
    task.cancel()


@in_virtual_time
async def test_a_timeout_that_passes_meanwhile_counts_when_it_goes_on() -> None:
    process, sent = Process(), []

    async def send_within_a_lease() -> str:
        try:
            async with asyncio.timeout(3.0):
                await asyncio.sleep(2.0)
                sent.append(time.time())
        except TimeoutError:
            return "too late"
        return "sent"

    task = start(process, send_within_a_lease())
    await asyncio.sleep(1.0)
    process.stop()
    await asyncio.sleep(10.0)
    process.go_on()
    assert await task == "too late"
    assert sent == []


@in_virtual_time
async def test_it_crashes_at_the_given_step_and_can_be_cancelled_then() -> None:
    process, times = Process(), []
    process.crash_in = 3
    task = start(process, tick(times))
    await asyncio.sleep(20.0)
    assert process.crashed.is_set()
    assert len(times) == 2
    process.kill()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@in_virtual_time
async def test_results_and_errors_are_those_of_the_work() -> None:
    async def fail() -> None:
        await asyncio.sleep(0)
        raise ValueError("mine")

    async def answer() -> int:
        await asyncio.sleep(0)
        return 42

    assert await start(Process(), answer()) == 42
    with pytest.raises(ValueError, match="mine"):
        await start(Process(), fail())
