"""A Job of single pods in no queue, protected by an annotation on the Job alone: the live scheduler preempts others."""

from __future__ import annotations

import asyncio

import pytest
from tests.worlds.crowd import JOBS, PODS, Crowd, play

from windlass.model.unstructured import Unstructured


def unqueued(name: str, gpus: int, **annotations: str) -> Unstructured:
    limits = {"nvidia.com/gpu": str(gpus)}
    spec = {
        "restartPolicy": "Never",
        "tolerations": [{"operator": "Exists"}],
        "containers": [{"name": "main", "image": "train", "resources": {"limits": limits}}],
    }
    meta = {"name": name, "namespace": "team", "annotations": annotations}
    template = {"metadata": {"annotations": {"sandbox.windlass.dev/duration": "100000s"}}, "spec": spec}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": {"template": template}}


@pytest.mark.parametrize("is_protected", [False, True])
def test_the_owners_annotation_protects_its_single_pods(is_protected: bool) -> None:
    async def story(crowd: Crowd) -> None:
        for number in range(5):
            crowd.client.create(JOBS, "team", unqueued(f"old-{number}", 4))
            await asyncio.sleep(30)
        # The youngest loses least: it would be the victim.
        notes = {"volcano.sh/preemptable": "false"} if is_protected else {}
        crowd.client.create(JOBS, "team", unqueued("own", 4, **notes))
        await asyncio.sleep(10)
        before = {pod["metadata"]["name"] for pod in crowd.client.list(PODS)}
        assert len(before) == 6
        urgent = unqueued("urgent", 4)
        urgent["spec"]["template"]["spec"]["priorityClassName"] = "system-cluster-critical"
        crowd.client.create(JOBS, "team", urgent)
        await asyncio.sleep(60)
        running = {pod["metadata"]["name"] for pod in crowd.client.list(PODS) if pod["spec"].get("nodeName")}
        (victim,) = before - running
        assert victim.startswith("own-") != is_protected, victim

    play(story)
