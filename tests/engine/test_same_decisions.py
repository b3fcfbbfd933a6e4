"""What may not matter doesn't: what else is in the cluster, in which order it came, and how things are called.

The worlds hold lone pods, gangs in every form, queued work and running pods (`tests/invariants/crowds.py`). A plan is a
value, so that every one of these is a comparison of plans. `WINDLASS_CROWDS` sets how many worlds; `WINDLASS_SEED`
where they begin.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from random import Random

import msgspec
import pytest
from tests.engine.plain_objects import node, pod
from tests.invariants.crowds import NOW, bystanders, crowd, lone_crowd, longer_names, names_in, renamed

from windlass import engine, jit
from windlass.cluster.delta import Put
from windlass.cluster.store import Store
from windlass.engine import EngineCache, decide
from windlass.model.codec import decode_object
from windlass.model.configuration import Settings
from windlass.model.plan import Plan
from windlass.model.priority import resolve_priorities
from windlass.placement import gang, score_table
from windlass.planner import engine_config, plan_objects

UNUSED_CLASS = {
    "apiVersion": "scheduling.k8s.io/v1",
    "kind": "PriorityClass",
    "metadata": {"name": "unused"},
    "value": 1,
}
COUNT = int(os.environ.get("WINDLASS_CROWDS", "60"))
FIRST = int(os.environ.get("WINDLASS_SEED", "1"))
SEEDS = range(FIRST, FIRST + COUNT)


def planned(objects) -> Plan:
    return plan_objects([decode_object(obj) for obj in objects], Settings(), NOW)[0]


@pytest.mark.parametrize("seed", SEEDS)
def test_objects_that_nothing_refers_to_change_nothing(seed):
    rng = Random(seed)
    objects = crowd(rng)
    expected = planned(objects)
    others = bystanders(rng)
    for number, one in enumerate(others):
        assert planned([*objects, one]) == expected, one["kind"]
        assert planned([one, *objects]) == expected, one["kind"]
        if number % 3 == 0:
            assert planned([*objects, *others]) == expected


@pytest.mark.parametrize("seed", SEEDS)
def test_the_order_of_the_objects_changes_nothing(seed):
    rng = Random(seed)
    objects = crowd(rng)
    expected = planned(objects)
    for _ in range(3):
        rng.shuffle(objects)
        assert planned(objects) == expected


@pytest.mark.parametrize("seed", SEEDS)
def test_other_names_in_the_same_order_change_nothing(seed):
    objects = crowd(Random(seed))
    names = longer_names(names_in(objects))
    other = json.loads(renamed(json.dumps(objects), names))
    expected = renamed(msgspec.json.encode(planned(objects)).decode(), names)
    assert msgspec.json.decode(msgspec.json.encode(planned(other))) == msgspec.json.decode(expected)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_plan_survives_json(seed):
    plan = planned(crowd(Random(seed)))
    assert msgspec.json.decode(msgspec.json.encode(plan), type=Plan) == plan


@pytest.mark.parametrize("seed", SEEDS)
def test_compiled_and_warm_give_the_same_plan(seed, monkeypatch):
    objects = [decode_object(obj) for obj in crowd(Random(seed))]
    plain = plan_objects(objects, Settings(), NOW)[0]
    config = msgspec.structs.replace(engine_config(Settings()), max_explained_holds=32)
    store, memo = Store(), EngineCache()
    store.apply(Put(obj) for obj in resolve_priorities(objects))
    snapshot = store.snapshot(NOW)
    assert decide(snapshot, config, NOW, memo) == plain
    assert decide(snapshot, config, NOW, memo) == plain, "warm"
    for kernels in (jit.interpreted(), jit.compiled()):
        monkeypatch.setattr(jit, "kernels", lambda small, made=kernels: made)
        assert plan_objects(objects, Settings(), NOW)[0] == plain


HELD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {
        "name": "held",
        "namespace": "elsewhere",
        "uid": "held",
        "labels": {"kueue.x-k8s.io/queue-name": "none"},
    },
    "spec": {"containers": [{"name": "c"}]},
}


@pytest.mark.parametrize("seed", SEEDS)
def test_lone_pods_are_placed_the_same_at_once_and_one_by_one(seed, monkeypatch):
    """The compiled loop, and every pod as a workload that goes through the rounds."""
    objects = [*lone_crowd(Random(seed)), HELD]
    at_once = planned(objects)
    monkeypatch.setattr(
        engine,
        "single_pods_between",
        lambda turns, alone: [workload for workload in alone if workload.admission is None],
    )
    one_by_one = planned(objects)
    assert sorted(one_by_one.binds, key=lambda bind: bind.pod) == sorted(at_once.binds, key=lambda bind: bind.pod)
    assert {(evict.workload, evict.pods) for evict in one_by_one.evicts} == {
        (evict.workload, evict.pods) for evict in at_once.evicts
    }
    assert {hold.workload: hold.verdict.code for hold in one_by_one.holds} == {
        hold.workload: hold.verdict.code for hold in at_once.holds
    }


@pytest.mark.parametrize("seed", SEEDS)
def test_members_of_gangs_are_placed_the_same_by_the_compiled_loop_and_one_by_one(seed, monkeypatch):
    objects = crowd(Random(seed))
    monkeypatch.setattr(gang, "MIN_PODS_FOR_KERNEL", 10**9)
    one_by_one = planned(objects)
    monkeypatch.setattr(gang, "MIN_PODS_FOR_KERNEL", 1)
    assert planned(objects) == one_by_one


def of_their_own_shape(objects) -> None:
    """Every third pod with a request that no other has."""
    for number, one in enumerate(obj for obj in objects if obj["kind"] == "Pod"):
        if number % 3:
            resources = one["spec"]["containers"][0].setdefault("resources", {})
            resources.setdefault("limits", {})["memory"] = str(number + 1)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_small_score_table_gives_the_same_plan(seed, monkeypatch):
    """Rows whose cells are dropped within the decision, as those of a tenant's thousand shapes are."""
    drawn = (lone_crowd if seed % 2 else crowd)(Random(seed))
    of_their_own_shape(drawn)
    objects = [decode_object(obj) for obj in drawn]
    config = msgspec.structs.replace(engine_config(Settings()), max_explained_holds=32)
    plans = []
    for size in (score_table.MAX_BYTES, 0):
        monkeypatch.setattr(score_table, "MAX_BYTES", size)
        monkeypatch.setattr(score_table, "MIN_ROWS_WITH_CELLS", 2)
        store, memo = Store(), EngineCache()
        store.apply(Put(obj) for obj in resolve_priorities(objects))
        snapshot = store.snapshot(NOW)
        plans += [decide(snapshot, config, NOW, memo), decide(snapshot, config, NOW, memo)]
    assert plans == [plans[0]] * 4


