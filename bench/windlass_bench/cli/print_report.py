"""How the benchmarks print their tables: the commands of this folder call it with their sections."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from windlass.cli.output import print_document, print_table
from windlass_bench.report import report_markdown, report_tables
from windlass_bench.section import Section


def print_report(sections: Sequence[Section], document: dict[str, Any], output: str) -> None:
    """As `-o` asks: the document for scripts, or the tables; details of those only with `wide`."""
    if output in ("json", "yaml"):
        print_document(document, output)
    elif output == "markdown":
        click.echo(report_markdown(sections), nl=False)
    else:
        print_table(report_tables([each for each in sections if output == "wide" or not each.detail]))
