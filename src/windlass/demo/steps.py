"""The steps of the demo, and how they run: each on an empty namespace, with its outcome checked.

Called by `cli.demo` and by a test.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from windlass.demo import first_steps, gangs, gpu_failure, queues
from windlass.demo.api import ApiError
from windlass.demo.fixtures import JOBS_PATH, KUEUE_PATH, PODS_PATH
from windlass.demo.presenter import Presenter

CREATED_COLLECTIONS = (
    JOBS_PATH,
    "/apis/apps/v1/namespaces/default/deployments",
    PODS_PATH,
    f"{KUEUE_PATH}/namespaces/default/localqueues",
    f"{KUEUE_PATH}/clusterqueues",
    f"{KUEUE_PATH}/resourceflavors",
    f"{KUEUE_PATH}/topologies",
    "/apis/scheduling.k8s.io/v1/priorityclasses",
)
REQUIRED_NODES = ("h100-0", "h100-1", "h100-2", "h100-3", "a100-mig-0", "t4-0")


class Step(msgspec.Struct, frozen=True):
    name: str
    title: str
    run: Callable[[Presenter], None]
    continues_previous: bool = False
    """It needs the objects of the step before."""


DEMO_STEPS = (
    Step("toleration", "A pod without toleration waits, and is explained", first_steps.missing_toleration),
    Step(
        "patch",
        "`why --patch` is applied, and the pod runs",
        first_steps.apply_patch,
        continues_previous=True,
    ),
    Step("fraction", "Half a GPU is refused", first_steps.fractional_request),
    Step("slice", "A MIG slice and a share of a GPU", first_steps.mig_slice),
    Step("gangs", "Two gangs compete, and one runs whole", gangs.two_gangs_compete),
    Step("rack", "A topology-bound job lands in one rack", gangs.one_rack),
    Step("quota", "A quota is borrowed and reclaimed", queues.borrow_and_reclaim),
    Step("defrag", "7 + 7 + 8 GPUs are free, and 2 × 8 don't fit", gangs.make_room),
    Step("backfill", "A small job is backfilled, the large one starts on time", queues.backfill),
    Step("xid", "GPU 3 falls off the bus, and its job moves", gpu_failure.gpu_falls_off_bus),
    Step("preemption", "Training is preempted, and resumes", queues.preempt_and_resume),
)


def run_steps(presenter: Presenter, steps: tuple[Step, ...] = DEMO_STEPS) -> None:
    """Runs the steps and deletes what they created. Raises `CheckFailed` at the first that fails."""
    try:
        for number, step in enumerate(steps, 1):
            if not step.continues_previous:
                clean_up(presenter)
            presenter.print_title(number, len(steps), step.title)
            step.run(presenter)
            presenter.pause()
    finally:
        clean_up(presenter)


def clean_up(presenter: Presenter) -> None:
    """Deletes what the steps have created, and waits until it is gone."""
    for path in CREATED_COLLECTIONS:
        for obj in presenter.api.items(f"{path}?labelSelector=story%3Ddemo"):
            body = {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Background"}
            if path == PODS_PATH:
                body["gracePeriodSeconds"] = 0  # type: ignore[assignment]
            try:
                presenter.api.request("DELETE", f"{path}/{obj['metadata']['name']}", body)
            except ApiError as refused:
                if refused.code != 404:
                    raise
    presenter.wait_for(
        lambda: not presenter.api.items(f"{PODS_PATH}?labelSelector=story%3Ddemo"),
        "what was made is gone",
        announce=False,
    )
