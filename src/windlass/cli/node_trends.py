"""`windlass node trends`: what gets worse on the GPUs of a node, out of the samples that its agent keeps."""

from __future__ import annotations

import time
from pathlib import Path

import click
import msgspec

from windlass.cli.errors import EXIT_DONE, EXIT_FINDINGS
from windlass.cli.output import output_option, plain_table, print_document, print_note, print_table, windlass_document
from windlass.cli.parameters import default_option
from windlass.model.times import parse_timestamp
from windlass.telemetry.history.reader import open_history
from windlass.telemetry.trends.node_trends import find_node_trends


@click.command("trends")
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
@default_option("--interval", type=click.IntRange(1), default=30, help="Seconds between samples, as the agent has it.")
@click.option("--now", default="", hidden=True)
@output_option("table", "json")
def trends(folder: Path, interval: int, now: str, output: str) -> int:
    """GPUs that get worse: memory that a job never gives back, cooling, growing errors. Exit code 1 if there are any.

    How often each rule is wrong stands in docs/guide/observe.md.
    """
    found = find_node_trends(open_history(folder, interval), parse_timestamp(now) or int(time.time()))
    if output == "json":
        print_document(windlass_document("NodeTrends", findings=msgspec.to_builtins(found)), output)
    elif found:
        rows = [(entry.facts.get("index", ""), entry.uuid, entry.kind, entry.text) for entry in found]
        print_table(plain_table(("GPU", "UUID", "KIND", "WHAT"), rows))
    else:
        print_note("no GPU of this node gets worse, as far as its history tells")
    return EXIT_FINDINGS if found else EXIT_DONE
