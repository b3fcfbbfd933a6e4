"""`windlass bench engine`: what it measures, what it prints, what scripts may rely on. No test of speed."""

from __future__ import annotations

import json

import pytest

from windlass.cli.errors import run_command
from windlass.cli.main import cli
from windlass_bench.engine import report
from windlass_bench.engine.kueue_performance import LARGE_SCALE, PerformanceConfiguration, run_configuration
from windlass_bench.engine.measurement import Measurement
from windlass_bench.engine.peers import PEERS
from windlass_bench.engine.task_runner import Measurements, measure_all
from windlass_bench.engine.tasks import TASKS
from windlass_bench.section import Row


def bench(*arguments: str) -> int:
    return run_command(cli, ["bench", "engine", *arguments], "windlass")


def measured(task: str, **more: object) -> Measurement:
    facts = {"task": task, "nodes": 10, "units": 100, "unit": "pods", "decide_s": 0.1, "placed": 100}
    return Measurement(**{**facts, **more})  # type: ignore[arg-type]


def rows_of(*found: Measurement) -> dict[str, Row]:
    measurements = Measurements({one.task: one for one in found})
    sections = report.sections_of(tuple(report.PARTS), False, measurements)
    return {row["task"]: row for section in sections for row in section.rows}


def test_every_part_measures_tasks_that_exist_and_says_what_they_are() -> None:
    for part in report.PARTS.values():
        for task in (*part.tasks, *part.quick):
            assert task in TASKS
            assert task in report.CASE_TITLES or "@" in task


def test_what_peers_publish_stands_beside_tasks_that_exist() -> None:
    assert set(PEERS) <= set(TASKS)
    assert PEERS["plain-10k"].text == ("kube-scheduler SchedulingBasic, 5,000 nodes, 10,000 pods: ≥ 680/s")
    assert PEERS["never-full"].text.endswith("249.5 s")


def test_a_goal_is_met_or_not() -> None:
    rows = rows_of(
        measured("plain-10k", units=10_000, decide_s=0.4),
        measured("plain-50k", units=10_000, decide_s=0.6),
        measured("gang-1x1000", units=1, unit="gangs", decide_s=0.19),
        measured("preempt-none", units=1, unit="decisions", decide_s=0.21),
    )
    assert {task: row["met"] for task, row in rows.items()} == {
        "plain-10k": True,
        "plain-50k": False,
        "gang-1x1000": True,
        "preempt-none": False,
    }
    assert rows["plain-10k"]["per_second"] == 25_000


def test_growth_is_told_against_the_smallest() -> None:
    rows = rows_of(
        measured("plain@1250", nodes=1_250, decide_s=0.1),
        measured("plain@5000", nodes=5_000, decide_s=0.3),
        measured("mixed@1250", nodes=1_250, decide_s=0.1),
        measured("mixed@5000", nodes=5_000, decide_s=0.5),
    )
    assert rows["plain@5000"]["growth_nodes"] == 4
    assert rows["plain@5000"]["growth_cost"] == pytest.approx(3)
    assert [rows["plain@5000"]["linear"], rows["mixed@5000"]["linear"]] == [True, False]


def test_a_quick_look_as_a_document(capsys: pytest.CaptureFixture[str]) -> None:
    assert bench("--quick", "--part", "gangs,verdict", "-o", "json") == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["apiVersion"], document["kind"]) == ("windlass.dev/v1", "BenchReport")
    assert [section["name"] for section in document["sections"]] == ["gangs", "verdict"]
    rows = {row["task"]: row for section in document["sections"] for row in section["rows"]}
    assert rows["quick-gangs"]["placed"] == 400
    assert rows["never-full"]["held"] == 1
    for row in rows.values():
        assert {
            "nodes",
            "units",
            "unit",
            "decide_s",
            "per_second",
            "peak_rss_mib",
            "goal",
            "met",
            "peer",
        } <= {*row}
        assert row["decide_s"] > 0
        assert row["peak_rss_mib"] > 10


def test_an_unknown_part_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert bench("--part", "gang") == 2
    assert "gangs" in capsys.readouterr().err


def test_the_fastest_repetition_counts() -> None:
    progress: list[float] = []
    found = measure_all(["never-large"], 2, progress.append)
    assert progress == [1, 2]
    assert found.by_task["never-large"].held == 1


def test_every_workload_of_a_kueue_configuration_runs() -> None:
    """Small ones wait while larger ones of higher priority run; whoever was evicted runs again."""
    played = run_configuration(PerformanceConfiguration(1, 2, LARGE_SCALE, 2, 8))
    assert played.workloads == 100
    started = {kind: len(waited) for kind, waited in played.waited_ms.items()}
    assert sum(started.values()) == 100 + played.evictions
    assert started["large"] == 8
    assert played.makespan_ms >= 3 * 700 + 700
