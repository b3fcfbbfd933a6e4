"""The table, the document and the rows that a user or a script reads."""

from __future__ import annotations

import csv
import io

import msgspec
import pytest
from rich.console import Console
from sample_results import sample_batch, sample_result

from windlass.simulate.report import (
    format_duration,
    format_seeds,
    headline,
    report_csv,
    report_document,
    report_rows,
    report_table,
)
from windlass.simulate.result import RunResult

PROMISED = (
    "trace",
    "policy",
    "seed",
    "gpu_milli_total",
    "gpu_milli_allocated",
    "pods_arrived",
    "pods_placed",
    "seconds",
    "peak_rss_mib",
)


def printed(results: list[RunResult], wide: bool = False) -> str:
    console = Console(width=240, file=io.StringIO())
    console.print(report_table(results, wide=wide))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


class TestDocument:
    def test_has_what_scripts_rely_on(self) -> None:
        document = report_document(sample_batch({"fgd": 90, "windlass": 91}, [42, 43]))
        assert (document["apiVersion"], document["kind"]) == ("windlass.dev/v1", "SimulationReport")
        assert [(item["policy"], item["seed"]) for item in document["items"]] == [
            ("fgd", 42),
            ("fgd", 43),
            ("windlass", 42),
            ("windlass", 43),
        ]
        for item in document["items"]:
            assert set(PROMISED) <= set(item)

    def test_can_be_read_back_as_results(self) -> None:
        results = sample_batch({"fgd": 90}, [42], timed=True)
        text = msgspec.json.encode(report_document(results))
        items = msgspec.json.decode(text)["items"]
        assert msgspec.convert(items, list[RunResult]) == results

    def test_carries_the_comparison(self) -> None:
        document = report_document(sample_batch({"fgd": 90, "windlass": 91}, [42, 43]))
        assert [row["paired"] and row["paired"]["baseline"] for row in document["comparison"]] == [
            None,
            "fgd",
        ]


class TestCsv:
    def test_one_row_a_run_with_the_same_names(self) -> None:
        rows = list(csv.DictReader(io.StringIO(report_csv(sample_batch({"fgd": 90}, [42, 43], timed=True)))))
        assert [row["seed"] for row in rows] == ["42", "43"]
        assert rows[0]["waiting.mean"] == "4000"
        assert "fragmentation_causes.lack_cpu" in rows[0]
        assert not any(name.startswith("curve") for name in rows[0])

    def test_runs_with_different_measures_share_one_header(self) -> None:
        mixed = [sample_result(timed=True), sample_result(timed=False)]
        rows = list(csv.DictReader(io.StringIO(report_csv(mixed))))
        assert (rows[0]["makespan_hours"], rows[1]["makespan_hours"]) == ("800.0", "")

    def test_nothing_gives_no_rows(self) -> None:
        assert report_csv([]).strip() == ""


class TestTable:
    def test_one_seed_has_no_spread(self) -> None:
        titles, *rows = report_rows(sample_batch({"fgd": 90, "windlass": 91}, [42]))
        assert "seeds better" not in titles
        assert not any("±" in cell for row in rows for cell in row)

    def test_several_seeds_have_spread_and_pairs(self) -> None:
        titles, _, windlass = report_rows(sample_batch({"fgd": 90, "windlass": 91}, [42, 43, 44]))
        row = dict(zip(titles, windlass, strict=True))
        assert row["seeds better"] == "3 of 3"
        assert row["vs fgd"].startswith("+")
        assert "±" in row["GPUs allocated"]

    def test_a_single_policy_is_compared_with_nothing(self) -> None:
        titles, _ = report_rows(sample_batch({"windlass": 91}, [42, 43]))
        assert not any(title.startswith("vs ") for title in titles)

    def test_waiting_is_shown_where_there_are_times(self) -> None:
        assert "mean wait" in report_rows(sample_batch({"fgd": 90}, [42], timed=True))[0]
        assert "mean wait" not in report_rows(sample_batch({"fgd": 90}, [42]))[0]

    def test_wide_shows_every_run(self) -> None:
        results = sample_batch({"fgd": 90, "windlass": 91}, [42, 43])
        assert "5,941,778" not in printed(results)
        wide = printed(results, wide=True)
        for result in results:
            assert f"{result.gpu_milli_allocated:,} of 6,212,000" in wide

    def test_an_interrupted_run_is_marked_and_shown_alone_too(self) -> None:
        text = printed([sample_result(interrupted=True)])
        assert "windlass*" in text
        assert "* interrupted" in text

    def test_the_comparison_speaks_of_finished_runs_only(self) -> None:
        text = printed([sample_result(seed=1), sample_result(seed=2, interrupted=True)])
        assert "· seed 1," in text
        assert "interrupted" not in text

    def test_each_trace_has_its_own_table(self) -> None:
        text = printed([sample_result(trace="openb/default"), sample_result(trace="openb/cpu250")])
        assert text.index("openb/default ·") < text.index("openb/cpu250 ·")


class TestWords:
    def test_headline_says_what_was_run(self) -> None:
        text = headline(sample_batch({"fgd": 90}, range(42, 52)))
        assert text == "openb/default · 1,213 nodes · 6,212 GPUs · seeds 42–51, published order"
        assert headline([sample_result(seed=None, timed=True)]).endswith("· recorded order")

    def test_headline_names_a_mix_that_is_not_the_declared_one(self) -> None:
        assert headline([msgspec.structs.replace(sample_result(), mix="seen")]).endswith("· mix as seen so far")

    @pytest.mark.parametrize(
        ("seeds", "words"),
        [
            ([], ""),
            ([42], "seed 42"),
            ([42, 43], "seeds 42, 43"),
            ([42, 43, 44], "seeds 42–44"),
            ([1, 5], "seeds 1, 5"),
        ],
    )
    def test_seeds(self, seeds: list[int], words: str) -> None:
        assert format_seeds(seeds) == words

    @pytest.mark.parametrize(
        ("seconds", "words"), [(0.314, "0.31 s"), (59.6, "60 s"), (150, "2.5 min"), (9000, "2.5 h")]
    )
    def test_durations(self, seconds: float, words: str) -> None:
        assert format_duration(seconds) == words
