"""The first things that go wrong: a taint, a fraction, a slice. Steps of `demo.story`."""

from __future__ import annotations

from windlass.demo.scene import PODS, TOLERATE, pods, running, said
from windlass.demo.stage import Stage


def without_toleration(stage: Stage) -> None:
    """A pod without toleration waits and is explained; the patch that `why` found is applied, and it runs."""
    stage.say(
        "GPU nodes are tainted, so that nothing lands on them by accident. This pod forgot its toleration:"
    )
    manifest = """
        apiVersion: v1
        kind: Pod
        metadata: {name: train, labels: {story: demo}}
        spec:
          containers: [{name: main, image: pytorch, resources: {limits: {nvidia.com/gpu: 1}}}]
        """
    stage.kubectl("apply", "-f", "-", stdin=manifest)
    stage.until(lambda: said(stage.api, "train"), "the scheduler says why the pod waits")
    stage.kubectl("get", "pods")
    stage.check(
        "untolerated taint" in said(stage.api, "train"), f"it waits, and says: {said(stage.api, 'train')}"
    )
    answer = stage.windlass("why", "pod/train", codes=(1,))
    verdict = answer.partition("\n")[0]
    stage.check("TAINT_NOT_TOLERATED" in verdict, "`why` names the taint and the smallest change that helps")


def patched(stage: Stage) -> None:
    stage.say(
        "`why --patch` prints that change, tried on the engine before it is offered. Applied, the pod runs:"
    )
    patch = stage.windlass("why", "pod/train", "--patch", codes=(0, 1))
    lines = [line for line in patch.splitlines() if not line.startswith("#")]
    stage.kubectl("patch", "pod", "train", "--patch-file", "/dev/stdin", stdin="\n".join(lines))
    stage.until(lambda: running(stage.api, "train"), "the patched pod runs")
    stage.kubectl("get", "pods", "-o", "wide")
    stage.check(running(stage.api, "train")["train"].startswith("h100"), "it runs on an H100 node")


def fraction(stage: Stage) -> None:
    """A fractional request is refused, in Kubernetes' own words."""
    stage.say(
        "Half a GPU can't be asked for like that: extended resources are whole numbers. The API refuses it:"
    )
    manifest = """
        apiVersion: v1
        kind: Pod
        metadata: {name: half, labels: {story: demo}}
        spec:
          containers: [{name: main, image: pytorch, resources: {limits: {nvidia.com/gpu: 0.5}}}]
        """
    answer = stage.kubectl("apply", "-f", "-", stdin=manifest, fails=True)
    stage.check("must be an integer" in answer, "refused: must be an integer")
    stage.check(stage.api.find(f"{PODS}/half") is None, "and nothing was made")


def mig_slice(stage: Stage) -> None:
    """A MIG slice is requested, and a share of a time-sliced GPU."""
    stage.say(
        "A part of a GPU has a name of its own: a MIG slice of an A100, or a share of a time-sliced T4."
    )
    manifest = f"""
        apiVersion: v1
        kind: Pod
        metadata: {{name: slice, labels: {{story: demo}}}}
        spec:
          {TOLERATE}
          containers: [{{name: main, image: pytorch, resources: {{limits: {{nvidia.com/mig-1g.10gb: 1}}}}}}]
        ---
        apiVersion: v1
        kind: Pod
        metadata: {{name: share, labels: {{story: demo}}}}
        spec:
          {TOLERATE}
          containers: [{{name: main, image: pytorch, resources: {{limits: {{nvidia.com/gpu.shared: 1}}}}}}]
        """
    stage.kubectl("apply", "-f", "-", stdin=manifest)
    stage.until(lambda: len(running(stage.api, "s")) == 2, "both run")
    stage.kubectl("get", "pods", "-o", "wide")
    where = running(stage.api, "s")
    stage.check(
        where == {"slice": "a100-mig-0", "share": "t4-0"}, "the slice is on the A100, the share on the T4"
    )
    stage.check(len(pods(stage.api)) == 2, "and they don't take whole GPUs from anybody")
