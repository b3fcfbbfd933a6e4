"""The room that evictions make, from an overlay: on a node with few units set by set, with many by amount."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from tests.placement.staged_overlay import overlay_on, pending

from reference.park import gpu_node, pod
from windlass.model.pod import Pod
from windlass.placement.placed_workloads import WorkloadPods
from windlass.placement.room_model import MAX_SUBSET_UNITS, build_room
from windlass.queueing.victim_room import RoomByAmount, RoomBySubset, VictimRoom


@pytest.fixture(autouse=True)
def _overflow() -> Iterator[None]:
    with np.errstate(over="ignore"):  # the hash function of the kernels overflows on purpose
        yield


def room(units: int, waits: Pod, count: int, gpus: int = 16) -> VictimRoom:
    """A node on which so many pods with a GPU and a core run, each a unit, and another one that is full."""
    running = [pod(f"p{at}", 1, cpu="1", on="n0") for at in range(units)]
    full = pod("full", 2, on="n1")
    overlay = overlay_on(gpu_node("n0", gpus, cpu=16), gpu_node("n1", 2), *running, full, waits)
    rows = {overlay.snapshot.pods.keys[row]: row for row in range(len(overlay.snapshot.pods.keys))}
    parts = [[WorkloadPods([rows[f"default/p{at}"]], [])] for at in range(units)]
    found = build_room(overlay, [pending(overlay, waits, count)], parts)
    assert found is not None
    return found


def test_with_many_units_the_room_is_counted_by_amount_up_to_the_most_that_fits() -> None:
    units = MAX_SUBSET_UNITS + 1
    found = room(units, pod("w", 4, cpu="1"), 4)
    ((node,),) = found.domains
    assert isinstance(node, RoomByAmount)
    assert (node.units, node.freed) == (tuple(range(units)), (1000,) * units)
    assert node.lacking == (0, 0, 3000, 7000, 11000), "five GPUs are free"
    assert (found.pods, found.free) == (4, [0])


def test_without_gpus_the_scarcest_resource_is_counted() -> None:
    units = MAX_SUBSET_UNITS + 1
    ((node,),) = room(units, pod("w", cpu="6"), 2).domains
    assert isinstance(node, RoomByAmount)
    assert (node.freed, node.lacking) == ((1000,) * units, (0, 1000, 7000))


def test_with_few_units_every_set_is_counted() -> None:
    ((node,),) = room(3, pod("w", 2, cpu="1"), 9, gpus=4).domains
    assert isinstance(node, RoomBySubset)
    assert list(node.pods) == [max(0, (1 + bin(mask).count("1")) // 2) for mask in range(8)]
