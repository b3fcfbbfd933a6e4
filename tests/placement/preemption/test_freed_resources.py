"""`FreedResources`: what units free on each node, and the order of nodes by estimated cost, against plain loops."""

from __future__ import annotations

from random import Random
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reference.park import GPU, gpu_node, mig_node, pod
from windlass.cluster.delta import Put
from windlass.cluster.node_state import FREE_MILLI
from windlass.cluster.shape import make_shape
from windlass.cluster.snapshot import Snapshot
from windlass.cluster.store import Store
from windlass.placement.preemption.freed_resources import FreedResources, RequestVector
from windlass.placement.preemption.victim_units import VictimUnit

CHANCE = st.randoms(use_true_random=False)
CPU, GPUS, MILLI = 0, 1, 2
"""Columns of `Scene.lots`."""


class Scene(NamedTuple):
    snapshot: Snapshot
    units: list[VictimUnit]
    lots: list[list[tuple[int, int, int, int]]]
    """By unit: (node, milli-CPU, GPUs, milli-GPU) of each of its pods."""
    sizes: list[tuple[int, int]]
    """By node: milli-CPU and GPUs."""

    def freed(self, unit: int, node: int) -> tuple[int, int, int]:
        here = [lot[1:] for lot in self.lots[unit] if lot[0] == node]
        return sum(lot[0] for lot in here), sum(lot[1] for lot in here), sum(lot[2] for lot in here)

    def left(self, node: int) -> tuple[int, int, int]:
        """Milli-CPU, GPUs and milli-GPU that are free now."""
        used = [self.freed(unit, node) for unit in range(len(self.units))]
        cpu, gpus = self.sizes[node]
        return (
            cpu - sum(one[CPU] for one in used),
            gpus - sum(one[GPUS] for one in used),
            1000 * gpus - sum(one[MILLI] for one in used),
        )

    def on_node(self, node: int) -> list[int]:
        """Numbers of the units there, in eviction order."""
        return [unit.number for unit in self.units if any(lot[0] == node for lot in self.lots[unit.number])]


def snapshot_of(*objects: Any) -> Snapshot:
    store = Store()
    store.apply([Put(object_) for object_ in objects])
    return store.snapshot(0)


