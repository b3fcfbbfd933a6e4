"""What the live benchmark reads and draws: counts of the API server, histograms of schedulers, the stream of pods."""

from __future__ import annotations

from collections import Counter

from windlass_bench.live.churn import decision_quantile
from windlass_bench.live.churn_stream import draw_stream, replay_fgd
from windlass_bench.live.contenders import BEFORE, WINDLASS
from windlass_bench.live.queue_objects import job, pods_of
from windlass_bench.live.report import sections_of
from windlass_bench.live.request_counts import Key, conflicts_of, created, writes_of
from windlass_bench.live.run import BACKLOG, Result, Task

COUNTS: Counter[Key] = Counter(
    {
        ("POST", "workloads", "201"): 3,
        ("POST", "workloads", "409"): 1,
        ("PATCH", "workloads/status", "200"): 3,
        ("PATCH", "workloads/status", "409"): 2,
        ("POST", "jobs", "201"): 3,
        ("PATCH", "jobs", "200"): 3,
        ("POST", "pods/binding", "201"): 5,
        ("PUT", "jobs/status", "409"): 7,
        ("LIST", "workloads", "200"): 9,
        ("POST", "events", "201"): 20,
    }
)


def test_writes_are_the_contenders_own_with_those_that_were_refused() -> None:
    assert writes_of(COUNTS, created_jobs=3) == 3 + 1 + 3 + 2 + 3 + 5
    assert conflicts_of(COUNTS) == 3, "the Job controller's are not counted"
    assert created(COUNTS, "workloads") == 4


def test_five_hundred_jobs_fill_a_hundred_nodes() -> None:
    assert sum(map(pods_of, range(500))) == 800
    assert {job(number, "x")["spec"]["parallelism"] for number in range(10)} == {1, 2, 3, 4}


def test_a_quantile_is_the_bound_of_its_bucket() -> None:
    name = "scheduler_scheduling_algorithm_duration_seconds"
    counts = {"0.001": 90, "0.002": 98, "0.004": 100, "+Inf": 100}
    text = "\n".join(f'{name}_bucket{{le="{bound}"}} {count}' for bound, count in counts.items())
    assert decision_quantile(text, 0.5) == 0.001
    assert decision_quantile(text, 0.99) == 0.004
    assert decision_quantile("", 0.99) is None


def test_a_stream_asks_for_nearly_all_gpus_and_its_gangs_come_and_go_together() -> None:
    stream = draw_stream(nodes=10, rate=5, seconds=20, seed=1)
    assert stream == draw_stream(nodes=10, rate=5, seconds=20, seed=1)
    gang = [each for each in stream if each.tree("x")["metadata"].get("annotations")][:4]
    assert len({(each.arrives, each.leaves) for each in gang}) == 1
    present = sum(each.gpus for each in stream if each.arrives < 0)
    assert 0.85 * 80 < present < 80
    allocated = replay_fgd(stream, nodes=10, seconds=20)
    assert len(allocated) == 40
    assert all(0 < gpus <= 80 for gpus in allocated)


def test_two_builds_are_compared_by_the_medians_of_all_rounds() -> None:
    rates = {WINDLASS: (90, 120, 110), BEFORE: (100, 400, 50)}
    results = [
        Result(Task(BACKLOG, name, 10, rate), rate, 1.0, cpu_seconds=2.0, peak_rss_mib=100.0)
        for name, found in rates.items()
        for rate in found
    ]
    (section,) = [section for section in sections_of(results) if section.name == "before"]
    by_measure = {row["measure"]: row for row in section.rows}
    assert (by_measure["rate"]["before"], by_measure["rate"]["now"]) == (100, 110)
    assert by_measure["rate"]["ratio"] == 1.1
    assert "before" not in {section.name for section in sections_of(results[:3])}, "nothing to compare with"
