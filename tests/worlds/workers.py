"""Plays worlds in worker processes, each in a process of its own that begins in the same state: what was played before
a world must not matter to it. `__main__` and `unrepaired` use it."""

from __future__ import annotations

import contextlib
import functools
import gc
import logging
import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.pool import Pool
from typing import TypeVar

from tests.worlds.play import play_virtually

from windlass.model.configuration import Settings
from windlass.planner import engine_config
from windlass.scheduler.jit_warmup import warm_up

Result = TypeVar("Result")
WARM_UP_SEED = 1


@contextlib.contextmanager
def world_pool(jobs: int) -> Iterator[Pool]:
    """So many processes side by side; a new one for every world, with everything loaded that worlds need."""
    _load_once()
    with multiprocessing.get_context("fork").Pool(jobs, maxtasksperchild=1) as pool:
        yield pool


@functools.cache
def _load_once() -> None:
    logging.disable(logging.CRITICAL)
    warm_up(engine_config(Settings()))  # compiled kernels decide the same, several times as fast
    play_virtually(WARM_UP_SEED, steps=2)
    gc.collect()
    gc.freeze()  # or every world looks through the modules for garbage again: a fifth of its time


def in_order(pool: Pool, play: Callable[[int], Result], seeds: Sequence[int]) -> Iterator[Result]:
    """The results in the order of the seeds, each as soon as it and those before it are there."""
    return pool.imap(play, seeds, chunksize=1)
