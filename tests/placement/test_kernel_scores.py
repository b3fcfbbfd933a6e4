"""The scorers and the measure of fragmentation, each against its formula on random nodes."""

from __future__ import annotations

import math
from random import Random

import numpy as np
import pytest

from reference.kernel_nodes import (
    COLUMNS,
    Device,
    Machine,
    Request,
    any_machine,
    any_mig_machine,
    any_mig_request,
    any_request,
    draws,
    in_parts,
    ints,
    mix_rows,
    node_state,
    shape_rows,
)
from windlass.cluster.node_state import NodeState
from windlass.placement.kernel_arrays import MixArrays, NodeMemo, ScoringRule
from windlass.placement.kernels import devices, fragmentation, scores, windlass_scorer

BEFORE = Machine([Device(free=500, model=2), Device(model=1)], kinds={1: 2, 3: 1})
AFTER = Machine([Device(model=0), Device()], kinds={2: 1})
OTHER = Request(gpus=2, milli=300, models=5, cpu=77, kind=3)
S, N, FIRST = 1, 1, 2
CASES = 300
RULE = ScoringRule(scorer=0, seed=0, largest_cpu=7000, largest_gpu=6000)
CPU_POD_PENALTY = -(2**60)


def arrays(machine: Machine, request: Request):
    return node_state([BEFORE, machine, AFTER]), shape_rows(OTHER, request, OTHER)


def memo_of(worth: float = 0.0, value: int = 0) -> NodeMemo:
    digests = np.zeros(3, dtype=np.uint64)
    return NodeMemo(digests, np.array([9.0, worth, 7.0]), ints([1, value, 2]))


NO_MIX = mix_rows()


def scored(scorer: int, state: NodeState, shapes, mix: MixArrays = NO_MIX, memo: NodeMemo | None = None):
    shapes = shapes.copy()
    shapes[S, 8] = scorer
    score, device = scores.cell_score(state, shapes, memo or memo_of(), mix, RULE, S, N)
    return int(score), int(device)


def a_request(random: Random) -> Request:
    """With GPUs, without, or for MIG instances."""
    if random.random() < 0.2:
        return Request(0, cpu=random.choice((0, 1, 500)))
    return any_mig_request(random) if random.random() < 0.2 else any_request(random)


def a_case(random: Random):
    machine, request = any_machine(random), a_request(random)
    state, shapes = arrays(machine, request)
    free = sum(device.free for device in machine.devices)
    device = devices.tightest_device(state, shapes, S, N)
    asked = 0
    if request.gpus and request.mig < 0:
        asked = request.gpus * devices.milli_needed(state, shapes, S, N, FIRST + max(0, device))
    return machine, request, state, shapes, free, asked, device


def penalty_of(machine: Machine, request: Request) -> int:
    return CPU_POD_PENALTY if machine.devices and not request.gpus else 0


@in_parts(CASES)
def test_pack_and_spread_order_nodes_by_free_gpu_then_by_free_cpu(cases: range) -> None:
    for random in draws(cases):
        machine, request, state, shapes, free, asked, device = a_case(random)
        value = (free - asked) * 2**32 + min(machine.free[0] - request.cpu, 2**32 - 1)
        penalty = penalty_of(machine, request)
        assert scored(scores.PACK, state, shapes) == (penalty - value, device)
        assert scored(scores.SPREAD, state, shapes) == (penalty + value, device)
        assert scored(scores.FIRST_FIT, state, shapes) == (penalty, device)
        assert scored(scores.RANDOM, state, shapes) == (0, device)


def test_free_cpu_counts_up_to_what_its_bits_hold() -> None:
    state, shapes = arrays(Machine([Device()], free=(2**33, 0, 0, 0, 0, 0)), Request(1, cpu=5))
    assert scored(scores.PACK, state, shapes)[0] == -(2**32 - 1)


