"""Flavors in a crowd: pods run where their flavor says, with its labels and tolerations; Jobs that are stopped for
others are again what their owner wrote, and run to their end in either flavor."""

from __future__ import annotations

import asyncio
from random import Random

from tests.worlds.crowd import JOBS, QUEUES, WORKLOADS, Crowd, assignments, condition, owner_name, play
from tests.worlds.draw_world import GPU

from windlass.model.unstructured import Unstructured

OWN = {
    "nodeSelector": {"kubernetes.io/os": "linux"},
    "tolerations": [{"key": "example.com/mine", "operator": "Exists"}],
}
"""What some users wrote."""


def test_jobs_run_in_their_flavor_and_are_restored_when_they_are_stopped() -> None:
    async def story(crowd: Crowd) -> None:
        rng = Random(3)
        flavors: dict[str, set[str]] = {}
        stopped: set[str] = set()

        def note(kind: str, tree: Unstructured, old: Unstructured | None) -> None:
            used = {part["flavors"][GPU] for part in assignments(tree)}
            flavors.setdefault(owner_name(tree), set()).update(used)
            if condition(tree, "Evicted").get("status") == "True":
                stopped.add(owner_name(tree))

        crowd.client.subscribe(WORKLOADS, note)
        for node in crowd.client.list("nodes"):
            labels = {"kubernetes.io/os": "linux"}
            crowd.client.patch("nodes", "", node["metadata"]["name"], {"metadata": {"labels": labels}})
        # First one queue takes all that there is; then the other one wants its share back.
        for number in range(26):
            queue, pods = QUEUES[0 if number < 12 else 1], rng.choice((1, 2, 2, 4))
            spec, own = {"completions": pods}, OWN if number % 3 == 0 else {}
            crowd.submit(f"job-{number}", queue, pods, seconds=rng.randint(100, 300), spec=spec, pod=own)
            await asyncio.sleep(10 if number == 11 else 0.3)
        await asyncio.sleep(30)
        crowd.cluster.fail("node/base-2")
        await asyncio.sleep(500)
        crowd.cluster.heal()
        await crowd.until_finished(6000)
        assert set().union(*flavors.values()) == {"base", "spot"}
        assert stopped, "the second queue has taken its quota back"
        assert len(crowd.client.list(JOBS)) == 26

    play(story)
