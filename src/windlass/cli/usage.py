"""`windlass usage`: GPU-hours and costs by team, queue, user, job or model."""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from windlass.cli.observation_source import Source, current_time, observation_options, observe, settings_of, take_source
from windlass.cli.output import output_option, plain_table, print_document, print_note, print_table, windlass_document
from windlass.cli.parameters import default_option
from windlass.cli.time_range import DAY_SECONDS, parse_since
from windlass.model.errors import InputError
from windlass.model.times import format_timestamp

if TYPE_CHECKING:
    from windlass.model.configuration import Settings
    from windlass.telemetry.usage import Usage, UsageRow

EXAMPLES = """\b
Examples:
  windlass usage --prometheus http://prometheus:9090 --since 7d
  windlass usage --history /var/lib/windlass/history --by user --since 30d -o csv
  windlass usage --history /var/lib/windlass/history --since 2026-01-01T00:00:00Z -o focus > january.csv
  windlass usage --from dump.yaml --by job
"""
HEADINGS = ("ALLOCATED", "COMPUTING", "SPINNING", "IDLE", "UNMEASURED", "LOST", "BUSY")
BY = ("team", "queue", "user", "job", "model")


@click.command("usage", epilog=EXAMPLES)
@observation_options
@click.option(
    "--history",
    type=click.Path(path_type=Path, file_okay=False),
    help="The folder that `windlass scheduler --history` writes.",
)
@default_option("--by", type=click.Choice(BY), default="team", help="What a row is.")
@default_option("--since", default="30d", help="From then on: 24h, 30d, or a time such as 2026-01-01T00:00:00Z.")
@output_option("table", "csv", "json", "focus")
def usage(history: Path | None, by: str, since: str, output: str, **given: Any) -> None:
    """GPU-hours that were held, and what the GPUs did: allocated = computing + spinning + idle + unmeasured.

    Out of the scheduler's history, a Prometheus, or the pods that exist now. Prices come from `usage.gpuHourPrices` of
    the configuration. A team is a namespace, or the label windlass.dev/team; a user is the label windlass.dev/user.
    """
    source = take_source(given)
    if history is not None and source.prometheus:
        raise click.UsageError("--history and --prometheus are two sources: choose one")
    reader = _Reader(source, history)
    start, end = parse_since(since, reader.now), reader.now
    if start >= end:
        raise InputError(f"'{since}' is not before {format_timestamp(end)}", path="--since")
    if output == "focus":
        _print_focus([reader.read(first, last) for first, last in _days(start, end)], reader.settings)
        return
    found = reader.read(start, end)
    for note in found.notes:
        print_note(note)
    _print(found, by, output, reader.settings)


class _Reader:
    """One of the sources, and the settings with the prices."""

    def __init__(self, source: Source, history: Path | None) -> None:
        self._prometheus = source.open_prometheus()
        self._history = self._observation = None
        self.now = current_time(source)
        if history is not None:
            from windlass.telemetry.usage_history import open_ledger_history

            self._history, self.settings = open_ledger_history(history), settings_of(source)
        elif self._prometheus is not None and source.dump is None:
            self.settings = settings_of(source)
        else:
            self._prometheus = None
            self._observation, self.settings = observe(source._replace(prometheus="", token_file=None))
            self.now = self._observation.ledger.at

    def read(self, start: int, end: int) -> Usage:
        if self._history is not None:
            from windlass.telemetry.usage_history import read_usage

            return read_usage(self._history, start, end)
        if self._prometheus is not None:
            from windlass.telemetry.prometheus_usage import read_prometheus_usage

            return read_prometheus_usage(self._prometheus, start, end)
        from windlass.telemetry.usage_objects import usage_of_objects

        assert self._observation is not None
        return usage_of_objects(self._observation, start, end)


