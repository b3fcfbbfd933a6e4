"""`windlass node history`: means of the samples that the agent of a node keeps."""

from __future__ import annotations

import csv
import sys
import time
from pathlib import Path

import click

from windlass.cli.output import output_option, plain_table, print_document, print_table, windlass_document
from windlass.cli.parameters import default_option
from windlass.cli.time_range import parse_since
from windlass.model.errors import InputError
from windlass.model.times import format_timestamp, parse_duration, parse_timestamp
from windlass.telemetry.history import gpu_metrics
from windlass.telemetry.history.reader import HistoryReader, open_history

SHOWN = (
    gpu_metrics.UTILISATION,
    gpu_metrics.SM_ACTIVE,
    gpu_metrics.MEMORY_USED,
    gpu_metrics.POWER,
    gpu_metrics.TEMPERATURE,
    gpu_metrics.SM_CLOCK,
)
Row = tuple[str, str, dict[str, float]]
"""Time, UUID, and field → mean."""


@click.command("history")
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
@default_option("--since", default="24h", help="From then on: 90m, 24h, 30d, or a time.")
@default_option("--every", default="1h", help="Means over so long.")
@click.option("--gpu", default="", help="Only this GPU, by UUID, serial number or index.")
@default_option("--interval", type=click.IntRange(1), default=30, help="Seconds between samples, as the agent has it.")
@click.option("--now", default="", hidden=True)
@output_option("table", "csv", "json")
def history(folder: Path, since: str, every: str, gpu: str, interval: int, now: str, output: str) -> None:
    """What the GPUs of this node have done, GPU by GPU. Time that was not measured is left out."""
    end = parse_timestamp(now) or int(time.time())
    reader, step = open_history(folder, interval), parse_duration(every)
    if step < interval:
        raise InputError(f"{every} is shorter than the interval of the samples", path="--every")
    rows = history_rows(reader, parse_since(since, end), end + 1, step, gpu)
    if output == "json":
        document = [{"time": at, "uuid": uuid, **means} for at, uuid, means in rows]
        print_document(windlass_document("NodeHistory", facts=reader.facts(0, end + 1), rows=document), output)
        return
    cells = [(at, uuid, *(_cell(means.get(field)) for field in SHOWN)) for at, uuid, means in rows]
    headings = ("TIME", "GPU", *(field.removeprefix("DCGM_FI_").removeprefix("DEV_") for field in SHOWN))
    if output == "csv":
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(("time", "uuid", *SHOWN))
        writer.writerows(cells)
    else:
        print_table(plain_table(headings, cells))


def history_rows(reader: HistoryReader, start: int, end: int, step: int, gpu: str = "") -> list[Row]:
    facts = reader.facts(start, end)
    chosen = [uuid for uuid, known in facts.items() if gpu in ("", uuid, known.get("serial"), known.get("index"))]
    if gpu and not chosen:
        known = ", ".join(sorted(facts))
        raise InputError(f"there is no GPU '{gpu}' in the history", path="--gpu", remedy=f"known: {known}")
    found: dict[tuple[int, str], dict[str, float]] = {}
    first = start // step * step
    for uuid in chosen:
        for field, scale in gpu_metrics.SCALES.items():
            for at, mean in reader.means(f"{uuid}/{field}", first, end, step):
                found.setdefault((at, uuid), {})[field] = mean / scale
    return [(format_timestamp(at), uuid, means) for (at, uuid), means in sorted(found.items())]


def _cell(value: float | None) -> str:
    return "" if value is None else f"{value:,.3f}".rstrip("0").rstrip(".")
