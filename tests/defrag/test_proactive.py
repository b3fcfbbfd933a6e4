"""Proactive defragmentation: for which workloads, with which pods, at what loss, and that it terminates."""

from __future__ import annotations

import msgspec
import pytest
from defrag_clusters import NOW, running
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from reference.park import gpu_node, pod
from windlass.cluster.delta import Put
from windlass.cluster.store import Store
from windlass.engine import decide
from windlass.model.codec import decode_object
from windlass.model.configuration import Defragmentation, Settings
from windlass.model.times import format_timestamp
from windlass.placement.defrag.proactive import EVICTION_REASON
from windlass.placement.explain.advisor import MAX_EXPLAINED_HOLDS
from windlass.planner import engine_config

ON = Settings(defrag=Defragmentation(proactive=True, max_moves=4))
CLASS = decode_object(
    {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": "normal"},
        "value": 0,
    }
)


class Cluster:
    """Executes plans: bound pods run, evicted ones are created again and wait."""

    def __init__(self, objects, config=ON):
        self.config = msgspec.structs.replace(engine_config(config), max_explained_holds=MAX_EXPLAINED_HOLDS)
        self.now = NOW
        self.nodes = [
            object_ for object_ in objects if not hasattr(object_, "spec") or not hasattr(object_.spec, "node_name")
        ]
        self.pods = {object_.key: object_ for object_ in objects if object_ not in self.nodes}

    def plan(self):
        store = Store()
        store.apply(Put(object_) for object_ in (*self.nodes, *self.pods.values()))
        return decide(store.snapshot(self.now), self.config, self.now)

    def execute(self, plan):
        """Execute the plan; true if anything changed."""
        self.now += 1
        for evict in plan.evicts:
            for key in evict.pods:
                self._change(key, "", format_timestamp(self.now))
        for bind in plan.binds:
            if not bind.after:
                self._change(bind.pod, bind.node, None)
        return bool(plan.evicts) or any(not bind.after for bind in plan.binds)

    def _change(self, key, node, created):
        current = self.pods[key]
        meta = current.metadata
        if created is not None:
            meta = msgspec.structs.replace(meta, creation_timestamp=created, uid=f"{meta.uid}'")
        spec = msgspec.structs.replace(current.spec, node_name=node)
        self.pods[key] = msgspec.structs.replace(current, metadata=meta, spec=spec)

    def waiting(self):
        """GPUs of all waiting pods."""
        return sum(gpus(waiting_pod) for waiting_pod in self.pods.values() if not waiting_pod.spec.node_name)

    def is_running(self, name):
        members = [member for key, member in self.pods.items() if key.startswith(f"default/{name}")]
        return all(member.spec.node_name for member in members)


def gpus(pod_):
    return int(pod_.spec.containers[0].resources.limits.get("nvidia.com/gpu", 0))


def gang(name, count, size, priority=0):
    created = format_timestamp(NOW - 60)
    return [pod(f"{name}{i}", size, group=(name, count), created=created, priority=priority) for i in range(count)]


def pieces(*free, total=8):
    """Nodes with so many GPUs free; one pod holds the rest of each."""
    objects = [CLASS]
    for i, left in enumerate(free):
        objects.append(gpu_node(f"n{i}", total, cpu=64))
        if left < total:
            objects.append(running(f"p{i}", total - left, on=f"n{i}"))
    return objects


def test_the_smallest_pod_moves_and_the_job_starts_after_it():
    cluster = Cluster([*pieces(7, 6, 8), *gang("w", 2, 8)])
    plan = cluster.plan()
    (evict,) = plan.evicts
    assert (evict.workload, evict.pods, evict.for_workload, evict.reason) == (
        "default/p0",
        ("default/p0",),
        "default/w",
        EVICTION_REASON,
    )
    assert {bind.pod: (bind.node, bind.after) for bind in plan.binds} == {
        "default/w0": ("n0", ("default/p0",)),
        "default/w1": ("n2", ("default/p0",)),
    }
    assert not [hold for hold in plan.holds if hold.workload == "default/w"]
    cluster.execute(plan)
    cluster.execute(cluster.plan())
    assert cluster.is_running("w")
    assert cluster.pods["default/p0"].spec.node_name == "n1"


def test_nothing_moves_unless_the_policy_says_so():
    plan = Cluster([*pieces(7, 7, 8), *gang("w", 2, 8)], Settings()).plan()
    assert not plan.evicts
    (hold,) = plan.holds
    assert hold.verdict.moves


@pytest.mark.parametrize(
    ("case", "objects"),
    [
        ("a bare pod", [running("p0", 1, on="n0", kind=""), running("p1", 1, on="n1", kind="")]),
        ("members of gangs", [running(f"p{i}", 1, on=f"n{i}", group=("g", 2)) for i in range(2)]),
        ("higher priority", [running(f"p{i}", 1, on=f"n{i}", priority=5) for i in range(2)]),
        ("dear work", [running(f"p{i}", 1, on=f"n{i}", age=200_000) for i in range(2)]),
        (
            "told to stay",
            [running(f"p{i}", 1, on=f"n{i}", notes={"karpenter.sh/do-not-disrupt": "true"}) for i in range(2)],
        ),
    ],
)
def test_who_stays(case, objects):
    nodes = [CLASS, *(gpu_node(f"n{i}", 8, cpu=64) for i in range(2))]
    plan = Cluster([*nodes, *objects, *gang("w", 1, 8)]).plan()
    assert not plan.evicts, case


