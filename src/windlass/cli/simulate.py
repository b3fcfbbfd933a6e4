"""`windlass simulate`: runs policies on a trace and compares them; scenarios are handed on to `cli.scenario`.

Validates the command line before anything runs, runs `simulate.batch`, and prints through `simulate.report`. Files are
written completely or not at all.
"""

from __future__ import annotations

import os
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource
from click.shell_completion import CompletionItem

from windlass import __version__
from windlass.cli.config_option import config_option, print_configuration, resolve_configuration
from windlass.cli.errors import EXIT_DONE, EXIT_INTERRUPTED, check_names
from windlass.cli.extras import require_extra
from windlass.cli.output import (
    atomic_output_file,
    check_writable,
    output_option,
    print_document,
    print_note,
    print_table,
)
from windlass.cli.parameters import PolicyList, SeedList, default_option, jobs_option, traces_option
from windlass.cli.printable import printable
from windlass.cli.progress import ProgressBar
from windlass.cli.replay import run_replay, wants_replay
from windlass.cli.scenario import run_scenarios, wants_scenarios
from windlass.model.errors import InputError

if TYPE_CHECKING:
    from windlass.model.configuration import Settings
    from windlass.model.node import Node
    from windlass.simulate.result import RunResult
    from windlass.simulate.runner import BatchSettings, RunSpec

PLOT_ENDINGS = (".png", ".svg", ".html")

FILE = click.Path(path_type=Path, dir_okay=False)

EXAMPLES = """\b
Examples:
  windlass simulate synthetic/small
  windlass simulate synthetic/small --policy fgd,windlass,random --seed 42..46 --jobs 2
  windlass simulate synthetic/training --policy first-fit,windlass --plot waiting.png
  windlass simulate openb/default --policy fgd,windlass --seed 42..51 -o wide
  windlass simulate my-jobs.csv --nodes my-fleet.yaml -o json
  windlass simulate docs/scenarios/three-classes.yaml
"""


@dataclass(frozen=True)
class Options:
    """The command line of `windlass simulate`, read."""

    trace: tuple[str, ...]
    policy: tuple[str, ...]
    seed: tuple[int | None, ...]
    nodes: Path | None
    config: Path | None
    jobs: int
    replay: str
    mix: str
    plot: Path | None
    placements: Path | None
    explain: str
    traces: Path | None
    list_: bool
    output: str


