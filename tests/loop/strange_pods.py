"""A tenant whose pods are all strange: each is held with a reason of its own, and nobody else notices."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from windlass.model.unstructured import Unstructured

if TYPE_CHECKING:
    from tests.worlds.play import Play

NAMESPACE = "strange"
GROUP_LABEL, GROUP_COUNT = "kueue.x-k8s.io/pod-group-name", "kueue.x-k8s.io/pod-group-total-count"
STRANGE: tuple[dict[str, Any], ...] = (
    {"limits": {"nvidia.com/gpu": "5000000000"}},
    {"annotations": {"gpu-fraction": "2"}},
    {"annotations": {"gpu-fraction": "2"}, "labels": {"kueue.x-k8s.io/max-exec-time-seconds": "60"}},
    {"annotations": {"gpu-memory": "²"}},
    {"limits": {"nvidia.com/gpu": "99999"}, "annotations": {"windlass.dev/duration": "9000000000s"}},
    {"limits": {"nvidia.com/gpu": "99999"}, "annotations": {"windlass.dev/duration": "2000000h"}},
    {"limits": {f"example.com/r{number}": "1" for number in range(30)}},
    {"limits": {"nvidia.com/gpu": "1", "nvidia.com/mig-7g.999gb": "1"}},
    {"limits": {"nvidia.com/gpu": "99999"}, "annotations": {"windlass.dev/devices": "²"}},
)
"""None of them fits anywhere."""


async def submit_strange_pods(play: Play) -> None:
    for _ in range(play.rng.randint(1, 3)):
        await play.create(strange_pod(play))


def strange_pod(play: Play) -> Unstructured:
    drawn, name = play.rng.choice(STRANGE), play.name("strange")
    labels, notes = dict(drawn.get("labels", {})), dict(drawn.get("annotations", {}))
    if play.rng.random() < 0.5:
        labels[GROUP_LABEL], notes[GROUP_COUNT] = name, "1"
    resources = {"limits": drawn["limits"]} if "limits" in drawn else {}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": labels, "annotations": notes},
        "spec": {"containers": [{"name": "main", "image": "x", "resources": resources}], "restartPolicy": "Never"},
    }


def wrong_with(pod: Unstructured) -> str:
    """Empty if it waits and was told why."""
    if pod["spec"].get("nodeName"):
        return "was bound"
    conditions = pod.get("status", {}).get("conditions") or ()
    told = [found for found in conditions if found["type"] == "PodScheduled" and found["status"] == "False"]
    if not told or not told[0].get("message"):
        return "was told nothing"
    return "was told of a bug" if "a bug in Windlass" in told[0]["message"] else ""
