"""The ledger adds up to all GPUs in every cluster, and says of each what it is."""

from __future__ import annotations

from collections import Counter
from random import Random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.invariants import draws
from tests.invariants.crowds import NOW, crowd
from tests.invariants.steps import step
from tests.reference.park import A100, H100, gpu_node, layout_node, mig_node, node, pod

from windlass.model.codec import decode_object
from windlass.model.configuration import Settings
from windlass.model.node import NodeCondition
from windlass.placement.utilization import allocated_milli
from windlass.telemetry.activity import GpuSample
from windlass.telemetry.bottleneck import find_bottleneck
from windlass.telemetry.demand import Demand
from windlass.telemetry.ledger import ALLOCATED_STATES, NOBODY, STATES, Ledger, SumsBy, build_ledger
from windlass.telemetry.observation import Observation, observe_objects

V100 = "Tesla-V100-SXM2-16GB"
BUSY = GpuSample(NOW, busy_percent=80.0)
SUMS: tuple[SumsBy, ...] = ("team", "queue", "user", "job", "model")


def observe(*objects: object, **samples: GpuSample) -> Observation:
    """`samples` by node, for all its GPUs."""
    by_gpu = {(name.replace("_", "-"), index): sample for name, sample in samples.items() for index in range(16)}
    return observe_objects(objects, Settings(), NOW, by_gpu)


def states(found: Ledger) -> dict[str, int]:
    return {state: milli for state, milli in found.by_state().items() if milli}


def check_adds_up(observation: Observation) -> None:
    ledger, state = observation.ledger, observation.snapshot.node_state
    by_gpu: Counter[tuple[str, int]] = Counter()
    for share in ledger.shares:
        assert share.milli > 0
        assert share.state in STATES
        assert (share.holder is not None) or share.state not in ALLOCATED_STATES
        by_gpu[share.node, share.index] += share.milli
    assert set(by_gpu.values()) <= {1000}
    assert len(by_gpu) == len(state.device_info)
    for by in SUMS:
        sums = ledger.sums(by)
        total = Counter[str]()
        for found in sums.values():
            total.update(found)
        assert {name: total[name] for name in STATES} == ledger.by_state()
    assert sum(ledger.by_state().values()) == ledger.total_milli == 1000 * len(state.device_info)


@settings(max_examples=40, deadline=None)
@given(st.randoms(use_true_random=False), st.sampled_from((None, 0.0, 50.0, 100.0)))
def test_it_adds_up_in_every_world(rng: Random, busy: float | None) -> None:
    world = draws.make_world(rng)
    for _ in range(rng.randint(2, 8)):
        draws.happen(world, rng)
        step(world, rng, again=False)
    for event in (draws.submit_pod, draws.submit_gang, draws.submit_workload):
        event(world, rng)
    objects = [decode_object(tree) for tree in world.objects()]
    names = [tree["metadata"]["name"] for tree in world.objects() if tree["kind"] == "Node"]
    some = {(name, index) for name in names for index in range(16) if rng.random() < 0.7}
    samples = {} if busy is None else {key: GpuSample(world.now - rng.choice((0, 60, 900)), busy) for key in some}
    observation = observe_objects(objects, Settings(), world.now, samples)
    check_adds_up(observation)
    held = sum(share.milli for share in observation.ledger.shares if share.holder is not None)
    unhealthy = sum(share.milli for share in observation.ledger.shares if share.state == "unhealthy" and share.holder)
    assert held - unhealthy == pytest.approx(allocated_milli(observation.snapshot), abs=len(some) + 16)
    waiting = {work.workload for work in observation.ledger.demand.waiting}
    assert waiting <= {hold.workload for hold in observation.plan.holds}


