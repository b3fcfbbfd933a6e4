"""The model of interference on shared GPUs: it gives what was measured, and behaves as sharing does."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.simulate.interference import (
    COMPUTE_SLICES,
    EXCLUSIVE,
    EXCLUSIVE_US,
    MEASURED_MODEL,
    MIG,
    MPS,
    SEVEN_TENANTS_US,
    TIME_SLICING,
    WIDE_KERNEL_MODEL,
    InterferenceModel,
    expected_slowdown,
)

models = st.builds(
    InterferenceModel,
    switch_overhead=st.floats(0, 1),
    contention=st.floats(0, 1),
    parallel_fraction=st.floats(0, 1),
)
tenants = st.integers(1, 16)
SHARING_STRATEGIES = (EXCLUSIVE, TIME_SLICING, MPS, MIG)


class TestMeasurement:
    @pytest.mark.parametrize("way", SEVEN_TENANTS_US)
    def test_seven_tenants_take_as_long_as_measured(self, way: str) -> None:
        slices = 1 if way == MIG else COMPUTE_SLICES
        assert MEASURED_MODEL.slowdown(way, 7, slices) * EXCLUSIVE_US == pytest.approx(SEVEN_TENANTS_US[way])

    def test_the_constants_that_the_docs_name(self) -> None:
        assert MEASURED_MODEL.switch_overhead == pytest.approx(0.067, abs=5e-4)
        assert MEASURED_MODEL.contention == pytest.approx(0.563, abs=5e-4)
        assert MEASURED_MODEL.parallel_fraction == pytest.approx(0.215, abs=5e-4)

    def test_more_work_is_done_in_instances_than_side_by_side_than_in_turns(self) -> None:
        done = {way: MEASURED_MODEL.capacity(way, 7, 1) for way in (TIME_SLICING, MPS, MIG)}
        assert done[TIME_SLICING] < 1 < done[MPS] < done[MIG]
        assert done[MIG] == pytest.approx(7 * 249 / 570)


class TestProperties:
    @given(models, st.sampled_from(SHARING_STRATEGIES))
    def test_alone_on_a_whole_gpu_nothing_is_slowed(self, model: InterferenceModel, way: str) -> None:
        assert model.slowdown(way, 1) == 1

    @given(models, st.sampled_from(SHARING_STRATEGIES), tenants, st.integers(1, COMPUTE_SLICES))
    def test_neighbours_never_speed_anything_up(
        self, model: InterferenceModel, way: str, active: int, slices: int
    ) -> None:
        assert 1 <= model.slowdown(way, active, slices) <= model.slowdown(way, active + 1, slices)

    @given(models, tenants, tenants, st.integers(1, COMPUTE_SLICES))
    def test_an_instance_does_not_see_its_neighbours(
        self, model: InterferenceModel, few: int, many: int, slices: int
    ) -> None:
        assert model.slowdown(MIG, few, slices) == model.slowdown(MIG, many, slices)
        assert model.slowdown(MIG, few, slices) >= model.slowdown(MIG, few, COMPUTE_SLICES) == 1

    @given(models, tenants)
    def test_turns_do_no_more_work_than_one_tenant_alone(self, model: InterferenceModel, active: int) -> None:
        assert model.capacity(TIME_SLICING, active) <= 1

    @given(tenants, st.integers(1, COMPUTE_SLICES))
    def test_work_that_fills_a_gpu_gains_nothing_by_any_way(self, active: int, slices: int) -> None:
        assert WIDE_KERNEL_MODEL.capacity(MPS, active) == pytest.approx(1)
        assert WIDE_KERNEL_MODEL.slowdown(MIG, 1, slices) == pytest.approx(COMPUTE_SLICES / slices)


class TestExpectedSlowdown:
    def test_two_that_are_always_at_work(self) -> None:
        assert expected_slowdown(MPS, [1.0, 1.0]) == pytest.approx([1 + MEASURED_MODEL.contention] * 2)

    def test_who_is_idle_slows_nobody(self) -> None:
        assert expected_slowdown(TIME_SLICING, [0.5, 0.0, 0.0])[0] == 1

    def test_by_hand(self) -> None:
        """The other is at work half of the time."""
        assert expected_slowdown(MPS, [0.3, 0.5])[0] == pytest.approx(1 + 0.5 * MEASURED_MODEL.contention)

    @given(st.lists(st.floats(0, 1), min_size=1, max_size=7), st.sampled_from((EXCLUSIVE, TIME_SLICING, MPS)))
    def test_it_lies_between_alone_and_all_at_work(self, shares: list[float], way: str) -> None:
        most = MEASURED_MODEL.slowdown(way, len(shares))
        for value in expected_slowdown(way, shares):
            assert 1 - 1e-9 <= value <= most + 1e-9
