"""When a long run of churn has failed: memory that goes on growing, not memory that fills up first."""

from __future__ import annotations

import pytest
from tests.churn.__main__ import verdict

FILLS_UP = [100.0, 150, 180, 190, 195, 198, 199, 200, 200, 200, 200, 200]
GROWS = [100.0 + 10 * hour for hour in range(24)]


@pytest.mark.parametrize(
    ("memory", "code"), [(FILLS_UP, 0), (GROWS, 1), ([100.0] * 24, 0), ([100.0, 100, 100, 111], 1)]
)
def test_memory_that_goes_on_growing_fails(memory: list[float], code: int) -> None:
    assert verdict(memory) == code
