"""Hardware that breaks. Steps of `demo.steps`."""

from __future__ import annotations

from windlass.demo.fixtures import active_pods, allocated_devices, job_manifest, running_pods
from windlass.demo.presenter import Presenter


def gpu_falls_off_bus(presenter: Presenter) -> None:
    """GPU 3 falls off the bus (Xid 79), and its job moves."""
    presenter.print_text("A job has the eight GPUs of a node. Its GPU 3 falls off the bus: the driver reports Xid 79.")
    presenter.apply(job_manifest("train", 1, 8))
    presenter.wait_for(lambda: running_pods(presenter.api, "train"), "the job runs")
    ((first, node),) = running_pods(presenter.api, "train").items()
    presenter.kubectl("get", "pods", "-o", "wide")
    presenter.windlass("sandbox", "fail", f"gpu/{node}:3", "--xid", "79")
    presenter.wait_for(
        lambda: any(name != first for name in running_pods(presenter.api, "train")),
        "the job runs again somewhere else",
    )
    presenter.kubectl("get", "pods", "-o", "wide")
    ((again, other),) = ((name, where) for name, where in running_pods(presenter.api, "train").items() if name != first)
    presenter.check(other != node, f"the job moved from {node} to {other}, by itself")
    presenter.print_text("The node stays in use for what fits on its seven healthy GPUs:")
    presenter.apply(job_manifest("seven", 1, 7))
    presenter.wait_for(lambda: running_pods(presenter.api, "seven"), "a job of seven runs")
    for name, pod in active_pods(presenter.api, "seven").items():
        where = pod["spec"]["nodeName"]
        used = allocated_devices(pod)
        presenter.check(where != node or 3 not in used, f"{name} is on {where}, GPUs {used}, never on GPU 3 of {node}")
    presenter.windlass("sandbox", "heal", f"gpu/{node}:3")
    presenter.check(again in active_pods(presenter.api), "healed, and nobody was disturbed by it")
