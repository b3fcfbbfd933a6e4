"""Formats results of simulations: a table for people; a JSON document and CSV rows for programs.

`cli.simulate` prints them; `simulate.plot` uses the rows. The document's fields are an interface
(docs/reference/simulation-report.md): fields are added, never changed or removed.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from windlass.model.names.windlass import WINDLASS_API_VERSION
from windlass.simulate.compare import Paired, PolicySummary, Spread, headline_measure, summarise
from windlass.simulate.result import RunResult

if TYPE_CHECKING:
    from rich.console import Group, RenderableType
    from rich.table import Table

KIND = "SimulationReport"
ABSENT = "–"

Column = tuple[str, Callable[[PolicySummary], str]]
RunColumn = tuple[str, Callable[[RunResult], str]]


def report_document(results: Sequence[RunResult]) -> dict[str, Any]:
    """The `SimulationReport`: one item per run, and the comparison of the table."""
    return {
        "apiVersion": WINDLASS_API_VERSION,
        "kind": KIND,
        "items": [msgspec.to_builtins(result) for result in results],
        "comparison": [msgspec.to_builtins(summary) for summary in summarise(results)],
    }


def report_csv(results: Sequence[RunResult]) -> str:
    """One row per run. Nested measures become columns (`waiting.mean`); curves are only in the JSON document."""
    rows = [_flat(msgspec.to_builtins(msgspec.structs.replace(result, curve=None))) for result in results]
    columns = list(dict.fromkeys(column for row in rows for column in row))
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def report_table(results: Sequence[RunResult], wide: bool = False) -> Group:
    """A comparison of the policies for each trace; with `wide`, or if no run has finished, every run below it."""
    from rich.console import Group

    parts: list[RenderableType] = []
    for trace in dict.fromkeys(result.trace for result in results):
        of_trace = [result for result in results if result.trace == trace]
        finished = [result for result in of_trace if not result.interrupted]
        parts.extend([""] if parts else [])
        parts.append(headline(finished or of_trace))
        if finished:
            parts.append(_comparison_table(finished))
        if wide or not finished:
            parts.append(_runs_table(of_trace))
    return Group(*parts)


def headline(results: Sequence[RunResult]) -> str:
    """`openb/default · 1,213 nodes · 6,212 GPUs · seeds 42–51, published order`."""
    first = results[0]
    facts = [first.trace, f"{first.nodes:,} nodes", f"{first.gpu_milli_total / 1000:,.0f} GPUs"]
    seeds = format_seeds(sorted({result.seed for result in results if result.seed is not None}))
    orders = "/".join(dict.fromkeys(result.order for result in results))
    facts.append(f"{seeds}, {orders} order" if seeds else f"{orders} order")
    if first.mix != "declared":
        facts.append(f"mix as {first.mix} so far")
    return " · ".join(facts)


def format_seeds(seeds: Sequence[int]) -> str:
    """`seed 42`, `seeds 42–51` where they are consecutive, else `seeds 42, 44`."""
    if len(seeds) <= 1:
        return "".join(f"seed {seed}" for seed in seeds)
    if len(seeds) > 2 and list(seeds) == list(range(seeds[0], seeds[-1] + 1)):
        return f"seeds {seeds[0]}–{seeds[-1]}"
    return "seeds " + ", ".join(map(str, seeds))


def format_duration(seconds: float) -> str:
    """`0.31 s`, `4.2 min`, `2.5 h`."""
    if seconds < 120:
        return f"{seconds:.2f} s" if seconds < 10 else f"{seconds:.0f} s"
    return f"{seconds / 60:.1f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def report_rows(results: Sequence[RunResult], with_speed: bool = True) -> list[list[str]]:
    """The comparison of the policies on one trace as text: titles first, then one row per policy."""
    summaries = summarise(results)
    columns = _comparison_columns(summaries, with_speed)
    rows = [[render(summary) for _, render in columns] for summary in summaries]
    return [[title for title, _ in columns], *rows]


def _comparison_table(results: Sequence[RunResult]) -> Table:
    titles, *rows = report_rows(results)
    table = _empty_table(titles)
    for row in rows:
        table.add_row(*row)
    if len({result.seed for result in results}) > 1:
        table.caption = "± standard deviation over seeds; differences paired by seed, in points"
    return table


def _comparison_columns(summaries: Sequence[PolicySummary], with_speed: bool) -> list[Column]:
    """The columns that have values for these policies."""
    columns: list[Column] = [("policy", lambda row: row.policy)]
    columns.append(("GPUs allocated", lambda row: _percent(row.allocated_pct)))
    if any(row.gpu_time_pct for row in summaries):
        columns.append(("GPU-time used", lambda row: _percent(row.gpu_time_pct)))
    baseline = next((row.paired.baseline for row in summaries if row.paired), "")
    if baseline:
        columns.append((f"vs {baseline}", lambda row: _difference(row.paired)))
    if any(row.paired and row.paired.pairs > 1 for row in summaries):
        columns.append(("seeds better", lambda row: _better(row.paired)))
    columns.append(("fragmentation", lambda row: _percent(row.fragmentation_pct)))
    columns.append(("pods refused", lambda row: _spread(row.pods_refused, "{:,.0f}")))
    if any(row.waiting_mean for row in summaries):
        columns.append(("mean wait", lambda row: _wait(row.waiting_mean)))
    if with_speed:
        columns.append(("a run took", lambda row: format_duration(row.seconds.mean)))
    return columns


def _runs_table(results: Sequence[RunResult]) -> Table:
    columns = _run_columns(results)
    table = _empty_table([title for title, _ in columns])
    for result in results:
        table.add_row(*(render(result) for _, render in columns))
    if any(result.interrupted for result in results):
        table.caption = "* interrupted: counted up to there, and left out of the comparison"
    return table


def _run_columns(results: Sequence[RunResult]) -> list[RunColumn]:
    columns: list[RunColumn] = [
        ("policy", lambda run: run.policy + ("*" if run.interrupted else "")),
        ("seed", lambda run: ABSENT if run.seed is None else str(run.seed)),
        ("order", lambda run: run.order),
        ("GPUs allocated", lambda run: f"{run.allocated_pct:.2f} %"),
        ("milli-GPU", lambda run: f"{run.gpu_milli_allocated:,} of {run.gpu_milli_total:,}"),
        ("fragmentation", lambda run: f"{run.fragmentation_pct:.2f} %"),
        ("placed", lambda run: f"{run.pods_placed:,} of {run.pods_arrived:,}"),
        ("refused", lambda run: f"{run.pods_refused:,}"),
    ]
    if headline_measure(results) == "gpu_time_pct":
        columns.append(("GPU-time used", lambda run: _optional(run.gpu_time_pct, "{:.2f} %")))
        columns.append(("wait mean / p99", _waits))
    columns.append(("took", lambda run: format_duration(run.seconds)))
    columns.append(("decisions/s", lambda run: f"{run.decisions_per_second:,.0f}"))
    columns.append(("peak memory", lambda run: f"{run.peak_rss_mib:,.0f} MiB"))
    return columns


def _empty_table(titles: Sequence[str]) -> Table:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, header_style="bold")
    table.caption_justify = "left"
    for position, title in enumerate(titles):
        table.add_column(title, justify="left" if position == 0 else "right", no_wrap=True)
    return table


def _spread(value: Spread, form: str) -> str:
    text = form.format(value.mean)
    return f"{text} ± {form.format(value.deviation)}" if value.deviation else text


def _percent(value: Spread | None) -> str:
    return ABSENT if value is None else _spread(value, "{:.2f}") + " %"


def _difference(value: Paired | None) -> str:
    if value is None:
        return ABSENT
    return f"{value.mean:+.2f}" + (f" ± {value.deviation:.2f}" if value.pairs > 1 else "")


def _better(value: Paired | None) -> str:
    return ABSENT if value is None else f"{value.better} of {value.pairs}"


def _wait(value: Spread | None) -> str:
    return ABSENT if value is None else format_duration(value.mean)


def _waits(run: RunResult) -> str:
    if run.waiting is None:
        return ABSENT
    return f"{format_duration(run.waiting.mean)} / {format_duration(run.waiting.p99)}"


def _optional(value: float | None, form: str) -> str:
    return ABSENT if value is None else form.format(value)


def _flat(value: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested objects as dotted columns; None leaves no column."""
    row: dict[str, Any] = {}
    for key, inner in value.items():
        if isinstance(inner, dict):
            row.update(_flat(inner, f"{prefix}{key}."))
        elif inner is not None:
            row[prefix + key] = inner
    return row
