"""The story, step by step, and how it is played: each step on an empty cluster, its outcome checked.

`cli.demo` plays it for people; a test plays it too. The steps are those that the field's guides tell.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from windlass.demo import first_steps, queues, together, trouble
from windlass.demo.api import Refused
from windlass.demo.scene import JOBS, PODS, QUEUES
from windlass.demo.stage import Stage

MADE = (
    JOBS,
    "/apis/apps/v1/namespaces/default/deployments",
    PODS,
    f"{QUEUES}/namespaces/default/localqueues",
    f"{QUEUES}/clusterqueues",
    f"{QUEUES}/resourceflavors",
    f"{QUEUES}/topologies",
    "/apis/scheduling.k8s.io/v1/priorityclasses",
)
NODES = ("h100-0", "h100-1", "h100-2", "h100-3", "a100-mig-0", "t4-0")


class Step(msgspec.Struct, frozen=True):
    name: str
    title: str
    play: Callable[[Stage], None]
    goes_on: bool = False
    """It needs what the step before has left."""


STORY = (
    Step("toleration", "A pod without toleration waits, and is explained", first_steps.without_toleration),
    Step("patch", "`why --patch` is applied, and the pod runs", first_steps.patched, goes_on=True),
    Step("fraction", "Half a GPU is refused", first_steps.fraction),
    Step("slice", "A MIG slice and a share of a GPU", first_steps.mig_slice),
    Step("gangs", "Two gangs compete, and one runs whole", together.two_gangs),
    Step("rack", "A topology-bound job lands in one rack", together.one_rack),
    Step("quota", "A quota is borrowed and reclaimed", queues.borrowed),
    Step("defrag", "7 + 7 + 8 GPUs are free, and 2 × 8 don't fit", together.make_room),
    Step("backfill", "A small job is backfilled, the large one starts on time", queues.backfill),
    Step("xid", "GPU 3 falls off the bus, and its job moves", trouble.off_the_bus),
    Step("preemption", "Training is preempted, and resumes", queues.preempted),
)


def play(stage: Stage, steps: tuple[Step, ...] = STORY) -> None:
    """All steps; a `CheckFailed` at the first that doesn't come out as told. What they made is taken away again."""
    try:
        for number, step in enumerate(steps, 1):
            if not step.goes_on:
                tidy(stage)
            stage.title(number, len(steps), step.title)
            step.play(stage)
            stage.pause()
    finally:
        tidy(stage)


def tidy(stage: Stage) -> None:
    """Removes what the story has made, and waits until it is gone."""
    for path in MADE:
        for each in stage.api.items(f"{path}?labelSelector=story%3Ddemo"):
            body = {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Background"}
            if path == PODS:
                body["gracePeriodSeconds"] = 0  # type: ignore[assignment]
            try:
                stage.api.request("DELETE", f"{path}/{each['metadata']['name']}", body)
            except Refused as refused:
                if refused.code != 404:
                    raise
    stage.until(
        lambda: not stage.api.items(f"{PODS}?labelSelector=story%3Ddemo"), "what was made is gone", told=False
    )
