"""Plots: every kind of result can be drawn, in every format, and the same results give the same bytes."""

from __future__ import annotations

import struct
import xml.etree.ElementTree as ElementTree
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sample_results import sample_batch

from windlass.simulate import panels
from windlass.simulate.plot import draw, write_plot
from windlass.simulate.result import RunResult, Waiting

MANY = {"fgd": 94.8, "windlass": 95.5, "best-fit": 91.0, "random": 86.0}


def titles(results: list[RunResult]) -> str:
    return " | ".join(axes.get_title(loc="left") for axes in draw(results).axes)


def test_one_trace_shows_course_end_and_causes() -> None:
    drawn = titles(sample_batch(MANY, [42, 43]))
    for words in ("GPUs allocated, %", "Fragmentation", "in the end", "useless"):
        assert words in drawn


def test_a_trace_with_times_shows_waiting() -> None:
    drawn = titles(sample_batch(MANY, [42], timed=True))
    assert "Waiting" in drawn
    assert "GPU-time used" in drawn


def test_waits_of_nothing_are_not_called_a_second() -> None:
    results = [
        msgspec.structs.replace(run, waiting=Waiting(mean=0.0, p50=0.0, p90=0.0, p99=0.0, max=0.0))
        for run in sample_batch(MANY, [42], timed=True)
    ]
    waiting = draw(results).axes[-1]
    assert {text.get_text() for text in waiting.texts} == {"mean 0.00 s"}
    assert waiting.get_xticklabels()[0].get_text() == "≤ 1 s"


def test_a_narrow_range_of_waits_has_ticks_too() -> None:
    results = [
        msgspec.structs.replace(run, waiting=Waiting(mean=4000.0, p50=1700.0, p90=9000.0, p99=15000.0, max=2e4))
        for run in sample_batch(MANY, [42], timed=True)
    ]
    ticks = [label.get_text() for label in draw(results).axes[-1].get_xticklabels()]
    assert ticks == ["30 min", "1 h", "2 h", "3 h"]


def test_a_park_that_takes_weeks_to_run_empty_is_shown_while_it_works() -> None:
    results = []
    for run in sample_batch(MANY, [42], timed=True):
        assert run.curve is not None
        curve = msgspec.structs.replace(
            run.curve,
            at=(0.0, 10.0, 20.0, 1000.0),
            allocated_pct=(0.0, 90.0, 4.0, 0.0),
            fragmentation_pct=(1.0, 2.0, 1.0, 0.0),
        )
        results.append(msgspec.structs.replace(run, curve=curve))
    allocation, fragmentation, *_ = draw(results).axes
    assert allocation.get_xlim() == fragmentation.get_xlim() == (0.0, 20.0)


def test_no_tick_says_more_than_a_hundred_percent() -> None:
    allocation, _, final, _ = draw(sample_batch({"windlass": 99.9}, [42])).axes
    assert max(final.get_xticks()) <= 100
    assert max(allocation.get_yticks()) <= 100


def test_several_traces_show_every_trace_against_the_baseline() -> None:
    results = [
        msgspec.structs.replace(run, trace=trace)
        for trace in ("openb/default", "openb/cpu250")
        for run in sample_batch({"fgd": 94.8, "windlass": 95.5}, [42, 43])
    ]
    (axes,) = draw(results).axes
    assert [label.get_text() for label in axes.get_yticklabels()] == ["openb/default", "openb/cpu250"]
    assert "windlass against fgd" in axes.get_title(loc="left")


def test_runs_without_curves_can_still_be_drawn() -> None:
    results = [msgspec.structs.replace(run, curve=None) for run in sample_batch(MANY, [42])]
    assert "in the end" in titles(results)


def test_every_line_is_labelled_with_its_policy() -> None:
    allocation = draw(sample_batch(MANY, [42])).axes[0]
    labels = " ".join(text.get_text() for text in allocation.texts)
    for policy in MANY:
        assert policy in labels


def test_no_two_policies_look_alike() -> None:
    looks = panels.policy_styles([f"policy-{number}" for number in range(20)] + ["windlass"])
    assert len(set(looks.values())) == 21


def test_png_is_a_slide(tmp_path: Path) -> None:
    write_plot(sample_batch(MANY, [42]), tmp_path / "a.png", "1")
    head = (tmp_path / "a.png").read_bytes()[:24]
    width, height = struct.unpack(">II", head[16:])
    assert head.startswith(b"\x89PNG")
    assert width >= 1900
    assert width / height == pytest.approx(16 / 9, rel=0.01)


@pytest.mark.parametrize("ending", ["png", "svg", "html"])
def test_a_plot_tells_the_runs_and_not_the_machine(tmp_path: Path, ending: str) -> None:
    """The same runs on a slower machine with less memory give the same file."""
    results = sample_batch(MANY, [42, 43])
    slower = [msgspec.structs.replace(run, seconds=9.5, peak_rss_mib=77.0) for run in results]
    write_plot(results, tmp_path / f"a.{ending}", "1.0")
    write_plot(slower, tmp_path / f"b.{ending}", "1.0")
    assert (tmp_path / f"a.{ending}").read_bytes() == (tmp_path / f"b.{ending}").read_bytes()


def test_svg_is_well_formed_and_the_same_each_time(tmp_path: Path) -> None:
    for name in ("a.svg", "b.svg"):
        write_plot(sample_batch(MANY, [42, 43]), tmp_path / name, "1")
    assert ElementTree.parse(tmp_path / "a.svg").getroot().tag.endswith("svg")
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()


def test_html_is_one_file_with_picture_and_table(tmp_path: Path) -> None:
    write_plot(sample_batch({"fgd": 94.8, "<script>": 95.5}, [42, 43]), tmp_path / "a.html", "1")
    page = (tmp_path / "a.html").read_text(encoding="utf-8")
    assert "<svg" in page
    assert "<td>fgd</td>" in page
    assert "<script" not in page
    assert "src=" not in page


@given(st.lists(st.floats(0, 100), min_size=1, max_size=10))
def test_labels_are_pushed_apart_and_keep_their_order(values: list[float]) -> None:
    heights = panels.spread_apart(values, 5.0)
    in_order = [height for _, height in sorted(zip(values, heights, strict=True))]
    assert all(upper - lower > 4.5 for lower, upper in pairwise(in_order))
