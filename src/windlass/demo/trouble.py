"""Hardware that breaks. Steps of `demo.story`."""

from __future__ import annotations

from windlass.demo.scene import devices, job, pods, running
from windlass.demo.stage import Stage


def off_the_bus(stage: Stage) -> None:
    """GPU 3 falls off the bus (Xid 79), and its job moves."""
    stage.say("A job has the eight GPUs of a node. Its GPU 3 falls off the bus: the driver reports Xid 79.")
    stage.kubectl("apply", "-f", "-", stdin=job("train", 1, 8))
    stage.until(lambda: running(stage.api, "train"), "the job runs")
    ((first, node),) = running(stage.api, "train").items()
    stage.kubectl("get", "pods", "-o", "wide")
    stage.windlass("sandbox", "fail", f"gpu/{node}:3", "--xid", "79")
    stage.until(
        lambda: any(name != first for name in running(stage.api, "train")),
        "the job runs again somewhere else",
    )
    stage.kubectl("get", "pods", "-o", "wide")
    ((again, other),) = (
        (name, where) for name, where in running(stage.api, "train").items() if name != first
    )
    stage.check(other != node, f"the job moved from {node} to {other}, by itself")
    stage.say("The node stays in use for what fits on its seven healthy GPUs:")
    stage.kubectl("apply", "-f", "-", stdin=job("seven", 1, 7))
    stage.until(lambda: running(stage.api, "seven"), "a job of seven runs")
    for name, pod in pods(stage.api, "seven").items():
        where = pod["spec"]["nodeName"]
        used = devices(pod)
        stage.check(
            where != node or 3 not in used, f"{name} is on {where}, GPUs {used}, never on GPU 3 of {node}"
        )
    stage.windlass("sandbox", "heal", f"gpu/{node}:3")
    stage.check(again in pods(stage.api), "healed, and nobody was disturbed by it")
