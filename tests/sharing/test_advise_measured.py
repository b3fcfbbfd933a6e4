"""The advice against measurements on a real H200: thirteen kinds of work, two to seven tenants, one kind left out."""

from __future__ import annotations

import importlib.util
import json
import statistics
from pathlib import Path
from types import ModuleType

import pytest

from windlass.sharing import advise

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def fit() -> ModuleType:
    spec = importlib.util.spec_from_file_location("fit", ROOT / "tools/gpu/fit.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_constant_is_the_one_that_the_measurements_give(fit: ModuleType) -> None:
    kinds = json.loads(fit.RECORD.read_text())["kinds"]
    assert len(kinds) >= 12
    assert fit.fitted_turn(kinds) == advise.TIME_SLICE_SWITCH_US


def test_work_that_it_was_not_fitted_to_is_predicted(fit: ModuleType) -> None:
    """As published in docs/guide/node-h200.md: half of the predictions are within a tenth or so."""
    found = fit.errors(fit.leave_one_out(json.loads(fit.RECORD.read_text())["kinds"]))
    assert {name: statistics.median(each) < 0.15 for name, each in found.items()} == dict.fromkeys(found, True)
