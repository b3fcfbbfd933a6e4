"""Properties of planned starts: no workload behind delays one before it, the head starts, results repeat."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.placement.timeplan.scenarios import events, job, plans, scenario, starts

MINUTE = 60
FAR = 100_000
"""By then everything has run: seven jobs of at most an hour."""


@st.composite
def arrivals(draw: st.DrawFn, *, pods: int = 1, gpus: int = 8, early_ends: bool = False) -> list[dict[str, Any]]:
    """Jobs with limits, one after the other, all in one queue, none larger than two nodes (or one, with one pod)."""
    timeline = []
    at = 0
    for number in range(draw(st.integers(2, 7))):
        at += draw(st.sampled_from([0, 1, 7])) * MINUTE
        limit = draw(st.integers(1, 60)) * MINUTE
        runs = draw(st.integers(1, limit // MINUTE)) * MINUTE if early_ends else limit
        each = draw(st.integers(1, gpus))
        work = job(f"j{number}", each, limit, duration=f"{runs}s")
        work["pods"] = draw(st.integers(1, min(pods, 2 * (gpus // each))))
        timeline.append({"at": f"{at}s", "submit": [work]})
    return [*timeline, {"at": f"{FAR}s"}]


def _names(timeline: list[dict[str, Any]]) -> list[str]:
    return [work["job"] for moment in timeline for work in moment.get("submit", [])]


@settings(max_examples=25, deadline=None)
@given(arrivals())
def test_nobody_starts_later_than_planned(timeline: list[dict[str, Any]]) -> None:
    """On one node, where everything runs to its limit, a planned start only becomes earlier."""
    outcome = scenario(timeline)
    started = starts(outcome)
    assert sorted(started) == sorted(_names(timeline))
    for name, said in plans(outcome).items():
        told = [start for _, start in said]
        assert told == sorted(told, reverse=True), name
        assert started[name] <= told[-1], name


@settings(max_examples=25, deadline=None)
@given(arrivals(pods=3, early_ends=True), st.integers(2, 3))
def test_the_head_of_a_queue_does_not_starve(timeline: list[dict[str, Any]], nodes: int) -> None:
    """The first waiting workload starts at its planned start or before, also on several nodes and with early ends."""
    outcome = scenario(timeline, nodes=nodes)
    started = starts(outcome)
    assert sorted(started) == sorted(_names(timeline))
    told: dict[str, int] = {}
    for event in events(outcome, "hold"):
        name = event.subject.partition("/")[2]
        if "ahead of it" in event.text:
            continue
        [(_, start)] = [(at, start) for at, start in plans(outcome)[name] if at == event.at][-1:]
        assert start <= told.get(name, FAR), name
        told[name] = start
        assert started[name] <= start, name


@settings(max_examples=10, deadline=None)
@given(arrivals(pods=2))
def test_the_same_story_is_told_twice(timeline: list[dict[str, Any]]) -> None:
    assert scenario(timeline, nodes=2).events == scenario(timeline, nodes=2).events


@settings(max_examples=15, deadline=None)
@given(arrivals(pods=2, early_ends=True))
def test_without_limits_nothing_changes(timeline: list[dict[str, Any]]) -> None:
    """Where no run time is bounded, planning decides nothing."""
    for moment in timeline:
        for work in moment.get("submit", []):
            del work["limit"]
    planned = scenario(timeline, nodes=2)
    unplanned = scenario(timeline, nodes=2, config={"backfill": {"depth": 0}})
    assert starts(planned) == starts(unplanned)
    assert events(planned, "evict") == events(unplanned, "evict") == []


@settings(max_examples=20, deadline=None)
@given(arrivals(pods=2), st.lists(st.sampled_from(["team", "other"]), min_size=7, max_size=7))
def test_heads_of_two_queues_start_though_each_other_is_busy(timeline: list[dict[str, Any]], queues: list[str]) -> None:
    """Two queues that each have quota for all GPUs: only plans keep their workloads apart."""
    for number, work in enumerate(work for moment in timeline for work in moment.get("submit", [])):
        work["queue"] = queues[number % len(queues)]
    both = [{"name": name, "quota": {"gpu": 16}} for name in ("team", "other")]
    outcome = scenario(timeline, nodes=2, queues=both)
    assert sorted(starts(outcome)) == sorted(_names(timeline))
    first = min((event.at for event in events(outcome, "hold")), default=FAR)
    for event in events(outcome, "hold"):
        if event.at == first and "ahead of it" not in event.text:
            name = event.subject.partition("/")[2]
            told = [start for at, start in plans(outcome)[name] if at == first]
            if event.subject == _oldest_held(outcome, first, timeline):
                assert starts(outcome)[name] <= told[-1], name


def _oldest_held(outcome: Any, at: int, timeline: list[dict[str, Any]]) -> str:
    """The workload that was submitted first, of those held at that time."""
    held = {event.subject for event in events(outcome, "hold") if event.at == at}
    return next(f"default/{name}" for name in _names(timeline) if f"default/{name}" in held)
