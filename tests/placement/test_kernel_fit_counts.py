"""How many pods of a shape a node takes, against pods that are put on it one at a time."""

from __future__ import annotations

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
    node_state,
    shape_rows,
)
from windlass.cluster.node_state import NodeState
from windlass.placement.kernel_arrays import Cells
from windlass.placement.kernels import devices, fit_counts, placement_loop

BEFORE, AFTER = Machine([Device(free=500), Device()]), Machine([Device(), Device(), Device()])
OTHER = Request(gpus=1, milli=250, asks=((0, 3),))
UNLIMITED = 2**31
S, N, FIRST = 1, 1, 2


def arrays(machine: Machine, request: Request):
    return node_state([BEFORE, machine, AFTER]), shape_rows(OTHER, request, OTHER)


def cells_of(static: list[list[int]]) -> Cells:
    empty = np.zeros((1, 1), dtype=np.int64)
    words = np.array(static, dtype=np.uint64)
    return Cells(words, words, empty, empty, words, empty, empty, empty)


def expected_by_devices(machine: Machine, request: Request, state: NodeState, shapes) -> int:
    """Each pod takes its shares from the devices with most left, which never blocks a later pod."""
    left = []
    for i, device in enumerate(machine.devices):
        need = devices.milli_needed(state, shapes, S, N, FIRST + i)
        usable = device.healthy and devices.model_allowed(state, shapes, S, FIRST + i)
        left.append(max(0, device.free) // need if usable else 0)
    if machine.replicas > 1 and request.milli == 1000:
        return sum(left) // request.gpus  # replicas of one device may go to one pod
    pods = 0
    while True:
        left.sort(reverse=True)
        if len(left) < request.gpus or left[request.gpus - 1] == 0:
            return pods
        left[: request.gpus] = [shares - 1 for shares in left[: request.gpus]]
        pods += 1


def expected_by_resources(machine: Machine, request: Request) -> int:
    found = UNLIMITED
    for j, (column, amount) in enumerate(request.asks):
        if j != request.mig or not any(device.geometry >= 0 for device in machine.devices):
            found = min(found, machine.free[column] // amount)
    return found


def with_resources(random: Random, request: Request) -> Request:
    request.asks = tuple(
        (column, random.choice((1, 2, 500))) for column in random.sample(range(6), random.randrange(3))
    )
    return request


@in_parts(500)
def test_as_many_pods_fit_as_resources_and_devices_allow(cases: range) -> None:
    for random in draws(cases):
        machine, request = any_machine(random), with_resources(random, any_request(random))
        state, shapes = arrays(machine, request)
        by_devices = expected_by_devices(machine, request, state, shapes)
        assert fit_counts.device_count(state, shapes, S, N) == by_devices
        expected = min(expected_by_resources(machine, request), by_devices)
        assert fit_counts.fit_count(state, shapes, S, N) == max(0, expected)


def test_shares_of_several_devices_are_of_different_ones_also_where_gpus_are_sliced() -> None:
    machine = Machine([Device(free=1000), Device(free=250)], replicas=4)
    state, shapes = arrays(machine, Request(2, milli=250))
    assert fit_counts.device_count(state, shapes, S, N) == 1
    state, shapes = arrays(machine, Request(2, milli=1000))
    assert fit_counts.device_count(state, shapes, S, N) == 2


@pytest.mark.parametrize("gpus", [0, 2])
def test_nothing_but_requests_limits_pods(gpus: int) -> None:
    machine = Machine([Device(), Device(), Device(), Device()], free=(9, 7, 0, 5, 0, 0))
    state, shapes = arrays(machine, Request(gpus, asks=((0, 3), (1, 3), (3, 1))))
    assert fit_counts.fit_count(state, shapes, S, N) == 2
    state, shapes = arrays(machine, Request(gpus))
    assert fit_counts.fit_count(state, shapes, S, N) == (2 if gpus else UNLIMITED)


@in_parts(300)
def test_instances_are_counted_over_all_devices(cases: range) -> None:
    for random in draws(cases):
        machine, request = any_mig_machine(random), any_mig_request(random)
        state, shapes = arrays(machine, request)
        found = 0
        for i, device in enumerate(machine.devices):
            used = device.used
            while (start := devices.mig_start(state, shapes, S, FIRST + i, used)) >= 0:
                used |= devices.mig_mask(state, shapes, S, FIRST + i, start)
                found += 1
        assert fit_counts.instance_count(state, shapes, S, N) == found
        dynamic = any(device.geometry >= 0 for device in machine.devices)
        by_devices = found // request.gpus if dynamic else UNLIMITED
        assert fit_counts.device_count(state, shapes, S, N) == by_devices
        assert fit_counts.fit_count(state, shapes, S, N) == max(
            0, min(by_devices, expected_by_resources(machine, request))
        )


@in_parts(200)
def test_counts_of_all_nodes_leave_out_those_that_are_refused(cases: range) -> None:
    for random in draws(cases):
        machines = [any_machine(random) for _ in range(4)]
        request, leader = with_resources(random, any_request(random)), with_resources(random, any_request(random))
        request.gpus, leader.gpus = min(request.gpus, 2), random.choice((0, 1))
        state, shapes = node_state(machines), shape_rows(OTHER, request, leader)
        static = [[random.choice((0, 0, 0, 4)) for _ in machines] for _ in range(3)]
        cells = cells_of(static)

        def fits(s: int, n: int, state=state, shapes=shapes, cells=cells) -> bool:
            return int(placement_loop.node_reasons(state, shapes, s, n, cells.static[s, n])) == 0

        alone = [fit_counts.fit_count(state, shapes, 1, n) if fits(1, n) else 0 for n in range(4)]
        into = ints([-7] * 4)
        fit_counts.count_fits(state, shapes, cells, 1, into)
        assert into.tolist() == alone

        expected, before = [], [array.copy() for array in state]
        for n in range(4):
            if not fits(2, n):
                expected.append(-1)
                continue
            packed = placement_loop.add_pod_to_node(state, shapes, 2, n, -1, False)
            expected.append(fit_counts.fit_count(state, shapes, 1, n) if fits(1, n) else 0)
            placement_loop.remove_pod_from_node(state, shapes, 2, n, packed)
        fit_counts.count_beside_leader(state, shapes, cells, 1, 2, into)
        assert into.tolist() == expected
        assert [array.tolist() for array in state] == [array.tolist() for array in before], "nothing is left behind"
