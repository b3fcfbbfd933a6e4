"""Work that belongs together: gangs, topology, and making room for them. Steps of `demo.story`."""

from __future__ import annotations

import json

from windlass.demo.scene import (
    FLAVOR,
    RACKS,
    TOLERATE,
    job,
    pods,
    queue,
    racks,
    running,
    said,
    told,
    workload_of,
)
from windlass.demo.stage import Stage

GANG = """\
apiVersion: v1
kind: Pod
metadata:
  name: {name}-{number}
  labels: {{story: demo, kueue.x-k8s.io/pod-group-name: {name}}}
  annotations: {{kueue.x-k8s.io/pod-group-total-count: "3"}}
spec:
  schedulerName: windlass
  {tolerate}
  containers: [{{name: main, image: pytorch, resources: {{limits: {{nvidia.com/gpu: 8}}}}}}]
"""
ONE_GPU = """\
apiVersion: apps/v1
kind: Deployment
metadata: {{name: {name}, labels: {{story: demo}}}}
spec:
  selector: {{matchLabels: {{app: {name}}}}}
  template:
    metadata: {{labels: {{app: {name}, story: demo}}}}
    spec:
      terminationGracePeriodSeconds: 1
      {tolerate}
      containers: [{{name: main, image: server, resources: {{limits: {{nvidia.com/gpu: {gpus}}}}}}}]
"""


def two_gangs(stage: Stage) -> None:
    """Two gangs compete, and one runs whole."""
    stage.say(
        "Two training runs of three pods with eight GPUs each, their pods arriving in turn, on four nodes. Pod by pod "
        "both would get a half and hold it for ever."
    )
    members = [(name, number) for number in range(3) for name in ("red", "blue")]
    manifest = "---\n".join(
        GANG.format(name=name, number=number, tolerate=TOLERATE) for name, number in members
    )
    stage.kubectl("apply", "-f", "-", stdin=manifest, more="and so on: blue-0, red-1, blue-1, red-2, blue-2")
    stage.until(lambda: len(running(stage.api)) == 3, "one gang runs")
    stage.until(
        lambda: sum(bool(said(stage.api, name)) for name in pods(stage.api)) == 3, "the other is told why"
    )
    stage.kubectl("get", "pods", "-o", "wide")
    counts = sorted(len(running(stage.api, name)) for name in ("red", "blue"))
    stage.check(counts == [0, 3], "one gang runs whole, the other one holds nothing")
    stage.stock(
        "both gangs get some pods, neither gets all, and none ever trains",
        "tests/live/test_live_gangs.py::test_kube_scheduler_leaves_both_halfway",
    )


def one_rack(stage: Stage) -> None:
    """A topology-bound job lands in one rack."""
    stage.say(
        "Two pods that talk all the time must share a rack; one GPU is taken in the first rack to make it hard."
    )
    stage.kubectl("apply", "-f", "-", stdin=job("busy", 1, 1))
    stage.until(lambda: len(running(stage.api, "busy")) == 1, "the small job runs")
    stage.kubectl("apply", "-f", "-", stdin=RACKS + "---\n" + queue("team", 64))
    stage.kubectl("apply", "-f", "-", stdin=job("close", 2, 8, queue="team", topology="windlass.dev/rack"))
    stage.until(lambda: len(running(stage.api, "close")) == 2, "both pods run")
    stage.kubectl("get", "pods", "-o", "wide")
    known = racks(stage.api)
    used = {known[node] for node in running(stage.api, "close").values()}
    stage.check(len(used) == 1, f"both pods are in {', '.join(used)}")


def make_room(stage: Stage) -> None:
    """7 + 7 + 8 free GPUs and a 2 × 8 job, with the move that makes room."""
    stage.say(
        "Twenty-two GPUs are free, 7 + 7 + 8, and a job needs 2 × 8. Sixteen is less than twenty-two; still it can't "
        "start, since only one node is empty."
    )
    nodes = ["h100-0", "h100-1", "h100-2", "h100-3"]
    for name, node, gpus in (("left", "h100-0", 1), ("right", "h100-1", 1), ("full", "h100-3", 8)):
        others = [other for other in nodes if other != node]
        stage.kubectl("cordon", *others)
        stage.kubectl("apply", "-f", "-", stdin=ONE_GPU.format(name=name, gpus=gpus, tolerate=TOLERATE))
        stage.until(lambda name=name: len(running(stage.api, name)) == 1, f"{name} runs")  # type: ignore[misc]
        stage.kubectl("uncordon", *others)
    stage.kubectl("apply", "-f", "-", stdin=FLAVOR + "---\n" + queue("team", 64))
    stage.kubectl("apply", "-f", "-", stdin=job("large", 2, 8, queue="team"))
    why = stage.until(lambda: told(stage.api, "large"), "it is told why")
    stage.check(not running(stage.api, "large"), f"the job waits: {why}")
    stage.say("Which move makes room? `plan defrag` finds the fewest, and carries nothing out:")
    stage.kubectl("get", "workloads")
    stage.windlass("dump", "now.json")
    asked = ("plan", "defrag", "--from", "now.json", "--for", f"default/{workload_of(stage.api, 'large')}")
    stage.windlass(*asked)
    moves = json.loads(stage.windlass(*asked, "-o", "json", shown=False))["moves"]
    stage.check(len(moves) == 1, f"one move: {moves[0]['pod']} from {moves[0]['from']} to {moves[0]['to']}")
    stage.say(
        "Carried out: its Deployment makes the pod again, and while the old node is closed it goes to the other."
    )
    mover = moves[0]["pod"].partition("/")[2]
    app = mover.partition("-")[0]
    stage.kubectl("cordon", moves[0]["from"])
    stage.kubectl("delete", "pod", mover)
    stage.until(lambda: [name for name in running(stage.api, app) if name != mover], "it has moved")
    stage.kubectl("uncordon", moves[0]["from"])
    stage.until(lambda: len(running(stage.api, "large")) == 2, "the large job runs")
    stage.kubectl("get", "pods", "-o", "wide")
    stage.check(len(running(stage.api)) == 5, "the large job runs, and nobody else has lost anything")
