"""The first things that go wrong: a taint, a fraction, a slice. Steps of `demo.steps`."""

from __future__ import annotations

from windlass.demo.fixtures import PODS_PATH, TOLERATION, active_pods, pod_wait_message, running_pods
from windlass.demo.presenter import Presenter


def missing_toleration(presenter: Presenter) -> None:
    """A pod without toleration waits and is explained; the patch that `why` found is applied, and it runs."""
    presenter.print_text(
        "GPU nodes are tainted, so that nothing lands on them by accident. This pod forgot its toleration:"
    )
    manifest = """
        apiVersion: v1
        kind: Pod
        metadata: {name: train, labels: {story: demo}}
        spec:
          containers: [{name: main, image: pytorch, resources: {limits: {nvidia.com/gpu: 1}}}]
        """
    presenter.apply(manifest)
    presenter.wait_for(lambda: pod_wait_message(presenter.api, "train"), "the scheduler says why the pod waits")
    presenter.kubectl("get", "pods")
    message = pod_wait_message(presenter.api, "train")
    presenter.check("untolerated taint" in message, f"it waits, and says: {message}")
    answer = presenter.windlass("why", "pod/train", exit_codes=(1,))
    verdict = answer.partition("\n")[0]
    presenter.check("TAINT_NOT_TOLERATED" in verdict, "`why` names the taint and the smallest change that helps")


def apply_patch(presenter: Presenter) -> None:
    presenter.print_text(
        "`why --patch` prints that change, tried on the engine before it is offered. Applied, the pod runs:"
    )
    patch = presenter.windlass("why", "pod/train", "--patch", exit_codes=(0, 1))
    lines = [line for line in patch.splitlines() if not line.startswith("#")]
    presenter.kubectl("patch", "pod", "train", "--patch-file", "/dev/stdin", stdin="\n".join(lines))
    presenter.wait_for(lambda: running_pods(presenter.api, "train"), "the patched pod runs")
    presenter.kubectl("get", "pods", "-o", "wide")
    presenter.check(running_pods(presenter.api, "train")["train"].startswith("h100"), "it runs on an H100 node")


def fractional_request(presenter: Presenter) -> None:
    """A fractional request is refused, in Kubernetes' own words."""
    presenter.print_text(
        "Half a GPU can't be asked for like that: extended resources are whole numbers. The API refuses it:"
    )
    manifest = """
        apiVersion: v1
        kind: Pod
        metadata: {name: half, labels: {story: demo}}
        spec:
          containers: [{name: main, image: pytorch, resources: {limits: {nvidia.com/gpu: 0.5}}}]
        """
    answer = presenter.apply(manifest, expect_failure=True)
    presenter.check("must be an integer" in answer, "refused: must be an integer")
    presenter.check(presenter.api.find(f"{PODS_PATH}/half") is None, "and nothing was made")


def mig_slice(presenter: Presenter) -> None:
    """A MIG slice is requested, and a share of a time-sliced GPU."""
    presenter.print_text(
        "A part of a GPU has a name of its own: a MIG slice of an A100, or a share of a time-sliced T4."
    )
    manifest = f"""
        apiVersion: v1
        kind: Pod
        metadata: {{name: slice, labels: {{story: demo}}}}
        spec:
          {TOLERATION}
          containers: [{{name: main, image: pytorch, resources: {{limits: {{nvidia.com/mig-1g.10gb: 1}}}}}}]
        ---
        apiVersion: v1
        kind: Pod
        metadata: {{name: share, labels: {{story: demo}}}}
        spec:
          {TOLERATION}
          containers: [{{name: main, image: pytorch, resources: {{limits: {{nvidia.com/gpu.shared: 1}}}}}}]
        """
    presenter.apply(manifest)
    presenter.wait_for_pods("s", 2, "both run")
    presenter.kubectl("get", "pods", "-o", "wide")
    where = running_pods(presenter.api, "s")
    presenter.check(where == {"slice": "a100-mig-0", "share": "t4-0"}, "the slice is on the A100, the share on the T4")
    presenter.check(len(active_pods(presenter.api)) == 2, "and they don't take whole GPUs from anybody")
