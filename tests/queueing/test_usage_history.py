"""Decay of past usage, in whole numbers."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from windlass.queueing.usage_history import decay_factor


@given(st.integers(0, 10_000_000), st.integers(1, 1_000_000))
def test_decay_is_a_power_of_one_half(elapsed: int, half_life: int) -> None:
    assert abs(float(decay_factor(elapsed, half_life)) - 0.5 ** (elapsed / half_life)) < 1e-8


@given(st.integers(1, 1_000_000), st.integers(1, 100_000), st.integers(1, 1000))
def test_more_time_leaves_less(elapsed: int, half_life: int, more: int) -> None:
    assert decay_factor(elapsed + more, half_life) <= decay_factor(elapsed, half_life) <= 1


def test_without_a_half_life_only_the_present_counts() -> None:
    assert decay_factor(1, 0) == 0
    assert decay_factor(0, 0) == 1