def _print(found: Usage, by: Any, output: str, settings: Settings) -> None:
    from windlass.telemetry.usage import total_row, unused_hours, usage_rows

    prices = settings.gpu_hour_micro_prices
    rows, total = usage_rows(found, by, prices), total_row(found, prices)
    if output == "json":
        print_document(_document(found, by, rows, total, settings), output)
    elif output == "csv":
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow((by, *CSV_COLUMNS, "currency"))
        for row in rows:
            writer.writerow((row.name, *_csv_cells(row), settings.currency if row.cost is not None else ""))
    else:
        with_cost = bool(prices)
        headings = (by.upper(), *HEADINGS, *((f"COST {settings.currency}", "OF IT IDLE") if with_cost else ()))
        print_table(plain_table(headings, (_cells(row, with_cost) for row in (*rows, total))))
        unused = ", ".join(
            f"{name.replace('_', ' ')} {hours:,.1f}" for name, hours in unused_hours(found).items() if hours
        )
        print_note(f"GPU-hours from {format_timestamp(found.start)} to {format_timestamp(found.end)}")
        if unused:
            print_note(f"held by nobody: {unused}")


CSV_COLUMNS = (
    "allocated_gpu_hours",
    "computing_gpu_hours",
    "spinning_gpu_hours",
    "idle_gpu_hours",
    "unmeasured_gpu_hours",
    "lost_gpu_hours",
    "cost",
    "idle_cost",
)


def _csv_cells(row: UsageRow) -> Sequence[str]:
    hours = (row.allocated_hours, row.computing_hours, row.spinning_hours, row.idle_hours, row.unmeasured_hours)
    costs = ("" if cost is None else f"{cost:.6f}" for cost in (row.cost, row.idle_cost))
    return (*(f"{value:.6f}" for value in (*hours, row.lost_hours)), *costs)


def _cells(row: UsageRow, with_cost: bool) -> Sequence[str]:
    hours = (row.allocated_hours, row.computing_hours, row.spinning_hours, row.idle_hours, row.unmeasured_hours)
    busy = "-" if row.busy_share is None else f"{row.busy_share:.0%}"
    cells = (row.name, *(f"{value:,.1f}" for value in (*hours, row.lost_hours)), busy)
    if not with_cost:
        return cells
    return (*cells, *("-" if cost is None else f"{cost:,.2f}" for cost in (row.cost, row.idle_cost)))


def _document(found: Usage, by: str, rows: Sequence[UsageRow], total: UsageRow, settings: Settings) -> dict[str, Any]:
    from windlass.telemetry.usage import unused_hours

    return windlass_document(
        "UsageReport",
        **{"from": format_timestamp(found.start), "to": format_timestamp(found.end), "by": by},
        coveredSeconds=found.covered_seconds,
        currency=settings.currency,
        rows=[_row_document(row) for row in rows],
        total=_row_document(total),
        unusedGpuHours=unused_hours(found),
        notes=found.notes,
    )


def _row_document(row: UsageRow) -> dict[str, Any]:
    return {
        "name": row.name,
        "allocatedGpuHours": row.allocated_hours,
        "computingGpuHours": row.computing_hours,
        "spinningGpuHours": row.spinning_hours,
        "idleGpuHours": row.idle_hours,
        "unmeasuredGpuHours": row.unmeasured_hours,
        "lostGpuHours": row.lost_hours,
        "busyShare": row.busy_share,
        "cost": row.cost,
        "idleCost": row.idle_cost,
    }


def _print_focus(days: Sequence[Usage], settings: Settings) -> None:
    from windlass.telemetry.focus import COLUMNS, focus_rows

    for note in dict.fromkeys(note for day in days for note in day.notes):
        print_note(note)
    if not settings.gpu_hour_micro_prices:
        print_note("all costs are 0: the configuration has no usage.gpuHourPrices")
    writer = csv.DictWriter(sys.stdout, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(focus_rows(days, settings.currency, settings.gpu_hour_micro_prices))


def _days(start: int, end: int) -> Iterator[tuple[int, int]]:
    """Cut at the ends of days, in UTC."""
    while start < end:
        last = min(end, (start // DAY_SECONDS + 1) * DAY_SECONDS)
        yield start, last
        start = last
