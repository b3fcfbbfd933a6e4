"""What may not matter doesn't: compiled or not, in which order objects came, at once or one by one, twice the same."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reference.park import Desk, gpu_node, in_bytes, node, pod
from reference.parks import any_pods, in_order, parks, plain_pods, queues, running
from windlass import jit, kernel_library
from windlass.cluster.delta import Deleted
from windlass.engine import EngineCache, EngineConfig, decide
from windlass.placement.overlay import Overlay
from windlass.placement.policies import POLICIES, SCORERS, PlacementConfig, make_scoring_rule
from windlass.placement.score_table import ScoreTable
from windlass.placement.scorer_selector import ScorerSelector
from windlass.placement.single_pod_placer import SinglePodPlacer
from windlass.placement.workload_mix import mix_arrays, mix_of
from windlass.queueing.queue_sort import sort_pending_pods

policies = st.sampled_from(POLICIES)
few = settings(max_examples=settings.default.max_examples // 4)


def mix_from(*pods):
    """The workload to expect: these pods, whose shapes a store has read."""
    snapshot = Desk(*pods).store.snapshot()
    return mix_of((snapshot.shapes[int(number)], 1) for number in snapshot.pods.shape if number >= 0)


def place(snapshot, policy, mix, kernels):
    """The whole table and the outcome of one pass, by these kernels."""
    table = ScoreTable(
        snapshot, mix_arrays(mix, snapshot.gpu_models, snapshot.node_state), ScorerSelector(SCORERS[policy])
    )
    with np.errstate(over="ignore"):
        overlay = Overlay(snapshot, table, make_scoring_rule(PlacementConfig(policy), snapshot.node_state), kernels)
        placed = SinglePodPlacer(overlay, sort_pending_pods(snapshot)).run()
    verdicts = [failure.verdict() for failure in placed.failures]
    arrays = [array.tobytes() for array in (*table.cells, *table.memo, *overlay.state, placed.failure)]
    taken = placed.node >= 0
    return arrays, placed.node.tolist(), placed.grant[taken].tolist(), verdicts


@pytest.mark.parametrize("policy", POLICIES)
@few
@given(nodes=parks(most=3), pods=queues(most=6), data=st.data())
def test_compiled_and_interpreted_kernels_fill_the_same_table(policy, nodes, pods, data):
    desk = Desk(*nodes, *data.draw(running(nodes)), *pods)
    snapshot, mix = desk.store.snapshot(), mix_from(*pods)
    plain = place(snapshot, policy, mix, jit.interpreted())
    assert jit.compiled().place_queue.__module__ == kernel_library.__name__, "make env has compiled them ahead of time"
    assert place(snapshot, policy, mix, jit.compiled()) == plain
    assert place(snapshot, policy, mix, jit.compiled_now()) == plain


@pytest.mark.parametrize("size", [31, 32, 33, 100])
def test_so_they_do_where_nodes_fill_several_blocks(size):
    """A row keeps the best of every 32 nodes; the edges of those blocks are where a kernel could go wrong."""
    nodes = [gpu_node(f"n{index:03}", 1 + index % 4, cpu=4 + index % 7) for index in range(size)]
    pods = [pod(f"p{index}", share=f"0.{1 + index % 9}", cpu=f"{1 + index % 3}") for index in range(2 * size)]
    snapshot, mix = Desk(*nodes, *pods).store.snapshot(), mix_from(*pods)
    for policy in ("windlass", "fgd", "random"):
        found = place(snapshot, policy, mix, jit.compiled())
        assert found == place(snapshot, policy, mix, jit.interpreted())
        assert min(found[1]) >= 0


@few
@given(
    nodes=parks(most=3),
    batches=st.lists(st.lists(any_pods("p"), max_size=3), min_size=2, max_size=4),
    policy=policies,
    data=st.data(),
)
def test_a_memo_changes_no_plan(nodes, batches, policy, data):
    """Pods come and go between decisions, and the memo of the first is there at the last."""
    desk = Desk(*nodes, policy=policy)
    there = []
    for number, batch in enumerate(batches):
        pods = [renamed(each, f"p{number}-{index}") for index, each in enumerate(batch)]
        desk.put(*pods)
        there += pods
        if there and data.draw(st.booleans()):
            desk.apply(Deleted("Pod", there.pop(data.draw(st.integers(0, len(there) - 1))).key))
        snapshot = desk.store.snapshot()
        assert in_bytes(desk.plan()) == in_bytes(decide(snapshot, desk.config, 0))
        desk.run()
        desk.store.mark_decided(snapshot.pods.pending())


def renamed(made, name):
    return msgspec.structs.replace(made, metadata=msgspec.structs.replace(made.metadata, name=name, uid=name))


@given(nodes=parks(), pods=queues(), policy=policies, data=st.data())
def test_the_order_in_which_nodes_are_named_changes_nothing(nodes, pods, policy, data):
    mix = mix_from(*pods)
    plan = Desk(*nodes, *pods, policy=policy, mix=mix).plan()
    shuffled = data.draw(st.permutations(nodes))
    ranks = {node.name: 7 for node in nodes}
    assert in_bytes(Desk(*shuffled, *pods, policy=policy, mix=mix, ranks=ranks).plan()) == in_bytes(plan)
    assert in_bytes(Desk(*pods, *shuffled, policy=policy, mix=mix).plan()) == in_bytes(plan)


@given(nodes=parks(), pods=queues(), policy=policies)
def test_what_placement_does_not_read_changes_nothing(nodes, pods, policy):
    def dressed(made):
        containers = tuple(
            msgspec.structs.replace(container, name="main", image="registry.example/app:2")
            for container in made.spec.containers
        )
        meta = msgspec.structs.replace(
            made.metadata,
            resource_version="77",
            annotations={**made.metadata.annotations, "note": made.metadata.name},
        )
        spec = msgspec.structs.replace(
            made.spec, containers=containers, scheduler_name="windlass", priority_class_name="any"
        )
        return msgspec.structs.replace(made, metadata=meta, spec=spec)

    plan = Desk(*nodes, *pods, policy=policy).plan()
    assert in_bytes(Desk(*nodes, *map(dressed, pods), policy=policy).plan()) == in_bytes(plan)


@given(nodes=parks(), pods=queues(kinds=plain_pods), policy=policies)
def test_the_compiled_loop_and_one_pod_at_a_time_make_the_same_plan(nodes, pods, policy):
    """Host networking without ports takes a pod out of the compiled loop and means nothing else."""

    def slowly(made):
        return msgspec.structs.replace(made, spec=msgspec.structs.replace(made.spec, host_network=True))

    mix = mix_from(*pods)
    plan = Desk(*nodes, *pods, policy=policy, mix=mix).plan()
    assert in_bytes(Desk(*nodes, *map(slowly, pods), policy=policy, mix=mix).plan()) == in_bytes(plan)


@given(nodes=parks(), pods=queues(), seed=st.integers(-5, 2**70))
def test_the_same_seed_gives_the_same_plan(nodes, pods, seed):
    first, second = (Desk(*nodes, *pods, policy="random", seed=seed).plan() for _ in range(2))
    assert in_bytes(first) == in_bytes(second)


def test_another_seed_gives_another_plan():
    nodes = [node(f"n{index}") for index in range(8)]
    pods = [pod(f"p{index}") for index in range(6)]
    plans = {in_bytes(Desk(*nodes, *pods, policy="random", seed=seed).plan()) for seed in range(5)}
    assert len(plans) == 5


@given(nodes=parks(choosy=False), pods=queues(kinds=plain_pods), policy=policies)
def test_pods_get_the_same_places_at_once_or_one_by_one(nodes, pods, policy):
    """Nothing leaves, and what does not fit is dropped, as in a replay: then it can't matter how it is fed."""
    mix = mix_from(*pods)
    together = Desk(*nodes, *pods, policy=policy, mix=mix).plan()
    desk = Desk(*nodes, policy=policy, mix=mix)
    found = []
    for unit in in_order(pods):
        desk.put(*unit)
        snapshot = desk.store.snapshot()
        found += desk.plan().binds
        desk.run()
        desk.store.mark_decided(snapshot.pods.pending())
        placed = {bind.pod for bind in found}
        desk.apply(*[Deleted("Pod", pod.key) for pod in unit if pod.key not in placed])
    assert found == list(together.binds)


def test_more_shapes_than_the_table_keeps_rows():
    """600 different requests in one decision, on a node that has room for exactly the first 599."""
    pods = [pod(f"p{index:03}", cpu=f"{1000 + index}m") for index in range(600)]
    room = sum(1000 + index for index in range(599))
    desk = Desk(node("n", cpu=f"{room}m", pods=1000), *pods)
    assert len(desk.plan().binds) == 599
    assert desk.verdict("p599").kube_message == "0/1 nodes are available: 1 Insufficient cpu."
    desk.run()
    assert desk.free("n") == 0
    desk.put(pod("small", cpu="1m"))
    assert desk.verdict("small").code == "CPU_MEM_INSUFFICIENT"


def test_a_memo_serves_several_configurations_in_turn():
    desk = Desk(gpu_node("big", 8), gpu_node("small", 1), node("cpu"), pod("p", 1), pod("q", share="0.5"))
    memo, snapshot = EngineCache(), desk.store.snapshot()
    for policy in ("pack", "spread", "random", "pack", "fgd", "windlass"):
        config = EngineConfig(PlacementConfig(policy))
        assert in_bytes(decide(snapshot, config, 0, memo)) == in_bytes(decide(snapshot, config, 0))
