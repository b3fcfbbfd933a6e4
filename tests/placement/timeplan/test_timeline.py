"""Sums that are kept from one moment to the next say the same as sums that are made anew."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from windlass.model.pod import Pod
from windlass.placement.blocked_capacity import PlannedPod
from windlass.placement.timeplan.capacity_forecast import FreeCapacityTimeline, SpareCapacityProfile
from windlass.placement.timeplan.planned_start import PlannedStart
from windlass.placement.timeplan.quota_timeline import AmendedQuotaTimeline, QuotaTimeline, TimedQueueUsage

NODES, WIDTH = 5, 2
MOMENTS = st.integers(1, 12)
ENDS = st.one_of(st.none(), MOMENTS)
AMOUNTS = st.lists(st.integers(0, 9), min_size=WIDTH, max_size=WIDTH)
RETURNS = st.lists(st.tuples(MOMENTS, st.integers(0, NODES - 1), AMOUNTS), max_size=12)
HOLDERS = st.lists(
    st.tuples(
        ENDS,
        st.tuples(
            st.sampled_from(["a", "b"]), st.dictionaries(st.sampled_from([("f", "x"), ("f", "y")]), MOMENTS)
        ),
    ),
    max_size=8,
)


def course(returns: list[tuple[int, int, list[int]]]) -> FreeCapacityTimeline:
    return FreeCapacityTimeline(
        np.full((NODES, WIDTH), 20, dtype=np.int64),
        np.array([until for until, _, _ in returns], dtype=np.int64),
        np.array([row for _, row, _ in returns], dtype=np.int64),
        np.array([amounts for _, _, amounts in returns], dtype=np.int64).reshape(-1, WIDTH),
    )


@given(RETURNS, st.lists(MOMENTS, min_size=1, max_size=8))
def test_what_is_free_at_a_moment(returns: list[tuple[int, int, list[int]]], moments: list[int]) -> None:
    found = course(returns)
    for moment in moments:
        expected = np.full((NODES, WIDTH), 20, dtype=np.int64)
        for until, row, amounts in returns:
            if until <= moment:
                expected[row] += amounts
        assert found.at(moment).tolist() == expected.tolist()


def summed(holders: list[TimedQueueUsage], moment: int) -> dict[str, dict[tuple[str, str], int]]:
    total: dict[str, dict[tuple[str, str], int]] = {}
    for end, (queue, usage) in holders:
        if end is None or end > moment:
            for cell, amount in usage.items():
                held = total.setdefault(queue, {})
                held[cell] = held.get(cell, 0) + amount
    return total


def without_nothing(totals: object) -> dict[str, dict[tuple[str, str], int]]:
    assert isinstance(totals, dict)
    kept = {
        queue: {cell: amount for cell, amount in usage.items() if amount} for queue, usage in totals.items()
    }
    return {queue: usage for queue, usage in kept.items() if usage}


@given(HOLDERS, HOLDERS, st.data())
def test_what_is_held_at_a_moment(
    running: list[TimedQueueUsage], placed: list[TimedQueueUsage], data: st.DataObject
) -> None:
    gone = data.draw(st.sets(st.sampled_from(range(len(running))))) if running else set()
    found = AmendedQuotaTimeline(QuotaTimeline(running), placed, [running[number] for number in gone])
    here = [one for number, one in enumerate(running) if number not in gone] + placed
    for moment in data.draw(st.lists(st.integers(0, 13), min_size=1, max_size=8)):
        assert without_nothing(found.at(moment)) == summed(here, moment)


class Held(NamedTuple):
    """A wall and what it holds by node."""

    wall: PlannedStart
    rows: list[int]
    amounts: list[list[int]]


@st.composite
def walls(draw: st.DrawFn) -> Held:
    start = draw(st.integers(0, 10))
    end = draw(st.one_of(st.none(), st.integers(start + 1, 14)))
    rows = sorted(draw(st.sets(st.integers(0, NODES - 1), max_size=3)))
    amounts = [draw(AMOUNTS) for _ in rows]
    name = f"wall-{draw(st.integers(0, 999))}"
    return Held(
        PlannedStart(name, start, end, tuple(PlannedPod(Pod(), 0, row) for row in rows)), rows, amounts
    )


@given(RETURNS, st.lists(walls(), min_size=1, max_size=5), st.integers(1, 12), ENDS)
def test_the_least_that_walls_leave_in_a_span(
    returns: list[tuple[int, int, list[int]]], held: list[Held], start: int, length: int | None
) -> None:
    end = None if length is None else start + length
    free = course(returns)
    by_wall = {
        id(one.wall): (
            np.array(one.rows, dtype=np.int64),
            np.array(one.amounts, dtype=np.int64).reshape(-1, WIDTH),
        )
        for one in held
    }
    profile = SpareCapacityProfile([one.wall for one in held], lambda wall: by_wall[id(wall)], free.at)
    expected = free.at(start).copy()
    for moment in range(start, end if end is not None else 40):
        left = free.at(moment).copy()
        for one in held:
            if one.wall.is_active_at(moment):
                for row, amounts in zip(one.rows, one.amounts, strict=True):
                    left[row] -= amounts
        expected = np.minimum(expected, left)
    assert profile.spare(start, end).tolist() == expected.tolist()
