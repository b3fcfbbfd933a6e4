"""`windlass plan defrag`: which running pods to move so that something that waits, or a stated shape, can start.

Loads a dump or the live cluster through `dump`, asks `windlass.defrag`, prints through `defrag_document`. Nothing is
executed.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import click
import msgspec

from windlass.cli.config_option import config_option, resolve_configuration
from windlass.cli.defrag_document import defrag_document, defrag_table, summary
from windlass.cli.extras import require_extra
from windlass.cli.output import output_option, print_document, print_note, print_table
from windlass.cli.parameters import default_option
from windlass.cli.plan_schedule import EXISTING, decision_time, load_live_cluster, scheduler_names
from windlass.cli.scheduler import kubeconfig_options
from windlass.dump.cluster_loader import load_cluster

EXAMPLES = """\b
Examples:
  windlass plan defrag
  windlass plan defrag --from dump.yaml
  windlass plan defrag --from dump.yaml --for team-a/train --max-moves 4
  windlass plan defrag --from dump.yaml -f job.yaml --exact -o json
"""


@dataclass(frozen=True)
class Options:
    """The command line, read."""

    from_: Path | None
    for_: str
    filename: Path | None
    max_moves: int | None
    exact: bool
    config: Path | None
    now: str
    namespace: str
    keep_going: bool
    output: str
    kubeconfig: str = ""
    context: str = ""


@click.command("defrag", epilog=EXAMPLES)
@kubeconfig_options
@click.option("--from", "from_", type=EXISTING, help="A dump, as a file or a folder, instead of the live cluster.")
@click.option("--for", "for_", default="", metavar="NS/NAME", help="The waiting workload to make room for.")
@click.option("-f", "--filename", type=EXISTING, help="A manifest to make room for, as if it were just submitted.")
@click.option("--max-moves", type=click.IntRange(0, 10_000), help="The most moves. [default: the configuration's, 16]")
@click.option("--exact", is_flag=True, help="Find the cheapest moves with a solver (needs windlass[exact]).")
@config_option
@click.option("--now", default="", help="Decide as of this RFC 3339 time. [default: the dump's newest]")
@default_option("-n", "--namespace", default="default", help="For names and manifests that name none.")
@click.option("--keep-going", is_flag=True, help="Report invalid objects and continue without them.")
@output_option("table", "json", "yaml")
def defrag(**options: object) -> None:
    """Which running pods to move so that waiting work can start, what that costs, and what would start.

    Pods with a controller can be moved unless marked safe-to-evict: "false" or do-not-disrupt; disruption budgets are
    honoured. The moves are in an order in which they can be executed. Without --for or -f, moves are planned for the
    first waiting workloads. The exit code is 0 even if no moves help.
    """
    run_defrag(Options(**options))  # type: ignore[arg-type]  # click has checked the types


def run_defrag(options: Options) -> None:
    if options.for_ and options.filename is not None:
        raise click.UsageError("--for names a workload of the dump, -f states a new one: give one of them")
    if options.exact:
        require_extra("exact", "--exact")
    manifests = (options.filename,) if options.filename is not None else ()
    if options.from_ is None:
        loaded = load_live_cluster(options.kubeconfig, options.context, manifests, options.namespace)
    elif options.kubeconfig or options.context:
        raise click.UsageError("--from is a dump instead of the live cluster: leave --kubeconfig and --context out")
    else:
        loaded = load_cluster(options.from_, manifests, namespace=options.namespace, keep_going=options.keep_going)
    configuration = resolve_configuration(options.config, loaded.published_configurations, scheduler_names(loaded))
    settings = configuration.settings
    now = decision_time(options.now, loaded)

    from windlass.defrag import DefragRequest, defrag_plan
    from windlass.placement.defrag.types import SearchLimits

    most = settings.defrag.max_moves if options.max_moves is None else options.max_moves
    request = DefragRequest(
        workload=_key(options.for_, options.namespace),
        only_unsubmitted=options.filename is not None,
        limits=SearchLimits(max_moves=most),
        use_exact_solver=options.exact,
    )
    plan = defrag_plan(loaded.objects, settings, now, request)
    notes = [*map(str, loaded.problems), *loaded.notes, *loaded.freeze_notes, *plan.notes]
    for text in (*configuration.used.lines, *notes):
        print_note(text)
    if options.output == "table":
        print_table(defrag_table(plan))
        print_note(summary(plan))
    else:
        print_document(
            defrag_document(msgspec.structs.replace(plan, notes=tuple(notes)), now, configuration.used),
            options.output,
        )


def _key(name: str, namespace: str) -> str:
    return name if not name or "/" in name else f"{namespace}/{name}"
