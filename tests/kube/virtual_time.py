"""Time that passes only while everything waits: an event loop that jumps to its next timer instead of sleeping.

    @in_virtual_time
    async def test_…() -> None:
        await asyncio.sleep(3600)  # over at once; time.time(), time.monotonic() and the loop agree on the hour

Nothing in such a test may use sockets: time would run away from them. Threads are waited for.
"""

from __future__ import annotations

import asyncio
import functools
import selectors
import time
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar
from unittest import mock

START = 1_767_226_000.0
"""2026-01-01, shortly after midnight."""
PATIENCE_SECONDS = 60.0
Result = TypeVar("Result")


class _JumpingSelector(selectors.DefaultSelector):
    def __init__(self) -> None:
        super().__init__()
        self.elapsed = 0.0
        self.threads = 0
        """Calls that run in a thread."""

    def select(self, timeout: float | None = None) -> Any:
        ready = super().select(0)
        if ready or timeout == 0:
            return ready
        if timeout is None or self.threads:  # only a thread can go on
            ready = super().select(PATIENCE_SECONDS)
            assert ready, "everything waits for something that nothing will do"
            return ready
        self.elapsed += timeout
        return ready


class _VirtualTimeLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._jumps = _JumpingSelector()
        super().__init__(self._jumps)

    def time(self) -> float:
        return self._jumps.elapsed

    def run_in_executor(self, *arguments: Any) -> asyncio.Future[Any]:  # type: ignore[override]
        self._jumps.threads += 1
        future = super().run_in_executor(*arguments)
        future.add_done_callback(self._end_of_thread)
        return future

    def _end_of_thread(self, _: asyncio.Future[Any]) -> None:
        self._jumps.threads -= 1


def run_in_virtual_time(main: Coroutine[Any, Any, Result]) -> Result:
    loop = _VirtualTimeLoop()

    def monotonic() -> float:
        return 1_000_000.0 + loop.time()

    def wall_clock() -> float:
        return START + loop.time()

    with (
        asyncio.Runner(loop_factory=lambda: loop) as runner,
        mock.patch.object(time, "monotonic", monotonic),
        mock.patch.object(time, "time", wall_clock),
    ):
        return runner.run(main)


def in_virtual_time(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    @functools.wraps(test)
    def run(*arguments: Any, **named: Any) -> None:
        run_in_virtual_time(test(*arguments, **named))

    return run


async def settle() -> None:
    """Everything that can go on without time passing does."""
    for _ in range(50):
        await asyncio.sleep(0)
