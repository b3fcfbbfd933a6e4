"""Runs a world on the virtual clock of `tests.kube.virtual_time`, the same for the same seed.

What would run in a thread, as decisions do, takes as long as the machine says; names, UIDs, backoffs and jitter come
from the seed.
"""

from __future__ import annotations

import asyncio
import gc
import random
import uuid
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, ParamSpec, TypeVar
from unittest import mock

from tests.kube.virtual_time import run_in_virtual_time

P = ParamSpec("P")
T = TypeVar("T")


@dataclass
class Machine:
    thread_seconds: float = 0.0
    """How long a call in a thread takes: long where CPU is short."""

    async def to_thread(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        result = function(*args, **kwargs)
        await asyncio.sleep(self.thread_seconds)
        return result


def run_virtually(main: Callable[[Machine], Coroutine[Any, Any, T]], seed: int) -> T:
    state, machine = random.getstate(), Machine()
    random.seed(seed)
    try:
        with (
            mock.patch("asyncio.to_thread", machine.to_thread),
            mock.patch("windlass.scheduler.loop.INLINE_MAX_SECONDS", -1.0),  # every decision in a thread
            mock.patch("windlass.scheduler.loop.EXPLAIN_SECONDS", 60.0),  # half of all the time otherwise
            mock.patch("uuid.uuid4", side_effect=lambda: uuid.UUID(int=random.getrandbits(128), version=4)),
            # Worlds are small and many: looking for garbage at every start of a scheduler takes longer than the start.
            mock.patch.object(gc, "freeze"),
            mock.patch.object(gc, "collect"),
        ):
            return run_in_virtual_time(main(machine))
    finally:
        random.setstate(state)