def drawn(rng: Random) -> Scene:
    sizes = [(1000 * rng.randint(6, 12), rng.choice([2, 4])) for _ in range(rng.randint(1, 4))]
    objects: list[Any] = [gpu_node(f"n{at}", gpus, cpu=cpu // 1000) for at, (cpu, gpus) in enumerate(sizes)]
    free = [list(size) for size in sizes]
    units, lots = [], []
    row = 0
    for number in range(rng.randint(1, 8)):
        held: list[tuple[int, int, int, int]] = []
        rows = []
        for _ in range(rng.choice([1, 1, 1, 2, 3])):
            node, cpu, gpus = rng.randrange(len(sizes)), 1000 * rng.randint(1, 3), rng.randint(0, 2)
            if free[node][0] < cpu or free[node][1] < gpus:
                continue
            free[node][0] -= cpu
            free[node][1] -= gpus
            objects.append(pod(f"p{row:02}", gpus, cpu=str(cpu // 1000), on=f"n{node}"))
            held.append((node, cpu, gpus, 1000 * gpus))
            rows.append(row)
            row += 1
        if rows:
            names = tuple(f"d/{number}-{at}" for at in range(len(rows)))
            loss = rng.choice([(rng.randint(0, 3), 0), (0, rng.randint(0, 3))])
            priority, started, leaving = rng.choice([0, 5]), rng.randint(0, 3), rng.random() < 0.15
            unit = VictimUnit(len(units), f"d/{number}", tuple(rows), names, priority, loss, started, "u", leaving)
            units.append(unit)
            lots.append(held)
    return Scene(snapshot_of(*objects), units, lots, sizes)


def request_of(freed: FreedResources, cpu: int, gpus: int) -> RequestVector:
    return freed.request_vector(make_shape(pod("w", gpus, cpu=f"{cpu}m")))


def by_name(scene: Scene, request: RequestVector, values: Any) -> tuple[int, int, int]:
    """Milli-CPU, GPUs and milli-GPU out of a row with the requested columns."""
    resources, last = scene.snapshot.resources, scene.snapshot.node_state.free.shape[1]
    at = {int(column): int(value) for column, value in zip(request.columns, values, strict=True)}
    return at[resources.column("cpu")], at[resources.column(GPU)], at[last]


@given(CHANCE)
def test_every_unit_frees_what_its_pods_hold_on_each_node(rng: Random) -> None:
    scene = drawn(rng)
    freed = FreedResources(scene.snapshot, scene.units)
    request = request_of(freed, 1500, 2)
    assert by_name(scene, request, request.amounts) == (1500, 2, 2000)
    everybody = np.ones(len(freed.entry_unit), dtype=np.bool_)
    free = freed.free(scene.snapshot.node_state, request)
    most = freed.max_freed_by_node(request, everybody, len(scene.sizes))
    for node in range(len(scene.sizes)):
        units, amounts = freed.units_on_node(node, everybody, request)
        assert [unit.number for unit in units] == scene.on_node(node)
        found = [by_name(scene, request, row) for row in amounts]
        assert found == [scene.freed(unit.number, node) for unit in units]
        assert by_name(scene, request, free[node]) == scene.left(node)
        assert by_name(scene, request, most[node]) == tuple(map(sum, zip((0, 0, 0), *found, strict=True)))


@given(CHANCE, st.sampled_from([0, 1, 5, 6]))
def test_only_present_units_of_lower_priority_may_be_evicted(rng: Random, priority: int) -> None:
    scene = drawn(rng)
    freed = FreedResources(scene.snapshot, scene.units)
    gone = {unit.number for unit in scene.units if rng.random() < 0.3}
    freed.present[list(gone)] = False
    usable = freed.preemptible_entries(priority)
    may = {unit.number for unit in scene.units if unit.priority < priority} - gone
    assert usable.tolist() == [int(unit) in may for unit in freed.entry_unit]
    request = request_of(freed, 1000, 1)
    most = freed.max_freed_by_node(request, usable, len(scene.sizes))
    for node in range(len(scene.sizes)):
        here = [number for number in scene.on_node(node) if number in may]
        assert [unit.number for unit in freed.units_on_node(node, usable, request)[0]] == here
        parts = [scene.freed(number, node) for number in here]
        assert by_name(scene, request, most[node]) == tuple(sum(part[at] for part in parts) for at in range(3))


def estimated_cost(scene: Scene, node: int, here: list[int], wanted: tuple[int, int, int]) -> tuple[int, ...]:
    """Units go in order until enough is free: the first in any case, the others only if something was lacking."""
    left = scene.left(node)
    gone: list[VictimUnit] = []
    for number in here:
        if gone and all(have >= want for have, want in zip(left, wanted, strict=True)):
            break
        gone.append(scene.units[number])
        left = tuple(have + more for have, more in zip(left, scene.freed(number, node), strict=True))
    ranks = {priority: at for at, priority in enumerate(sorted({unit.priority for unit in scene.units}), 1)}
    return (
        max(0 if unit.is_terminating else ranks[unit.priority] for unit in gone),
        sum(unit.loss[0] for unit in gone),
        sum(unit.loss[1] for unit in gone),
        sum(len(unit.pods) for unit in gone if not unit.is_terminating),
        -min(unit.started_at for unit in gone),
        node,
    )


@given(CHANCE)
def test_nodes_come_in_the_order_of_what_evicting_until_it_fits_would_cost(rng: Random) -> None:
    scene = drawn(rng)
    freed = FreedResources(scene.snapshot, scene.units)
    cpu, gpus = 1000 * rng.randint(1, 8), rng.randint(1, 4)
    request = request_of(freed, cpu, gpus)
    pods = np.array([rng.choice([1, 1, 2]) for _ in scene.sizes])
    usable = np.array([rng.random() < 0.8 for _ in freed.entry_unit], dtype=np.bool_)
    feasible = np.array([rng.random() < 0.8 for _ in scene.sizes], dtype=np.bool_)
    free = freed.free(scene.snapshot.node_state, request)
    found = freed.nodes_by_estimated_cost(free, request.amounts * pods[:, None], request, usable, feasible)
    costs = []
    for node in np.flatnonzero(feasible).tolist():
        may = {int(unit) for unit in freed.entry_unit[usable & (freed.entry_node == node)]}
        here = [number for number in scene.on_node(node) if number in may]
        if here:
            count = int(pods[node])
            costs.append(estimated_cost(scene, node, here, (cpu * count, gpus * count, 1000 * gpus * count)))
    assert found.tolist() == [cost[-1] for cost in sorted(costs)]


def test_where_nothing_lacks_that_vectors_know_one_unit_is_counted() -> None:
    """On `a` enough is free, and its cheap unit is cheaper than that of `b`; both units of `a` would be dearer."""
    snapshot = snapshot_of(gpu_node("a", 4), gpu_node("b", 1), *(pod(f"p{at}", 1, on="aab"[at]) for at in range(3)))
    losses = (1, 9, 5)
    units = [VictimUnit(at, f"d/{at}", (at,), (f"d/{at}",), 0, (losses[at], 0), 0, "u") for at in range(3)]
    freed = FreedResources(snapshot, units)
    request = request_of(freed, 1000, 1)
    free = freed.free(snapshot.node_state, request)
    everybody, everywhere = np.ones(3, dtype=np.bool_), np.ones(2, dtype=np.bool_)
    wanted = request.amounts * np.ones((2, 1), dtype=np.int64)
    assert freed.nodes_by_estimated_cost(free, wanted, request, everybody, everywhere).tolist() == [0, 1]


def one_unit(snapshot: Snapshot, *rows: int) -> list[VictimUnit]:
    return [VictimUnit(0, "d/0", rows, tuple(f"d/{row}" for row in rows), 0, (1, 0), 0, "u")]


@pytest.mark.parametrize(("replicas", "held", "free"), [(1, 1000, 3000), (2, 1000, 7000), (4, 1000, 15000)])
def test_a_replica_of_a_shared_gpu_counts_as_a_whole_one(replicas: int, held: int, free: int) -> None:
    """Of four GPUs: one pod has one of `4 × replicas` that are advertised, and as many are asked for as whole ones."""
    snapshot = snapshot_of(gpu_node("n", 4, replicas=replicas), pod("p", 1, on="n"))
    freed = FreedResources(snapshot, one_unit(snapshot, 0))
    request = request_of(freed, 1000, 1)
    assert request.by_replica
    last = request.columns.tolist().index(snapshot.node_state.free.shape[1])
    assert freed.free(snapshot.node_state, request)[0, last] == free
    assert freed.units_on_node(0, np.array([True]), request)[1][0, last] == held


def test_shares_count_in_thousandths_of_a_gpu() -> None:
    snapshot = snapshot_of(gpu_node("n", 2), pod("a", share="0.25", on="n"), pod("b", share="0.5", on="n"))
    freed = FreedResources(snapshot, one_unit(snapshot, 0, 1))
    request = freed.request_vector(make_shape(pod("w", share="0.3")))
    assert not request.by_replica
    last = request.columns.tolist().index(snapshot.node_state.free.shape[1])
    assert request.amounts[last] == 300
    assert freed.free(snapshot.node_state, request)[0, last] == 1250
    assert freed.units_on_node(0, np.array([True]), request)[1][0, last] == 750


def test_a_device_that_is_given_twice_hides_nothing_of_its_neighbour() -> None:
    snapshot = snapshot_of(gpu_node("n", 2), pod("a", share="0.5", on="n"))
    snapshot.node_state.device_occupancy[0, FREE_MILLI] = -500
    freed = FreedResources(snapshot, one_unit(snapshot, 0))
    request = freed.request_vector(make_shape(pod("w", share="0.3")))
    last = request.columns.tolist().index(snapshot.node_state.free.shape[1])
    assert freed.free(snapshot.node_state, request)[0, last] == 1000


def test_an_instance_that_is_made_on_demand_is_no_resource_of_the_node() -> None:
    snapshot = snapshot_of(mig_node("n", 1), pod("a", mig=("3g.40gb", 1), on="n"))
    freed = FreedResources(snapshot, one_unit(snapshot, 0))
    request = freed.request_vector(make_shape(pod("w", mig=("3g.40gb", 2))))
    names = [snapshot.resources.column(name) for name in ("cpu", "pods")]
    assert request.columns.tolist() == names
    assert request.amounts.tolist() == [1000, 1]
    plain = freed.request_vector(make_shape(pod("w", cpu="2")))
    assert (plain.columns.tolist(), plain.amounts.tolist(), plain.by_replica) == (names, [2000, 1], False)


def test_without_units_no_node_helps() -> None:
    snapshot = snapshot_of(gpu_node("n", 2))
    freed = FreedResources(snapshot, [])
    request = request_of(freed, 1000, 1)
    nobody = freed.preemptible_entries(9)
    free = freed.free(snapshot.node_state, request)
    everywhere = np.ones(1, dtype=np.bool_)
    assert freed.nodes_by_estimated_cost(free, free, request, nobody, everywhere).tolist() == []
    assert freed.max_freed_by_node(request, nobody, 1).sum() == 0
    assert freed.units_on_node(0, nobody, request)[0] == []
