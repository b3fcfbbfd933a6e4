"""A plan carried out: whole gangs or nothing, nobody before his place is free, nothing that is Kueue's to decide."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from windlass.apply.executor import PlanExecutor
from windlass.cluster.delta import Deleted, Put
from windlass.cluster.snapshot import Snapshot
from windlass.kube.events import EventRecorder
from windlass.kube.request import Request
from windlass.kube.write_requests import bind_pod
from windlass.model.codec import decode_object
from windlass.model.decision import Bind, Evict, Hold
from windlass.model.plan import Plan
from windlass.model.verdict import Verdict
from windlass.scheduler.cache import SchedulerCache
from windlass.scheduler.metrics import Metrics
from windlass.scheduler.options import SchedulerOptions
from windlass.scheduler.scheduler import Scheduler

GROUP = "kueue.x-k8s.io/pod-group-name"
GATE = "kueue.x-k8s.io/admission"


class Client:
    """Takes every request down, and says yes."""

    def __init__(self) -> None:
        self.sent: list[Request] = []

    async def send(self, request: Request, allowed: Any = None) -> bytes:
        self.sent.append(request)
        return b"{}"

    @property
    def bound(self) -> set[str]:
        return {one.path.split("/")[-2] for one in self.sent if one.path.endswith("/binding")}


def node(name: str) -> Any:
    room = {"cpu": "8", "memory": "8Gi", "pods": "10"}
    ready = [{"type": "Ready", "status": "True"}]
    status = {"allocatable": room, "conditions": ready}
    return decode_object({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "status": status})


def pod(name: str, gang: str = "", gates: Sequence[str] = ()) -> Any:
    metadata: dict[str, Any] = {"name": name, "namespace": "a", "uid": f"uid-{name}"}
    metadata["creationTimestamp"] = "2026-01-01T00:00:00Z"
    if gang:
        metadata["labels"] = {GROUP: gang}
        metadata["annotations"] = {"kueue.x-k8s.io/pod-group-total-count": "2"}
    spec = {
        "schedulerName": "windlass",
        "containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}],
        "schedulingGates": [{"name": gate} for gate in gates],
    }
    return decode_object({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})


class Scene:
    """Two nodes, and the pods that are handed in."""

    def __init__(self, *pods: Any) -> None:
        self.client: Any = Client()
        self.world = SchedulerCache(SchedulerOptions())
        self.world.push([Put(node("n0")), Put(node("n1")), *(Put(one) for one in pods)])
        self.world.flush(1_767_226_000)
        self.snapshot: Snapshot = self.world.store.snapshot(1_767_226_000)
        recorder, self.metrics = EventRecorder(self.client, "test"), Metrics()
        self.carrier = PlanExecutor(
            self.client, self.world, recorder, self.metrics, lambda: True, lambda kind, group: None
        )

    async def carry_out(self, *binds: Bind) -> None:
        self.carrier.execute(Plan(binds, ()), self.snapshot)
        await self.carrier.drain()


@pytest.mark.asyncio
async def test_a_gang_is_bound_whole_or_not_at_all() -> None:
    scene = Scene(pod("g-0", "g"), pod("g-1", "g"), pod("p"))
    scene.world.push([Deleted("Node", "n1")])
    await scene.carry_out(Bind("a/g-0", "n0"), Bind("a/g-1", "n1"), Bind("a/p", "n0"))
    assert scene.client.bound == {"p"}, "the node of one member went away meanwhile"
    assert scene.world.assumed == {"a/p": "n0"}


@pytest.mark.parametrize("change", ["deleted", "bound"])
@pytest.mark.asyncio
async def test_pods_that_changed_meanwhile_are_decided_on_again(change: str) -> None:
    scene = Scene(pod("p"), pod("q"))
    scene.world.push([Deleted("Pod", "a/p")])
    if change == "bound":
        tree = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "a"}}
        scene.world.push([Put(decode_object({**tree, "spec": {"nodeName": "n1", "containers": []}}))])
    await scene.carry_out(Bind("a/p", "n0"), Bind("a/q", "n0"))
    assert scene.client.bound == {"q"}


@pytest.mark.asyncio
async def test_what_waits_is_counted_by_its_cause() -> None:
    """A cause that holds nothing any more is shown as 0, so that a graph has an end."""
    scene = Scene(pod("a"), pod("b"))
    full, gone = Verdict("GPU_FULL", 1, detail="x"), Verdict("KUEUE_QUEUE_MISSING", 1, detail="y")
    held = {"GPU_FULL": 2.0, "KUEUE_QUEUE_MISSING": 0.0}
    await scene.carrier._report_holds([Hold("a/a", full), Hold("a/b", gone)], {})
    await scene.carrier._report_holds([Hold("a/a", full), Hold("a/b", full)], {})
    told = {
        sample.labels["code"]: sample.value
        for family in scene.metrics.held.collect()
        for sample in family.samples
    }
    assert told == held


@pytest.mark.asyncio
async def test_nobody_is_bound_before_his_place_is_free() -> None:
    scene = Scene(pod("p"), pod("q"))
    await scene.carry_out(Bind("a/p", "n0", after=("a/victim",)), Bind("a/q", "n1"))
    assert scene.client.bound == {"q"}
    assert scene.world.assumed == {"a/q": "n1"}


@pytest.mark.parametrize("kueue_is_live", [False, True])
@pytest.mark.asyncio
async def test_gates_are_lifted_by_whoever_decides(kueue_is_live: bool) -> None:
    scene = Scene(pod("p", gates=[GATE, "example.com/other"]))
    scene.world.kueue_is_live = kueue_is_live
    await scene.carry_out(Bind("a/p", "n0"))
    assert not scene.client.bound
    if kueue_is_live:
        assert scene.client.sent == [], "that gate is Kueue's"
    else:
        (sent,) = scene.client.sent
        assert sent.body["spec"] == {"schedulingGates": [{"name": "example.com/other"}]}, "only Kueue's goes"


def test_a_bind_is_of_one_pod_and_not_of_the_next_of_its_name() -> None:
    request = bind_pod("a/p", "uid-p", "n0", {})
    assert request.body["metadata"] == {"name": "p", "namespace": "a", "uid": "uid-p"}


@pytest.mark.asyncio
async def test_a_new_leader_lists_again_before_it_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its watch may be behind what the last leader bound and admitted."""
    client: Any = Client()
    scheduler = Scheduler(client, SchedulerOptions())
    done: list[str] = []

    async def refresh(*kinds: str) -> None:
        done.append(" ".join(kinds))

    async def run(may_decide: Any) -> None:
        done.append("decides")

    monkeypatch.setattr(scheduler.informers, "relist", refresh)
    monkeypatch.setattr(scheduler.loop, "run", run)
    await asyncio.wait_for(scheduler._run_as_leader(), 60)
    assert done == ["Pod Node Workload", "decides"]


WORKLOAD = {
    "apiVersion": "kueue.x-k8s.io/v1beta2",
    "kind": "Workload",
    "metadata": {"name": "w", "namespace": "a", "uid": "uid-w"},
    "spec": {"queueName": "main", "podSets": [{"name": "main", "count": 1, "template": {"spec": {}}}]},
    "status": {"admission": {"clusterQueue": "team", "podSetAssignments": []}},
}


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("reason", "goes"), [("ClusterQueueStopped", False), ("Deactivated", False), ("Priority", True)]
)
async def test_a_live_kueue_empties_its_queues_itself(reason: str, goes: bool) -> None:
    scene = Scene(pod("p"))
    scene.world.kueue_is_live = True
    scene.world.push([Put(decode_object(WORKLOAD))])
    scene.world.drain_inbox()
    evict = Evict("a/w", ("a/p",), "", reason)
    scene.carrier.execute(Plan((), (), evicts=(evict,)), scene.snapshot)
    await scene.carrier.drain()
    asked = [one for one in scene.client.sent if one.path.endswith("/p/eviction")]
    assert bool(asked) == goes
