"""The Time view says what the recorded ledgers say: its numbers are computed here once more, from the ledgers alone."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from random import Random

import msgspec
import pytest
from tests.reference.park import A100, gpu_node, pod
from tests.telemetry.test_usage import START, ledger

from windlass.model.configuration import Settings
from windlass.model.names.windlass import RACK_LABEL
from windlass.telemetry.activity import GpuSample
from windlass.telemetry.demand import WaitingWork
from windlass.telemetry.holders import Holder
from windlass.telemetry.ledger import ALLOCATED_STATES, GpuShare, Ledger
from windlass.telemetry.observation import observe_objects
from windlass.telemetry.starts import FirstWork, FirstWorkFinder, Start, StartFinder
from windlass.telemetry.summaries import Summaries
from windlass.telemetry.time_view import Audience, make_time_view, percentile
from windlass.telemetry.usage import UsageKey
from windlass.telemetry.usage_history import LedgerHistory, open_ledger_history, read_usage

V100 = "Tesla-V100-SXM2-16GB"
DAY = 86_400


def at_time(found: Ledger, at: int) -> Ledger:
    return msgspec.structs.replace(found, at=at)


def test_the_guides_story_is_told_in_one_sentence(tmp_path: Path) -> None:
    """40 % of the GPUs are held, people wait, V100s are free and A100s are asked for: over a day and a half."""
    wanted = {"nvidia.com/gpu.product": A100}
    objects: list[object] = [gpu_node(f"v{n}", 6, model=V100) for n in range(2)] + [gpu_node("a", 8, model=A100)]
    objects += [pod(f"runs-{n}", 1, on="a") for n in range(8)]
    objects += [pod(f"waits-{n}", 1, node_selector=wanted) for n in range(9)]
    samples = {("a", index): GpuSample(START, busy_percent=90.0 if index < 6 else 0.0) for index in range(8)}
    found = observe_objects(objects, Settings(), START, samples).ledger
    history = LedgerHistory(tmp_path)
    for at in range(START, START + DAY + DAY // 2 + 1, 100):
        history.observe(at_time(found, at))
    history.close()
    view = make_time_view(Summaries(tmp_path), START, START + DAY + DAY // 2)
    assert (
        view.story == "9 GPUs wait for A100-40 while 12 V100 are free; 40% of all GPUs are held (means of this time)."
    )
    assert view.mean_allocation == pytest.approx(8 / 20)
    assert view.mean_utilisation == pytest.approx(6 / 8)
    assert set(view.utilisation) == {0.75}
    assert view.covered_seconds == DAY + DAY // 2
    assert view.notes == []
    (cause,) = view.bottleneck
    assert (cause.cause, cause.models, cause.gpus) == ("GPU_FULL", (A100,), pytest.approx(9))


def test_every_number_is_that_of_the_ledgers(tmp_path: Path) -> None:
    """Random ledgers over a day's end with a gap of two hours; the sums are made here second by second."""
    rng, history = Random(5), LedgerHistory(tmp_path)
    begin, gap, end = START + DAY - 7200, START + DAY + 3600, START + DAY + 14_400
    times = [at for at in range(begin, end + 1, 100) if not gap < at < gap + 7200]
    expected, waiting, held, quota, covered = Counter[str](), 0, Counter[str](), 0, 0
    last: Ledger | None = None
    for at in times:
        holder = Holder("x", "q", "ada", "Job x/y")
        work = WaitingWork("x/y", holder, "GPU_FULL", rng.choice((500, 2000)), at, (A100,))
        now = ledger(at, rng)
        now = msgspec.structs.replace(
            now, demand=msgspec.structs.replace(now.demand, waiting=(work,)), quota_milli={"q": 3000}
        )
        history.observe(now)
        if last is not None and at - last.at == 100:
            covered += 100
            waiting += last.demand.waiting[0].milli * 100
            quota += 3000 * 100
            for share in last.shares:
                expected[share.state] += share.milli * 100
                if share.holder is not None and share.state in ALLOCATED_STATES:
                    held[share.holder.queue] += share.milli * 100
        last = now
    history.close()
    view = make_time_view(Summaries(tmp_path), begin, end)
    assert view.covered_seconds == covered == 14_400
    assert view.gpu_hours == pytest.approx({state: expected[state] / 3_600_000 for state in view.gpu_hours})
    assert view.bottleneck[0].gpus == pytest.approx(waiting / covered / 1000)
    (share,) = view.shares
    assert (share.queue, share.quota) == ("q", pytest.approx(quota / covered / 1000))
    assert share.held == pytest.approx(held["q"] / covered / 1000)
    assert sum(line is None for line in view.allocation) == 7200 // 300
    assert view.notes[0] == "2.0 of 6.0 hours were not recorded; they are left out, and count as nothing."
    usage = read_usage(open_ledger_history(tmp_path), begin, end)
    assert {state: hours * 3_600_000 for state, hours in view.gpu_hours.items()} == pytest.approx(usage.by_state)
    for line in zip(*view.states.values(), strict=True):
        assert None in line or sum(line) == pytest.approx(4, abs=0.01)


