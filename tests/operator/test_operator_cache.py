"""What the operator keeps of objects: nothing that is gone, and every pod that may hold a GPU."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import msgspec
import pytest
from tests.operator.play import Play, fleet, is_up
from tests.operator.test_apply import REPAIR, Client, applier

from windlass.cluster.delta import Deleted
from windlass.kube.errors import NotFound, Status
from windlass.kube.request import Request
from windlass.operator import controller
from windlass.operator.cache import decode_observed, observed_object
from windlass.operator.decide import decide as decide_on
from windlass.operator.kinds.gpu_repair import GPURepairStatus
from windlass.operator.observed import Invalid, Observed
from windlass.operator.pods import PodView
from windlass.operator.writes import CreateObject, Decision, PatchNode, PutStatus


@pytest.mark.asyncio
async def test_an_object_whose_answer_came_after_its_deletion_is_forgotten_when_a_write_does_not_find_it() -> None:
    acting, client, cache = applier()
    cache.push([Deleted("GPURepair", "r")])
    cache.put_answer("GPURepair", "windlass.dev/v1alpha1", msgspec.json.encode(REPAIR))  # of a write before it
    assert cache.find("GPURepair", "r") is not None

    async def gone(request: Request) -> bytes:
        raise NotFound(404, Status(message="gone"))

    client._send_once = gone  # type: ignore[method-assign]
    assert await acting.apply(PutStatus("GPURepair", "r", "7", GPURepairStatus()))
    assert cache.find("GPURepair", "r") is None


def pod(spec: dict[str, Any], **metadata: Any) -> PodView:
    tree = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "namespace": "team", **metadata},
        "spec": {"nodeName": "n", **spec},
        "status": {"phase": "Running"},
    }
    found = observed_object(tree)
    assert isinstance(found, PodView)
    return found


@pytest.mark.asyncio
async def test_writes_without_effect_are_not_repeated_in_haste(monkeypatch: pytest.MonkeyPatch) -> None:
    """As of an object that exists and can't be read: every answer is a conflict, and nothing changes."""
    decided: list[int] = []
    write = CreateObject("GPURepair", "r", {"metadata": {"name": "r"}, "spec": {"node": "n"}})

    def decide(observed: Observed, now: int) -> Decision:
        decided.append(now)
        return Decision((write,), now + 300)

    monkeypatch.setattr(controller, "decide", decide)
    operator = controller.Operator(Client(), controller.OperatorOptions(leader_elect=False, identity="test"))
    with suppress(TimeoutError):
        async with asyncio.timeout(2.0):
            await operator._decide_while_leading()
    assert len(decided) <= 4


def test_a_node_whose_record_cant_be_read_is_left_as_it_is() -> None:
    world = fleet(1)
    Play(world).run(lambda: is_up(world))
    seen = world.observe()
    broken = Invalid("GPUNode", "gpu-000", "9", "status.steps: expected array")
    decision = decide_on(msgspec.structs.replace(seen, gpu_nodes={}, invalid=(broken,)), world.now)
    assert not [write for write in decision.writes if isinstance(write, CreateObject | PatchNode)]


GPU = {"limits": {"nvidia.com/gpu": "1"}}


@pytest.mark.parametrize(
    "spec",
    [
        {"containers": [{"name": "a", "resources": GPU}]},
        {"initContainers": [{"name": "side", "restartPolicy": "Always", "resources": GPU}], "containers": []},
        {"containers": [{"name": "a"}], "resourceClaims": [{"name": "gpu", "resourceClaimName": "c"}]},
    ],
)
def test_every_way_to_hold_a_gpu_counts(spec: dict[str, Any]) -> None:
    assert pod(spec).holds_gpus


def test_a_pod_on_shared_devices_holds_gpus_and_one_without_any_does_not() -> None:
    assert pod({"containers": [{"name": "a"}]}, annotations={"windlass.dev/allocated-devices": "2"}).holds_gpus
    assert not pod({"containers": [{"name": "a"}]}).holds_gpus


@pytest.mark.parametrize(
    "broken",
    [
        {"metadata": {"name": "p", "generation": "x"}, "status": "m"},
        {"metadata": {"name": 7}, "status": ["m"], "spec": []},
        {"metadata": [], "spec": 1},
        {"status": "m"},
    ],
)
@pytest.mark.parametrize("kind", ["Pod", "Node", "GPUStack"])
def test_an_object_that_is_wrong_anywhere_is_one_that_can_not_be_understood(kind: str, broken: dict[str, Any]) -> None:
    """The watch that brings it goes on."""
    found = decode_observed(msgspec.json.encode(broken), kind, "v1")
    assert isinstance(found, Invalid)
    assert found.kind == kind


@pytest.mark.parametrize("text", ["9" * 5000, "²", "-1", "x"])
def test_held_devices_that_are_no_numbers_are_left_out(text: str) -> None:
    """A node writes them on itself, and the operator reads them for all nodes."""
    metadata = {"name": "n", "annotations": {"windlass.dev/held-devices": f"1,{text},3"}}
    node = decode_observed(msgspec.json.encode({"metadata": metadata}), "Node", "v1")
    assert getattr(node, "held", None) == {1, 3}
