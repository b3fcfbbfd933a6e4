"""An event loop on which hours take seconds: when nothing is ready to run, the clock jumps to the next timer.

`run_virtually` runs a coroutine on it. `time.time` and `time.monotonic` show the loop's clock meanwhile, and what would
run in a thread runs at once, so that the production code runs unchanged and the same seed gives the same run.
"""

from __future__ import annotations

import asyncio
import gc
import heapq
import random
import uuid
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec, TypeVar
from unittest import mock

EPOCH = 1_800_000_000.0
P = ParamSpec("P")
T = TypeVar("T")


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        super().__init__()
        self._now = 0.0

    def time(self) -> float:
        return self._now

    def _run_once(self) -> None:
        scheduled = self._scheduled  # type: ignore[attr-defined]
        while scheduled and scheduled[0]._cancelled:
            self._timer_cancelled_count -= 1  # type: ignore[attr-defined]
            heapq.heappop(scheduled)._scheduled = False
        if not self._ready:  # type: ignore[attr-defined]
            assert scheduled, "every task waits for something that nothing will bring about"
            self._now = max(self._now, scheduled[0]._when)
        super()._run_once()  # type: ignore[misc]


async def _at_once(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    await asyncio.sleep(0)
    return function(*args, **kwargs)


def run_virtually(main: Callable[[], Coroutine[Any, Any, T]], seed: int) -> T:
    """Runs the coroutine to its end. `random` is seeded too: backoffs, jitter, names and UIDs come from it."""
    loop = VirtualTimeLoop()
    state = random.getstate()
    random.seed(seed)
    patches = [
        mock.patch("time.time", side_effect=lambda: EPOCH + loop.time()),
        mock.patch("time.monotonic", loop.time),
        mock.patch("asyncio.to_thread", _at_once),
        mock.patch("uuid.uuid4", side_effect=lambda: uuid.UUID(int=random.getrandbits(128), version=4)),
        mock.patch.object(gc, "freeze"),
        mock.patch.object(gc, "collect"),
    ]
    for patch in patches:
        patch.start()
    try:
        asyncio.set_event_loop(loop)
        return loop.run_until_complete(main())
    finally:
        for patch in patches:
            patch.stop()
        asyncio.set_event_loop(None)
        loop.close()
        random.setstate(state)
