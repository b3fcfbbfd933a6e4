"""A replica that follows stops following when it is to lead, whatever happens at that very moment."""

from __future__ import annotations

import asyncio

import pytest

from windlass.model.plan import Plan
from windlass.scheduler.cache import SchedulerCache
from windlass.scheduler.loop import SchedulingLoop
from windlass.scheduler.metrics import Metrics
from windlass.scheduler.options import SchedulerOptions

pytestmark = pytest.mark.asyncio


class NoSink:
    def carry_out(self, plan: Plan, snapshot: object) -> None:
        raise AssertionError("a follower decides nothing")


@pytest.mark.parametrize("turns", range(8))
async def test_news_at_the_moment_of_the_call_is_no_reason_to_go_on_following(turns: int) -> None:
    options = SchedulerOptions(batch_seconds=0.0)
    world = SchedulerCache(options)
    follower = asyncio.create_task(SchedulingLoop(options, world, NoSink(), Metrics()).run_standby())
    for _ in range(8):
        await asyncio.sleep(0)  # until it waits for news
    world.changed.set()
    for _ in range(turns):
        await asyncio.sleep(0)
    follower.cancel()
    await asyncio.wait({follower}, timeout=60)
    assert follower.cancelled()
