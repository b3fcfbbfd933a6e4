"""Plots a comparison in slide format: PNG, SVG, or one HTML file with the table.

`cli.simulate` calls `write_plot` with the results of `simulate.trace_run`. Only this module and `simulate.panels`
import matplotlib. The same results give the same bytes.
"""

from __future__ import annotations

import html
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

from windlass.simulate import panels
from windlass.simulate.compare import baseline_policy, headline_measure, paired_differences
from windlass.simulate.report import headline, report_rows
from windlass.simulate.result import RunResult

SLIDE = (13.33, 7.5)
"""Inches: 16 to 9."""

STYLE: Any = {  # matplotlib's stub lists every key it knows as a literal
    "font.family": "DejaVu Sans",
    "font.size": 12,
    "axes.titlesize": 13,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.titlepad": 10,
    "axes.labelcolor": panels.GREY,
    "axes.edgecolor": panels.GREY,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#E6E6E6",
    "xtick.color": panels.GREY,
    "ytick.color": "#222222",
    "figure.facecolor": "white",
    "svg.hashsalt": "windlass",
}

MEASURE_LABELS = {"allocated_pct": "GPUs allocated in the end", "gpu_time_pct": "GPU-time used over the run"}

PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
body {{ font: 16px/1.5 system-ui, sans-serif; color: #222; max-width: 1200px; margin: 2rem auto; padding: 0 1rem; }}
svg {{ width: 100%; height: auto; }}
table {{ border-collapse: collapse; margin: 1.5rem 0; }}
th, td {{ padding: .35rem .9rem; text-align: right; border-bottom: 1px solid #ddd; }}
th:first-child, td:first-child {{ text-align: left; }}
p {{ color: #6b6b6b; }}
</style></head><body>
<h1>{title}</h1>
{figure}
{tables}
<p>± is the standard deviation over the seeds; differences are paired by seed, in points. Made by
<code>windlass simulate</code>, version {version}.</p>
</body></html>
"""


def write_plot(results: Sequence[RunResult], path: Path, version: str) -> None:
    """Plots the finished runs; the suffix of `path` is the format."""
    finished = [result for result in results if not result.interrupted]
    figure = draw(finished)
    with matplotlib.rc_context(STYLE):
        if path.suffix == ".html":
            path.write_text(_page(finished, _svg(figure), version), encoding="utf-8")
        elif path.suffix == ".svg":
            path.write_text(_svg(figure), encoding="utf-8")
        else:
            figure.savefig(path, format="png", dpi=150, metadata={"Software": f"windlass {version}"})


def draw(results: Sequence[RunResult]) -> Figure:
    """For one trace, curves and final values; for several, the differences to the baseline."""
    traces = list(dict.fromkeys(result.trace for result in results))
    with matplotlib.rc_context(STYLE):
        return _draw_trace(results) if len(traces) == 1 else _draw_traces(results, traces)


def _draw_trace(results: Sequence[RunResult]) -> Figure:
    runs = _by_policy(results)
    figure = Figure(figsize=SLIDE, layout=ConstrainedLayoutEngine(w_pad=0.1, h_pad=0.12))
    figure.suptitle(headline(results), x=0.012, ha="left", fontsize=15, color=panels.GREY)
    curves = panels.has_curves(runs)
    grid = figure.add_gridspec(2 if curves else 1, 2)
    if curves:
        allocation = figure.add_subplot(grid[0, 0])
        if panels.time_unit(runs) == "arrived_pct":
            panels.draw_ideal(allocation, runs)
            panels.zoom_to_difference(allocation, runs)
        panels.draw_curves(allocation, runs, "allocated_pct", "GPUs allocated, % (more is better)")
        fragmentation, title = figure.add_subplot(grid[0, 1]), "Fragmentation, % of all GPUs (less is better)"
        panels.draw_curves(fragmentation, runs, "fragmentation_pct", title)
    measure = headline_measure(results)
    title = f"{MEASURE_LABELS[measure]} (more is better)"
    panels.draw_final(figure.add_subplot(grid[-1, 0]), runs, measure, title)
    if panels.has_waiting(runs):
        panels.draw_waiting(figure.add_subplot(grid[-1, 1]), runs)
    elif panels.has_causes(runs):
        panels.draw_causes(figure.add_subplot(grid[-1, 1]), runs)
    return figure


def _draw_traces(results: Sequence[RunResult], traces: Sequence[str]) -> Figure:
    policies = list(dict.fromkeys(result.policy for result in results))
    measure = headline_measure(results)
    baseline = baseline_policy(policies)
    figure = Figure(figsize=(SLIDE[0], max(4.0, 1.6 + 0.42 * len(traces) * max(1, len(policies) - 1))))
    figure.set_layout_engine("constrained")
    axes = figure.add_subplot()
    if len(policies) == 1:
        by_trace = {trace: [run for run in results if run.trace == trace] for trace in traces}
        panels.draw_final(axes, by_trace, measure, f"{MEASURE_LABELS[measure]}, {baseline} (more is better)")
        return figure
    rows = []
    for trace in traces:
        runs = _by_policy([run for run in results if run.trace == trace])
        for policy in runs:
            differences = paired_differences(runs[policy], runs.get(baseline, []), measure)
            if policy != baseline and differences:
                rows.append((trace if len(policies) == 2 else f"{trace}  {policy}", differences))
    others = [policy for policy in policies if policy != baseline]
    axes.set_title(f"{MEASURE_LABELS[measure]}: {', '.join(others)} against {baseline} (right is better)")
    panels.draw_differences(axes, rows, baseline)
    return figure


def _by_policy(results: Sequence[RunResult]) -> dict[str, list[RunResult]]:
    runs: dict[str, list[RunResult]] = {}
    for result in results:
        runs.setdefault(result.policy, []).append(result)
    return runs


def _svg(figure: Figure) -> str:
    text = io.StringIO()
    figure.savefig(text, format="svg", metadata={"Date": None})
    return text.getvalue()


def _page(results: Sequence[RunResult], svg: str, version: str) -> str:
    traces = list(dict.fromkeys(result.trace for result in results))
    tables = [_html_table([result for result in results if result.trace == trace]) for trace in traces]
    return PAGE.format(
        title=html.escape("Windlass simulation: " + ", ".join(traces)),
        figure=svg[svg.index("<svg") :],
        tables="\n".join(tables),
        version=html.escape(version),
    )


def _html_table(results: Sequence[RunResult]) -> str:
    titles, *rows = report_rows(results, with_speed=False)  # speed would differ between equal runs
    head = "".join(f"<th>{html.escape(title)}</th>" for title in titles)
    cells = ["".join(f"<td>{html.escape(cell)}</td>" for cell in row) for row in rows]
    body = "\n".join(f"<tr>{row}</tr>" for row in cells)
    return (
        f"<h2>{html.escape(headline(results))}</h2>\n"
        f"<table><thead><tr>{head}</tr></thead>\n<tbody>{body}</tbody></table>"
    )