def test_what_was_free_is_told_of_the_time_in_which_was_waited(tmp_path: Path) -> None:
    """An empty night before a crowded morning does not make GPUs free in the morning."""
    wanted = pod("waits", 1, node_selector={"nvidia.com/gpu.product": A100})
    nodes = [gpu_node("a", 1, model=A100), gpu_node("v", 2, model=V100)]
    night = observe_objects(nodes, Settings(), START).ledger
    morning = observe_objects([*nodes, wanted, pod("x", 1, on="a"), pod("y", 1, on="v")], Settings(), START).ledger
    history = LedgerHistory(tmp_path)
    for at in range(START, START + 7201, 100):
        history.observe(at_time(night if at < START + 3600 else morning, at))
    history.close()
    view = make_time_view(Summaries(tmp_path), START, START + 7200)
    assert view.bottleneck[0].sentence == "0.5 GPUs wait for A100-40 while 1 V100 is free"


def test_a_viewer_of_one_namespace_sees_its_own_and_the_fleets_sums(tmp_path: Path) -> None:
    history, rng = LedgerHistory(tmp_path), Random(1)
    for at in (START, START + 60):
        history.observe(ledger(at, rng))
    for team, waited in (("a", 60), ("b", 600), ("a", 120)):
        holder = Holder(team, f"queue-{team}", "ada", f"Job {team}/x")
        history.started(START + 30, Start(holder, 8000, waited))
        history.evicted(START + 40, UsageKey.of(holder, ""), 7200, "Priority", "b/y")
    history.close()
    summaries = Summaries(tmp_path)
    everything = make_time_view(summaries, START, START + 300)
    own = make_time_view(summaries, START, START + 300, Audience(frozenset({"a"}), frozenset({"queue-a"})))
    assert [(row.queue, row.size, row.starts, row.p50, row.p95) for row in own.waits] == [
        ("queue-a", "2 to 8 GPUs", 2, 60, 120)
    ]
    assert [(row.queue, row.evictions, row.lost_gpu_hours) for row in own.preemptions] == [("queue-a", 2, 4.0)]
    assert len(everything.waits) == len(everything.preemptions) == 2
    assert own.shares == []  # "q" holds GPUs, and is not one of its queues
    assert (own.states, own.gpu_hours) == (everything.states, everything.gpu_hours)
    assert b"queue-b" not in msgspec.json.encode(own)


def test_nothing_recorded_is_said_and_not_drawn_as_zero(tmp_path: Path) -> None:
    LedgerHistory(tmp_path).close()
    view = make_time_view(Summaries(tmp_path), START, START + 3600)
    assert view.story == "Nothing was recorded in this time."
    assert (set(view.allocation), view.mean_allocation, view.states) == ({None}, None, {})


def test_a_job_starts_once_when_its_first_pod_has_gpus() -> None:
    """It counts from its creation to its start, and what ran before is no start."""
    finder = StartFinder()

    def find(*objects: object) -> list[tuple[str, int, int]]:
        observation = observe_objects(objects, Settings(), START)
        starts = finder.find(observation.snapshot, observation.ledger)
        return [(start.holder.job, start.milli, start.waited_seconds) for start in starts]

    node = gpu_node("n", 8)
    old, new = pod("old", 1, on="n"), pod("new", 2, on="n", created="2024-10-03T23:59:00Z")
    assert find(node, old) == []
    assert find(node, old, new) == [("Pod default/new", 2000, 60)]
    assert find(node, old, new) == []


def test_health_by_rack_counts_gpu_time_out_of_service(tmp_path: Path) -> None:
    """Rack r1 has an unhealthy GPU for the second hour, r2 is cordoned for all of the time, r3 is well."""
    history = LedgerHistory(tmp_path)
    for at in range(START, START + 7201, 100):
        ill = at >= START + 3600
        shares = [GpuShare("a", n, A100, "unhealthy" if ill and not n else "free", 1000) for n in range(8)]
        shares += [GpuShare("b", n, A100, "in_change", 1000) for n in range(4)]
        shares += [GpuShare(name, n, A100, "free", 1000) for name in ("c", "loose") for n in range(2)]
        history.observe(Ledger(at, tuple(shares), racks={"a": "r1", "b": "r2", "c": "r3"}))
    history.close()
    found = make_time_view(Summaries(tmp_path), START, START + 7200)
    assert [(row.rack, row.gpus, row.unhealthy_hours, row.in_change_hours, row.in_service) for row in found.racks] == [
        ("r2", 4.0, 0.0, 8.0, 0.0),
        ("r1", 8.0, 1.0, 0.0, 0.9375),
        ("", 2.0, 0.0, 0.0, 1.0),
        ("r3", 2.0, 0.0, 0.0, 1.0),
    ]
    assert found.racks[1].line == [0.0] * 12 + [1.0] * 12
    assert make_time_view(Summaries(tmp_path), START, START + 7200, Audience(sees_nodes=False)).racks == []


