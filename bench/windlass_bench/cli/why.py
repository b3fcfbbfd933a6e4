"""`windlass bench why`: reads the command line; `windlass_bench.why` measures."""

from __future__ import annotations

import click

from windlass.cli.output import output_option, print_document, print_table
from windlass.model.names.windlass import WINDLASS_API_VERSION


@click.command()
@click.option("--quick/--all", help="A tenth of the size, or all of it (the default).")
@output_option("table", "json", "yaml", "markdown")
def why(quick: bool, output: str) -> None:
    """Measure an answer of `why` on a large dump, and a `check` of many manifests."""
    from windlass_bench import report
    from windlass_bench.why import measure

    section = measure(quick)
    if output in ("json", "yaml"):
        print_document(
            {"apiVersion": WINDLASS_API_VERSION, "kind": "BenchReport", "items": section.rows}, output
        )
    elif output == "markdown":
        click.echo(report.report_markdown([section]), nl=False)
    else:
        print_table(report.report_tables([section]))
