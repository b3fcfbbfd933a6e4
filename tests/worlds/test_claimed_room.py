"""What victims leave is for the Job that they were evicted for, although its pods don't exist yet."""

from __future__ import annotations

import asyncio

from tests.worlds.crowd import Crowd, condition, play

CLASSES = {"polite": (100, "Never"), "urgent": (50, "PreemptLowerPriority")}


def test_the_room_of_victims_is_not_taken_by_a_job_that_evicts_nobody() -> None:
    """The polite Job is first in its queue and may evict nobody; the urgent one behind it does, for itself."""

    async def story(crowd: Crowd) -> None:
        for name, (value, policy) in CLASSES.items():
            crowd.client.create(
                "priorityclasses.scheduling.k8s.io",
                "",
                {"metadata": {"name": name}, "value": value, "preemptionPolicy": policy},
            )
        for queue in ("a", "b"):
            for pods in (8, 4):  # both flavors
                crowd.submit(f"low-{queue}-{pods}", queue, pods, seconds=10_000)
        await asyncio.sleep(30)
        for name in CLASSES:
            crowd.submit(name, "a", 8, seconds=10_000, pod={"priorityClassName": name})
            await asyncio.sleep(30)
        assert condition(crowd.workload("urgent"), "Admitted").get("status") == "True"
        assert condition(crowd.workload("polite"), "Admitted").get("status") != "True"

    play(story)
