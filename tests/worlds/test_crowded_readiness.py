"""`waitForPodsReady` in a crowd: what is not ready in time is requeued as often and as late as configured, then
deactivated; everything else finishes, also around a node that dies."""

from __future__ import annotations

import asyncio
import time
from random import Random

from tests.worlds.crowd import QUEUES, WORKLOADS, Crowd, condition, owner_name, play

from windlass.model.configuration import Settings
from windlass.model.times import parse_timestamp
from windlass.model.unstructured import Unstructured

READY, RECOVERY, BASE, LIMIT = 40, 60, 20, 2
SETTINGS = Settings(
    gang_grace_seconds=120,
    ready_seconds=READY,
    recovery_seconds=RECOVERY,
    requeue_limit=LIMIT,
    requeue_base_seconds=BASE,
    requeue_max_seconds=300,
)
NEVER_READY = {"initContainers": [{"name": "wait", "image": "train", "command": ["sleep", "1000000"]}]}
STUCK = {"stuck-0": "a", "stuck-1": "b", "stuck-2": "a"}


class Requeues:
    """Every requeue of a Workload: its count, and after how many seconds it may be admitted again."""

    def __init__(self, crowd: Crowd) -> None:
        self.seen: dict[str, dict[int, int]] = {}
        self.early: list[str] = []
        crowd.client.subscribe(WORKLOADS, lambda kind, tree, old: self._note(tree))

    def _note(self, tree: Unstructured) -> None:
        status, name, now = tree.get("status") or {}, owner_name(tree), int(time.time())
        state = status.get("requeueState") or {}
        if state.get("requeueAt"):
            pauses = self.seen.setdefault(name, {})
            pauses.setdefault(state["count"], parse_timestamp(state["requeueAt"]) - now)
            if status.get("admission") and now < parse_timestamp(state["requeueAt"]):
                self.early.append(name)


def test_what_is_never_ready_is_requeued_and_given_up_and_the_rest_finishes() -> None:
    async def story(crowd: Crowd) -> None:
        rng, requeues = Random(7), Requeues(crowd)
        for name, queue in STUCK.items():
            crowd.submit(name, queue, 2, pod=NEVER_READY)
        for number in range(24):
            pods = rng.choice((1, 1, 2, 3, 4))
            seconds, spec = rng.randint(60, 200), {"completions": pods}
            crowd.submit(f"job-{number}", QUEUES[number % 2], pods, seconds=seconds, spec=spec)
            await asyncio.sleep(rng.choice((0.0, 0.5, 5.0)))
        await asyncio.sleep(30)
        crowd.cluster.fail("node/base-0")
        await asyncio.sleep(500)
        crowd.cluster.heal()
        await crowd.until_finished(4000, *STUCK)
        for name in STUCK:
            workload = crowd.workload(name)
            assert workload["spec"]["active"] is False, name
            assert condition(workload, "Evicted")["reason"] == "DeactivatedDueToRequeuingLimitExceeded"
            assert set(requeues.seen[name]) == {1, 2}, "as often as configured"
        for name, pauses in requeues.seen.items():
            assert max(pauses) <= LIMIT, name
            for count, pause in pauses.items():
                assert abs(pause - BASE * 2 ** (count - 1)) <= 1, (name, count)
        assert requeues.early == [], "none is admitted before its backoff has ended"

    play(story, SETTINGS)
