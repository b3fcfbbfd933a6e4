"""Every plan can be executed move by move, moves no protected pod, and has the effect that it says."""

from __future__ import annotations

import msgspec
from defrag_clusters import NOW, Account, clusters, plan_for
from hypothesis import given
from hypothesis import strategies as st

from windlass.defrag.baseline import objects_after_moves
from windlass.model.configuration import Settings
from windlass.model.pod import Pod
from windlass.model.times import parse_timestamp
from windlass.planner import plan_objects


def binds_of(objects):
    plan, _ = plan_objects(objects, Settings(), NOW)
    assert not plan.evicts
    return {bind.pod: bind for bind in plan.binds}


@given(objects=clusters() | clusters(shares=True), most=st.sampled_from((1, 2, 4, 16)))
def test_the_moves_can_be_made_and_help(objects, most):
    plan = plan_for(objects, max_moves=most, steps=400)
    account = Account(objects)
    pods = {pod.key: pod for pod in objects if isinstance(pod, Pod)}
    lost = 0
    for move in plan.moves:
        assert pods[move.pod].metadata.owner_references, "nothing creates a bare pod again"
        if not move.is_stop:
            age = NOW - parse_timestamp(pods[move.pod].status.start_time)
            lost += account.gpu_milli(move.pod) * age
        account.move(move)
    assert len(plan.moves) <= most
    assert plan.lost_milli_seconds == lost
    before, after = binds_of(objects), binds_of(objects_after_moves(objects, plan.moves))
    assert before.keys() <= after.keys()
    members = {key for key in pods if key.startswith("default/w")}
    if not plan.starts:
        assert not plan.moves
        assert after.keys() == before.keys()
        return
    assert not members & before.keys()
    assert members <= after.keys()
    for bind in after.values():
        account.put(bind.pod, bind.node, bind.devices)
    (start,) = plan.starts
    assert (start.pods, start.moves) == (len(members), len(plan.moves))
    assert start.gpu_milli == sum(account.gpu_milli(key) for key in members)
    assert (start.bound_milli_seconds, start.bound_moves) <= (lost, len(plan.moves))


@given(objects=clusters(shares=True))
def test_the_same_objects_give_the_same_plan(objects):
    first, second = (plan_for(objects, steps=300) for _ in range(2))
    assert msgspec.json.encode(first) == msgspec.json.encode(second)


@given(objects=clusters(), data=st.data())
def test_pods_that_are_to_be_left_alone_are(objects, data):
    marks = (
        {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"},
        {"karpenter.sh/do-not-disrupt": "true"},
    )
    marked = []
    for object_ in objects:
        if isinstance(object_, Pod) and object_.spec.node_name and data.draw(st.booleans()):
            notes = {**object_.metadata.annotations, **data.draw(st.sampled_from(marks))}
            object_ = msgspec.structs.replace(
                object_, metadata=msgspec.structs.replace(object_.metadata, annotations=notes)
            )
        marked.append(object_)
    plan = plan_for(marked, steps=300)
    notes = {object_.key: object_.metadata.annotations for object_ in marked if isinstance(object_, Pod)}
    assert not any(notes[move.pod].keys() & (marks[0].keys() | marks[1].keys()) for move in plan.moves)
