"""Teams and their queues: borrowing, backfill, preemption. Steps of `demo.story`."""

from __future__ import annotations

import time

from windlass.demo.scene import FLAVOR, PODS, QUEUES, is_suspended, job, queue, queued_at, running, told
from windlass.demo.stage import Stage

COMMANDS_MEANWHILE = 30
"""As many commands' time as the jobs that come meanwhile are given."""

CLASSES = """\
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {name: urgent, labels: {story: demo}}
value: 1000
"""


def borrowed(stage: Stage) -> None:
    """A quota is borrowed and reclaimed."""
    stage.say(
        "Two teams with 16 GPUs each share what they don't use. Team A submits four jobs of 8: twice its quota."
    )
    rules = "reclaimWithinCohort: Any"
    stage.kubectl(
        "apply",
        "-f",
        "-",
        stdin=FLAVOR
        + "---\n"
        + queue("team-a", 16, "lab", rules)
        + "---\n"
        + queue("team-b", 16, "lab", rules),
    )
    stage.kubectl(
        "apply",
        "-f",
        "-",
        stdin="---\n".join(job(f"a{n}", 1, 8, queue="team-a") for n in range(1, 5)),
        more="and a2, a3, a4",
    )
    stage.until(lambda: len(running(stage.api, "a")) == 4, "team A's four jobs run")
    stage.until(lambda: _borrowed(stage) == 16, "the queue says what it has borrowed")
    stage.kubectl("get", "jobs")
    stage.check(_borrowed(stage) == 16, "all four run: 16 GPUs are borrowed from team B")
    stage.say("Now team B wants its own back:")
    stage.kubectl("apply", "-f", "-", stdin=job("b1", 2, 8, queue="team-b"))
    stage.until(lambda: len(running(stage.api, "b1")) == 2, "team B's job runs")
    stage.kubectl("get", "jobs")
    stage.check(
        len(running(stage.api, "a")) == 2, "two of team A's jobs went back into the queue, whole; two go on"
    )
    back = [name for name in ("a1", "a2", "a3", "a4") if is_suspended(stage.api, name)]
    stage.check(len(back) == 2, f"{' and '.join(back)} wait, suspended, for their next turn")


def backfill(stage: Stage) -> None:
    """A small job is backfilled, and the large one still starts on time."""
    began = time.monotonic()
    stage.kubectl("apply", "-f", "-", stdin=FLAVOR + "---\n" + queue("team", 64))
    # What follows has to happen while the first job runs: on a machine that is slow just now, that runs longer.
    busy = max(40, round(COMMANDS_MEANWHILE * (time.monotonic() - began)))
    stage.say(
        f"Three nodes are busy for {busy} s, and a job that needs all four waits for them. Its start is planned. "
        "What ends before may use the fourth node meanwhile; what doesn't has to wait."
    )
    stage.kubectl(
        "apply", "-f", "-", stdin=job("first", 3, 8, queue="team", runs=f"{busy}s", limit=f"{busy + 5}s")
    )
    stage.until(lambda: len(running(stage.api, "first")) == 3, "the first job runs")
    stage.start_clock()
    stage.kubectl("apply", "-f", "-", stdin=job("large", 4, 8, queue="team", runs="15s", limit="20s"))
    stage.until(lambda: told(stage.api, "large"), "the large job is told when it starts")
    stage.tick(f"large waits: {told(stage.api, 'large')}")
    # Who comes first is known to the second, in Kubernetes' timestamps.
    stage.until(lambda: time.time() >= queued_at(stage.api, "large") + 1, "others come later", told=False)
    both = (
        job("long", 1, 2, queue="team", runs="1h", limit="1h")
        + "---\n"
        + job("short", 1, 2, queue="team", runs="5s", limit="10s")
    )
    stage.kubectl("apply", "-f", "-", stdin=both)
    stage.until(
        lambda: together(stage, "large", "long") == (0, 0) and _has_started(stage, "short"),
        "the short job is backfilled, the long one not",
    )
    stage.tick("short runs ahead of it, long would be in the way and waits")
    stage.until(
        lambda: together(stage, "large", "long") == (4, 0), "the large job starts, before the long one"
    )
    stage.tick("large runs, as soon as the first job had ended")


def preempted(stage: Stage) -> None:
    """A training job is preempted and resumes, with a clock running."""
    stage.say(
        "A training job has all 32 GPUs. Something urgent comes, runs for ten seconds, and training goes on."
    )
    stage.kubectl(
        "apply",
        "-f",
        "-",
        stdin=FLAVOR
        + "---\n"
        + queue("team", 32, preemption="withinClusterQueue: LowerPriority")
        + "---\n"
        + CLASSES,
    )
    stage.kubectl("apply", "-f", "-", stdin=job("training", 4, 8, queue="team"))
    stage.until(lambda: len(running(stage.api, "training")) == 4, "training runs")
    stage.start_clock()
    stage.tick("training runs on 32 GPUs")
    stage.kubectl("apply", "-f", "-", stdin=job("urgent", 1, 8, queue="team", runs="10s", priority="urgent"))
    stage.until(lambda: is_suspended(stage.api, "training"), "training is stopped")
    stage.tick("training is stopped, whole, and back in its queue")
    stage.until(
        lambda: together(stage, "urgent", "training") == (1, 0), "the urgent job runs, and training doesn't"
    )
    stage.tick("the urgent job runs, and nothing of training is left holding GPUs")
    stage.until(lambda: len(running(stage.api, "training")) == 4, "training runs again")
    stage.tick("training runs again on 32 GPUs")
    stage.kubectl("get", "jobs")
    stage.check(not is_suspended(stage.api, "training"), "the urgent job is done, and training has resumed")


def together(stage: Stage, *prefixes: str) -> tuple[int, ...]:
    """How many pods of each run, seen at one moment."""
    names = list(running(stage.api))
    return tuple(sum(name.startswith(prefix) for name in names) for prefix in prefixes)


def _has_started(stage: Stage, prefix: str) -> bool:
    """Whether a pod of it runs, or has run to its end."""
    named = [one for one in stage.api.items(PODS) if one["metadata"]["name"].startswith(prefix)]
    return any(one["status"].get("phase") in ("Running", "Succeeded") for one in named)


def _borrowed(stage: Stage) -> int:
    status = stage.api.get(f"{QUEUES}/clusterqueues/team-a").get("status") or {}
    usage = [one for flavor in status.get("flavorsUsage") or () for one in flavor.get("resources") or ()]
    return sum(int(one.get("borrowed") or 0) for one in usage)
