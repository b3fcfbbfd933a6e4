"""A queue with a Workload and its Job: shared by the tests of admissions and evictions."""

from __future__ import annotations

from typing import Any

import pytest
from tests.apply.objects import admission, job, node, queues, workload
from tests.apply.scene import Scene
from tests.kube.fake_api import refused
from tests.kube.memory_client import lost_answer

from windlass.kube.request import Request
from windlass.kube.resources import KUEUE_API_GROUP
from windlass.model.decision import Admit, AdmittedPodSet, Evict
from windlass.model.names.nvidia import GPU_RESOURCE
from windlass.model.unstructured import Unstructured

TRAIN = job("train")
PENDING = workload("w", owner=TRAIN)
RUNNING = workload("w", owner=job("train", suspend=False), status={"admission": admission()})
ADMIT = Admit("team/w", "Workload", "cluster", (AdmittedPodSet("main", 1, {GPU_RESOURCE: "default"}, {"n1": 1}),))
EVICT = Evict("team/w", (), "team/urgent", "InClusterQueue")
FINISHED = {"type": "Finished", "status": "True", "reason": "Succeeded"}
STATUS = "PATCH workloads/w/status"


def scene_of(*trees: Unstructured, **options: Any) -> Scene:
    return Scene(*queues(), node("n1", labels={"kubernetes.io/hostname": "host-1"}), *trees, **options)


def begin(scene: Scene, *admits: Admit) -> None:
    scene.executor.admissions.execute(admits or (ADMIT,), scene.snapshot())


async def admit(scene: Scene) -> None:
    begin(scene)
    await scene.executor.admissions.drain()


def writes(scene: Scene) -> list[str]:
    """Kind of object and name of everything that was written, in order."""
    paths = (request.path.removesuffix("/status").split("/") for request in scene.client.writes())
    return [f"{path[-2]}/{path[-1]}" for path in paths]


def status_writes(scene: Scene) -> list[Request]:
    return [request for request in scene.client.sent if request.path.endswith("/workloads/w/status")]


def is_admitted(scene: Scene) -> bool:
    return bool(scene.get("workloads", "w").get("status", {}).get("admission"))


def is_assumed_admitted(scene: Scene) -> bool:
    """As the next decision sees it."""
    scene.cache.drain_inbox()
    return scene.cache.get("Workload", "team/w", KUEUE_API_GROUP).status.admission is not None


FAILURES = [
    pytest.param(refused(409, "changed"), id="409"),
    pytest.param(refused(500, "etcd"), id="500"),
    pytest.param(refused(503, "overloaded"), id="503"),
    pytest.param(lost_answer(), id="no answer"),
]
