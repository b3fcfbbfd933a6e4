"""`windlass bench engine`: reads the command line; `windlass_bench.engine` measures and makes the tables."""

from __future__ import annotations

import click

from windlass.cli.errors import EXIT_DONE, EXIT_INTERRUPTED, check_names
from windlass.cli.output import output_option, print_note
from windlass.cli.parameters import NameList
from windlass.cli.progress import ProgressBar


@click.command()
@click.option("--quick/--all", help="A look in half a minute, or everything (the default).")
@click.option(
    "--part",
    type=NameList(),
    help="Only these: pods, gangs, preemption, plans, verdict, kueue, steady, growth.",
)
@click.option(
    "--repetitions",
    type=click.IntRange(1, 100),
    default=None,
    help="How often each is measured; the fastest counts (3; with --quick 1).",
)
@output_option("table", "json", "yaml", "markdown")
def engine(quick: bool, part: tuple[str, ...] | None, repetitions: int | None, output: str) -> int:
    """Measure the engine: pods, gangs and workloads decided a second, memory, growth; beside what peers publish.

    One thread, processor time, every measurement in a process of its own.
    """
    from windlass_bench.cli.print_report import print_report
    from windlass_bench.engine import report
    from windlass_bench.engine.task_runner import measure_all
    from windlass_bench.report import report_document

    check_names("part", part or (), report.PARTS)
    parts = part or tuple(report.PARTS)
    tasks = report.tasks_of(parts, quick)
    rounds = repetitions or (1 if quick else 3)
    with ProgressBar(f"{len(tasks)} measurements", rounds * len(tasks)) as progress:
        measured = measure_all(tasks, rounds, progress)
    sections = report.sections_of(parts, quick, measured)
    print_report(sections, report_document(sections, measured.interrupted), output)
    if measured.interrupted:
        print_note(f"interrupted: {len(measured.by_task)} of {len(tasks)} were measured")
        return EXIT_INTERRUPTED
    return EXIT_DONE
