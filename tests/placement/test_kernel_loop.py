"""The placement loop against a twin that computes every reason and score anew for each pod."""

from __future__ import annotations

from itertools import pairwise
from random import Random

import numpy as np
import pytest

from reference.kernel_nodes import (
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
from windlass.model.reasons import WHY_NOT_UNDERSTOOD
from windlass.placement.kernel_arrays import Cells, NodeMemo, ScoringRule
from windlass.placement.kernels import devices, placement_loop, scores, windlass_scorer
from windlass.placement.score_table import make_result_buffer

INFEASIBLE = -(2**62)
PERMANENT = 0b101
"""Of the three reasons that these tests give nodes from the start, 0 to 2."""
MIX = mix_rows((3, 1000, 1, 500, 7), (2, 1, 2, 1000, 6), (1, 500, 0, 0, 7), totals=(5, 900, 400))
SCORERS = (scores.PACK, scores.SPREAD, scores.WINDLASS, scores.FGD, scores.GPU_CLUSTERING, scores.RANDOM)


@pytest.fixture(autouse=True)
def _hashes_wrap_around():
    with np.errstate(over="ignore"):
        yield


class Table:
    """Cells and memo for these nodes and shapes, as a new score table has them."""

    def __init__(self, state: NodeState, shapes, static, rule: ScoringRule) -> None:
        rows, nodes = len(shapes), len(state.free)
        blocks = -(-nodes // 32)
        self.state, self.shapes, self.rule = state, shapes, rule
        self.cells = Cells(
            static=static,
            why=np.zeros((rows, nodes), dtype=np.uint64),
            score=np.full((rows, nodes), INFEASIBLE, dtype=np.int64),
            device=np.full((rows, nodes), -1, dtype=np.int64),
            stamp=np.zeros((rows, nodes), dtype=np.uint64),
            block=np.full((rows, blocks), INFEASIBLE, dtype=np.int64),
            counts=np.zeros((rows, 64), dtype=np.int64),
            cursor=np.full(rows, -1, dtype=np.int64),
        )
        self.memo = NodeMemo(np.zeros(nodes, dtype=np.uint64), np.zeros(nodes), np.zeros(nodes, dtype=np.int64))
        self.outcome = make_result_buffer(32)
        self.log, self.end = np.zeros(200, dtype=np.int64), 0

    def start_decision(self) -> None:
        self.cells.cursor[:] = -1
        placement_loop.refresh_all_nodes(self.state, self.memo, MIX, self.rule)

    def place(self, queue: list[int], units: list[int], sequence: int) -> int:
        self.end, verdicts = placement_loop.place_queue(
            self.state,
            self.shapes,
            self.cells,
            self.memo,
            MIX,
            self.rule,
            ints(queue),
            ints(units),
            sequence,
            self.log,
            self.end,
            np.uint64(PERMANENT),
            self.outcome,
        )
        return verdicts


class Twin:
    """The same by definition."""

    def __init__(self, state: NodeState, shapes, static, rule: ScoringRule) -> None:
        self.state, self.shapes, self.static, self.rule = state.copy(), shapes, static, rule
        self.log: list[int] = []

    def memo(self) -> NodeMemo:
        nodes = range(len(self.state.free))
        worth, value = [0.0 for _ in nodes], [0 for _ in nodes]
        if self.rule.scorer == scores.FGD:
            worth = [scores.fgd_node_fragment(self.state, n, MIX) for n in nodes]
        if self.rule.scorer == scores.WINDLASS:
            value = [windlass_scorer.node_worth(self.state, n, MIX) for n in nodes]
        return NodeMemo(np.zeros(len(nodes), dtype=np.uint64), np.array(worth), ints(value))

    def why(self, s: int) -> list[int]:
        nodes = range(len(self.state.free))
        return [int(placement_loop.node_reasons(self.state, self.shapes, s, n, self.static[s, n])) for n in nodes]

    def choose(self, s: int, turn: int) -> tuple[int, int]:
        """Node and device, -1 and -1 if nothing fits."""
        fits = [n for n, why in enumerate(self.why(s)) if not why]
        if not fits:
            return -1, -1
        memo = self.memo()
        cells = {n: scores.cell_score(self.state, self.shapes, memo, MIX, self.rule, s, n) for n in fits}
        if self.rule.scorer != scores.RANDOM:
            node = max(fits, key=lambda n: (cells[n][0], -n))
            return node, cells[node][1]
        salt = splitmix(splitmix(self.rule.seed) + turn)
        drawn = {n: splitmix(salt + n) | 1 for n in fits}
        node = max(fits, key=drawn.__getitem__)
        if cells[node][1] < 0:
            return node, -1
        first, end = self.state.node_info[node, :2].tolist()
        fitting = [
            device - first
            for device in range(first, end)
            if devices.model_allowed(self.state, self.shapes, s, device)
            and self.state.device_occupancy[device, 0] >= devices.milli_needed(self.state, self.shapes, s, node, device)
        ]
        return node, fitting[(splitmix(drawn[node]) >> 33) % len(fitting)]

    def place(self, queue: list[int], units: list[int], sequence: int):
        nodes, grants, verdict_of, verdicts = [-1] * len(queue), [0] * len(queue), [-1] * len(queue), []
        known: dict[int, tuple[int, int]] = {}  # shape → its last verdict, and the length of the log then
        for first, end in pairwise(units):
            for i in range(first, end):
                s = queue[i]
                node, device = self.choose(s, sequence + i)
                if node >= 0:
                    nodes[i] = node
                    islands = bool(self.shapes[s, 8] == scores.WINDLASS)
                    grants[i] = int(placement_loop.add_pod_to_node(self.state, self.shapes, s, node, device, islands))
                    self.log.append(node)
                    continue
                if s not in known or known[s][1] != len(self.log):
                    known[s] = len(verdicts), len(self.log)
                    verdicts.append((i, s, self.state.copy(), self.why(s)))
                for j in range(first, i):
                    placement_loop.remove_pod_from_node(
                        self.state, self.shapes, queue[j], nodes[j], np.uint64(grants[j])
                    )
                    self.log.append(nodes[j])
                for j in range(first, end):
                    nodes[j], verdict_of[j] = -1, known[s][0]
                break
        return nodes, grants, verdict_of, verdicts


def splitmix(x: int) -> int:
    mask = 2**64 - 1
    x = (x + 0x9E3779B97F4A7C15) & mask
    x = ((x ^ x >> 30) * 0xBF58476D1CE4E5B9) & mask
    x = ((x ^ x >> 27) * 0x94D049BB133111EB) & mask
    return x ^ x >> 31


def a_request(random: Random, scorer: int) -> Request:
    if random.random() < 0.15:
        request = any_mig_request(random)
    elif random.random() < 0.7:
        request = any_request(random)
        request.gpus = min(request.gpus, 3)
        request.asks = ((0, max(1, request.cpu)), (4, 1))
    else:
        request = Request(0, cpu=2, asks=((0, 2), (1, random.choice((1, 2)))))
    request.scorer = scorer
    return request


def a_machine(random: Random) -> Machine:
    machine = any_mig_machine(random) if random.random() < 0.2 else any_machine(random, most=3)
    machine.blocked = int(random.random() < 0.1)
    return machine


def a_table(random: Random, nodes: int) -> Table:
    rule = ScoringRule(random.choice(SCORERS), seed=random.randrange(9), largest_cpu=4000, largest_gpu=3000)
    scorers = [rule.scorer] * 3
    if rule.scorer == scores.WINDLASS and random.random() < 0.3:  # a class of pods that is spread
        scorers[1] = scores.SPREAD
    shapes = shape_rows(*[a_request(random, scorer) for scorer in scorers])
    state = node_state([a_machine(random) for _ in range(nodes)])
    static = [[random.choice((0, 0, 0, 0, 1, 2, 4, 6)) for _ in range(nodes)] for _ in shapes]
    return Table(state, shapes, np.array(static, dtype=np.uint64), rule)


def a_queue(random: Random) -> tuple[list[int], list[int]]:
    """Rows of shapes, and where units begin and end."""
    queue, units = [], [0]
    for _ in range(random.randint(1, 6)):
        queue += [random.randrange(3) for _ in range(random.choice((1, 1, 1, 2, 3)))]
        units.append(len(queue))
    return queue, units


def check(table: Table, twin: Twin, queue: list[int], units: list[int], sequence: int) -> None:
    found = table.place(queue, units, sequence)
    nodes, grants, verdict_of, verdicts = twin.place(queue, units, sequence)
    outcome, count = table.outcome, len(queue)
    assert outcome.node[:count].tolist() == nodes
    assert outcome.verdict[:count].tolist() == verdict_of
    placed = [i for i in range(count) if nodes[i] >= 0]
    assert outcome.grant[placed].tolist() == [grants[i] for i in placed]
    for mine, its in zip(table.state, twin.state, strict=True):
        assert mine.tolist() == its.tolist()
    assert table.log[: table.end].tolist() == twin.log
    assert found == len(verdicts)
    for v, (entry, s, state, why) in enumerate(verdicts):
        assert outcome.verdict_entry[v] == entry
        check_verdict(table, v, s, state, why)


def check_verdict(table: Table, v: int, s: int, state: NodeState, why: list[int]) -> None:
    outcome, shapes = table.outcome, table.shapes
    assert outcome.verdict_counts[v].tolist() == [sum(mask >> bit & 1 for mask in why) for bit in range(64)]
    near = sorted((mask.bit_count(), n) for n, mask in enumerate(why) if not mask & PERMANENT)[:3]
    rows = [n for _, n in near]
    assert outcome.verdict_near[v].tolist() == rows + [-1] * (3 - len(rows))
    for place, n in enumerate(rows):
        assert outcome.verdict_near_why[v, place] == why[n]
        requests = int(shapes[s, 0])
        pairs = shapes[s, 9 : 9 + 2 * requests].reshape(-1, 2).tolist()
        free = [int(state.free[n, column]) for column, _ in pairs]
        shares, most = 0, devices.max_shares_of_device(state, shapes, s, n)
        for device in state.devices(n):
            if shapes[s, 7] < 0 and devices.model_allowed(state, shapes, s, device):
                need = devices.milli_needed(state, shapes, s, n, device)
                shares += devices.shares_in(int(state.device_occupancy[device, 0]), need, most)
        rest = [0] * (24 - requests)
        assert outcome.verdict_free[v, place].tolist() == [*free, *rest, shares]
        short = [max(0, amount - left) for (_, amount), left in zip(pairs, free, strict=True)]
        assert outcome.verdict_short[v, place].tolist() == [*short, *rest, max(0, int(shapes[s, 2]) - shares)]
    for place in range(len(rows), 3):
        assert not outcome.verdict_free[v, place].any()
        assert not outcome.verdict_short[v, place].any()


@pytest.mark.parametrize("nodes", [1, 3, 5, 33, 70])
def test_pods_go_where_the_twin_puts_them_and_units_go_whole_or_not_at_all(nodes: int) -> None:
    for random in draws(40 if nodes < 30 else 8):
        table = a_table(random, nodes)
        twin = Twin(table.state, table.shapes, table.cells.static, table.rule)
        table.start_decision()
        sequence = random.randrange(100)
        for _ in range(2):  # the second call goes on with the rows of the first
            check(table, twin, *a_queue(random), sequence)
            sequence += 10
        # Another decision on a state in which some nodes have changed.
        for _ in range(2):
            n = random.randrange(nodes)
            change = random.choice((-2, 3))
            table.state.free[n, 0] += change
            twin.state.free[n, 0] += change
        table.end, twin.log = 0, []
        table.start_decision()
        check(table, twin, *a_queue(random), sequence)


@pytest.mark.parametrize(("scorer", "grant"), [(scores.WINDLASS, 0x11000), (scores.PACK, 0x11), (scores.FGD, 0x11)])
def test_only_windlass_takes_whole_gpus_from_the_island_that_they_fill(scorer: int, grant: int) -> None:
    machine = Machine([Device(island=int(i > 2)) for i in range(5)])
    rule = ScoringRule(scorer, 0, 1, 1)
    table = Table(node_state([machine]), shape_rows(Request(2, scorer=scorer)), np.zeros((1, 1), dtype=np.uint64), rule)
    table.start_decision()
    assert table.place([0], [0, 1], 0) == 0
    assert table.outcome.grant[0] == grant


def test_random_draws_a_node_and_for_a_share_one_of_its_devices() -> None:
    for random in draws(40):
        rule = ScoringRule(scores.RANDOM, seed=random.randrange(9), largest_cpu=1, largest_gpu=1)
        share = Request(1, milli=random.choice((100, 500, 1000)), models=random.choice((7, 3)), scorer=scores.RANDOM)
        machines = [any_machine(random, least=2, most=4) for _ in range(3)]
        static = np.array([[random.choice((0, 0, 1)) for _ in machines]], dtype=np.uint64)
        table = Table(node_state(machines), shape_rows(share), static, rule)
        twin = Twin(table.state, table.shapes, static, rule)
        table.start_decision()
        check(table, twin, [0] * 5, list(range(6)), random.randrange(100))


def test_the_cells_of_a_row_are_current_after_a_refresh() -> None:
    for random in draws(24):
        table = a_table(random, 35)
        table.start_decision()
        twin = Twin(table.state, table.shapes, table.cells.static, table.rule)
        for _ in range(3):
            for s in range(3):
                placement_loop.refresh_row(
                    table.state,
                    table.shapes,
                    table.cells,
                    table.memo,
                    MIX,
                    table.rule,
                    table.log,
                    table.end,
                    s,
                )
                why, memo = twin.why(s), twin.memo()
                assert table.cells.why[s].tolist() == why
                assert table.cells.counts[s].tolist() == [sum(m >> bit & 1 for m in why) for bit in range(64)]
                assert table.cells.cursor[s] == table.end
                cells = [
                    (INFEASIBLE, -1) if mask else scores.cell_score(twin.state, twin.shapes, memo, MIX, twin.rule, s, n)
                    for n, mask in enumerate(why)
                ]
                assert table.cells.score[s].tolist() == [score for score, _ in cells]
                assert table.cells.device[s].tolist() == [device for _, device in cells]
                best = [max(score for score, _ in cells[:32]), max(score for score, _ in cells[32:])]
                assert table.cells.block[s].tolist() == best
            for _ in range(2):
                n, change, block = random.randrange(35), random.choice((-1000, 1000)), random.random() < 0.2
                for state in (table.state, twin.state):
                    state.free[n, 0] += change
                    state.node_info[n, 3] ^= int(block)
                placement_loop.refresh_node(table.state, table.memo, MIX, table.rule, n)
                table.log[table.end] = n
                table.end += 1


def test_memo_has_the_worth_by_the_scorer_of_the_policy() -> None:
    state = node_state([Machine([Device(free=300), Device()]), Machine([Device()])])
    for scorer in (scores.FGD, scores.WINDLASS, scores.PACK):
        rule = ScoringRule(scorer, 0, 1, 1)
        table = Table(state, shape_rows(Request(1)), np.zeros((1, 2), dtype=np.uint64), rule)
        table.start_decision()
        twin = Twin(state, table.shapes, table.cells.static, rule).memo()
        assert table.memo.worth.tolist() == twin.worth.tolist()
        assert table.memo.value.tolist() == twin.value.tolist()
        assert table.memo.worth.any() == (scorer == scores.FGD)
        assert table.memo.value.any() == (scorer == scores.WINDLASS)


# Parts


def test_the_hash_is_splitmix64() -> None:
    assert int(placement_loop.mix_bits(np.uint64(0))) == 0xE220A8397B1DCDAF
    for random in draws(50):
        x = random.getrandbits(64)
        assert int(placement_loop.mix_bits(np.uint64(x))) == splitmix(x)


def test_a_digest_changes_with_everything_that_placement_changes_on_the_node() -> None:
    machines = [Machine([Device(), Device()]), Machine([Device(free=3, used=5), Device(free=9)]), Machine([Device()])]
    state = node_state(machines)
    seen = {int(placement_loop.node_digest(state, 1))}
    places = [(state.free, 1, column) for column in range(state.free.shape[1])]
    places += [(state.device_occupancy, device, column) for device in (2, 3) for column in (0, 1)]
    places += [(state.gpu_pod_counts, 1, kind) for kind in range(state.gpu_pod_counts.shape[1])]
    places += [(state.node_info, 1, 3)]
    for array, row, column in places:
        array[row, column] += 1
        digest = int(placement_loop.node_digest(state, 1))
        assert digest & 1, "never 0"
        seen.add(digest)
        array[row, column] -= 1
    assert len(seen) == 1 + len(places)
    for array, row in ((state.free, 0), (state.free, 2), (state.device_occupancy, 1), (state.device_occupancy, 4)):
        array[row] += 1
    assert int(placement_loop.node_digest(state, 1)) in seen, "other nodes don't count"


def test_a_digest_asks_only_whether_a_kind_of_pod_runs() -> None:
    once, twice = (node_state([Machine(kinds={2: pods})]) for pods in (1, 2))
    assert placement_loop.node_digest(once, 0) == placement_loop.node_digest(twice, 0)


@in_parts(200)
def test_counts_by_reason_follow_every_change_of_a_mask(cases: range) -> None:
    for random in draws(cases):
        width = random.choice((2**32, 2**56))
        old, new = (random.randrange(width) & random.randrange(width) for _ in range(2))
        if random.random() < 0.4:  # only resources change
            new = old & 2**32 - 1 | new >> 32 << 32
        counts = ints([5] * 64)
        placement_loop.count_changes(counts, np.uint64(old), np.uint64(new))
        assert counts.tolist() == [5 + (new >> bit & 1) - (old >> bit & 1) for bit in range(64)]
        assert placement_loop.count_bits(np.uint64(old)) == old.bit_count()


def test_a_node_refuses_a_pod_by_its_static_reasons_a_block_and_each_short_resource() -> None:
    state = node_state([Machine(free=(1000, 5, 0, 3, 2, 0)), Machine(free=(1000, 5, 0, 3, 2, 0), blocked=1)])
    shapes = shape_rows(Request(), Request(asks=((0, 1000), (1, 6), (3, 3), (4, 3))))
    short = 1 << 33 | 1 << 35
    assert int(placement_loop.node_reasons(state, shapes, 1, 0, np.uint64(0))) == short
    assert int(placement_loop.node_reasons(state, shapes, 1, 0, np.uint64(6))) == short | 6
    assert int(placement_loop.node_reasons(state, shapes, 1, 1, np.uint64(0))) == short | WHY_NOT_UNDERSTOOD
    assert int(placement_loop.node_reasons(state, shapes, 0, 0, np.uint64(0))) == 0


def test_instances_created_on_demand_need_not_be_advertised() -> None:
    request = Request(1, milli=0, asks=((4, 1), (5, 1), (3, 9)), mig=1, profiles={0: (1, 127, 0)})
    shapes = shape_rows(request)
    dynamic, fixed = (
        node_state([Machine([Device(free=0, geometry=number)], free=(0, 0, 0, 0, 1, 0))]) for number in (0, -1)
    )
    assert int(placement_loop.node_reasons(dynamic, shapes, 0, 0, np.uint64(0))) == 1 << 34
    assert int(placement_loop.node_reasons(fixed, shapes, 0, 0, np.uint64(0))) == 1 << 33 | 1 << 34


@pytest.mark.parametrize("mig", [0, 1])
def test_a_pod_of_instances_takes_slices(mig: int) -> None:
    asks = ((5, 2), (0, 1)) if mig == 0 else ((0, 1), (5, 2))
    request = Request(2, asks=asks, mig=mig, kind=2, profiles={1: (0b11, 0b0101_0101, 0)})
    state, shapes = node_state([Machine([Device(free=0, geometry=1)])]), shape_rows(request)
    packed = placement_loop.add_pod_to_node(state, shapes, 0, 0, -1, True)
    assert int(packed) == (8 | 4) << 8 | (8 | 6)
    assert state.device_occupancy.tolist() == [[0, 0b1111_0000]]
    assert state.gpu_pod_counts[0, 2] == 1
    placement_loop.remove_pod_from_node(state, shapes, 0, 0, packed)
    assert state.device_occupancy.tolist() == [[0, 0]]
    assert not state.gpu_pod_counts.any()


def test_resources_are_taken_released_and_taken_again() -> None:
    state = node_state([Machine(), Machine([Device(), Device()])])
    shapes = shape_rows(Request(), Request(1, asks=((0, 700), (4, 2)), kind=1), Request(0, asks=((0, 3),), kind=2))
    before = [array.tolist() for array in state]
    packed = placement_loop.add_pod_to_node(state, shapes, 1, 1, -1, False)
    assert int(packed) == 1
    after = [array.tolist() for array in state]
    assert after[0] == [[16_000, 64, 0, 110, 4, 4], [15_300, 64, 0, 110, 2, 4]]
    assert state.device_occupancy[:, 0].tolist() == [0, 1000]
    assert state.gpu_pod_counts[1, :3].tolist() == [0, 1, 0]
    placement_loop.remove_pod_from_node(state, shapes, 1, 1, packed)
    assert [array.tolist() for array in state] == before
    placement_loop.update_node_for_pod(state, shapes, 1, 1, packed, -1)
    assert [array.tolist() for array in state] == after
    assert int(placement_loop.add_pod_to_node(state, shapes, 2, 1, -1, False)) == 0
    assert state.gpu_pod_counts[1, :3].tolist() == [0, 1, 0], "a pod without GPUs is of no kind"
    placement_loop.remove_pod_from_node(state, shapes, 2, 1, np.uint64(0))
    assert [array.tolist() for array in state] == after
