"""What a verdict promises holds: every change, end or move that it names does start the workload.

The engine is asked again on the objects as they would be, so that a promise that rests on a mistake in a trial fails.
"""

from __future__ import annotations

import msgspec
from hypothesis import HealthCheck, assume, event, given, settings
from hypothesis import strategies as st
from tests.placement.explain.held_gangs import (
    NOW,
    QUEUE,
    SECRET,
    Ask,
    Scenery,
    asks,
    queue_objects,
    sceneries,
)

from reference.park import gpu_node
from windlass.cluster.delta import Put
from windlass.cluster.store import Store
from windlass.engine import EngineCache, EngineConfig, decide
from windlass.model.configuration import Settings
from windlass.placement.explain.advisor import MAX_EXPLAINED_HOLDS
from windlass.planner import plan_objects

FEW = settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.filter_too_much])
W = "default/w"


def plan_of(objects):
    return plan_objects(objects, Settings(), NOW)[0]


def held(plan):
    return next((hold.verdict for hold in plan.holds if hold.workload == W), None)


def starts(objects, pods):
    """All pods of the gang are bound, and nobody has to go for it."""
    plan = plan_of(objects)
    bound = [bind for bind in plan.binds if bind.pod.startswith("default/w")]
    return len(bound) == pods and not plan.evicts and not any(bind.after for bind in bound)


@FEW
@given(sceneries(), asks())
def test_every_change_that_is_named_starts_it(scenery, ask):
    verdict = held(plan_of(scenery.with_gang(ask)))
    assume(verdict is not None)
    for change in verdict.changes:
        event(change.kind)
        changed = ask.with_change(change)
        assert starts(scenery.with_gang(changed), changed.pods), change
    losses = [change.loss for change in verdict.changes]
    assert losses == sorted(losses)


@FEW
@given(sceneries(), asks(), st.integers(0, 24))
def test_changes_and_limits_under_quota(scenery, ask, quota):
    queued = msgspec.structs.replace(ask, queue="lq")
    objects = [*queue_objects(quota), *scenery.with_gang(queued)]
    verdict = held(plan_of(objects))
    assume(verdict is not None)
    event(verdict.code)
    if verdict.code == "KUEUE_QUOTA_INSUFFICIENT":
        (limit,) = [one for one in verdict.limits if one.kind == "quota"]
        assert (limit.queue, limit.flavor, limit.resource) == ("cq", "f", "nvidia.com/gpu")
        assert (limit.needed, limit.available) == (str(ask.pods * ask.gpus), str(quota))
        assert verdict.is_infeasible
    for change in verdict.changes:
        changed = queued.with_change(change)
        assert changed.pods * changed.gpus <= quota
        assert starts([*queue_objects(quota), *scenery.with_gang(changed)], changed.pods), change


@FEW
@given(sceneries(), asks())
def test_once_those_have_ended_whom_it_names_it_starts(scenery, ask):
    verdict = held(plan_of(scenery.with_gang(ask)))
    assume(verdict is not None and verdict.relief is not None)
    relief = verdict.relief
    assert relief.workloads == len(relief.names) == sum(relief.of.values())
    limited = {one.key for one in scenery.running if one.spec.active_deadline_seconds}
    assert (relief.at is not None) == (set(relief.names) <= limited)
    assert starts(scenery.with_gang(ask, without=relief.names), ask.pods)


@FEW
@given(sceneries(), asks())
def test_after_the_moves_that_it_offers_it_starts(scenery, ask):
    verdict = held(plan_of(scenery.with_gang(ask)))
    assume(verdict is not None and verdict.moves)
    event(f"{len(verdict.moves)} moves")
    to = {move.pod: move.to_node for move in verdict.moves}
    there = {one.key: one.spec.node_name for one in scenery.running}
    assert all(there[move.pod] == move.from_node for move in verdict.moves[:1])
    moved = tuple(
        msgspec.structs.replace(one, spec=msgspec.structs.replace(one.spec, node_name=to[one.key]))
        if one.key in to
        else one
        for one in scenery.running
    )
    assert all(one.metadata.owner_references for one in moved if one.key in to)
    assert starts(msgspec.structs.replace(scenery, running=moved).with_gang(ask), ask.pods)


@FEW
@given(sceneries(), asks())
def test_what_is_infeasible_doesnt_start_on_the_empty_cluster_and_nothing_else_is_called_so(scenery, ask):
    verdict = held(plan_of(scenery.with_gang(ask)))
    assume(verdict is not None)
    alone = starts(scenery.with_gang(ask, without=[one.key for one in scenery.running]), ask.pods)
    event(f"infeasible {verdict.is_infeasible}, alone {alone}")
    if verdict.is_infeasible:
        assert not alone
        assert verdict.relief is None
    if alone:
        assert not verdict.is_infeasible


@FEW
@given(sceneries(), asks())
def test_fragmented_means_that_enough_is_free_in_all(scenery, ask):
    verdict = held(plan_of(scenery.with_gang(ask)))
    assume(verdict is not None and verdict.code in ("GPU_FULL", "GPU_FRAGMENTED"))
    used = {}
    for one in scenery.running:
        gpus = int(one.spec.containers[0].resources.limits["nvidia.com/gpu"])
        used[one.spec.node_name] = used.get(one.spec.node_name, 0) + gpus
    free = sum(
        int(node.status.allocatable["nvidia.com/gpu"]) - used.get(node.name, 0)
        for node in scenery.objects[:-1]
        if not node.spec.taints and ask.product in ("", node.labels["nvidia.com/gpu.product"])
    )
    assert (verdict.code == "GPU_FRAGMENTED") == (free >= ask.pods * ask.gpus)


@FEW
@given(sceneries(), asks())
def test_owners_are_told_nothing_of_others(scenery, ask):
    verdict = held(plan_of(scenery.with_gang(ask)))
    assume(verdict is not None)
    names = [one.metadata.name for one in scenery.running]
    told = verdict.public_message
    assert told
    assert not any(name in told for name in (*names, "other/", SECRET))


@FEW
@given(sceneries(), asks(), asks())
def test_explaining_changes_nothing(scenery, ask, second):
    store, memo = Store(), EngineCache()
    plain, config = EngineConfig(), EngineConfig(max_explained_holds=MAX_EXPLAINED_HOLDS)
    store.apply(Put(one) for one in scenery.with_gang(ask))
    snapshot = store.snapshot(NOW)
    before = decide(snapshot, plain, NOW, memo)
    plan = decide(snapshot, config, NOW, memo)
    assert (plan.binds, plan.admits, plan.evicts) == (before.binds, before.admits, before.evicts)
    assert [hold.workload for hold in plan.holds] == [hold.workload for hold in before.holds]
    assert decide(snapshot, plain, NOW, memo) == before
    assert decide(snapshot, config, NOW, memo) == plan
    store.apply(Put(one) for one in second.objects())
    assert decide(store.snapshot(NOW), config, NOW) == decide(store.snapshot(NOW), config, NOW, memo)


def test_a_queue_label_is_the_only_thing_that_a_queue_needs():
    """The helper's own sanity: without room in quota the gang is held for quota, with it it starts."""
    scenery = Scenery((gpu_node("n0", 8), gpu_node("n1", 8)), ())
    ask = Ask(2, 8, queue="lq")
    assert ask.objects()[0].metadata.labels[QUEUE] == "lq"
    assert starts([*queue_objects(16), *scenery.with_gang(ask)], 2)
    assert held(plan_of([*queue_objects(15), *scenery.with_gang(ask)])).code == "KUEUE_QUOTA_INSUFFICIENT"
