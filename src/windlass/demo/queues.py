"""Teams and their queues: borrowing, backfill, preemption. Steps of `demo.steps`."""

from __future__ import annotations

import time

from windlass.demo.fixtures import (
    FLAVOR_MANIFEST,
    KUEUE_PATH,
    PODS_PATH,
    is_suspended,
    job_manifest,
    job_wait_message,
    queue_manifest,
    queued_at,
    running_pods,
)
from windlass.demo.presenter import Presenter

COMMANDS_MEANWHILE = 30
"""As many commands' time as the jobs that come meanwhile are given."""

PRIORITY_CLASS_MANIFEST = """\
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {name: urgent, labels: {story: demo}}
value: 1000
"""


def borrow_and_reclaim(presenter: Presenter) -> None:
    """A quota is borrowed and reclaimed."""
    presenter.print_text(
        "Two teams with 16 GPUs each share what they don't use. Team A submits four jobs of 8: twice its quota."
    )
    rules = "reclaimWithinCohort: Any"
    presenter.apply(
        FLAVOR_MANIFEST,
        queue_manifest("team-a", 16, "lab", rules),
        queue_manifest("team-b", 16, "lab", rules),
    )
    presenter.apply(*(job_manifest(f"a{n}", 1, 8, queue="team-a") for n in range(1, 5)), elided="and a2, a3, a4")
    presenter.wait_for_pods("a", 4, "team A's four jobs run")
    presenter.wait_for(lambda: _borrowed(presenter) == 16, "the queue says what it has borrowed")
    presenter.kubectl("get", "jobs")
    presenter.check(_borrowed(presenter) == 16, "all four run: 16 GPUs are borrowed from team B")
    presenter.print_text("Now team B wants its own back:")
    presenter.apply(job_manifest("b1", 2, 8, queue="team-b"))
    presenter.wait_for_pods("b1", 2, "team B's job runs")
    presenter.kubectl("get", "jobs")
    presenter.check(
        len(running_pods(presenter.api, "a")) == 2,
        "two of team A's jobs went back into the queue, whole; two go on",
    )
    back = [name for name in ("a1", "a2", "a3", "a4") if is_suspended(presenter.api, name)]
    presenter.check(len(back) == 2, f"{' and '.join(back)} wait, suspended, for their next turn")


def backfill(presenter: Presenter) -> None:
    """A small job is backfilled, and the large one still starts on time."""
    began = time.monotonic()
    presenter.apply(FLAVOR_MANIFEST, queue_manifest("team", 64))
    # What follows has to happen while the first job runs: on a machine that is slow just now, that runs longer.
    busy = max(40, round(COMMANDS_MEANWHILE * (time.monotonic() - began)))
    presenter.print_text(
        f"Three nodes are busy for {busy} s, and a job that needs all four waits for them. Its start is planned. "
        "What ends before may use the fourth node meanwhile; what doesn't has to wait."
    )
    presenter.apply(job_manifest("first", 3, 8, queue="team", duration=f"{busy}s", limit=f"{busy + 5}s"))
    presenter.wait_for_pods("first", 3, "the first job runs")
    presenter.start_clock()
    presenter.apply(job_manifest("large", 4, 8, queue="team", duration="15s", limit="20s"))
    presenter.wait_for(lambda: job_wait_message(presenter.api, "large"), "the large job is told when it starts")
    presenter.print_elapsed(f"large waits: {job_wait_message(presenter.api, 'large')}")
    # Who comes first is known to the second, in Kubernetes' timestamps.
    presenter.wait_for(
        lambda: time.time() >= queued_at(presenter.api, "large") + 1, "others come later", announce=False
    )
    presenter.apply(
        job_manifest("long", 1, 2, queue="team", duration="1h", limit="1h"),
        job_manifest("short", 1, 2, queue="team", duration="5s", limit="10s"),
    )
    presenter.wait_for(
        lambda: count_running(presenter, "large", "long") == (0, 0) and _has_started(presenter, "short"),
        "the short job is backfilled, the long one not",
    )
    presenter.print_elapsed("short runs ahead of it, long would be in the way and waits")
    presenter.wait_for(
        lambda: count_running(presenter, "large", "long") == (4, 0),
        "the large job starts, before the long one",
    )
    presenter.print_elapsed("large runs, as soon as the first job had ended")


def preempt_and_resume(presenter: Presenter) -> None:
    """A training job is preempted and resumes, with a clock running."""
    presenter.print_text(
        "A training job has all 32 GPUs. Something urgent comes, runs for ten seconds, and training goes on."
    )
    presenter.apply(
        FLAVOR_MANIFEST,
        queue_manifest("team", 32, preemption="withinClusterQueue: LowerPriority"),
        PRIORITY_CLASS_MANIFEST,
    )
    presenter.apply(job_manifest("training", 4, 8, queue="team"))
    presenter.wait_for_pods("training", 4, "training runs")
    presenter.start_clock()
    presenter.print_elapsed("training runs on 32 GPUs")
    presenter.apply(job_manifest("urgent", 1, 8, queue="team", duration="10s", priority="urgent"))
    presenter.wait_for(lambda: is_suspended(presenter.api, "training"), "training is stopped")
    presenter.print_elapsed("training is stopped, whole, and back in its queue")
    presenter.wait_for(
        lambda: count_running(presenter, "urgent", "training") == (1, 0),
        "the urgent job runs, and training doesn't",
    )
    presenter.print_elapsed("the urgent job runs, and nothing of training is left holding GPUs")
    presenter.wait_for_pods("training", 4, "training runs again")
    presenter.print_elapsed("training runs again on 32 GPUs")
    presenter.kubectl("get", "jobs")
    presenter.check(not is_suspended(presenter.api, "training"), "the urgent job is done, and training has resumed")


def count_running(presenter: Presenter, *prefixes: str) -> tuple[int, ...]:
    """How many pods of each run, seen at one moment."""
    names = list(running_pods(presenter.api))
    return tuple(sum(name.startswith(prefix) for name in names) for prefix in prefixes)


def _has_started(stage: Presenter, prefix: str) -> bool:
    """Whether a pod of it runs, or has run to its end."""
    named = [pod for pod in stage.api.items(PODS_PATH) if pod["metadata"]["name"].startswith(prefix)]
    return any(pod["status"].get("phase") in ("Running", "Succeeded") for pod in named)


def _borrowed(stage: Presenter) -> int:
    status = stage.api.get(f"{KUEUE_PATH}/clusterqueues/team-a").get("status") or {}
    usage = [resource for flavor in status.get("flavorsUsage") or () for resource in flavor.get("resources") or ()]
    return sum(int(resource.get("borrowed") or 0) for resource in usage)