def test_a_rack_is_as_large_as_the_day_says(tmp_path: Path) -> None:
    """A closed day has to say by itself how large its racks were, and a rack that is gone has no GPUs."""
    history = LedgerHistory(tmp_path)
    for at in range(START, START + 3 * DAY, 100):
        rack = "old" if at < START + DAY else "new"
        history.observe(Ledger(at, (GpuShare("a", 0, A100, "free", 1000),), racks={"a": rack}))
    history.close()
    sizes = {row.rack: row.gpus for row in make_time_view(Summaries(tmp_path), START, START + 3 * DAY).racks}
    assert sizes == {"old": 0.0, "new": 1.0}
    last = make_time_view(Summaries(tmp_path), START + 2 * DAY, START + 3 * DAY)
    assert {row.rack: row.gpus for row in last.racks}["new"] == 1.0


def test_the_ledger_knows_the_racks_of_its_nodes() -> None:
    nodes = [gpu_node("a", 1, labels={RACK_LABEL: "r1"}), gpu_node("b", 1)]
    found = observe_objects(nodes, Settings(), START).ledger
    assert found.racks == {"a": "r1"}


def test_time_to_the_first_gpu_work_has_three_phases() -> None:
    """Created a minute before it has GPUs, runs 120 s later, computes 300 s after that."""
    starts, finder = StartFinder(), FirstWorkFinder()

    def find(at: int, *objects: object, busy: float | None = None) -> list[tuple[str, dict[str, int]]]:
        sample = {("n", 0): GpuSample(at, busy_percent=busy)} if busy is not None else {}
        seen = observe_objects(objects, Settings(), at, sample)
        found = finder.find(seen.snapshot, seen.ledger, starts.find(seen.snapshot, seen.ledger))
        return [(work.holder.job, work.seconds) for work in found]

    node = gpu_node("n", 8)
    waits = pod("train", 1, on="n", created="2024-10-03T23:59:00Z", phase="Pending")
    runs = pod("train", 1, on="n", created="2024-10-03T23:59:00Z", phase="Running")
    assert find(START - 30, node) == []
    assert find(START, node, waits) == []
    assert find(START + 120, node, runs) == []
    assert find(START + 300, node, runs, busy=0.0) == [], "it holds the GPU, and does nothing on it"
    assert find(START + 420, node, runs, busy=80.0) == [
        ("Pod default/train", {"queue": 60, "prepare": 120, "load": 300})
    ]
    assert find(START + 450, node, runs, busy=80.0) == [], "once"


def test_a_start_that_is_never_measured_has_no_load_phase() -> None:
    starts, finder = StartFinder(), FirstWorkFinder()
    found = []
    runs = pod("train", 1, on="n", created="2024-10-03T23:59:00Z", phase="Running")
    for at in (START - 30, *range(START, START + 1200, 300)):
        seen = observe_objects([gpu_node("n", 8), *([runs] if at >= START else [])], Settings(), at)
        found += finder.find(seen.snapshot, seen.ledger, starts.find(seen.snapshot, seen.ledger))
    assert [work.seconds for work in found] == [{"queue": 60, "prepare": 0}]


def test_phases_add_up_to_all_the_time_and_are_for_those_who_may_see_the_job(tmp_path: Path) -> None:
    history = LedgerHistory(tmp_path)
    for at in (START, START + 60):
        history.observe(ledger(at, Random(1)))
    for team, load in (("a", 300), ("b", 100), ("b", 200)):
        holder = Holder(team, "q", "ada", f"Job {team}/x")
        history.worked(START + 30, FirstWork(holder, {"queue": 600, "prepare": 100, "load": load}))
    history.worked(START + 31, FirstWork(Holder("b", "q", "ada", "Job b/y"), {"queue": 0, "prepare": 0}))
    history.close()
    found = make_time_view(Summaries(tmp_path), START, START + 300).phases
    assert [(row.phase, row.jobs, row.p50) for row in found] == [
        ("queue", 4, 600),
        ("prepare", 4, 100),
        ("load", 3, 200),
    ]
    assert sum(row.share or 0 for row in found) == pytest.approx(1, abs=0.001)
    own = make_time_view(Summaries(tmp_path), START, START + 300, Audience(frozenset({"a"})))
    assert [(row.phase, row.jobs, row.p95) for row in own.phases] == [
        ("queue", 1, 600),
        ("prepare", 1, 100),
        ("load", 1, 300),
    ]


@pytest.mark.parametrize(("values", "share", "expected"), [([5], 0.95, 5), (range(1, 101), 0.95, 95), ([1, 9], 0.5, 1)])
def test_percentiles_are_values_that_happened(values: list[int], share: float, expected: int) -> None:
    assert percentile(list(values), share) == expected
