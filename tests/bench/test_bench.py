"""`windlass bench simulate`: what it asks for, what it prints, what it does when somebody interrupts."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import msgspec
import pytest

from windlass.cli.errors import run_command
from windlass.cli.main import cli
from windlass.model.errors import InputError
from windlass.simulate.fleet import count_gpus
from windlass.simulate.result import RunResult
from windlass_bench import ablation, churn, equality, quality, report, scale, speed
from windlass_bench import bounds as bounds_module
from windlass_bench.bounds import bounds
from windlass_bench.fleets import read_fleet
from windlass_bench.play import Case, Run, RunOutcome, RunPlayer
from windlass_bench.published import (
    OTHER_POLICIES,
    PUBLISHED_COST,
    SEEDS,
    published,
    published_lists,
    published_statistic,
)
from windlass_bench.runs import Outcomes, play_all
from windlass_bench.section import Column

ROOT = Path(__file__).resolve().parents[2]
SMALL = [Run(Case("synthetic/small", seed), policy) for seed in (1, 2) for policy in ("fgd", "first-fit")]


def quiet(done: float) -> None:
    pass


def bench(*arguments: str) -> int:
    return run_command(cli, ["bench", "simulate", *arguments], "windlass")


@pytest.fixture(autouse=True)
def no_traces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WINDLASS_TRACES", raising=False)


class TestPublishedNumbers:
    def test_all_lists_policies_and_seeds(self) -> None:
        assert len(published()) == 17 * 6 * 10
        assert set(PUBLISHED_COST) == {"fgd", *OTHER_POLICIES}

    def test_the_means_that_the_paper_is_known_by(self) -> None:
        for policy, mean in {"fgd": 95.39, "best-fit": 93.08, "random": 87.47}.items():
            ours = sum(published()["default", policy, seed] for seed in SEEDS) / len(SEEDS)
            assert ours == pytest.approx(mean, abs=0.006)

    def test_the_statistic_is_a_mean_over_the_last_half_percent(self) -> None:
        arrived, allocated = [1000, 1290, 1296, 1300], [700, 800, 900, 950]
        assert published_statistic(arrived, allocated, 1000) == 92.5
        assert published_statistic(arrived, allocated, 1000, at=129) == 80.0
        assert published_statistic(arrived, allocated, 1000, at=50) is None


class TestBounds:
    def test_every_list_has_one(self) -> None:
        assert {name for name, seed in bounds() if seed == 42} == set(published_lists())

    def test_what_was_published_keeps_below_them(self) -> None:
        """A bound that some policy passes is none."""
        for (name, seed), bound in bounds().items():
            assert bound.must_place <= bound.offline
            for policy in ("fgd", *OTHER_POLICIES):
                assert published()[name, policy, seed] < bound.must_place


class TestParks:
    def test_the_machines_of_other_clusters(self, tmp_path: Path) -> None:
        for name, text in {
            "alibaba-pai-v2020/pai_machine_spec.csv": "m1,CPU,96,512,0\nm2,T4,96,512,2\n",
            "alibaba-spot-gpu-v2026/node_info_df.csv": "gpu_model,gpu_capacity_num,cpu_num,node_name\nA10,1,128,7\n",
        }.items():
            (tmp_path / name).parent.mkdir()
            (tmp_path / name).write_text(text)
        assert count_gpus(read_fleet("pai-v2020", tmp_path)) == 2
        (spot,) = read_fleet("spot-v2026", tmp_path)
        assert (spot.name, spot.status.allocatable["cpu"]) == ("spot-7", "128")

    def test_one_park_several_times(self, tmp_path: Path) -> None:
        (tmp_path / "openb").mkdir()
        nodes = "sn,cpu_milli,memory_mib,gpu,model\na,8000,1024,2,T4\nb,8000,1024,1,T4\n"
        (tmp_path / "openb/openb_node_list_gpu_node.csv").write_text(nodes)
        park = read_fleet("openb*3", tmp_path)
        assert count_gpus(park) == 9
        assert len({node.name for node in park}) == 6

    def test_a_broken_list_of_machines(self, tmp_path: Path) -> None:
        (tmp_path / "alibaba-pai-v2020").mkdir()
        (tmp_path / "alibaba-pai-v2020/pai_machine_spec.csv").write_text("m1,T4,many\n")
        with pytest.raises(InputError, match=r"pai_machine_spec\.csv.*list of machines"):
            read_fleet("pai-v2020", tmp_path)


class TestPlaying:
    def test_several_processes_find_what_one_finds(self) -> None:
        def allocated(jobs: int) -> dict[Run, int]:
            outcomes = play_all(SMALL, None, jobs, quiet)
            return {run: outcomes.by_run[run].result.gpu_milli_allocated for run in SMALL}

        assert allocated(1) == allocated(2)

    def test_every_run_is_played_once(self) -> None:
        played: list[float] = []
        outcomes = play_all([*SMALL, *SMALL], None, 1, played.append)
        assert list(outcomes.by_run) == SMALL
        assert max(played) == len(SMALL)

    def test_speed_is_measured_in_a_process_of_its_own(self) -> None:
        run = Run(Case("synthetic/small", 1), "first-fit", isolated_repetition=1)
        outcome = play_all([run], None, 1, quiet).by_run[run]
        assert outcome.cpu_s > 0
        assert outcome.published_pct is None  # collecting placements would cost time

    def test_nothing_is_published_of_traces_with_times(self) -> None:
        outcome = RunPlayer(None).play(Run(Case("synthetic/training", 1), "first-fit"))
        assert outcome.result.gpu_time_pct is not None
        assert outcome.published_pct is None

    def test_dropping_what_would_have_waited(self) -> None:
        case = Case("synthetic/training", 42)
        waited, dropped = (
            RunPlayer(None).play(Run(each, "spread")).result
            for each in (case, msgspec.structs.replace(case, drop=True))
        )
        assert waited.pods_refused == 0
        assert dropped.pods_refused > 0

    def test_ctrl_c_keeps_what_is_finished(self) -> None:
        def impatient(done: float) -> None:
            if done > 2.5:
                os.kill(os.getpid(), signal.SIGINT)

        outcomes = play_all(SMALL, None, 1, impatient)
        assert outcomes.interrupted
        assert list(outcomes.by_run) == SMALL[:2]

    def test_ctrl_c_of_a_pool_too(self) -> None:
        def impatient(done: float) -> None:
            os.kill(os.getpid(), signal.SIGINT)

        outcomes = play_all(SMALL, None, 2, impatient)
        assert outcomes.interrupted
        assert 0 < len(outcomes.by_run) < len(SMALL)


def fake_outcome(run: Run, percent: float) -> RunOutcome:
    result = RunResult(
        trace=run.case.trace,
        policy=run.policy,
        seed=run.case.seed,
        order="published",
        gpu_milli_total=1000,
        gpu_milli_allocated=round(percent * 10),
        pods_arrived=1,
        pods_placed=1,
        pods_refused=0,
        seconds=1.0,
        peak_rss_mib=1.0,
        allocated_pct=percent,
        fragmentation_pct=0.0,
        fragmentation_causes={},
        stranded_milli={},
    )
    return RunOutcome(run, result, 1.0, published_pct=percent)


class TestEquality:
    def section(self, wrong: float) -> dict[str, dict[str, object]]:
        """The table when every run but those of `random` on the default list is exactly as published."""
        part = equality.equality(scale.full_scale())
        outcomes = Outcomes()
        for run in part.runs:
            name, seed = run.case.trace.partition("/")[2], run.case.seed
            assert seed is not None
            off = wrong if (name, run.policy) == ("default", "random") else 0.0
            outcomes.by_run[run] = fake_outcome(run, published()[name, run.policy, seed] + off)
        (table, *_) = part.sections(outcomes)
        return {str(row["policy"]): row for row in table.rows}

    def test_all_equal(self) -> None:
        rows = self.section(0.0)
        assert len(rows) == 6
        assert all((row["runs"], row["equal"], row["within_tolerance"]) == (170, 170, True) for row in rows.values())

    def test_a_mean_that_is_off(self) -> None:
        assert self.section(0.29)["random"]["within_tolerance"] is True
        assert self.section(0.31)["random"]["within_tolerance"] is False
        assert self.section(0.31)["fgd"]["equal"] == 170


class TestAblation:
    def test_what_is_lost_without_a_term_is_paired_with_the_whole_policy(self) -> None:
        part = ablation.ablation(scale.full_scale(), None)
        seeds = {run.case.seed for run in part.runs if run.case.trace == "synthetic/openb-like"}
        assert seeds == {42, 43, 44, 45, 46}, "the rule was tuned on these, and this is about the rule"
        lost = {(): 0.0, ("price",): 0.5}
        outcomes = Outcomes(
            {
                run: fake_outcome(run, 90.0 if run.policy == "fgd" else 95.0 - lost.get(run.without_terms, 0.25))
                for run in part.runs
            }
        )
        (section,) = part.sections(outcomes)
        row = section.rows[0]
        assert (row["runs"], row["fgd_pct"], row["windlass_pct"]) == (5, 90.0, 95.0)
        assert (row["without_price"], row["without_usable"]) == (-0.5, -0.25)

    def test_half_a_case_is_no_row(self) -> None:
        part = ablation.ablation(scale.quick_scale(), None)
        runs = [run for run in part.runs if run.without_terms != ("models",)]
        (section,) = part.sections(Outcomes({run: fake_outcome(run, 95.0) for run in runs}))
        assert section.rows == []

    def test_a_term_that_is_left_out_is_left_out(self) -> None:
        case = Case("synthetic/small", 42)
        runs = [Run(case, "windlass", without_terms=without) for without in ((), ("price",), ("stranded",))]
        outcomes = play_all(runs, None, 1, quiet).of(runs)
        assert len({outcome.result.gpu_milli_allocated for outcome in outcomes}) == 3


class TestCommand:
    def test_a_document_for_scripts(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert bench("--quick", "--part", "others", "-o", "json") == 0
        document = json.loads(capsys.readouterr().out)
        assert (document["apiVersion"], document["kind"]) == ("windlass.dev/v1", "BenchReport")
        (section,) = document["sections"]
        (row,) = section["rows"]
        assert row["trace"] == "synthetic/openb-like"
        assert row["declared_difference"] == pytest.approx(row["declared_pct"] - row["fgd_pct"])
        assert document["machine"]["cores"] >= 1

    def test_an_unknown_part(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert bench("--part", "sped") == 2
        assert "Did you mean 'speed'" in capsys.readouterr().err

    def test_no_such_folder(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert bench("--traces", "nowhere") == 2
        assert "nowhere" in capsys.readouterr().err


class TestTables:
    def test_people_and_pages_get_the_same_cells(self, capsys: pytest.CaptureFixture[str]) -> None:
        part = equality.equality(scale.quick_scale())
        outcomes = Outcomes({run: fake_outcome(run, 95.0) for run in part.runs})
        sections = report.sections_of([part], outcomes)
        assert [section.detail for section in sections] == [False, True, True]
        markdown = report.report_markdown(sections)
        assert "| fgd | 10 | 0 |" in markdown
        assert "| default | fgd | 42 | 950 | 95.000 | 95.00 | 95.29 | no |" in markdown

    def test_parts_that_need_the_traces_are_left_out_without_them(self) -> None:
        everything = report.parts_of(report.PARTS, scale.full_scale(), None)
        traces = {run.case.trace for part in everything for run in part.runs}
        assert all(trace.startswith("synthetic/") for trace in traces)

    def test_the_whole_benchmark_has_every_published_run(self, tmp_path: Path) -> None:
        parts = report.parts_of(["equality", "quality"], scale.full_scale(), tmp_path)
        assert len({run for part in parts for run in part.runs}) == 17 * 10 * (6 + 2)
        assert len(published_lists()) == 17

    def test_every_field_is_documented(self, tmp_path: Path) -> None:
        page = (ROOT / "docs" / "reference" / "bench-report.md").read_text(encoding="utf-8")
        tables = (equality, quality, bounds_module, ablation, churn, speed)
        columns = [column for module in tables for found in vars(module).values() for column in columns_in(found)]
        assert len(columns) > 50
        assert [column.key for column in columns if f"`{column.key}`" not in page] == []


def columns_in(found: object) -> list[Column]:
    return [each for each in found if isinstance(each, Column)] if isinstance(found, tuple) else []
