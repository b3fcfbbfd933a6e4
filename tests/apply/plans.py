"""Plans, and what has become of them on the server: shared by the tests of the plan executor."""

from __future__ import annotations

from tests.apply.objects import (
    condition,
    node,
)
from tests.apply.scene import Scene

from windlass.kube.request import Request
from windlass.model.decision import Bind, Evict
from windlass.model.plan import Plan
from windlass.model.refusal import Refusal
from windlass.model.verdict import ReasonCount, Verdict

NODES = (node("n1"), node("n2"))
FULL = Verdict("GPU_FULL", 2, counts=(ReasonCount("GPU_FULL", "Insufficient nvidia.com/gpu", 2),))
FULL_MESSAGE = "0/2 nodes are available: 2 Insufficient nvidia.com/gpu. (GPU_FULL)"


def binds(**nodes: str) -> Plan:
    return Plan(binds=tuple(Bind(f"team/{name.replace('_', '-')}", on) for name, on in nodes.items()))


def bound(scene: Scene) -> dict[str, str]:
    """Pod → node, of every bind that was sent."""
    sent = (request for request in scene.client.writes() if request.path.endswith("/binding"))
    return {request.path.split("/")[-2]: request.body["target"]["name"] for request in sent}


def evictions(scene: Scene) -> list[str]:
    """Pods that were evicted, without dry runs."""
    sent = (request for request in scene.client.writes() if request.path.endswith("/eviction"))
    return [request.path.split("/")[-2] for request in sent if not request.query]


def refusals(scene: Scene) -> list[Refusal]:
    found = scene.snapshot().refusals
    return [*found.evictions.values(), *(refusal for kept in found.binds.values() for refusal in kept)]


def told(scene: Scene, name: str) -> tuple[str, str]:
    """Reason and message of the pod's condition; empty if it has none."""
    found = condition(scene.get("pods", name), "PodScheduled")
    return found.get("reason", ""), found.get("message", "")


def condition_writes(scene: Scene) -> list[Request]:
    return [request for request in scene.client.writes(of="PATCH") if request.path.endswith("/status")]


async def carry_out(scene: Scene, plan: Plan) -> None:
    scene.execute(plan)
    await scene.executor.drain()


def evict(workload_key: str, *pods: str, preemptor: str = "team/urgent", reason: str = "Priority") -> Evict:
    return Evict(workload_key, tuple(f"team/{name}" for name in pods), preemptor, reason)
