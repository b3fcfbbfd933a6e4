from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.model.errors import InputError
from windlass.simulate.random_stream import RandomStream

SEEDS = st.integers(0, 2**64)


def test_streams_of_one_seed_differ_and_repeat() -> None:
    assert RandomStream(1, 0).permutation(50).tolist() == RandomStream(1, 0).permutation(50).tolist()
    assert RandomStream(1, 0).permutation(50).tolist() != RandomStream(1, 1).permutation(50).tolist()


@given(SEEDS, st.integers(0, 200))
def test_permutation_has_everything_once(seed: int, size: int) -> None:
    assert sorted(RandomStream(seed).permutation(size).tolist()) == list(range(size))


@given(SEEDS, st.integers(1, 2**31))
def test_below_stays_below(seed: int, bound: int) -> None:
    drawn = RandomStream(seed).integers_below(bound, 100)
    assert drawn.min() >= 0
    assert drawn.max() < bound


def test_choices_follow_their_weights() -> None:
    counts = np.bincount(RandomStream(3).weighted_choice([1, 0, 3], 40_000), minlength=3)
    assert counts[1] == 0
    assert counts[2] / counts[0] == pytest.approx(3, rel=0.05)


@given(SEEDS)
def test_quantiles_stay_within_their_ends(seed: int) -> None:
    drawn = RandomStream(seed).from_quantiles((0.0, 0.5, 1.0), (1, 10, 1000), 200)
    assert drawn.min() >= 1
    assert drawn.max() < 1000


def test_quantiles_are_met() -> None:
    drawn = RandomStream(9).from_quantiles((0.0, 0.5, 0.9, 1.0), (1, 10, 100, 1000), 50_000)
    assert np.mean(drawn < 10) == pytest.approx(0.5, abs=0.01)
    assert np.mean(drawn < 100) == pytest.approx(0.9, abs=0.01)


def test_negative_seed_is_refused() -> None:
    with pytest.raises(InputError, match="a seed is a whole number of 0 or more, got -3"):
        RandomStream(-3)
