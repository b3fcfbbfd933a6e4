"""`windlass bench node`: reads the command line; `windlass_bench.node_agent` measures."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from windlass.cli.output import output_option, plain_table, print_document, print_table
from windlass.model.names.windlass import WINDLASS_API_VERSION

if TYPE_CHECKING:
    from rich.table import Table

    from windlass_bench.node_agent import Measure


@click.command()
@click.option("--quick", is_flag=True, help="A look in seconds: fewer faults, and memory as it is at the start.")
@output_option("table", "json", "yaml", "markdown")
def node(quick: bool, output: str) -> None:
    """Measure the node agent with eight simulated GPUs: memory, scrapes, allocations, fault to kubelet told."""
    from windlass_bench.node_agent import measure_node

    with tempfile.TemporaryDirectory(prefix="wl") as folder:  # short: socket paths have a limit
        found = measure_node(Path(folder), faults=2 if quick else 10, warm_up_seconds=2.0 if quick else 15.0)
    if output == "table":
        print_table(_table(found))
    elif output == "markdown":
        click.echo("| | | goal |\n| --- | ---: | ---: |")
        for each in found:
            click.echo(f"| {each.name} | {each.value:g} {each.unit} | {_goal(each)} |")
    else:
        items = [{**msgspec.to_builtins(each), "met": each.is_met} for each in found]
        print_document({"apiVersion": WINDLASS_API_VERSION, "kind": "NodeBenchmark", "items": items}, output)


def _table(found: list[Measure]) -> Table:
    met = {None: "", True: "yes", False: "no"}
    rows = [(each.name, f"{each.value:g} {each.unit}", _goal(each), met[each.is_met]) for each in found]
    return plain_table(("WHAT", "MEASURED", "GOAL", "MET"), rows)


def _goal(each: Measure) -> str:
    return "" if each.goal is None else f"≤ {each.goal:g} {each.unit}"
