"""Stops a replica as a machine does: at any step of any of its tasks, for a while or for ever.

`play` installs `task_factory` on the loop; a task that is started where `PROCESS` is set, and every task that it
starts, belongs to that process. While it is stopped, time goes on for everything else, and so do its own timers, as
those of a process that is suspended: when it goes on, it is late.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Generator
from contextvars import ContextVar
from typing import Any

PROCESS: ContextVar[Process | None] = ContextVar("PROCESS", default=None)


class Process:
    def __init__(self) -> None:
        self.crash_in: int | None = None
        """It ends at the so-manieth step from now on."""
        self.crashed = asyncio.Event()
        self._is_stopped = self._is_killed = False
        self._waiting: list[asyncio.Future[None]] = []

    def stop(self) -> None:
        self._is_stopped = True

    def go_on(self) -> None:
        self._is_stopped = False
        for future in self._waiting:
            if not future.done():
                future.set_result(None)
        self._waiting.clear()

    def kill(self) -> None:
        """Its tasks can be cancelled from now on; otherwise a stopped one keeps that for later."""
        self._is_killed = True
        self.go_on()

    def step(self) -> bool:
        """Called before each step of a task. Whether it has to wait."""
        if self.crash_in is not None and not self._is_killed:
            self.crash_in -= 1
            if self.crash_in < 0:
                self.crash_in, self._is_stopped = None, True
                self.crashed.set()
        return self._is_stopped and not self._is_killed

    def gone_on(self) -> asyncio.Future[None]:
        future = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        return future


def task_factory(
    loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, Any] | Generator[Any, None, Any], **more: Any
) -> asyncio.Task[Any]:
    process = PROCESS.get()
    return asyncio.Task(work if process is None else _steps(work, process), loop=loop, **more)  # type: ignore[arg-type]


def _steps(work: Any, process: Process) -> Generator[Any, Any, Any]:
    """The coroutine, which waits before a step while its process is stopped."""
    value, thrown = None, None
    while True:
        while process.step():
            try:
                yield from process.gone_on()
            except asyncio.CancelledError as error:
                thrown = error  # a timeout that has passed meanwhile
        try:
            awaited = work.send(value) if thrown is None else work.throw(thrown)
        except StopIteration as done:
            return done.value
        value = thrown = None
        try:
            value = yield awaited
        except GeneratorExit:
            work.close()
            raise
        except BaseException as error:
            thrown = error
