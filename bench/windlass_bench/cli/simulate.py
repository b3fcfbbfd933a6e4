"""`windlass bench simulate`: reads the command line; `windlass_bench` measures and makes the tables."""

from __future__ import annotations

import os
from pathlib import Path

import click

from windlass.cli.errors import EXIT_DONE, EXIT_INTERRUPTED, check_names
from windlass.cli.output import output_option, print_note
from windlass.cli.parameters import NameList, jobs_option, traces_option
from windlass.cli.progress import ProgressBar
from windlass.model.errors import InputError


@click.command()
@click.option("--quick/--all", help="A look in a minute or two, or everything (the default).")
@click.option("--part", type=NameList(), help="Only these: equality, quality, bounds, ablation, others, churn, speed.")
@jobs_option("Speed is always measured by one run at a time.")
@output_option("table", "wide", "json", "yaml", "markdown")
@traces_option
def simulate(quick: bool, part: tuple[str, ...] | None, jobs: int, output: str, traces: Path | None) -> int:
    """Measure the simulator: equality with published numbers, windlass against fgd, other traces, churn, speed.

    Without the public trace files, what needs them is left out.
    """
    from windlass_bench import report, scale
    from windlass_bench.cli.print_report import print_report
    from windlass_bench.runs import play_all

    check_names("part", part or (), report.PARTS)
    if traces is not None and not traces.is_dir():
        raise InputError("there is no such folder", file=str(traces), remedy="--traces or WINDLASS_TRACES names it")
    if traces is None:
        print_note("No public trace files (--traces or WINDLASS_TRACES): what needs them is left out.")
    parts = report.parts_of(part or report.PARTS, scale.quick_scale() if quick else scale.full_scale(), traces)
    runs = list(dict.fromkeys(run for part in parts for run in part.runs))
    with ProgressBar(f"{len(runs)} runs", len(runs)) as progress:
        outcomes = play_all(runs, traces, jobs or os.cpu_count() or 1, progress)
    sections = report.sections_of(parts, outcomes)
    print_report(sections, report.report_document(sections, outcomes.interrupted), output)
    if outcomes.interrupted:
        print_note(f"interrupted: {len(outcomes.by_run)} of {len(runs)} runs were finished")
        return EXIT_INTERRUPTED
    return EXIT_DONE
