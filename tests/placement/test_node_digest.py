"""The digest by which computed scores of a node are found again: nodes that differ in any way have different ones."""

from __future__ import annotations

import numpy as np
import pytest

from reference.park import Desk, gpu_node
from windlass.placement.kernels.placement_loop import node_digest


@pytest.mark.parametrize("array", ["free", "device_occupancy", "gpu_pod_counts"])
def test_it_covers_everything_that_a_pod_changes_on_a_node(array: str) -> None:
    state = Desk(gpu_node("n", 4)).store.snapshot().node_state.copy()
    values = getattr(state, array)
    with np.errstate(over="ignore"):
        before = node_digest(state, 0)
        values[0, 0] += 1
        assert node_digest(state, 0) != before
        values[0, 0] -= 1
        assert node_digest(state, 0) == before
