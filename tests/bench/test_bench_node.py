"""`windlass bench node`: it measures what it says; how large the numbers are is not a test's business."""

from __future__ import annotations

import tempfile
from pathlib import Path

from windlass_bench.node_agent import measure_node


def test_everything_is_measured() -> None:
    with tempfile.TemporaryDirectory(prefix="wl") as folder:  # short: socket paths have a limit
        found = {each.name: each for each in measure_node(Path(folder), faults=1, warm_up_seconds=0.5)}
    assert found["resident memory, in all"].value > found["resident memory, plugin"].value > 1
    assert found["fault to kubelet told, worst"].goal == 1.0
    assert all(each.value > 0 for each in found.values())
    assert found["preferred allocation, 16 GPUs, worst"].is_met is not None
