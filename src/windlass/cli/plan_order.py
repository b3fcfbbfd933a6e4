"""`windlass plan order`: in which order waiting work is considered, by queue, and what would move it.

Loads a dump or the live cluster as `plan schedule` does, plans, and prints `queueing.order_breakdown`.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from windlass.cli.config_option import config_option, resolve_configuration
from windlass.cli.output import (
    counted,
    output_option,
    plain_table,
    print_document,
    print_note,
    print_table,
    windlass_document,
)
from windlass.cli.plan_schedule import EXISTING, decision_time, load_live_cluster, scheduler_names
from windlass.cli.scheduler import kubeconfig_options
from windlass.dump.cluster_loader import load_cluster
from windlass.model.times import format_duration, format_timestamp

if TYPE_CHECKING:
    from windlass.model.configuration import Settings
    from windlass.queueing.order_breakdown import OrderEntry

EXAMPLES = """\b
Examples:
  windlass plan order
  windlass plan order team-a/train --context production
  windlass plan order --queue research --from dump/ -o json
"""
HEADINGS = ("QUEUE", "PLACE", "WORKLOAD", "PRIORITY", "WAITS", "QUEUE'S GPUS", "WHY IT WAITS", "ORDER")
MILLI = 1000


@click.command("order", epilog=EXAMPLES)
@click.argument("workload", default="")
@kubeconfig_options
@click.option("--from", "from_", type=EXISTING, help="A dump, as a file or a folder, instead of the live cluster.")
@click.option("--queue", default="", help="Only this ClusterQueue.")
@config_option
@click.option("--now", default="", help="Decide as of this RFC 3339 time. [default: the dump's newest]")
@output_option("table", "json", "yaml")
def order(
    workload: str,
    kubeconfig: str,
    context: str,
    from_: Path | None,
    queue: str,
    config: Path | None,
    now: str,
    output: str,
) -> None:
    """In which order waiting work of queues is considered: priority, share, age, and what would move it.

    WORKLOAD is NAMESPACE/NAME of a Workload or of the Job behind it; without it, all are shown. What is ahead may still
    start later: the order says who is asked first, quota and nodes who starts.
    """
    if from_ is not None and (kubeconfig or context):
        raise click.UsageError("--from is a dump instead of the live cluster: leave --kubeconfig and --context out")
    loaded = (
        load_cluster(from_, (), namespace="default", keep_going=True)
        if from_ is not None
        else load_live_cluster(kubeconfig, context)
    )
    configuration = resolve_configuration(config, loaded.published_configurations, scheduler_names(loaded))
    at = decision_time(now, loaded)
    for text in (*configuration.used.lines, *map(str, loaded.problems)):
        print_note(text)
    _check_queue(queue, loaded.objects)
    found = [
        (entry, owner)
        for entry, owner in _entries(loaded.objects, configuration.settings, at)
        if queue in ("", entry.queue) and workload in ("", entry.workload, owner)
    ]
    if workload and not found:
        _refuse_workload(workload, loaded.objects)
    entries = [entry for entry, _ in found]
    if output == "table":
        print_table(plain_table(HEADINGS, map(_cells, entries)))
        print_note(f"{len(entries)} waiting in {counted(len({entry.queue for entry in entries}), 'queue')}")
    else:
        document = windlass_document("Order", now=format_timestamp(at), entries=[_document(entry) for entry in entries])
        print_document(document, output)


def _check_queue(queue: str, objects: Sequence[object]) -> None:
    from windlass.model.kueue import queue_system

    known = queue_system(objects).queues
    if queue and queue not in known:
        raise click.UsageError(f"there is no ClusterQueue {queue} (there are: {', '.join(sorted(known)) or 'none'})")


def _refuse_workload(workload: str, objects: Sequence[object]) -> NoReturn:
    from windlass.model.meta import ObjectMeta

    metadata = (getattr(obj, "metadata", None) for obj in objects)
    known = {f"{meta.namespace or 'default'}/{meta.name}" for meta in metadata if isinstance(meta, ObjectMeta)}
    if workload not in known:
        near = difflib.get_close_matches(workload, known, 3)
        raise click.UsageError(f"there is no {workload}" + (f" (there are: {', '.join(near)})" if near else ""))
    raise click.UsageError(f"{workload} doesn't wait in a queue (windlass plan schedule shows what is decided on it)")


def _entries(objects: Sequence[object], settings: Settings, now: int) -> list[tuple[OrderEntry, str]]:
    """Each with the key of the owner behind its Workload."""
    from windlass.planner import engine_config, plan_snapshot, snapshot_objects
    from windlass.queueing.order_breakdown import order_breakdown

    snapshot, config = snapshot_objects(objects, settings, now), engine_config(settings)
    verdicts = {hold.workload: hold.verdict for hold in plan_snapshot(snapshot, config, now).holds}
    workloads = [*snapshot.workloads]
    owners = {workload.key: workload.owner.partition(" ")[2] for workload in workloads}
    found = order_breakdown(snapshot.queue_system, workloads, config.queues, now, verdicts)
    return [(entry, owners[entry.workload]) for entry in found]


def _cells(entry: OrderEntry) -> tuple[str, ...]:
    gpus = f"{_gpus(entry.used_gpus)} of {_gpus(entry.nominal_gpus)}"
    if entry.share:
        gpus += f", share {entry.share / MILLI:g}"
    waits = format_duration(entry.waiting_seconds)
    why = entry.code or "starts now"
    place, priority = str(entry.place), str(entry.priority)
    return entry.queue, place, entry.workload, priority, waits, gpus, why, "; ".join(entry.moves)


def _document(entry: OrderEntry) -> dict[str, Any]:
    return {
        "queue": entry.queue,
        "place": entry.place,
        "workload": entry.workload,
        "priority": entry.priority,
        "waitingSeconds": entry.waiting_seconds,
        "queueGpus": {"used": entry.used_gpus / MILLI, "nominal": entry.nominal_gpus / MILLI},
        "borrows": entry.is_borrowing,
        "share": entry.share / MILLI,
        "code": entry.code,
        "moves": list(entry.moves),
    }


def _gpus(milli: int) -> str:
    return f"{milli / MILLI:g}"
