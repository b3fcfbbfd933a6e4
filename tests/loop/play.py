"""Plays one seed: a world of `tests.worlds` in which mostly the network and the scheduler's replicas are at fault."""

from __future__ import annotations

import dataclasses
import random
import time
from random import Random
from unittest import mock

from tests.loop.faulty_cluster import FaultyCluster
from tests.worlds.draw_world import draw_world
from tests.worlds.play import Report, play_world
from tests.worlds.virtual_time import Machine, run_virtually

STEPS = 20
QUIET_SECONDS = 300.0
WEIGHTS = {"bad_network": 12, "cut_off_leader": 4, "restart_scheduler": 6, "slow_watches": 2, "good_network": 2}
"""Happening → how much more often than in other worlds."""


def play_seed(seed: int, steps: int = STEPS) -> Report:
    report, began = Report(seed), time.process_time()

    async def main(machine: Machine) -> None:
        spec, rng = draw_world(seed, small=True), Random(seed + 2)
        theme = dataclasses.replace(spec.theme, weights={**spec.theme.weights, **WEIGHTS})
        replicas = 1 if rng.random() < 0.2 else 2
        report.drawn[f"replicas: {replicas}"] += 1
        cluster = FaultyCluster(spec.nodes, spec.settings, rng, machine, replicas)
        await play_world(dataclasses.replace(spec, theme=theme), cluster, report, steps, QUIET_SECONDS)

    with mock.patch.object(random, "Random", _seeded):  # backoffs draw from one of their own
        run_virtually(main, seed)
    report.cpu_seconds = time.process_time() - began
    return report


def _seeded(*seed: int) -> Random:
    """Without a seed, one that follows from that of the run."""
    return Random(*(seed or (random.getrandbits(64),)))
