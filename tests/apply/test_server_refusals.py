"""Refusals of the API server come back as facts: the next decision takes another victim, or another node."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from windlass.apply.executor import PlanExecutor
from windlass.cluster.delta import Put
from windlass.engine import EngineCache, decide
from windlass.kube.errors import ApiError, Status, TooManyRequests, api_error
from windlass.kube.events import EventRecorder
from windlass.kube.request import Request
from windlass.model.codec import decode_object
from windlass.model.configuration import Settings
from windlass.planner import engine_config
from windlass.scheduler.cache import SchedulerCache
from windlass.scheduler.metrics import Metrics
from windlass.scheduler.options import SchedulerOptions

pytestmark = pytest.mark.asyncio
GPU = "nvidia.com/gpu"


class Client:
    """Says yes to everything but to what the test refuses."""

    def __init__(self) -> None:
        self.refused: dict[str, ApiError] = {}
        """End of a path → the answer."""
        self.sent: list[Request] = []

    async def send(self, request: Request, allowed: Any = None) -> bytes:
        self.sent.append(request)
        for end, error in self.refused.items():
            if request.path.endswith(end):
                raise error
        return b"{}"

    def paths(self, verb: str) -> list[str]:
        """Pods that something was sent for, without questions."""
        return [one.path.split("/")[-2] for one in self.sent if one.path.endswith(verb) and not one.query]


def node(name: str) -> Any:
    status = {
        "allocatable": {GPU: "1", "cpu": "8", "memory": "8Gi", "pods": "10"},
        "conditions": [{"type": "Ready", "status": "True"}],
    }
    return decode_object({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "status": status})


def pod(name: str, on: str = "", priority: int = 0, app: str = "") -> Any:
    metadata = {"name": name, "namespace": "a", "uid": name, "labels": {"app": app}}
    metadata["creationTimestamp"] = "2026-01-01T00:00:00Z"
    container = {"name": "c", "resources": {"limits": {GPU: "1"}}}
    spec = {"schedulerName": "windlass", "priority": priority, "nodeName": on, "containers": [container]}
    return decode_object({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})


class Scene:
    def __init__(self, *objects: Any) -> None:
        self.api = Client()
        client: Any = self.api
        self.world = SchedulerCache(SchedulerOptions())
        self.world.push([Put(one) for one in objects])
        self.metrics = Metrics()
        self.carrier = PlanExecutor(
            client,
            self.world,
            EventRecorder(client, "t"),
            self.metrics,
            lambda: True,
            lambda kind, group: None,
        )
        self._now, self._memo = 1_767_226_000, EngineCache()

    async def decide(self, seconds: int = 0) -> Any:
        self._now += seconds
        settled = self.world.flush(self._now)
        snapshot = self.world.store.snapshot(self._now)
        plan = decide(snapshot, engine_config(Settings()), self._now, self._memo)
        self.carrier.execute(plan, snapshot)
        await asyncio.wait_for(self.carrier.drain(), 10)
        return settled, plan


BUDGET = {
    "apiVersion": "policy/v1",
    "kind": "PodDisruptionBudget",
    "metadata": {"name": "web", "namespace": "a"},
    "spec": {"selector": {"matchLabels": {"app": "web"}}, "minAvailable": 0},
}


@pytest.mark.parametrize(
    "error",
    [
        TooManyRequests(
            429, Status(message="Cannot evict pod as it would violate the pod's disruption budget.")
        ),
        api_error(403, b'{"message": "admission webhook denied the request"}'),
        api_error(500, b'{"message": "This pod has more than one PodDisruptionBudget, which ..."}'),
    ],
)
async def test_a_refused_eviction_leads_to_another_victim_at_once(error: ApiError) -> None:
    scene = Scene(node("n0"), node("n1"), pod("v0", "n0", app="web"), pod("v1", "n1"), decode_object(BUDGET))
    scene.world.push([Put(pod("urgent", priority=9))])
    scene.api.refused["/v0/eviction"] = error
    await scene.decide()
    first = [one.path.split("/")[-2] for one in scene.api.sent if one.path.endswith("/eviction")]
    assert first == ["v0"], "asked, and nothing more"
    settled, plan = await scene.decide()
    assert settled.needs_decision
    assert scene.api.paths("/eviction") == ["v1"]
    assert [evict.workload for evict in plan.evicts] == ["a/v1"]
    (known,) = scene.world.store.snapshot(0).refusals.evictions.values()
    assert (known.pod, known.for_workload, known.budget) == ("a/v0", "a/urgent", "a/web")
    assert known.message == error.status.message


async def test_a_refused_bind_leads_to_another_node() -> None:
    scene = Scene(node("n0"), node("n1"), pod("p"))
    scene.api.refused["/p/binding"] = api_error(422, b'{"message": "not on this node"}')
    await scene.decide()
    (sent,) = [one for one in scene.api.sent if one.path.endswith("/binding")]
    assert sent.body["target"]["name"] == "n0"
    scene.api.refused.clear()
    scene.world.end_backoff("a/p")
    await scene.decide()
    assert [one.body["target"]["name"] for one in scene.api.sent if one.path.endswith("/binding")] == [
        "n0",
        "n1",
    ]
    assert scene.world.assumed == {"a/p": "n1"}


async def test_no_answer_is_no_refusal() -> None:
    """What the server could not say tells nothing about the node."""
    scene = Scene(node("n0"), node("n1"), pod("p"))
    scene.api.refused["/p/binding"] = api_error(503, b'{"message": "etcd is gone"}')
    scene.carrier.binder._look_up_outcome = not_bound  # type: ignore[method-assign]
    await scene.decide()
    assert not scene.world.store.snapshot(0).refusals


async def not_bound(*_: Any) -> Any:
    from windlass.apply.binder import BindResult

    return BindResult.REFUSED
