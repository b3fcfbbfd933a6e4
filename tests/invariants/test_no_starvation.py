"""The head of a queue within its nominal quota doesn't starve where run times are bounded.

A stream of small work fills the cluster from both queues of a cohort, before and after a large job comes, and never
lets up while the large one waits. Whoever runs when it comes ends by its limit; when the last of them has, there is
room and quota for it, and nobody who came later may have taken either.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.placement.timeplan.scenarios import job, scenario, starts

MINUTE = 60
COMES_AT = 10 * MINUTE
GPUS = 4


class Stream(NamedTuple):
    nodes: int
    quota: dict[str, int]
    pods: int
    """Of the large job."""
    each: int
    """GPUs of each of them."""
    small: list[dict[str, Any]]
    arrivals: list[int]
    preemption: dict[str, str]


@st.composite
def streams(draw: st.DrawFn) -> Stream:
    nodes = draw(st.integers(1, 2))
    total = nodes * GPUS
    own = draw(st.integers(1, total))
    each = draw(st.integers(1, min(GPUS, own)))
    # As many pods as the quota covers and the nodes take when they are empty.
    pods = draw(st.integers(1, min(own // each, nodes * (GPUS // each))))
    small, arrivals = [], []
    at = 0
    for number in range(draw(st.integers(6, 12))):
        at += draw(st.sampled_from([0, 20, MINUTE, 3 * MINUTE]))
        limit = draw(st.integers(1, 20)) * MINUTE
        runs = draw(st.integers(1, limit // MINUTE)) * MINUTE
        queue = draw(st.sampled_from(["team", "other", "other"]))
        work = job(f"s{number}", draw(st.integers(1, 2)), limit, duration=f"{runs}s")
        small.append({**work, "queue": queue})
        arrivals.append(at)
    preemption = draw(st.sampled_from([{}, {"reclaimWithinCohort": "Any"}]))
    return Stream(nodes, {"team": own, "other": total - own}, pods, each, small, arrivals, preemption)


def play(stream: Stream) -> dict[str, int]:
    large = {**job("large", stream.each, 30 * MINUTE), "pods": stream.pods, "priority": 1}
    # The stream goes on as long as anybody could have to wait: it starts over when it has come to its end.
    timeline = [{"at": f"{COMES_AT}s", "submit": [large]}]
    lap = stream.arrivals[-1] + MINUTE
    laps = 1 + 2 * 40 * MINUTE // lap
    for turn in range(min(laps, 4)):
        for work, at in zip(stream.small, stream.arrivals, strict=True):
            name = f"{work['job']}-{turn}"
            timeline.append({"at": f"{turn * lap + at}s", "submit": [{**work, "job": name}]})
    timeline.sort(key=lambda moment: int(str(moment["at"]).rstrip("s")))
    queues = [
        {"name": name, "quota": {"gpu": gpus}, "cohort": "all", "preemption": stream.preemption}
        for name, gpus in stream.quota.items()
    ]
    return starts(scenario([*timeline, {"at": "100000s"}], nodes=stream.nodes, queues=queues, gpus=GPUS))


def limit(stream: Stream, name: str) -> int:
    number = int(name.partition("-")[0].removeprefix("s"))
    return int(stream.small[number]["limit"].rstrip("s"))


@settings(max_examples=5, deadline=None)
@given(streams())
def test_a_large_job_starts_when_those_before_it_have_ended(stream: Stream) -> None:
    started = play(stream)
    ends = [at + limit(stream, name) for name, at in started.items() if name != "large" and at < COMES_AT]
    assert "large" in started
    assert started["large"] <= max([COMES_AT, *ends])


@pytest.mark.parametrize("queues", [("team",), ("team", "other")])
def test_a_stream_that_never_lets_up_is_made_to(queues: tuple[str, ...]) -> None:
    """Small jobs come so often that never more than one GPU is free; without planned starts the large one starves."""
    ends = 10 * MINUTE
    stream = [
        {
            "at": f"{number * 150}s",
            "submit": [{**job(f"s{number}", 1, ends), "queue": queues[number % len(queues)]}],
        }
        for number in range(20)
    ]
    large = {"at": f"{COMES_AT + 1}s", "submit": [{**job("large", GPUS, ends), "priority": 1}]}
    timeline = sorted([*stream, large], key=lambda moment: int(str(moment["at"]).rstrip("s")))
    owners = [{"name": name, "quota": {"gpu": GPUS}} for name in ("team", "other")]
    when = {
        depth: starts(
            scenario(
                [*timeline, {"at": "100000s"}],
                queues=owners,
                gpus=GPUS,
                config={"backfill": {"depth": depth}},
            )
        )["large"]
        for depth in (0, 32)
    }
    assert when[0] > 19 * 150
    assert when[32] <= COMES_AT + ends
