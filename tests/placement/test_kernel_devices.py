"""The kernels that choose devices inside a node, each against a plain twin on random nodes."""

from __future__ import annotations

import copy

import numpy as np
import pytest

from reference.kernel_nodes import (
    Device,
    Machine,
    Request,
    any_device,
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
from windlass.cluster.node_state import FREE_MILLI, USED_SLICES
from windlass.model.reasons import (
    WHY_GPU_DEVICE_ROOM,
    WHY_GPU_MEMORY,
    WHY_GPU_MODEL,
    WHY_GPU_UNHEALTHY,
    WHY_MIG_NO_ROOM,
)
from windlass.placement.kernels import devices as kernel

BEFORE = Machine([Device(free=500, model=2, memory=9_000, island=1), Device(model=1)], replicas=2)
AFTER = Machine([Device(free=1000, model=0, memory=20_000), Device(), Device()], replicas=4)
OTHER = Request(gpus=2, milli=300, models=5)
S, N = 1, 1
"""The row of the request and of the node under test: others lie around them."""
FIRST = len(BEFORE.devices)
CASES = 400


def arrays(machine: Machine, request: Request):
    return node_state([BEFORE, machine, AFTER]), shape_rows(OTHER, request, OTHER)


# The twin


def allowed(request: Request, device: Device) -> bool:
    return request.models & 1 << device.model != 0


def need_of(request: Request, machine: Machine, device: Device) -> int:
    if request.memory:
        size = device.memory if device.memory else 1
        return -(-1000 * request.memory // size)
    if request.milli == 1000 and machine.replicas > 1:
        return max(1, 1000 // machine.replicas)
    return request.milli


def most_of(request: Request, machine: Machine) -> int:
    return 15 if machine.replicas > 1 and request.milli == 1000 else 1


def copies(request: Request, machine: Machine, device: Device, free: int) -> int:
    """How many of the pod's GPUs the device could be; counted one by one."""
    found = 0
    need = need_of(request, machine, device)
    while free >= need and found < most_of(request, machine):
        free -= need
        found += 1
    return found


def expected_reason(request: Request, machine: Machine) -> int:
    right = [device for device in machine.devices if allowed(request, device)]
    large = [device for device in right if need_of(request, machine, device) <= 1000 or not request.memory]
    now = sum(copies(request, machine, device, device.free) for device in large if device.healthy)
    repaired = sum(copies(request, machine, device, 1000) for device in large if not device.healthy)
    if now >= request.gpus:
        return 0
    if machine.devices and not right:
        return WHY_GPU_MODEL
    if right and not large:
        return WHY_GPU_MEMORY
    return WHY_GPU_UNHEALTHY if now + repaired >= request.gpus else WHY_GPU_DEVICE_ROOM


def island_of(request: Request, machine: Machine) -> int:
    """The island with the fewest free shares that holds the pod, the first of equals; -1: none."""
    shares: dict[int, int] = {}
    for device in machine.devices:
        shares.setdefault(device.island, 0)
        if allowed(request, device):
            shares[device.island] += copies(request, machine, device, device.free)
    holding = {island: count for island, count in shares.items() if count >= request.gpus}
    return min(holding, key=holding.__getitem__) if holding else -1


def taken(request: Request, machine: Machine, preferred: int, islands: bool) -> list[int]:
    """Shares by device: the preferred one, those of the best island, then the lowest numbers."""
    shares = [0] * len(machine.devices)
    free = [device.free for device in machine.devices]
    island = island_of(request, machine) if islands else -1
    order = [i for i, device in enumerate(machine.devices) if island in (-1, device.island)]
    order += [i for i in range(len(machine.devices)) if i not in order]
    if preferred >= 0:
        shares[preferred] += 1
        free[preferred] -= need_of(request, machine, machine.devices[preferred])
    for i in order:
        device = machine.devices[i]
        need = need_of(request, machine, device)
        while (
            sum(shares) < request.gpus
            and allowed(request, device)
            and free[i] >= need
            and shares[i] < most_of(request, machine)
        ):
            shares[i] += 1
            free[i] -= need
    return shares


def unpacked(packed: np.uint64, count: int) -> list[int]:
    return [int(packed) >> 4 * i & 15 for i in range(count)]


# Shares and whole GPUs


@in_parts(CASES)
def test_need_and_room_of_each_device_are_those_of_the_request(cases: range) -> None:
    for random in draws(cases):
        machine, request = any_machine(random), any_request(random)
        state, shapes = arrays(machine, request)
        assert kernel.max_shares_of_device(state, shapes, S, N) == most_of(request, machine)
        for i, device in enumerate(machine.devices):
            need = need_of(request, machine, device)
            assert kernel.milli_needed(state, shapes, S, N, FIRST + i) == need
            assert kernel.model_allowed(state, shapes, S, FIRST + i) == allowed(request, device)
            assert kernel.shares_in(device.free, need, most_of(request, machine)) == copies(
                request, machine, device, device.free
            )


@in_parts(CASES)
def test_devices_refuse_a_pod_for_the_most_fundamental_reason(cases: range) -> None:
    for random in draws(cases):
        machine, request = any_machine(random), any_request(random)
        state, shapes = arrays(machine, request)
        assert int(kernel.device_reasons(state, shapes, S, N)) == expected_reason(request, machine)


@pytest.mark.parametrize(
    ("found", "request_", "reason"),
    [
        ([], Request(1), WHY_GPU_DEVICE_ROOM),
        ([Device(model=1)], Request(1, models=1), WHY_GPU_MODEL),
        ([Device(memory=100)], Request(1, milli=0, memory=101), WHY_GPU_MEMORY),
        ([Device(memory=100)], Request(1, milli=0, memory=100), 0),
        ([Device(memory=0)], Request(1, milli=0, memory=2), WHY_GPU_MEMORY),
        ([Device(healthy=False, free=0)], Request(1), WHY_GPU_UNHEALTHY),
        ([Device(healthy=False, free=0)], Request(2), WHY_GPU_DEVICE_ROOM),
        ([Device(healthy=False, free=0), Device()], Request(2), WHY_GPU_UNHEALTHY),
        ([Device(free=999)], Request(1), WHY_GPU_DEVICE_ROOM),
        ([Device(), Device(model=1)], Request(2, models=2), WHY_GPU_DEVICE_ROOM),
    ],
)
def test_reasons_of_small_nodes(found: list[Device], request_: Request, reason: int) -> None:
    state, shapes = arrays(Machine(found), request_)
    assert int(kernel.device_reasons(state, shapes, S, N)) == reason


@in_parts(CASES)
def test_the_best_island_is_the_fullest_that_holds_the_whole_pod(cases: range) -> None:
    for random in draws(cases):
        machine, request = any_machine(random), any_request(random)
        state, shapes = arrays(machine, request)
        assert kernel.best_island(state, shapes, S, N) == island_of(request, machine)


@in_parts(CASES)
def test_picked_devices_are_taken_released_and_retaken_exactly(cases: range) -> None:
    for random in draws(cases):
        found, request = [any_device(random) for _ in range(random.randint(1, 6))], any_request(random)
        replicas, islands = random.choice((1, 1, 3)), random.random() < 0.5
        machine = Machine(found, replicas=replicas)
        fitting = [
            i
            for i, device in enumerate(found)
            if allowed(request, device) and device.free >= need_of(request, machine, device)
        ]
        preferred = random.choice([-1, *fitting]) if request.gpus == 1 else -1
        state, shapes = arrays(machine, request)
        before = state.device_occupancy.copy()
        packed = kernel.pick_devices(state, shapes, S, N, preferred, islands)
        shares = taken(request, machine, preferred, islands)
        assert unpacked(packed, len(found)) == shares
        after = before.copy()
        for i, count in enumerate(shares):
            after[FIRST + i, FREE_MILLI] -= count * need_of(request, machine, found[i])
        assert state.device_occupancy.tolist() == after.tolist()
        kernel.release_or_retake_devices(state, shapes, S, N, packed, 1)
        assert state.device_occupancy.tolist() == before.tolist()
        kernel.release_or_retake_devices(state, shapes, S, N, packed, -1)
        assert state.device_occupancy.tolist() == after.tolist()


@in_parts(CASES)
def test_a_trial_on_a_copy_takes_what_would_be_picked(cases: range) -> None:
    for random in draws(cases):
        machine, request = any_machine(random), any_request(random)
        islands = random.random() < 0.5
        state, shapes = arrays(machine, request)
        free = ints([device.free for device in machine.devices])
        kernel.take_from_free(state, shapes, S, N, free, islands)
        shares = taken(request, machine, -1, islands)
        assert free.tolist() == [
            device.free - count * need_of(request, machine, device)
            for device, count in zip(machine.devices, shares, strict=True)
        ]


@pytest.mark.parametrize("request_", [Request(0), Request(1, mig=0, asks=((5, 1),))])
def test_a_trial_takes_nothing_for_pods_without_whole_gpus_or_shares(request_: Request) -> None:
    state, shapes = arrays(Machine([Device(), Device()]), request_)
    free = ints([1000, 1000])
    kernel.take_from_free(state, shapes, S, N, free, True)
    assert free.tolist() == [1000, 1000]


@in_parts(CASES)
def test_a_share_goes_to_the_device_with_least_free_that_fits(cases: range) -> None:
    for random in draws(cases):
        machine, request = any_machine(random), any_request(random)
        state, shapes = arrays(machine, request)
        fitting = [
            (device.free, i)
            for i, device in enumerate(machine.devices)
            if allowed(request, device) and device.free >= need_of(request, machine, device)
        ]
        is_share = request.gpus == 1 and request.milli != 1000
        assert kernel.tightest_device(state, shapes, S, N) == (min(fitting)[1] if is_share and fitting else -1)


def test_an_instance_has_no_tightest_device() -> None:
    state, shapes = arrays(Machine([Device()]), Request(1, mig=0, asks=((5, 1),)))
    assert kernel.tightest_device(state, shapes, S, N) == -1


@in_parts(CASES)
def test_free_amounts_are_those_of_the_nodes_own_devices(cases: range) -> None:
    for random in draws(cases):
        machine = any_machine(random)
        state, _ = arrays(machine, OTHER)
        into = ints([7] * 8)
        count = len(machine.devices)
        assert kernel.copy_free(state, N, into) == count
        assert into.tolist() == [device.free for device in machine.devices] + [7] * (8 - count)
        assert kernel.free_gpu(state, N) == sum(device.free for device in machine.devices)


@in_parts(CASES)
def test_an_equal_device_before_has_the_same_model_memory_and_free_amount(cases: range) -> None:
    for random in draws(cases):
        found = [any_device(random) for _ in range(6)]
        state, _ = arrays(Machine(found), OTHER)
        free = ints([device.free for device in found])
        kinds = [(device.model, device.memory, device.free) for device in found]
        for i, kind in enumerate(kinds):
            assert kernel.has_equal_before(state, FIRST, free, i) == (kind in kinds[:i])


# MIG


def starts_of(request: Request, device: Device, used: int) -> int:
    """The highest start, or -1."""
    if device.geometry not in request.profiles or not allowed(request, device):
        return -1
    slices, starts, media = request.profiles[device.geometry]
    return max((at for at in range(8) if starts >> at & 1 and not (slices << at | media) & used), default=-1)


def created(request: Request, machine: Machine, most: int) -> list[tuple[int, int]]:
    """(device, start) of the instances, device after device."""
    found = []
    for i, device in enumerate(copy.deepcopy(machine.devices)):
        while len(found) < most and (start := starts_of(request, device, device.used)) >= 0:
            slices, _, media = request.profiles[device.geometry]
            device.used |= slices << start | media
            found.append((i, start))
    return found


@in_parts(CASES)
def test_instances_are_refused_where_they_cant_all_be_created(cases: range) -> None:
    for random in draws(cases):
        machine, request = any_mig_machine(random), any_mig_request(random)
        state, shapes = arrays(machine, request)
        dynamic = any(device.geometry >= 0 for device in machine.devices)
        assert kernel.has_geometry(state, N) == dynamic
        enough = request.gpus <= 8 and len(created(request, machine, request.gpus)) == request.gpus
        expected = 0 if enough or not dynamic else WHY_MIG_NO_ROOM
        assert int(kernel.mig_reasons(state, shapes, S, N)) == expected
        assert int(kernel.device_reasons(state, shapes, S, N)) == expected


@in_parts(CASES)
def test_instances_are_created_released_and_created_again(cases: range) -> None:
    for random in draws(cases):
        machine, request = any_mig_machine(random), any_mig_request(random)
        state, shapes = arrays(machine, request)
        before = state.device_occupancy.copy()
        packed = int(kernel.pick_instances(state, shapes, S, N))
        found = created(request, machine, min(8, request.gpus))
        assert packed == sum((device << 4 | 8 | start) << 8 * i for i, (device, start) in enumerate(found))
        after = before.copy()
        for device, start in found:
            slices, _, media = request.profiles[machine.devices[device].geometry]
            after[FIRST + device, USED_SLICES] |= slices << start | media
        assert state.device_occupancy.tolist() == after.tolist()
        kernel.release_or_retake_devices(state, shapes, S, N, np.uint64(packed), 1)
        assert state.device_occupancy.tolist() == before.tolist()
        kernel.release_or_retake_devices(state, shapes, S, N, np.uint64(packed), -1)
        assert state.device_occupancy.tolist() == after.tolist()


def test_an_instance_in_the_highest_slice_is_found() -> None:
    state, shapes = arrays(Machine([Device(free=0, geometry=1)]), Request(1, mig=0, profiles={1: (1, 1 << 7, 0)}))
    assert kernel.mig_start(state, shapes, S, FIRST, 0) == 7
    assert kernel.mig_start(state, shapes, S, FIRST, 1 << 7) == -1
