"""Work that belongs together: gangs, topology, and making room for them. Steps of `demo.steps`."""

from __future__ import annotations

import json

from windlass.demo.fixtures import (
    FLAVOR_MANIFEST,
    RACK_TOPOLOGY_MANIFEST,
    TOLERATION,
    active_pods,
    job_manifest,
    job_wait_message,
    node_racks,
    pod_wait_message,
    queue_manifest,
    running_pods,
    workload_of,
)
from windlass.demo.presenter import Presenter
from windlass.model.names.windlass import RACK_LABEL

GANG_POD_MANIFEST = """\
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
GPU_DEPLOYMENT_MANIFEST = """\
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


def two_gangs_compete(presenter: Presenter) -> None:
    """Two gangs compete, and one runs whole."""
    presenter.print_text(
        "Two training runs of three pods with eight GPUs each, their pods arriving in turn, on four nodes. Pod by pod "
        "both would get a half and hold it for ever."
    )
    members = [(name, number) for number in range(3) for name in ("red", "blue")]
    manifest = "---\n".join(
        GANG_POD_MANIFEST.format(name=name, number=number, tolerate=TOLERATION) for name, number in members
    )
    presenter.apply(manifest, elided="and so on: blue-0, red-1, blue-1, red-2, blue-2")
    presenter.wait_for(lambda: len(running_pods(presenter.api)) == 3, "one gang runs")
    presenter.wait_for(
        lambda: sum(bool(pod_wait_message(presenter.api, name)) for name in active_pods(presenter.api)) == 3,
        "the other is told why",
    )
    presenter.kubectl("get", "pods", "-o", "wide")
    counts = sorted(len(running_pods(presenter.api, name)) for name in ("red", "blue"))
    presenter.check(counts == [0, 3], "one gang runs whole, the other one holds nothing")
    presenter.show_kube_scheduler(
        "both gangs get some pods, neither gets all, and none ever trains",
        "tests/live/test_live_gangs.py::test_kube_scheduler_leaves_both_halfway",
    )


def one_rack(presenter: Presenter) -> None:
    """A topology-bound job lands in one rack."""
    presenter.print_text(
        "Two pods that talk all the time must share a rack; one GPU is taken in the first rack to make it hard."
    )
    presenter.apply(job_manifest("busy", 1, 1))
    presenter.wait_for_pods("busy", 1, "the small job runs")
    presenter.apply(RACK_TOPOLOGY_MANIFEST, queue_manifest("team", 64))
    presenter.apply(job_manifest("close", 2, 8, queue="team", topology=RACK_LABEL))
    presenter.wait_for_pods("close", 2, "both pods run")
    presenter.kubectl("get", "pods", "-o", "wide")
    known = node_racks(presenter.api)
    used = {known[node] for node in running_pods(presenter.api, "close").values()}
    presenter.check(len(used) == 1, f"both pods are in {', '.join(used)}")


def make_room(presenter: Presenter) -> None:
    """7 + 7 + 8 free GPUs and a 2 × 8 job, with the move that makes room."""
    presenter.print_text(
        "Twenty-two GPUs are free, 7 + 7 + 8, and a job needs 2 × 8. Sixteen is less than twenty-two; still it can't "
        "start, since only one node is empty."
    )
    nodes = ["h100-0", "h100-1", "h100-2", "h100-3"]
    for name, node, gpus in (("left", "h100-0", 1), ("right", "h100-1", 1), ("full", "h100-3", 8)):
        others = [other for other in nodes if other != node]
        presenter.kubectl("cordon", *others)
        presenter.apply(GPU_DEPLOYMENT_MANIFEST.format(name=name, gpus=gpus, tolerate=TOLERATION))
        presenter.wait_for(lambda name=name: len(running_pods(presenter.api, name)) == 1, f"{name} runs")  # type: ignore[misc]
        presenter.kubectl("uncordon", *others)
    presenter.apply(FLAVOR_MANIFEST, queue_manifest("team", 64))
    presenter.apply(job_manifest("large", 2, 8, queue="team"))
    why = presenter.wait_for(lambda: job_wait_message(presenter.api, "large"), "it is told why")
    presenter.check(not running_pods(presenter.api, "large"), f"the job waits: {why}")
    presenter.print_text("Which move makes room? `plan defrag` finds the fewest, and carries nothing out:")
    presenter.kubectl("get", "workloads")
    presenter.windlass("dump", "now.json")
    large = f"default/{workload_of(presenter.api, 'large')}"
    asked = ("plan", "defrag", "--from", "now.json", "--for", large)
    presenter.windlass(*asked)
    moves = json.loads(presenter.windlass(*asked, "-o", "json", shown=False))["moves"]
    presenter.check(len(moves) == 1, f"one move: {moves[0]['pod']} from {moves[0]['from']} to {moves[0]['to']}")
    _carry_out(presenter, moves[0]["pod"].partition("/")[2], moves[0]["from"])
    presenter.wait_for_pods("large", 2, "the large job runs")
    presenter.kubectl("get", "pods", "-o", "wide")
    presenter.check(len(running_pods(presenter.api)) == 5, "the large job runs, and nobody else has lost anything")


def _carry_out(presenter: Presenter, pod: str, node: str) -> None:
    presenter.print_text(
        "Carried out: its Deployment makes the pod again, and while the old node is closed it goes to the other."
    )
    app = pod.partition("-")[0]
    presenter.kubectl("cordon", node)
    presenter.kubectl("delete", "pod", pod)
    presenter.wait_for(lambda: set(running_pods(presenter.api, app)) - {pod}, "it has moved")
    presenter.kubectl("uncordon", node)