def test_a_checkpoint_makes_dear_work_cheap():
    notes = {"windlass.dev/last-checkpoint": format_timestamp(NOW - 60)}
    nodes = [CLASS, *(gpu_node(f"n{i}", 8, cpu=64) for i in range(2))]
    old = [running("p0", 1, on="n0", age=200_000), running("p1", 1, on="n1", age=200_000, notes=notes)]
    (evict,) = Cluster([*nodes, *old, *gang("w", 1, 8)]).plan().evicts
    assert evict.pods == ("default/p1",)


def test_no_more_moves_than_allowed():
    objects = [CLASS]
    for i in range(3):
        objects.append(gpu_node(f"n{i}", 8, cpu=64))
        objects += [running(f"p{i}{k}", 1, on=f"n{i}") for k in range(2)]
    assert len(Cluster([*objects, *gang("w", 1, 8)]).plan().evicts) == 2
    few = Settings(defrag=Defragmentation(proactive=True, max_moves=1))
    assert not Cluster([*objects, *gang("w", 1, 8)], few).plan().evicts


def test_while_a_pod_leaves_nothing_moves():
    objects = [*pieces(7, 7, 8), *gang("w", 2, 8)]
    leaving = running("gone", 1, on="n2")
    meta = msgspec.structs.replace(leaving.metadata, deletion_timestamp=format_timestamp(NOW))
    objects.append(msgspec.structs.replace(leaving, metadata=meta))
    assert not Cluster(objects).plan().evicts


def test_who_waits_before_it_would_take_the_room():
    """Moves are made for the older of two jobs of the same size."""
    first = [msgspec.structs.replace(member) for member in gang("a", 1, 8)]
    plan = Cluster([*pieces(6, 6), *first, *gang("b", 1, 8)]).plan()
    assert {evict.for_workload for evict in plan.evicts} == {"default/a"}


def test_no_move_where_somebody_before_it_would_take_both_places():
    """Without `p0`, the older gang fits on the node of `p0` and on the node to which `p0` would move."""
    full = running("p1", 7, on="n1", kind="")
    objects = [CLASS, gpu_node("n0", 8, cpu=64), gpu_node("n1", 8, cpu=64), running("p0", 1, on="n0"), full]
    assert Cluster([*objects, *gang("b", 1, 8)]).plan().evicts
    older = [pod(f"a{i}", size, group=("a", 2), created=format_timestamp(NOW - 90)) for i, size in enumerate((8, 1))]
    assert not Cluster([*objects, *older, *gang("b", 1, 8)]).plan().evicts


@st.composite
def clusters(draw):
    objects = [CLASS]
    for i in range(draw(st.integers(2, 5))):
        objects.append(gpu_node(f"n{i}", 8, cpu=64))
        left = 8
        for k in range(draw(st.integers(0, 3))):
            size = draw(st.sampled_from((1, 1, 2, 4)))
            if size <= left:
                left -= size
                kind = draw(st.sampled_from(("ReplicaSet", "ReplicaSet", "")))
                priority = draw(st.sampled_from((0, 0, 1)))
                objects.append(running(f"p{i}{k}", size, on=f"n{i}", kind=kind, priority=priority))
    for name in "abc"[: draw(st.integers(1, 3))]:
        count, size = draw(st.integers(1, 3)), draw(st.sampled_from((2, 4, 8)))
        objects += gang(name, count, size, draw(st.sampled_from((0, 0, 1))))
    return objects


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(clusters())
def test_every_set_of_moves_starts_somebody_larger_and_it_comes_to_rest(objects):
    cluster = Cluster(objects)
    bare = {running_pod.key for running_pod in cluster.pods.values() if not running_pod.metadata.owner_references}
    before, promised = cluster.waiting(), ""
    sets = 0
    for _ in range(30):
        plan = cluster.plan()
        moved = [evict for evict in plan.evicts if evict.reason == EVICTION_REASON]
        if promised:
            assert any(bind.pod.startswith(promised) and not bind.after for bind in plan.binds)
        if moved:
            sets += 1
            assert not bare & {key for evict in moved for key in evict.pods}
            target = moved[0].for_workload
            asked = sum(gpus(running_pod) for key, running_pod in cluster.pods.items() if key.startswith(target))
            assert sum(gpus(cluster.pods[key]) for evict in moved for key in evict.pods) < asked
        if not cluster.execute(plan):
            break
        if promised:
            assert cluster.waiting() < before
            promised = ""
        if moved:
            promised, before = (
                target,
                cluster.waiting() - sum(gpus(cluster.pods[key]) for evict in moved for key in evict.pods),
            )
        for node in (f"n{i}" for i in range(5)):
            assert (
                sum(gpus(running_pod) for running_pod in cluster.pods.values() if running_pod.spec.node_name == node)
                <= 8
            )
    else:
        raise AssertionError("it doesn't come to rest")
    event(f"{sets} sets of moves")
