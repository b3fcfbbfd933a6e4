"""Cached timelines of capacity and quota give the same sums as a fresh computation."""

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
        st.tuples(st.sampled_from(["a", "b"]), st.dictionaries(st.sampled_from([("f", "x"), ("f", "y")]), MOMENTS)),
    ),
    max_size=8,
)


def timeline(returns: list[tuple[int, int, list[int]]]) -> FreeCapacityTimeline:
    return FreeCapacityTimeline(
        np.full((NODES, WIDTH), 20, dtype=np.int64),
        np.array([until for until, _, _ in returns], dtype=np.int64),
        np.array([row for _, row, _ in returns], dtype=np.int64),
        np.array([amounts for _, _, amounts in returns], dtype=np.int64).reshape(-1, WIDTH),
    )


@given(RETURNS, st.lists(MOMENTS, min_size=1, max_size=8))
def test_what_is_free_at_a_moment(returns: list[tuple[int, int, list[int]]], moments: list[int]) -> None:
    found = timeline(returns)
    for moment in moments:
        expected = np.full((NODES, WIDTH), 20, dtype=np.int64)
        for until, row, amounts in returns:
            if until <= moment:
                expected[row] += amounts
        assert found.at(moment).tolist() == expected.tolist()


def expected_usage(holders: list[TimedQueueUsage], moment: int) -> dict[str, dict[tuple[str, str], int]]:
    total: dict[str, dict[tuple[str, str], int]] = {}
    for end, (queue, usage) in holders:
        if end is None or end > moment:
            for cell, amount in usage.items():
                held = total.setdefault(queue, {})
                held[cell] = held.get(cell, 0) + amount
    return total


def without_zeros(totals: object) -> dict[str, dict[tuple[str, str], int]]:
    assert isinstance(totals, dict)
    kept = {queue: {cell: amount for cell, amount in usage.items() if amount} for queue, usage in totals.items()}
    return {queue: usage for queue, usage in kept.items() if usage}


@given(HOLDERS, HOLDERS, st.data())
def test_what_is_held_at_a_moment(
    running: list[TimedQueueUsage], placed: list[TimedQueueUsage], data: st.DataObject
) -> None:
    removed = data.draw(st.sets(st.sampled_from(range(len(running))))) if running else set()
    found = AmendedQuotaTimeline(QuotaTimeline(running), placed, [running[number] for number in removed])
    remaining = [usage for number, usage in enumerate(running) if number not in removed] + placed
    for moment in data.draw(st.lists(st.integers(0, 13), min_size=1, max_size=8)):
        assert without_zeros(found.at(moment)) == expected_usage(remaining, moment)


class PlannedUsage(NamedTuple):
    """A planned start and what it takes on each node."""

    planned: PlannedStart
    rows: list[int]
    amounts: list[list[int]]


@st.composite
def planned_starts(draw: st.DrawFn) -> PlannedUsage:
    start = draw(st.integers(0, 10))
    end = draw(st.one_of(st.none(), st.integers(start + 1, 14)))
    rows = sorted(draw(st.sets(st.integers(0, NODES - 1), max_size=3)))
    amounts = [draw(AMOUNTS) for _ in rows]
    name = f"planned-{draw(st.integers(0, 999))}"
    return PlannedUsage(PlannedStart(name, start, end, tuple(PlannedPod(Pod(), 0, row) for row in rows)), rows, amounts)


@given(RETURNS, st.lists(planned_starts(), min_size=1, max_size=5), st.integers(1, 12), ENDS)
def test_the_least_that_walls_leave_in_a_span(
    returns: list[tuple[int, int, list[int]]], usages: list[PlannedUsage], start: int, length: int | None
) -> None:
    end = None if length is None else start + length
    free = timeline(returns)
    by_planned_start = {
        id(usage.planned): (
            np.array(usage.rows, dtype=np.int64),
            np.array(usage.amounts, dtype=np.int64).reshape(-1, WIDTH),
        )
        for usage in usages
    }
    profile = SpareCapacityProfile(
        [usage.planned for usage in usages], lambda planned: by_planned_start[id(planned)], free.at
    )
    expected = free.at(start).copy()
    for moment in range(start, end if end is not None else 40):
        left = free.at(moment).copy()
        for usage in usages:
            if usage.planned.is_active_at(moment):
                for row, amounts in zip(usage.rows, usage.amounts, strict=True):
                    left[row] -= amounts
        expected = np.minimum(expected, left)
    assert profile.spare(start, end).tolist() == expected.tolist()