@pytest.mark.parametrize("seed", range(12))
def test_so_it_does_with_gangs_and_queues_in_every_form(seed: int) -> None:
    observation = observe_objects([decode_object(tree) for tree in crowd(Random(seed))], Settings(), NOW)
    check_adds_up(observation)
    causes = {hold.workload: hold.verdict.code for hold in observation.plan.holds}
    for work in observation.ledger.demand.waiting:
        assert work.cause == causes[work.workload]


def test_a_held_gpu_is_what_it_was_measured_to_do() -> None:
    work = [pod("a", 1, on="n"), pod("b", 1, on="m")]
    cluster = (gpu_node("n", 1), gpu_node("m", 1), *work)
    assert states(observe(*cluster, n=BUSY).ledger) == {"computing": 1000, "unmeasured": 1000}
    idle, old = GpuSample(NOW, busy_percent=0.0), GpuSample(NOW - 3600, busy_percent=0.0)
    assert states(observe(*cluster, n=idle, m=old).ledger) == {"held_idle": 1000, "unmeasured": 1000}


def test_one_busy_sm_is_spinning_where_the_gpu_can_tell() -> None:
    one_sm = GpuSample(NOW, busy_percent=100.0, sm_active=0.008, tensor_active=0.0, dram_active=0.0)
    blind = GpuSample(NOW, busy_percent=100.0)
    found = observe(
        gpu_node("n", 1), gpu_node("m", 1), pod("a", 1, on="n"), pod("b", 1, on="m"), n=one_sm, m=blind
    ).ledger
    assert states(found) == {"spinning": 1000, "computing": 1000}
    assert found.spinning_unknown_milli == 1000
    memory_bound = GpuSample(NOW, busy_percent=100.0, sm_active=0.01, dram_active=0.3)
    assert states(observe(gpu_node("n", 1), pod("a", 1, on="n"), n=memory_bound).ledger) == {"computing": 1000}


def test_gpus_that_nobody_may_use_are_not_free() -> None:
    away = msgspec.structs.replace(gpu_node("away", 2))
    status = msgspec.structs.replace(away.status, conditions=(NodeCondition(type="Ready", status="False"),))
    found = observe(
        gpu_node("ill", 4, ill=1),
        gpu_node("cordoned", 2, cordoned=True),
        msgspec.structs.replace(away, status=status),
    ).ledger
    assert states(found) == {"free": 3000, "unhealthy": 3000, "in_change": 2000}
    assert found.why("unhealthy") == {"NODE_NOT_READY": 2000, "DEVICE_UNHEALTHY": 1000}


def test_a_pod_on_an_unhealthy_gpu_keeps_it_and_does_not_pay() -> None:
    sick = gpu_node("n", 1, annotations={"windlass.dev/unhealthy-devices": "0"})
    (share,) = observe(sick, pod("a", 1, on="n", annotations={"windlass.dev/devices": "0"}), n=BUSY).ledger.shares
    assert (share.state, share.pod) == ("unhealthy", "default/a")


def test_the_guides_story_in_one_sentence() -> None:
    """40 % idle and long waits: A100s are asked for, V100s are free."""
    selector = {"nvidia.com/gpu.product": A100}
    observation = observe(
        *(gpu_node(f"v{number}", 4, model=V100) for number in range(3)),
        gpu_node("a0", 2, model=A100),
        pod("holds", 2, on="a0", node_selector=selector),
        *(pod(f"w{number}", 1, node_selector=selector) for number in range(5)),
    )
    ledger = observation.ledger
    assert states(ledger) == {"unmeasured": 2000, "stranded": 12000}
    assert ledger.why("stranded") == {"SELECTOR_MISMATCH": 12000}
    assert [line.sentence for line in find_bottleneck(ledger)] == ["5 GPUs wait for A100-40 while 12 V100 are free"]


