"""Repairs can be taken out: what each entry changes is still there, and worlds of its theme are drawn."""

from __future__ import annotations

import re

import pytest
from tests.worlds.themes import ALL_THEMES
from tests.worlds.unrepaired import REPAIRS, Repair


@pytest.mark.parametrize("repair", REPAIRS, ids=lambda repair: repair.name)
def test_every_repair_can_be_taken_out(repair: Repair) -> None:
    with repair.take_out():
        pass
    assert repair.theme in {theme.name for theme in ALL_THEMES}
    assert re.compile(repair.sign)
