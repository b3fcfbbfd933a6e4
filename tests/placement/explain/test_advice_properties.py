"""The advice of a verdict is true: every change, end or move that it names does start the workload.

The engine decides again on the objects after the change, so that a mistake in a dry run is found.
"""

from __future__ import annotations

import msgspec
from hypothesis import HealthCheck, assume, event, given, settings
from hypothesis import strategies as st
from tests.placement.explain.held_gangs import (
    NOW,
    QUEUE,
    SECRET,
    Cluster,
    GangRequest,
    clusters,
    gang_requests,
    queue_objects,
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
    """Whether all pods of the gang are bound, without an eviction."""
    plan = plan_of(objects)
    bound = [bind for bind in plan.binds if bind.pod.startswith("default/w")]
    return len(bound) == pods and not plan.evicts and not any(bind.after for bind in bound)


@FEW
@given(clusters(), gang_requests())
def test_every_change_that_is_named_starts_it(cluster, request):
    verdict = held(plan_of(cluster.with_gang(request)))
    assume(verdict is not None)
    for change in verdict.changes:
        event(change.kind)
        changed = request.with_change(change)
        assert starts(cluster.with_gang(changed), changed.pods), change
    losses = [change.loss for change in verdict.changes]
    assert losses == sorted(losses)


@FEW
@given(clusters(), gang_requests(), st.integers(0, 24))
def test_changes_and_limits_under_quota(cluster, request, quota):
    queued = msgspec.structs.replace(request, queue="lq")
    objects = [*queue_objects(quota), *cluster.with_gang(queued)]
    verdict = held(plan_of(objects))
    assume(verdict is not None)
    event(verdict.code)
    if verdict.code == "KUEUE_QUOTA_INSUFFICIENT":
        (limit,) = [limit for limit in verdict.limits if limit.kind == "quota"]
        assert (limit.queue, limit.flavor, limit.resource) == ("cq", "f", "nvidia.com/gpu")
        assert (limit.needed, limit.available) == (str(request.pods * request.gpus), str(quota))
        assert verdict.is_infeasible
    for change in verdict.changes:
        changed = queued.with_change(change)
        assert changed.pods * changed.gpus <= quota
        assert starts([*queue_objects(quota), *cluster.with_gang(changed)], changed.pods), change


@FEW
@given(clusters(), gang_requests())
def test_once_those_have_ended_whom_it_names_it_starts(cluster, request):
    verdict = held(plan_of(cluster.with_gang(request)))
    assume(verdict is not None and verdict.relief is not None)
    relief = verdict.relief
    assert relief.workloads == len(relief.names) == sum(relief.of.values())
    limited = {pod.key for pod in cluster.running if pod.spec.active_deadline_seconds}
    assert (relief.at is not None) == (set(relief.names) <= limited)
    assert starts(cluster.with_gang(request, without=relief.names), request.pods)


@FEW
@given(clusters(), gang_requests())
def test_after_the_moves_that_it_offers_it_starts(cluster, request):
    verdict = held(plan_of(cluster.with_gang(request)))
    assume(verdict is not None and verdict.moves)
    event(f"{len(verdict.moves)} moves")
    to = {move.pod: move.to_node for move in verdict.moves}
    nodes = {pod.key: pod.spec.node_name for pod in cluster.running}
    assert all(nodes[move.pod] == move.from_node for move in verdict.moves[:1])
    moved = tuple(
        msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, node_name=to[pod.key]))
        if pod.key in to
        else pod
        for pod in cluster.running
    )
    assert all(pod.metadata.owner_references for pod in moved if pod.key in to)
    assert starts(msgspec.structs.replace(cluster, running=moved).with_gang(request), request.pods)


@FEW
@given(clusters(), gang_requests())
def test_what_is_infeasible_doesnt_start_on_the_empty_cluster_and_nothing_else_is_called_so(cluster, request):
    verdict = held(plan_of(cluster.with_gang(request)))
    assume(verdict is not None)
    alone = starts(cluster.with_gang(request, without=[pod.key for pod in cluster.running]), request.pods)
    event(f"infeasible {verdict.is_infeasible}, alone {alone}")
    if verdict.is_infeasible:
        assert not alone
        assert verdict.relief is None
    if alone:
        assert not verdict.is_infeasible


@FEW
@given(clusters(), gang_requests())
def test_fragmented_means_that_enough_is_free_in_all(cluster, request):
    verdict = held(plan_of(cluster.with_gang(request)))
    assume(verdict is not None and verdict.code in ("GPU_FULL", "GPU_FRAGMENTED"))
    used = {}
    for pod in cluster.running:
        gpus = int(pod.spec.containers[0].resources.limits["nvidia.com/gpu"])
        used[pod.spec.node_name] = used.get(pod.spec.node_name, 0) + gpus
    free = sum(
        int(node.status.allocatable["nvidia.com/gpu"]) - used.get(node.name, 0)
        for node in cluster.objects[:-1]
        if not node.spec.taints and request.product in ("", node.labels["nvidia.com/gpu.product"])
    )
    assert (verdict.code == "GPU_FRAGMENTED") == (free >= request.pods * request.gpus)


@FEW
@given(clusters(), gang_requests())
def test_owners_are_told_nothing_of_others(cluster, request):
    verdict = held(plan_of(cluster.with_gang(request)))
    assume(verdict is not None)
    names = [pod.metadata.name for pod in cluster.running]
    message = verdict.public_message
    assert message
    assert not any(name in message for name in (*names, "other/", SECRET))


@FEW
@given(clusters(), gang_requests(), gang_requests())
def test_explaining_changes_nothing(cluster, request, second):
    store, cache = Store(), EngineCache()
    plain, config = EngineConfig(), EngineConfig(max_explained_holds=MAX_EXPLAINED_HOLDS)
    store.apply(Put(object_) for object_ in cluster.with_gang(request))
    snapshot = store.snapshot(NOW)
    before = decide(snapshot, plain, NOW, cache)
    plan = decide(snapshot, config, NOW, cache)
    assert (plan.binds, plan.admits, plan.evicts) == (before.binds, before.admits, before.evicts)
    assert [hold.workload for hold in plan.holds] == [hold.workload for hold in before.holds]
    assert decide(snapshot, plain, NOW, cache) == before
    assert decide(snapshot, config, NOW, cache) == plan
    store.apply(Put(object_) for object_ in second.objects())
    assert decide(store.snapshot(NOW), config, NOW) == decide(store.snapshot(NOW), config, NOW, cache)


def test_a_queue_label_is_the_only_thing_that_a_queue_needs():
    """The helper's own sanity: without room in quota the gang is held for quota, with it it starts."""
    cluster = Cluster((gpu_node("n0", 8), gpu_node("n1", 8)), ())
    request = GangRequest(2, 8, queue="lq")
    assert request.objects()[0].metadata.labels[QUEUE] == "lq"
    assert starts([*queue_objects(16), *cluster.with_gang(request)], 2)
    assert held(plan_of([*queue_objects(15), *cluster.with_gang(request)])).code == "KUEUE_QUOTA_INSUFFICIENT"
