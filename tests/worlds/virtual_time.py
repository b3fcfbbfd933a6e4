"""Runs a world on the virtual clock of `tests.kube.virtual_time`, the same for the same seed.

What would run in a thread runs at once, and names, UIDs, backoffs and jitter come from the seed.
"""

from __future__ import annotations

import asyncio
import gc
import random
import uuid
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec, TypeVar
from unittest import mock

from tests.kube.virtual_time import run_in_virtual_time

P = ParamSpec("P")
T = TypeVar("T")


async def _at_once(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    await asyncio.sleep(0)
    return function(*args, **kwargs)


def run_virtually(main: Callable[[], Coroutine[Any, Any, T]], seed: int) -> T:
    state = random.getstate()
    random.seed(seed)
    try:
        with (
            mock.patch("asyncio.to_thread", _at_once),
            mock.patch("uuid.uuid4", side_effect=lambda: uuid.UUID(int=random.getrandbits(128), version=4)),
            # Worlds are small and many: looking for garbage at every start of a scheduler takes longer than the start.
            mock.patch.object(gc, "freeze"),
            mock.patch.object(gc, "collect"),
        ):
            return run_in_virtual_time(main())
    finally:
        random.setstate(state)
