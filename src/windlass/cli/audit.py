"""`windlass audit`: reads the audit log of the scheduler, from a folder, a file, or the container's log on stdin."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from windlass.cli.output import output_option, plain_table, print_document, print_note, print_table, windlass_document
from windlass.cli.parameters import default_option
from windlass.cli.time_range import parse_since
from windlass.model.errors import InputError
from windlass.model.times import parse_timestamp

if TYPE_CHECKING:
    from windlass.apply.audit import AuditRecord

EXAMPLES = """\b
Examples:
  windlass audit /var/lib/windlass/audit --since 24h
  kubectl -n windlass-system logs deployment/windlass-scheduler --tail=-1 | windlass audit - --workload team/train
"""
HEADINGS = ("TIME", "ACTION", "WORKLOAD", "QUEUE", "PODS", "REASON", "GAINER", "PLAN", "RESULT")


@click.command("audit", epilog=EXAMPLES)
@click.argument("source", metavar="FOLDER|FILE|-")
@click.option("--since", default="", help="Not older than this: 90m, 24h, 30d, or a time such as 2026-01-31T12:00:00Z.")
@click.option("--workload", default="", help="Only what this workload (namespace/name) lost, or gained from others.")
@click.option("--queue", default="", help="Only admissions by this ClusterQueue.")
@default_option("--action", type=click.Choice(["any", "admitted", "evicted"]), default="any")
@output_option("table", "json")
def audit(source: str, since: str, workload: str, queue: str, action: str, output: str) -> None:
    """What was admitted and evicted, when, by which plan, why and for which work.

    Reads what `windlass scheduler --audit` wrote. Other lines, such as those of the log, are passed over.
    """
    earliest = parse_since(since, int(time.time())) if since else 0
    found = [
        record
        for record in read_records(_lines(source))
        if parse_timestamp(record.time) >= earliest
        and (action == "any" or record.action == action)
        and (not queue or record.queue == queue)
        and (not workload or workload in (record.workload, record.gainer))
    ]
    if output == "json":
        import msgspec

        print_document(windlass_document("AuditReport", records=msgspec.to_builtins(found)), output)
        return
    if not found:
        print_note("no record matches")
        return
    print_table(plain_table(HEADINGS, map(_row, found)))


def read_records(lines: Iterable[bytes]) -> Iterator[AuditRecord]:
    import msgspec

    from windlass.apply.audit import AuditRecord

    decoder = msgspec.json.Decoder(AuditRecord)
    for line in lines:
        try:
            yield decoder.decode(line)
        except msgspec.MsgspecError:
            continue


def _lines(source: str) -> Iterator[bytes]:
    if source == "-":
        yield from sys.stdin.buffer
        return
    path = Path(source)
    if not path.exists():
        raise InputError("there is no such file or folder", file=source)
    files = sorted(path.glob("audit-*.jsonl"), key=_file_order) if path.is_dir() else [path]
    if not files:
        raise InputError("has no audit-*.jsonl, as `windlass scheduler --audit` writes them", file=source)
    for file in files:
        with file.open("rb") as opened:
            yield from opened


def _file_order(path: Path) -> tuple[str, int]:
    """`audit-2026-01-31.jsonl`, then `audit-2026-01-31.1.jsonl`."""
    day, _, number = path.stem.partition(".")
    return day, int(number) if number.isdigit() else 0


def _row(record: AuditRecord) -> tuple[str, ...]:
    pods = len(record.pods) or sum(pod_set.count for pod_set in record.pod_sets)
    reason = f"{record.reason}: {record.message}" if record.message else record.reason
    plan = f"{record.plan.replica}#{record.plan.generation}"
    cells = (record.time, record.action, record.workload, record.queue, str(pods), reason, record.gainer)
    return (*(cell or "-" for cell in cells), plan, record.result)