def complete_trace(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """For the shell: the names of traces that go on like this, and files."""
    from windlass.simulate.traces import list_traces

    names = [info.name for info in list_traces(None) if info.name.startswith(incomplete)]
    return [*map(CompletionItem, names), CompletionItem(incomplete, type="file")]


@click.command(epilog=EXAMPLES)
@click.argument("trace", nargs=-1, shell_complete=complete_trace)
@default_option("-p", "--policy", type=PolicyList(), default="windlass", help="Policies to compare.")
@click.option("-s", "--seed", type=SeedList(), help="42, 42..51 or 42,44. [default: 42]")
@click.option("--nodes", type=FILE, help="Another fleet: Nodes or a Fleet as YAML or JSON, or a CSV table.")
@config_option
@jobs_option()
@default_option(
    "--replay",
    metavar="arrivals|times",
    default="arrivals",
    help="openb: the published arrival order, or the recorded times (times:2 is twice as fast).",
)
@default_option(
    "--mix",
    type=click.Choice(["declared", "seen"]),
    default="declared",
    help="Which workload mix a policy may count on: the declared one, or what has arrived so far.",
)
@output_option("table", "wide", "json", "yaml", "csv")
@click.option("--plot", type=FILE, help="Also draw it: a file that ends in .png, .svg or .html.")
@click.option("--placements", type=FILE, help="Also write every placement, to check it.")
@click.option("--explain", metavar="POD", default="", help="Say why this pod found no node (one policy, one seed).")
@traces_option
@click.option(
    "--list",
    "list_",
    is_flag=True,
    help="List the traces: which are available here, and where to get the others.",
)
def simulate(**given: Any) -> int:
    """Run placement policies on a TRACE and compare them, or play a scenario and check it.

    TRACE is synthetic/NAME (comes with Windlass), openb/LIST, philly, helios, or a file; several may be given.
    `windlass simulate --list` names them all. A YAML file of kind Scenario, or a folder of them, is played and
    checked instead; the exit code is 1 if an expectation fails.
    """
    options = Options(**{**given, "seed": given["seed"] or (None,)})
    configuration = resolve_configuration(options.config)
    print_configuration(configuration.used)
    settings = configuration.settings if options.config is not None else None
    _check_traces_folder(options.traces)
    if options.list_:
        return _print_traces(options)
    if wants_replay(options.trace):
        if options.config is not None:
            raise InputError("a record is replayed with its own configuration", remedy="leave out --config")
        return run_replay(options.trace)
    if wants_scenarios(options.trace):
        return run_scenarios(options.trace, options.output, settings)
    options = _with_policy(options, settings)
    _refuse_mistakes(options)
    return _run(options, settings)


def _with_policy(options: Options, settings: Settings | None) -> Options:
    """The configuration's policy, where the command line names none. Seeds are the trace's."""
    named = click.get_current_context().get_parameter_source("policy") == ParameterSource.COMMANDLINE
    return options if settings is None or named else replace(options, policy=(settings.placement,))


def _run(options: Options, engine: Settings | None) -> int:
    from windlass.simulate.batch import run_batch

    specs = _specs(options)
    with ExitStack() as stack:
        settings = replace(_settings(options), engine=engine)
        if options.placements is not None:
            folder = tempfile.TemporaryDirectory(prefix=".windlass-", dir=options.placements.absolute().parent)
            settings = replace(settings, placements=Path(stack.enter_context(folder)))
        progress = ProgressBar(f"{len(specs)} runs" if len(specs) > 1 else "1 run", len(specs))
        with progress:
            batch = run_batch(specs, settings, options.jobs or os.cpu_count() or 1, progress)
        _print_results(batch.results, options)
        if batch.interrupted:
            whole = sum(not result.interrupted for result in batch.results)
            print_note(f"interrupted: {whole} of {len(specs)} runs were finished, no file was written")
            return EXIT_INTERRUPTED
        _write_files(batch.results, options, settings)
    return EXIT_DONE


def _refuse_mistakes(options: Options) -> None:
    """All checks that need no trace."""
    from windlass.simulate.trace_run import POLICIES

    if not options.trace:
        raise click.UsageError("no TRACE given: try synthetic/small, or --list for all.", click.get_current_context())
    check_names("policy", options.policy, POLICIES)
    if options.plot is not None:
        if options.plot.suffix not in PLOT_ENDINGS:
            raise InputError(f"a plot ends in {', '.join(PLOT_ENDINGS)}", file=str(options.plot))
        check_writable(options.plot)
        require_extra("simulate", "--plot", "matplotlib")
    if options.placements is not None:
        check_writable(options.placements)
        if options.plot is not None and options.plot.absolute() == options.placements.absolute():
            raise InputError("--plot and --placements name the same file", file=str(options.plot))
    if options.explain and len(_specs(options)) > 1:
        raise InputError("--explain needs a single run", remedy="name one trace, one policy and one seed")


def _check_traces_folder(folder: Path | None) -> None:
    """A folder given as an option must exist; one from the environment may not be needed at all."""
    source = click.get_current_context().get_parameter_source("traces")
    if source == ParameterSource.COMMANDLINE and folder is not None and not folder.is_dir():
        raise InputError("there is no such folder", file=str(folder))


def _specs(options: Options) -> list[RunSpec]:
    from windlass.simulate.runner import RunSpec

    return [
        RunSpec(trace, policy, seed)
        for trace in dict.fromkeys(options.trace)
        for policy in options.policy
        for seed in options.seed
    ]


def _settings(options: Options) -> BatchSettings:
    from windlass.simulate.runner import BatchSettings

    nodes = None if options.nodes is None else _read_fleet_nodes(options.nodes)
    return BatchSettings(options.traces, nodes, options.replay, options.mix, options.explain)


def _read_fleet_nodes(path: Path) -> tuple[Node, ...]:
    """Nodes from Kubernetes objects, or from a CSV table as traces have it."""
    if path.suffix == ".csv":
        from windlass.simulate.traces import read_nodes_file

        return read_nodes_file(path)
    from windlass.dump.files import read_nodes

    return read_nodes(path)


def _print_results(results: list[RunResult], options: Options) -> None:
    from windlass.simulate.report import report_csv, report_document, report_table

    if options.output == "csv":
        click.echo(report_csv(results), nl=False)
    elif options.output in ("json", "yaml"):
        print_document(report_document(results), options.output)
    elif options.explain:
        _print_explanations(results)
    elif results:
        print_table(report_table(results, wide=options.output == "wide"))


def _print_explanations(results: list[RunResult]) -> None:
    from windlass.simulate.explain import explanation_text

    for result in results:
        if result.explanation is not None:
            click.echo(printable(explanation_text(result.explanation)), nl=False)


def _write_files(results: list[RunResult], options: Options, settings: BatchSettings) -> None:
    """Both files are complete before either replaces an old one."""
    from windlass.simulate.runner import join_placements

    with ExitStack() as files:
        if options.plot is not None:
            from windlass.simulate.plot import write_plot

            write_plot(results, files.enter_context(atomic_output_file(options.plot)), __version__)
        if options.placements is not None and settings.placements is not None:
            target = files.enter_context(atomic_output_file(options.placements))
            join_placements(settings.placements, len(results), target)
    for path in (options.plot, options.placements):
        if path is not None:
            print_note(f"wrote {path}")


def _print_traces(options: Options) -> int:
    from windlass.cli.trace_list import traces_document, traces_table
    from windlass.simulate.traces import list_traces

    infos = list_traces(options.traces)
    if options.output in ("json", "yaml"):
        print_document(traces_document(infos), options.output)
    elif options.output == "csv":
        raise InputError("--list prints a table, JSON or YAML", remedy="leave -o csv out")
    else:
        print_table(traces_table(infos, wide=options.output == "wide"))
        if not all(info.at_hand for info in infos):
            print_note("To use the others, download them and name their folder with --traces or WINDLASS_TRACES.")
    return EXIT_DONE
