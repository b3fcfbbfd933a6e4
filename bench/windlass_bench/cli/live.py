"""`windlass bench live`: reads the command line; `windlass_bench.live` measures and makes the tables."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import click

from windlass.cli.errors import check_names
from windlass.cli.output import output_option, print_note
from windlass.cli.parameters import NameList, default_option
from windlass.cli.progress import ProgressBar

FILE = click.Path(path_type=Path, exists=True, dir_okay=False)
PARTS = ("backlog", "steady", "gangs", "memory")


@click.command()
@click.option(
    "--kubeconfig", type=FILE, required=True, help="Of a cluster that was made for this: no nodes of its own."
)
@click.option("--kube-scheduler", type=FILE, help="The peer's program. [default: kube-scheduler on the PATH]")
@default_option("--nodes", default="100,1000,5000", help="Sizes, with commas between them.")
@default_option("--part", type=NameList(), default=",".join(PARTS[:3]), help="Of backlog, steady, gangs, memory.")
@default_option("--rounds", type=click.IntRange(1, 20), default=2, help="In alternating order.")
@output_option("table", "json", "yaml", "markdown")
def live(
    kubeconfig: Path, kube_scheduler: Path | None, nodes: str, part: tuple[str, ...], rounds: int, output: str
) -> None:
    """Windlass and kube-scheduler on the same pods, nodes and API server: pods bound a second, waits, CPU, memory.

    Needs an API server with a controller manager and nothing else; nodes are only objects, and no kubelet runs. Neither
    elects a leader, both write their events.
    """
    from windlass_bench.cli.print_report import print_report
    from windlass_bench.live.contenders import LIMIT, PEER, WINDLASS
    from windlass_bench.live.report import sections_of
    from windlass_bench.live.run import BenchEnvironment, measure, tasks_of
    from windlass_bench.report import report_document

    check_names("part", part, PARTS)
    found = shutil.which("kube-scheduler")
    peer = kube_scheduler or (Path(found) if found else None)
    if peer is None:
        print_note("there is no kube-scheduler to compare with (--kube-scheduler)")
    contenders = [WINDLASS, *([PEER] if peer is not None else []), LIMIT]
    tasks = tasks_of(_sizes(nodes), part, contenders, rounds)
    environment = BenchEnvironment(kubeconfig, peer, print_note)
    with ProgressBar(f"{len(tasks)} measurements", len(tasks)) as progress:
        results = asyncio.run(measure(environment, tasks, progress))
    sections = sections_of(results)
    print_report(sections, report_document(sections), output)


def _sizes(text: str) -> list[int]:
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdigit() and 0 < int(part) <= 20_000 for part in parts):
        raise click.BadParameter(f"'{text}' is no list of sizes such as 100,1000", param_hint="--nodes")
    return [int(part) for part in parts]
