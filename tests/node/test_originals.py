"""How many of the originals' published unit tests hold here: the counts that the guide shows."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest
from tests.node import (
    test_original_dcgm_exporter,
    test_original_device_plugin,
    test_original_feature_discovery,
    test_original_mig_parted,
)

GUIDE = Path(__file__).parents[2] / "docs/guide/node.md"
ORIGINALS = {
    "k8s-device-plugin": test_original_device_plugin,
    "gpu-feature-discovery": test_original_feature_discovery,
    "mig-parted": test_original_mig_parted,
    "dcgm-exporter": test_original_dcgm_exporter,
}


@pytest.mark.parametrize(("name", "module"), ORIGINALS.items(), ids=ORIGINALS)
def test_the_guide_has_these_counts(name: str, module: ModuleType) -> None:
    rows = (set(module.HOLD), set(module.DIFFER), set(module.NOT_APPLICABLE))
    assert len(module.HOLD) == len(rows[0]), "each case once"
    assert len(rows[0] | rows[1] | rows[2]) == sum(map(len, rows)), "in one column"
    left_out = [value[0] if isinstance(value, tuple) else 1 for value in module.NOT_APPLICABLE.values()]
    counts = f"{len(rows[0])} | {len(rows[1])} | {sum(left_out)} |"
    lines = [line for line in GUIDE.read_text().splitlines() if line.startswith(f"| {name} ")]
    assert [line.partition(" | ")[2] for line in lines] == [counts]
