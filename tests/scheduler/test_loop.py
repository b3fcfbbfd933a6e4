"""The scheduling loop itself: what survives a failed decision, and which decisions leave the event loop free."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from windlass.engine import decide_without_explanations
from windlass.model.plan import Plan
from windlass.scheduler import loop as module
from windlass.scheduler.cache import SchedulerCache
from windlass.scheduler.loop import SchedulingLoop
from windlass.scheduler.metrics import Metrics
from windlass.scheduler.options import SchedulerOptions

pytestmark = pytest.mark.asyncio


class IgnoringSink:
    def execute(self, plan: Plan, snapshot: object) -> None:
        """Nothing is executed."""


@pytest.fixture
def loop(monkeypatch: pytest.MonkeyPatch) -> SchedulingLoop:
    monkeypatch.setattr(module, "RETRY_SECONDS", 0.0)
    monkeypatch.setattr(module, "TICK_SECONDS", 0.0)
    options = SchedulerOptions(batch_seconds=0.0)
    return SchedulingLoop(options, SchedulerCache(options), IgnoringSink(), Metrics())


def times(count: int) -> Callable[[], bool]:
    left = iter([True] * count)
    return lambda: next(left, False)


async def test_a_decision_after_a_failed_one_starts_with_an_empty_cache(
    loop: SchedulingLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the failed decision left half computed in the cache must not reach the next one."""
    caches: list[object] = []

    def fails_once(snapshot: Any, config: Any, now: int, cache: object) -> Any:
        caches.append(cache)
        if len(caches) == 2:
            raise ZeroDivisionError("a bug")
        return decide_without_explanations(snapshot, config, now, cache)  # type: ignore[arg-type]

    monkeypatch.setattr(module, "decide_without_explanations", fails_once)
    await loop.run(times(4))
    assert caches[0] is caches[1], "a cache is kept from one decision to the next"
    assert caches[2] is not caches[1]
    assert caches[3] is caches[2]


async def test_a_slow_decision_runs_in_a_thread_so_that_the_lease_is_renewed_meanwhile(
    loop: SchedulingLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    renewed = threading.Event()
    threads: list[int] = []

    def slow(*arguments: Any) -> Any:
        threads.append(threading.get_ident())
        assert renewed.wait(30), "nothing else ran while the decision was made"
        return decide_without_explanations(*arguments)

    async def renew() -> None:
        while not threads:
            await asyncio.sleep(0)
        renewed.set()

    monkeypatch.setattr(module, "decide_without_explanations", slow)
    await asyncio.gather(loop.run(times(1)), renew())
    assert threads == [thread for thread in threads if thread != threading.get_ident()]


async def test_failures_are_counted_until_a_decision_succeeds(
    loop: SchedulingLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcomes = iter([False, False, True])
    counts: list[int] = []

    def decide(*arguments: Any) -> Any:
        counts.append(loop.consecutive_failures)
        if not next(outcomes):
            raise ZeroDivisionError("a bug")
        return decide_without_explanations(*arguments)

    monkeypatch.setattr(module, "decide_without_explanations", decide)
    await loop.run(times(3))
    assert counts == [0, 1, 2]
    assert loop.consecutive_failures == 0
    assert loop.last_failure == "ZeroDivisionError: a bug"