def test_free_gpus_are_stranded_only_if_nothing_that_waits_fits() -> None:
    """The pod of eight fits nowhere; the queued one would fit on any node, and waits for its queue."""
    cluster = (gpu_node("n0", 4), gpu_node("n1", 4), pod("a", 3, on="n0"))
    large = pod("large", 8)
    ledger = observe(*cluster, large).ledger
    assert states(ledger) == {"unmeasured": 3000, "stranded": 5000}
    assert set(ledger.why("stranded")) == {"GPU_FRAGMENTED"}
    label = {"kueue.x-k8s.io/queue-name": "missing"}
    with_queued = observe(*cluster, large, pod("queued", 1, labels=label)).ledger
    assert states(with_queued) == {"unmeasured": 3000, "free": 5000}
    assert {line.cause for line in find_bottleneck(with_queued)} >= {"KUEUE_QUEUE_MISSING"}


def test_nothing_is_stranded_while_nothing_waits() -> None:
    assert states(observe(gpu_node("n", 4, cpu=0), pod("a", 1, cpu="0", on="n")).ledger) == {
        "unmeasured": 1000,
        "free": 3000,
    }


def test_shares_instances_and_counted_parts() -> None:
    half = pod("half", share="0.5", on="n", labels={"windlass.dev/team": "blue", "windlass.dev/user": "ada"})
    small = pod("small", mig=("3g.40gb", 1), on="m")
    mixed = node(
        "s",
        labels={"nvidia.com/gpu.product": A100, "nvidia.com/gpu.count": "2", "nvidia.com/mig.strategy": "mixed"},
        **{"nvidia.com/mig-1g.5gb": 14},
    )
    parts = pod("parts", mig=("1g.5gb", 7), on="s")
    ledger = observe(gpu_node("n", 1), mig_node("m", 1, model=H100), mixed, half, small, parts, n=BUSY).ledger
    assert ledger.sums("team")["blue"]["computing"] == 500
    assert ledger.sums("user")["ada"]["computing"] == 500
    assert ledger.sums("job")["Pod default/small"]["unmeasured"] == 500
    assert ledger.sums("job")["Pod default/parts"]["unmeasured"] == 1000
    assert ledger.sums("queue")[NOBODY]["free"] == 500 + 500 + 1000


def test_what_is_kept_for_a_planned_start_is_reserved() -> None:
    snapshot = observe(gpu_node("n", 4), pod("a", 1, on="n")).snapshot
    ledger = build_ledger(snapshot, {}, Demand(reserved_milli={"n": 2500}), NOW)
    assert states(ledger) == {"unmeasured": 1000, "reserved": 2500, "free": 500}
    too_much = build_ledger(snapshot, {}, Demand(reserved_milli={"n": 9000}), NOW)
    assert states(too_much) == {"unmeasured": 1000, "reserved": 3000}


def test_the_kubelet_may_have_handed_out_one_gpu_twice() -> None:
    both = [pod(name, 1, on="n", annotations={"windlass.dev/allocated-devices": "0"}) for name in ("a", "b")]
    observation = observe(gpu_node("n", 2), *both)
    check_adds_up(observation)
    assert states(observation.ledger) == {"unmeasured": 1000, "free": 1000}


def test_a_pod_whose_request_cant_be_read_still_has_its_gpus() -> None:
    """Its GPUs are not free because somebody wrote nonsense into an annotation."""
    unreadable = pod("odd", 2, on="n", annotations={"gpu-fraction": "x"})
    observation = observe(gpu_node("n", 4), pod("plain", 1, on="n"), unreadable, n=BUSY)
    check_adds_up(observation)
    held = {share.pod: 0 for share in observation.ledger.shares}
    for share in observation.ledger.shares:
        held[share.pod] += share.milli
    assert held == {"default/plain": 1000, "default/odd": 2000, "": 1000}


def test_several_models_in_one_node_are_told_apart() -> None:
    groups = ({"model": A100, "count": 2}, {"model": V100, "count": 2})
    assert {
        model: states_of["free"] for model, states_of in observe(layout_node("n", *groups)).ledger.sums("model").items()
    } == {A100: 2000, V100: 2000}
