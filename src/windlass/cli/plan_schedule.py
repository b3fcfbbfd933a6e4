"""`windlass plan schedule`: what the engine would decide now, with manifests added as if just submitted.

Loads a dump or the live cluster through `dump`, plans with `windlass.planner`, prints through `plan_document`. Nothing
is executed.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import click

from windlass.cli.config_option import config_option, resolve_configuration
from windlass.cli.output import output_option, print_document, print_note, print_table
from windlass.cli.parameters import default_option
from windlass.cli.plan_document import plan_document, plan_table, summary
from windlass.cli.scheduler import kubeconfig_options
from windlass.dump.cluster_loader import LoadedCluster, load_cluster
from windlass.model.configuration import Settings
from windlass.model.errors import ClusterUnreachable
from windlass.model.node import Node
from windlass.model.plan import Plan
from windlass.model.pod import Pod
from windlass.model.times import parse_timestamp

EXISTING = click.Path(path_type=Path, exists=True)

EXAMPLES = """\b
Examples:
  windlass plan schedule --context production -f job.yaml
  windlass plan schedule --from dump.yaml
  windlass plan schedule --from dump/ -f job.yaml -o json
  windlass plan schedule --from dump.yaml --config kueue-config.yaml --now 2026-01-01T12:00:00Z
"""


class Planner(Protocol):
    """The engine, as far as this command sees it."""

    def __call__(self, objects: Sequence[object], settings: Settings, now: int, /) -> tuple[Plan, Sequence[str]]:
        """The plan, and notes about the input."""


@dataclass(frozen=True)
class Options:
    """The command line, read."""

    from_: Path | None
    filename: tuple[Path, ...]
    config: Path | None
    now: str
    namespace: str
    keep_going: bool
    output: str
    kubeconfig: str = ""
    context: str = ""

    @property
    def names_cluster(self) -> bool:
        return bool(self.kubeconfig or self.context)


def schedule_command(load_planner: Callable[[], Planner]) -> click.Command:
    """The command; the planner is loaded after the input was read, since its import is slow."""

    @click.command("schedule", epilog=EXAMPLES)
    @kubeconfig_options
    @click.option("--from", "from_", type=EXISTING, help="A dump, as a file or a folder, instead of the live cluster.")
    @click.option(
        "-f",
        "--filename",
        type=EXISTING,
        multiple=True,
        help="A manifest to add as if it were just submitted. If one has nodes, they are the cluster.",
    )
    @config_option
    @click.option("--now", default="", help="Decide as of this RFC 3339 time. [default: the dump's newest]")
    @default_option("-n", "--namespace", default="default", help="For manifests that name none.")
    @click.option("--keep-going", is_flag=True, help="Report invalid objects and continue without them.")
    @output_option("table", "json", "yaml")
    def schedule(**options: object) -> None:
        """What would be decided now: what starts where, what is evicted, what waits and why.

        Every pending pod is decided on, whatever its schedulerName. Nothing is executed, and the exit code is 0 even if
        something is held.
        """
        run_schedule(Options(**options), load_planner)  # type: ignore[arg-type]  # click has checked the types

    return schedule


def run_schedule(options: Options, load_planner: Callable[[], Planner]) -> None:
    loaded = _load(options)
    configuration = resolve_configuration(options.config, loaded.published_configurations, scheduler_names(loaded))
    now = decision_time(options.now, loaded)
    plan, planner_notes = load_planner()(loaded.objects, configuration.settings, now)
    notes = [*map(str, loaded.problems), *loaded.notes, *loaded.freeze_notes, *planner_notes]
    for text in (*configuration.used.lines, *notes):
        print_note(text)
    if options.output == "table":
        print_table(plan_table(plan))
        print_note(summary(plan))
    else:
        print_document(plan_document(plan, now, notes, configuration.used), options.output)


def _load(options: Options) -> LoadedCluster:
    """The dump, or files that have nodes of their own, or else the live cluster."""
    if options.from_ is not None and options.names_cluster:
        raise click.UsageError("--from is a dump instead of the live cluster: leave --kubeconfig and --context out")
    if not options.names_cluster and (options.from_ is not None or options.filename):
        loaded = load_cluster(
            options.from_, options.filename, namespace=options.namespace, keep_going=options.keep_going
        )
        if options.from_ is not None or any(isinstance(obj, Node) for obj in loaded.objects):
            return loaded
        missing = _missing_cluster()
        if missing:
            note = f"no cluster, so only the objects of the files are planned: {missing}"
            return replace(loaded, notes=(*loaded.notes, note))
    return load_live_cluster(options.kubeconfig, options.context, options.filename, options.namespace)


def _missing_cluster() -> str:
    """Why no cluster is configured; empty where one is."""
    from windlass.kube.client_config import load_client_config

    try:
        load_client_config()
    except ClusterUnreachable as error:
        return str(error)
    return ""


def load_live_cluster(
    kubeconfig: str, context: str, filename: Sequence[Path] = (), namespace: str = "default"
) -> LoadedCluster:
    """The cluster as `windlass dump` would save it, as of now. What can't be read of it is told and left out."""
    from windlass.cli.cluster_option import collect_live
    from windlass.dump.save import Privacy, save_dump

    collected = collect_live(kubeconfig, context, "")
    for what in collected.not_readable:
        print_note(f"could not read {what}")
    with tempfile.TemporaryDirectory() as folder:
        save_dump(collected, Path(folder) / "cluster.json", Privacy())
        loaded = load_cluster(Path(folder) / "cluster.json", filename, namespace=namespace, keep_going=True)
    return replace(loaded, newest_timestamp=int(time.time()))


def scheduler_names(loaded: LoadedCluster) -> list[str]:
    """schedulerNames of the pending pods."""
    pods = (obj for obj in loaded.objects if isinstance(obj, Pod))
    return [pod.spec.scheduler_name for pod in pods if not pod.is_bound and not pod.is_terminal]


def decision_time(text: str, loaded: LoadedCluster) -> int:
    """`--now`, else the newest time in the dump, else the current time."""
    if not text:
        return loaded.newest_timestamp or int(time.time())
    seconds = parse_timestamp(text)
    if not seconds:
        raise click.BadParameter(f"'{text}' is not a time such as 2026-01-01T12:00:00Z", param_hint="--now")
    return seconds


def _engine() -> Planner:
    from windlass.planner import plan_objects

    return plan_objects


schedule = schedule_command(_engine)
