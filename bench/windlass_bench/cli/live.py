"""`windlass bench live`: reads the command line; `windlass_bench.live` measures and makes the tables."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import click

from windlass.cli.errors import check_names
from windlass.cli.output import output_option, print_note
from windlass.cli.parameters import NameList, default_option
from windlass.cli.progress import ProgressBar

if TYPE_CHECKING:
    from windlass_bench.live.run import BenchEnvironment
    from windlass_bench.section import Section

FILE = click.Path(path_type=Path, exists=True, dir_okay=False)
FOLDER = click.Path(path_type=Path, exists=True, file_okay=False)
PARTS = ("backlog", "steady", "gangs", "memory", "queues", "churn")
QUEUES, CHURN = "queues", "churn"


@click.command()
@click.option(
    "--kubeconfig", type=FILE, required=True, help="Of a cluster that was made for this: no nodes of its own."
)
@click.option("--kube-scheduler", type=FILE, help="The peer's program. [default: kube-scheduler on the PATH]")
@click.option("--before", type=FILE, help="Another build's program windlass, to compare this one with.")
@click.option("--kueue", type=FILE, help="Kueue's controller, to compare queues with; needs root.")
@click.option("--kueue-crds", type=FOLDER, help="The folder of CRDs in Kueue's source, for the part queues.")
@default_option("--nodes", default="100,1000,5000", help="Sizes, with commas between them.")
@default_option("--part", type=NameList(), default=",".join(PARTS[:3]), help=f"Of {', '.join(PARTS)}.")
@default_option("--jobs", default="500,5000", help="Queued Jobs, with commas between them, for the part queues.")
@default_option("--rate", type=click.FloatRange(1, 2000), default=200.0, help="Pods a second for the part churn.")
@default_option("--rounds", type=click.IntRange(1, 20), default=2, help="In alternating order.")
@output_option("table", "json", "yaml", "markdown")
def live(
    kubeconfig: Path,
    kube_scheduler: Path | None,
    before: Path | None,
    kueue: Path | None,
    kueue_crds: Path | None,
    nodes: str,
    part: tuple[str, ...],
    jobs: str,
    rate: float,
    rounds: int,
    output: str,
) -> None:
    """Windlass and kube-scheduler on the same pods, nodes and API server: pods bound a second, waits, CPU, memory.

    Needs an API server with a controller manager and nothing else; nodes are only objects, and no kubelet runs. Neither
    elects a leader, both write their events. The part queues compares with Kueue and kube-scheduler, on Jobs.
    """
    from windlass_bench.cli.print_report import print_report
    from windlass_bench.live.contenders import BEFORE, LIMIT, PACKING, PEER, WINDLASS, Programs
    from windlass_bench.live.report import sections_of
    from windlass_bench.live.run import BenchEnvironment, measure, tasks_of
    from windlass_bench.report import report_document

    check_names("part", part, PARTS)
    found = shutil.which("kube-scheduler")
    peer = kube_scheduler or (Path(found) if found else None)
    if peer is None:
        print_note("there is no kube-scheduler to compare with (--kube-scheduler)")
    contenders = [WINDLASS, *([BEFORE] if before is not None else [])]
    contenders += [*([PEER, PACKING] if peer is not None else []), LIMIT]
    environment = BenchEnvironment(kubeconfig, Programs(peer, before), print_note)
    tasks = tasks_of(_sizes(nodes, "--nodes"), part, contenders, rounds)
    with ProgressBar(f"{len(tasks)} measurements", len(tasks)) as progress:
        results = asyncio.run(measure(environment, tasks, progress))
    sections = sections_of(results)
    if QUEUES in part:
        sections.append(_queues(environment, kueue, kueue_crds, _sizes(jobs, "--jobs")))
    if CHURN in part:
        sections.append(_churn(environment, _sizes(nodes, "--nodes"), [*contenders[:-1]], rate))
    print_report(sections, report_document(sections), output)


def _queues(environment: BenchEnvironment, kueue: Path | None, crds: Path | None, jobs: list[int]) -> Section:
    from windlass_bench.live.contenders import PACKING, PEER, WINDLASS
    from windlass_bench.live.queues import NODES, RATE, measure_queues, queue_tasks
    from windlass_bench.live.report import queue_section

    if crds is None:
        raise click.UsageError("the part queues needs --kueue-crds")
    compared = kueue is not None and environment.programs.peer is not None
    if not compared:
        print_note("there is no Kueue with a kube-scheduler to compare with (--kueue, --kube-scheduler)")
    contenders = [WINDLASS, *([PEER, PACKING] if compared else [])]
    tasks = queue_tasks(NODES, jobs, contenders, RATE)
    return queue_section(asyncio.run(measure_queues(environment, kueue, crds, tasks)))


def _churn(environment: BenchEnvironment, sizes: list[int], contenders: list[str], rate: float) -> Section:
    from windlass_bench.live.churn import measure_churn
    from windlass_bench.live.report import churn_section

    found = [asyncio.run(measure_churn(environment, nodes, contenders, rate)) for nodes in sizes]
    return churn_section([result for results in found for result in results])


def _sizes(text: str, option: str) -> list[int]:
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdigit() and 0 < int(part) <= 20_000 for part in parts):
        raise click.BadParameter(f"'{text}' is not a list of sizes such as 100,1000", param_hint=option)
    return [int(part) for part in parts]
