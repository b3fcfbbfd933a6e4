"""`windlass bench why`: reads the command line; `windlass_bench.why` measures."""

from __future__ import annotations

import click

from windlass.cli.output import output_option
from windlass.model.names.windlass import WINDLASS_API_VERSION


@click.command()
@click.option("--quick/--all", help="A tenth of the size, or all of it (the default).")
@output_option("table", "json", "yaml", "markdown")
def why(quick: bool, output: str) -> None:
    """Measure an answer of `why` on a large dump, and a `check` of many manifests."""
    from windlass_bench.cli.print_report import print_report
    from windlass_bench.report import KIND
    from windlass_bench.why import measure

    section = measure(quick)
    print_report([section], {"apiVersion": WINDLASS_API_VERSION, "kind": KIND, "items": section.rows}, output)
