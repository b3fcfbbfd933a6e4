"""Plays one seed: a world of `tests.worlds` in which mostly the network and the scheduler's replicas are at fault."""

from __future__ import annotations

import asyncio
import dataclasses
import random
import time
from random import Random
from unittest import mock

from tests.loop.faulty_cluster import FaultyCluster
from tests.loop.stopped_process import task_factory
from tests.loop.strange_pods import submit_strange_pods
from tests.worlds import happenings
from tests.worlds.draw_world import draw_world
from tests.worlds.play import Report, play_world
from tests.worlds.virtual_time import Machine, run_virtually

STEPS, STRANGE_WEIGHT = 8, 8
QUIET_SECONDS, MAX_SECONDS = 200.0, 5000.0
WEIGHTS = {"bad_network": 12, "cut_off_leader": 4, "restart_scheduler": 6, "slow_watches": 2, "good_network": 2}
"""Happening → how much more often than in other worlds."""


def play_seed(seed: int, steps: int = STEPS) -> Report:
    report, began = Report(seed), time.process_time()

    async def main(machine: Machine) -> None:
        asyncio.get_running_loop().set_task_factory(task_factory)
        spec, rng = draw_world(seed, small=True), Random(seed + 2)
        theme = dataclasses.replace(spec.theme, weights={**spec.theme.weights, **WEIGHTS})
        replicas = 1 if rng.random() < 0.2 else 2
        report.drawn[f"replicas: {replicas}"] += 1
        cluster = FaultyCluster(spec.nodes, spec.settings, rng, machine, replicas)
        try:
            async with asyncio.timeout(MAX_SECONDS):
                await play_world(dataclasses.replace(spec, theme=theme), cluster, report, (steps, QUIET_SECONDS))
        except TimeoutError:
            report.problems.append(f"it has not ended after {MAX_SECONDS:.0f} s of its clock")

    with (
        mock.patch.object(random, "Random", _seeded),  # backoffs draw from one of their own
        mock.patch.object(happenings, "HAPPENINGS", (*happenings.HAPPENINGS, (STRANGE_WEIGHT, submit_strange_pods))),
    ):
        run_virtually(main, seed)
    report.cpu_seconds = time.process_time() - began
    return report


def _seeded(*seed: int) -> Random:
    """Without a seed, one that follows from that of the run."""
    return Random(*(seed or (random.getrandbits(64),)))