FRESH = """
import json, sys, msgspec
from windlass.model.configuration import Settings
from windlass.model.codec import decode_object
from windlass.planner import plan_objects
for line in sys.stdin:
    world = json.loads(line)
    plan, _ = plan_objects([decode_object(one) for one in world["objects"]], Settings(), world["now"])
    print(msgspec.json.encode(plan).decode())
"""


@pytest.mark.parametrize("hashes", ["1", "2"])
def test_a_fresh_process_decides_the_same(hashes):
    """Sets and dicts come in another order there."""
    worlds = [{"objects": crowd(Random(seed)), "now": NOW} for seed in SEEDS]
    told = "\n".join(json.dumps(world) for world in worlds)
    env = {**os.environ, "PYTHONHASHSEED": hashes}
    found = subprocess.run([sys.executable, "-c", FRESH], input=told, env=env, capture_output=True, text=True)
    assert found.returncode == 0, found.stderr
    for world, line in zip(worlds, found.stdout.splitlines(), strict=True):
        assert msgspec.json.decode(line, type=Plan) == planned(world["objects"])


def test_a_gang_of_two_sizes_fits_whatever_else_there_is():
    """The largest member first: a greedy loop in the order of names gave the large node to the small pod."""
    group = {"labels": {"kueue.x-k8s.io/pod-group-name": "g"}}
    total = {"annotations": {"kueue.x-k8s.io/pod-group-total-count": "2"}}
    gang = [pod(f"w-{i}", gpus, metadata={**group, **total}) for i, gpus in enumerate((1, 8))]
    objects = [node("n1", 8), node("n2", 1), *gang]
    for other in ([], [UNUSED_CLASS]):
        plan = planned([*objects, *other])
        assert {bind.pod: bind.node for bind in plan.binds} == {"default/w-0": "n2", "default/w-1": "n1"}


PAST = {
    "apiVersion": "windlass.dev/v1",
    "kind": "Reservation",
    "metadata": {"name": "past"},
    "spec": {
        "gpus": 4,
        "from": "2020-01-01T00:00:00Z",
        "until": "2020-01-02T00:00:00Z",
        "who": {"namespaces": ["elsewhere"]},
    },
}


def placed(objects) -> dict[str, str]:
    return {bind.pod: bind.node for bind in planned(objects).binds}


def test_a_pod_without_a_date_comes_behind_those_that_have_one_also_where_lone_pods_go_one_by_one():
    """`plan` reads manifests, which have no creationTimestamp; a reservation that is over changes nothing."""
    dated = pod("z-dated", 8)
    undated = pod("a-undated", 8)
    del undated["metadata"]["creationTimestamp"]
    objects = [node("n1", 8), undated, dated]
    assert placed(objects) == {"default/z-dated": "n1"} == placed([*objects, PAST])


@pytest.mark.parametrize("note", ["podset-required-topology", "podset-slice-size"])
def test_what_a_lone_pod_says_of_topology_is_read_in_both_ways_or_in_none(note):
    lone = pod("lone", 1, metadata={"annotations": {f"kueue.x-k8s.io/{note}": "nowhere"}})
    objects = [node("n1", 8), lone]
    assert placed(objects) == placed([*objects, PAST]) == {"default/lone": "n1"}


def test_a_pod_that_is_deleted_before_it_began_takes_nobodys_place():
    gone = pod("a", 8, metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"})
    objects = [node("n1", 8), gone, pod("b", 8)]
    assert placed(objects) == placed([*objects, PAST]) == {"default/b": "n1"}
    assert not planned(objects).holds


def test_the_oldest_pod_of_an_owner_speaks_for_the_others_whatever_the_order_of_the_file():
    owner = {"apiVersion": "ray.io/v1", "kind": "RayCluster", "name": "ray", "uid": "ray", "controller": True}
    ray = {"apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": {"name": "ray"}}
    pods = [pod(f"w-{gpus}", gpus, metadata={"ownerReferences": [owner]}) for gpus in (0, 4)]
    objects = [node("n1", 2), ray, *pods]
    assert planned(objects) == planned(objects[::-1])
