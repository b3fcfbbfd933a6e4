"""A job's past: its sums are those of the ledgers, its timeline what was recorded, its advice what the sums say."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from tests.telemetry.test_usage import START

from windlass.telemetry.history.reader import HistoryReader
from windlass.telemetry.holders import Holder
from windlass.telemetry.job_view import JobPast, JobSums, advise, is_job, make_job_view, recorded_points
from windlass.telemetry.ledger import GpuShare, Ledger
from windlass.telemetry.starts import FirstWork, Start
from windlass.telemetry.usage import UsageKey
from windlass.telemetry.usage_history import LedgerHistory, open_ledger_history

HOLDER = Holder("vision", "research", "ada", "Job vision/train")
OTHER = Holder("speech", "research", "bob", "Job speech/train")
HOUR = 3600


def shares(computing: int, idle: int, holder: Holder = HOLDER) -> tuple[GpuShare, ...]:
    states = ["computing"] * computing + ["held_idle"] * idle
    return tuple(GpuShare("n", index, "H100", state, 1000, holder, "p") for index, state in enumerate(states))


@pytest.fixture
def reader(tmp_path: Path) -> HistoryReader:
    """Three hours: 8 GPUs that compute, then of these 2, then they are evicted and 4 of another job are idle."""
    history = LedgerHistory(tmp_path)
    for at in range(START, START + 3 * HOUR + 1, 100):
        hour = (at - START) // HOUR
        now = (shares(8, 0), shares(2, 6), shares(0, 4, OTHER), ())[hour]
        history.observe(Ledger(at, now))
    history.started(START, Start(HOLDER, 8000, 600, START))
    history.worked(START + 300, FirstWork(HOLDER, {"queue": 600, "prepare": 60, "load": 240}))
    history.evicted(START + 2 * HOUR, UsageKey.of(HOLDER, ""), 2 * HOUR, "Priority", "speech/train")
    history.started(START + 2 * HOUR, Start(OTHER, 4000, 5, START + 2 * HOUR))
    history.close()
    return open_ledger_history(tmp_path)


def view(reader: HistoryReader, job: str = "Job vision/train", **more: bool) -> JobPast:
    end = START + 3 * HOUR
    events = reader.events(START, end)
    return make_job_view(job, recorded_points(reader, job, START, end), events, START, end, **more)


def test_its_hours_and_lines_are_the_ledgers(reader: HistoryReader) -> None:
    found = view(reader)
    assert found.gpu_hours == {"computing": 10.0, "spinning": 0.0, "held_idle": 6.0, "unmeasured": 0.0}
    assert found.utilisation == pytest.approx(10 / 16)
    assert set(found.states["computing"][:11]) == {8.0}
    assert found.states["held_idle"][-1] == 0.0, "it held nothing, and that was seen"
    assert found.lost_gpu_hours == 2.0
    assert found.story.startswith("Job vision/train: 16.0 GPU-hours on up to 8 GPUs, busy for 62%")


def test_its_timeline_names_others_only_to_those_who_may_see_them(reader: HistoryReader) -> None:
    found = view(reader)
    assert [(moment.at - START, moment.what) for moment in found.timeline] == [
        (0, "started"),
        (300, "first GPU work"),
        (7200, "evicted"),
    ]
    assert found.timeline[0].detail == "8 GPUs after waiting for 10m"
    assert found.timeline[1].detail == "queue 10m, prepare 1m, load 4m"
    assert "speech/train" in found.timeline[2].detail
    assert "speech" not in str(msgspec.to_builtins(view(reader, names_others=False)))


def test_a_job_that_held_nothing_says_so(reader: HistoryReader) -> None:
    found = view(reader, "Job vision/train-2")
    assert (found.states, found.timeline, found.advice) == ({}, [], [])
    assert found.story == "Job vision/train-2 held no GPU in this time."


def test_a_gang_is_found_whatever_makes_it_one() -> None:
    assert is_job("PodGroup vision/gang", "Group vision/gang")
    assert not is_job("PodGroup vision/gang", "Job vision/gang")
    assert not is_job("PodGroup vision/gang-2", "Group vision/gang")


def sums(computing: float = 0, idle: float = 0, spinning: float = 0, unmeasured: float = 0, **more: float) -> JobSums:
    hours = {"computing": computing, "held_idle": idle, "spinning": spinning, "unmeasured": unmeasured}
    return JobSums(hours, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("found", "change"),
    [
        (sums(unmeasured=9), "windlass scheduler --prometheus URL"),
        (sums(computing=1, idle=19, most_held=8, most_busy=8), "spec.suspend: true"),
        (sums(computing=5, idle=5, most_held=8, most_busy=2.4), "nvidia.com/gpu: 3  (in all of its pods together)"),
        (sums(computing=7, idle=3, most_held=8, most_busy=8), "DataLoader(num_workers=8, pin_memory=True)"),
        (
            sums(computing=5, spinning=5, most_held=8, most_busy=8),
            "torch.distributed.init_process_group(timeout=timedelta(minutes=10))",
        ),
    ],
)
def test_advice_says_what_to_change(found: JobSums, change: str) -> None:
    assert [advice.change for advice in advise(found)] == [change]


def test_no_advice_without_need_or_without_evidence() -> None:
    assert advise(sums(computing=90, idle=10, most_held=8, most_busy=8)) == []
    assert advise(sums(idle=0.4)) == [], "less than half a GPU-hour says nothing"
    assert advise(sums(computing=1, idle=0.1, most_held=1, most_busy=0.5)) == [], "nobody can ask for less than one"


def test_lost_work_and_slow_starts_are_named() -> None:
    lost, slow = advise(sums(computing=50, lost_hours=12, evictions=3, load_seconds=900, most_held=8, most_busy=8))
    assert "3 evictions lost 12.0 GPU-hours" in lost.text
    assert "windlass.dev/last-checkpoint" in lost.change
    assert "15m" in slow.text