@in_parts(CASES)
def test_balanced_scores_the_gap_between_the_used_fractions(cases: range) -> None:
    for random in draws(cases):
        machine, request, state, shapes, free, asked, device = a_case(random)
        if asked > max(0, free):
            continue
        used = []
        if machine.total[0]:
            used.append((machine.total[0] - machine.free[0] + request.cpu) * 10_000 // machine.total[0])
        if machine.total[1]:
            used.append((machine.total[1] - machine.free[1]) * 10_000 // machine.total[1])
        if machine.devices:
            whole = 1000 * len(machine.devices)
            used.append((whole - free + asked) * 10_000 // whole)
        gap = min(used, default=2**20) - max([0, *used])
        assert scored(scores.BALANCED, state, shapes) == (gap + penalty_of(machine, request), device)


@in_parts(CASES)
def test_best_fit_and_dot_product_follow_their_published_formulas(cases: range) -> None:
    for random in draws(cases):
        machine, request, state, shapes, free, asked, device = a_case(random)
        left = (machine.free[0] - request.cpu) / 7000 * 0.5 + (free - asked) / 6000 * 0.5
        assert scored(scores.BEST_FIT, state, shapes) == (int((1.0 - left) * 100.0), device)
        dot = machine.free[0] / 7000 * (request.cpu / 7000) + free / 6000 * (asked / 6000)
        assert scored(scores.DOT_PRODUCT, state, shapes) == (int(100.0 * (1.0 - dot / 2.0)), device)


@in_parts(CASES)
def test_gpu_packing_prefers_a_device_in_use_then_a_node_in_use(cases: range) -> None:
    for random in draws(cases):
        machine, request, state, shapes, _, _, device = a_case(random)
        if random.random() < 0.3:  # an idle node
            state.device_occupancy[FIRST : FIRST + len(machine.devices), 0] = 1000
            device = devices.tightest_device(state, shapes, S, N)
        free = state.device_occupancy[FIRST : FIRST + len(machine.devices), 0].tolist()
        if not request.gpus:
            expected = 0
        elif all(amount == 1000 for amount in free):
            expected = max(33 - len(free), len(free))
        elif device >= 0 and free[device] != 1000:
            expected = 100 - free[device] // 10 // 10
        else:
            expected = max(50 - request.gpus, 33)
        assert scored(scores.GPU_PACKING, state, shapes) == (expected, device)


@pytest.mark.parametrize(("gpus", "score"), [(1, 32), (16, 17), (17, 17), (20, 20)])
def test_an_idle_node_packs_better_the_fewer_gpus_it_has_up_to_a_point(gpus: int, score: int) -> None:
    state, shapes = arrays(Machine([Device() for _ in range(gpus)]), Request(1))
    assert scored(scores.GPU_PACKING, state, shapes)[0] == score


@in_parts(CASES)
def test_gpu_clustering_has_four_bands_and_fills_the_fuller_node_first(cases: range) -> None:
    for random in draws(cases):
        machine, request, state, shapes, free, _, device = a_case(random)
        kinds = {kind for kind, pods in machine.kinds.items() if pods}
        if request.kind in kinds:
            band = 75 if len(kinds) == 1 else 50
        else:
            band = 0 if kinds else 25
        expected = band + 25 * (6000 - free) // 6000 if request.gpus else 0
        assert scored(scores.GPU_CLUSTERING, state, shapes) == (expected, device)


def test_the_last_kind_of_pods_counts_as_well() -> None:
    last = node_state([Machine()]).gpu_pod_counts.shape[1] - 1
    state, shapes = arrays(Machine([Device()], kinds={last: 1, 0: 1}), Request(1, kind=last))
    assert scored(scores.GPU_CLUSTERING, state, shapes)[0] == 50 + 25 * 5000 // 6000


# Fragmentation and FGD


def a_mix(random: Random) -> MixArrays:
    classes = [
        (
            random.randint(1, 5),
            random.choice((0, 1, 1000, 1001, 4000)),
            random.choice((0, 1, 1, 2, 3)),
            random.choice((99, 100, 250, 500, 1000)),
            random.choice((7, 1, 2, 6)),
        )
        for _ in range(random.randint(0, 4))
    ]
    totals = (random.randint(1, 9), random.choice((1, 900, 5000)), random.choice((1, 300, 2000)))
    return mix_rows(*classes, totals=totals)


def causes_of(cpu: int, free: list[int], model: int, mix: MixArrays) -> dict[str, float]:
    """The free milli-GPU by cause, class by class."""
    found = dict.fromkeys(("lack_both", "lack_gpu", "usable", "lack_cpu", "cpu_only", "wrong_model"), 0.0)
    total = sum(free)
    for c, share in enumerate(mix.share.tolist()):
        enough_cpu = cpu >= mix.cpu[c]
        fitting = [amount for amount in free if amount >= mix.milli[c]]
        if not mix.gpus[c]:
            found["cpu_only"] += share * total
        elif model < 0 or not int(mix.models[c]) & 1 << model:
            found["wrong_model"] += share * total
        elif len(fitting) >= mix.gpus[c] and enough_cpu:
            found["usable"] += share * sum(fitting)
            found["lack_gpu"] += share * (total - sum(fitting))
        elif len(fitting) >= mix.gpus[c]:
            found["lack_cpu"] += share * total
        else:
            found["lack_gpu" if enough_cpu else "lack_both"] += share * total
    return found


@in_parts(CASES)
def test_free_gpu_is_split_by_cause(cases: range) -> None:
    for random in draws(cases):
        mix = a_mix(random)
        found = [any_machine(random) for _ in range(3)]
        bins = np.full(6, 5.0)
        fragmentation.cluster_fragments(node_state(found), mix, bins)
        expected = dict.fromkeys(causes_of(0, [], 0, mix), 0.0)
        for machine in found:
            if machine.devices:
                free = [device.free for device in machine.devices]
                for cause, amount in causes_of(machine.free[0], free, machine.devices[0].model, mix).items():
                    expected[cause] += amount
        assert bins.tolist() == pytest.approx(list(expected.values()))


def test_no_class_can_use_devices_without_a_model() -> None:
    bins = np.zeros(6)
    mix = mix_rows((1, 0, 1, 500, (1 << 16) - 1))
    fragmentation.fragment_causes(0, ints([600, 700]), 2, -1, mix, bins)
    assert bins.tolist() == [0, 0, 0, 0, 0, 1300]
    assert scores.fgd_fragment(0, ints([600, 700]), 2, -1, mix) == 1300


@in_parts(CASES)
def test_the_fragment_of_fgd_is_all_that_is_not_usable(cases: range) -> None:
    for random in draws(cases):
        mix, machine = a_mix(random), any_machine(random)
        state, _ = arrays(machine, OTHER)
        free = [device.free for device in machine.devices]
        model = machine.devices[0].model if free else -1
        assert scores.node_model(state, N) == model
        causes = causes_of(machine.free[0], free, model, mix)
        expected = pytest.approx(sum(causes.values()) - causes["usable"])
        assert scores.fgd_fragment(machine.free[0], ints([*free, 777]), len(free), model, mix) == expected
        assert scores.fgd_node_fragment(state, N, mix) == expected


@pytest.mark.parametrize("gain", [-3000, -1000, -1, 0, 1, 250, 1000, 3000])
def test_points_are_the_sigmoid_of_the_gain_in_gpus(gain: int) -> None:
    assert scores.fgd_points(gain) == math.floor(100 / (1 + math.exp(-gain / 1000)))


def free_after(state: NodeState, shapes, count: int, islands: bool) -> list[int]:
    free = np.zeros(count, dtype=np.int64)
    devices.copy_free(state, N, free)
    devices.take_from_free(state, shapes, S, N, free, islands)
    return free.tolist()


def fitting_devices(state: NodeState, shapes, count: int) -> list[tuple[int, int, int]]:
    """(device, free, need) of those that could take a share of the pod."""
    found = []
    for i in range(count):
        free = int(state.device_occupancy[FIRST + i, 0])
        need = devices.milli_needed(state, shapes, S, N, FIRST + i)
        if free >= need and devices.model_allowed(state, shapes, S, FIRST + i):
            found.append((i, free, need))
    return found


@in_parts(CASES)
def test_fgd_scores_the_fragment_that_a_pod_removes_and_tries_every_device_for_a_share(cases: range) -> None:
    for random in draws(cases):
        machine, request, state, shapes, _, _, _ = a_case(random)
        mix, worth = a_mix(random), random.choice((0.0, 700.0, 2500.0))
        free, count = [device.free for device in machine.devices], len(machine.devices)
        cpu, model = machine.free[0] - request.cpu, machine.devices[0].model if machine.devices else -1

        def points(left: list[int], cpu=cpu, model=model, mix=mix, worth=worth, count=count) -> int:
            return scores.fgd_points(worth - scores.fgd_fragment(cpu, ints(left), count, model, mix))

        if request.gpus == 1 and request.milli < 1000 and request.mig < 0:
            tried = [
                (-points([*free[:i], before - need, *free[i + 1 :]]), i)
                for i, before, need in fitting_devices(state, shapes, count)
            ]
            least, device = min(tried, default=(1, -1))
            expected = -least, device
        else:
            expected = points(free_after(state, shapes, count, False)), -1
        assert scored(scores.FGD, state, shapes, mix, memo_of(worth=worth)) == expected


def test_fgd_takes_the_lowest_device_numbers_and_windlass_an_island() -> None:
    """Two halves: from the first island they break two whole GPUs; the second is full with them."""
    free = [(1000, 0), (1000, 0), (1000, 0), (500, 1), (500, 1)]
    machine = Machine([Device(free=amount, island=island) for amount, island in free])
    state, shapes = arrays(machine, Request(2, milli=500))
    mix = mix_rows((1, 0, 1, 1000, 7))
    # Only the third GPU is whole afterwards; 2000 are of no use.
    assert scored(scores.FGD, state, shapes, mix) == (scores.fgd_points(-2000), -1)
    filled = worth_of(machine.free[0], [1000, 1000, 1000, 0, 0], [0] * 5, mix)
    assert scored(scores.WINDLASS, state, shapes, mix) == ((filled + 5) // 10 * 2048, -1)


# The `windlass` scorer


def worth_of(cpu: int, free: list[int], models: list[int], mix: MixArrays) -> int:
    held = [max(0, amount) for amount in free]
    if not sum(held):
        return 0
    usable = 0
    for c in range(len(mix.cpu)):
        fitting = [
            amount
            for amount, model in zip(free, models, strict=True)
            if amount >= mix.milli[c] and int(mix.models[c]) & 1 << model
        ]
        if mix.gpus[c] and cpu >= mix.cpu[c] and len(fitting) >= mix.gpus[c]:
            usable += int(mix.weight[c]) * sum(fitting)
    pods, gpu_cpu, gpu_milli = mix.totals.tolist()
    priced = sum(int(mix.price[amount]) for amount in held)
    premium = sum(int(mix.scarce[model]) * amount for amount, model in zip(held, models, strict=True))
    stranded = max(0, sum(held) - cpu * gpu_milli // gpu_cpu)
    return usable + pods * (3 * priced - stranded) + pods * premium // 1000


@in_parts(CASES)
def test_the_worth_of_a_node_is_usable_and_priced_gpu_less_what_has_no_cpu(cases: range) -> None:
    for random in draws(cases):
        mix, machine = a_mix(random), any_machine(random)
        state, _ = arrays(machine, OTHER)
        free, models = [device.free for device in machine.devices], [device.model for device in machine.devices]
        expected = worth_of(machine.free[0], free, models, mix)
        found = windlass_scorer.worth_of(machine.free[0], ints([*free, 500]), ints([*models, 1]), len(free), mix)
        assert found == expected
        assert windlass_scorer.node_worth(state, N, mix) == expected


@in_parts(CASES)
def test_windlass_scores_the_change_of_worth_in_buckets_and_the_tighter_device_on_ties(cases: range) -> None:
    for random in draws(cases):
        machine, request, state, shapes, _, _, _ = a_case(random)
        mix, value = a_mix(random), random.randint(-9000, 9000)
        count, cpu = len(machine.devices), machine.free[0] - request.cpu
        free, models = [device.free for device in machine.devices], [device.model for device in machine.devices]
        bucket = 10 * int(mix.totals[0])

        def rounded(left: list[int], cpu=cpu, models=models, mix=mix, value=value, bucket=bucket) -> int:
            return (worth_of(cpu, left, models, mix) - value + bucket // 2) // bucket * 2048

        if request.gpus != 1 or request.mig >= 0:
            expected = rounded(free_after(state, shapes, count, True)), -1
        else:
            tried = [
                (-(rounded([*free[:i], before - need, *free[i + 1 :]]) - before), i)
                for i, before, need in fitting_devices(state, shapes, count)
            ]
            least, device = min(tried, default=(2**62, -1))
            expected = -least, device
        penalty = penalty_of(machine, request)
        found = scored(scores.WINDLASS, state, shapes, mix, memo_of(value=value))
        assert found == (expected[0] + penalty, expected[1])


def test_instances_ask_for_no_milli_gpu() -> None:
    random = Random(0)
    state, shapes = arrays(any_mig_machine(random), any_mig_request(random))
    assert scores.gpu_asked(state, shapes, S, N, -1) == 0
    assert len(state.free[N]) == COLUMNS
