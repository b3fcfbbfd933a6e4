"""A committed handful of worlds; `make worlds` draws new ones."""

from __future__ import annotations

import pytest
from tests.worlds.play import play_virtually


@pytest.mark.parametrize("seed", [5, 9, 26, 30, 33, 35])
def test_nothing_is_wrong_whatever_happens(seed: int) -> None:
    report = play_virtually(seed)
    assert report.problems == [], "\n".join(report.log)
    assert report.counts["binds"] > 10
