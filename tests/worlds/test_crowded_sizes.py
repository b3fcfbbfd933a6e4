"""Jobs that change their size in a crowd: quota follows, no pod is bound above its admission, and none is lost."""

from __future__ import annotations

import asyncio
from random import Random

import pytest
from tests.worlds.crowd import JOBS, QUEUES, Crowd, play

ELASTIC = {"kueue.x-k8s.io/elastic-job": "true"}
PARTIAL = {"kueue.x-k8s.io/job-min-parallelism": "1"}


@pytest.mark.parametrize("seed", [1, 2])
def test_whoever_grows_or_shrinks_all_jobs_finish(seed: int) -> None:
    async def story(crowd: Crowd) -> None:
        rng = Random(seed)
        names = [f"job-{number}" for number in range(24)]
        for number, name in enumerate(names):
            annotations = (ELASTIC, {}, PARTIAL)[number % 3]
            pods = rng.randint(1, 5)
            spec = {"completions": 2 * pods} if number % 2 else {}
            seconds = rng.randint(60, 240)
            crowd.submit(name, QUEUES[number % 2], pods, seconds=seconds, annotations=annotations, spec=spec)
        await asyncio.sleep(20)
        for turn in range(60):
            if turn == 10:
                crowd.cluster.fail("node/base-1")
            if turn == 40:
                crowd.cluster.heal()
            name = rng.choice(names)
            if name in crowd.unfinished():
                crowd.client.patch(JOBS, "team", name, {"spec": {"parallelism": rng.randint(1, 6)}})
            await asyncio.sleep(rng.choice((0.1, 2.0, 20.0)))
        await crowd.until_finished(6000)

    play(story, seed=seed)
