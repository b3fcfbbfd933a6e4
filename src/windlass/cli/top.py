"""`windlass top`: the GPUs of each job, team, queue, user, model or node, as a table."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import click

from windlass.cli.observation_source import observation_options, observe, take_source
from windlass.cli.output import output_option, plain_table, print_document, print_table, windlass_document
from windlass.cli.parameters import default_option
from windlass.model.times import format_timestamp

if TYPE_CHECKING:
    from windlass.telemetry.ledger import Ledger

EXAMPLES = """\b
Examples:
  windlass top --once --prometheus http://prometheus:9090
  windlass top --once --by node --from dump.yaml
"""
HEADINGS = ("GPUS", "COMPUTING", "SPINNING", "IDLE", "UNMEASURED", "WAITING")
WAITING = "waiting"


@click.command("top", epilog=EXAMPLES)
@observation_options
@default_option("--by", type=click.Choice(["job", "team", "queue", "user", "model", "node"]), default="job")
@click.option("--once", is_flag=True, help="Print once and end, for pipes.")
@default_option("--interval", type=click.FloatRange(1.0), default=10.0, help="Seconds between two looks.")
@output_option("table", "json")
def top(by: str, once: bool, interval: float, output: str, **given: Any) -> None:
    """Who holds GPUs now, what the GPUs do, and what waits; the most GPUs first. Ends with Ctrl-C."""
    source = take_source(given)
    while True:
        observation, _ = observe(source)
        if not once and output == "table":
            click.clear()
        _print(observation.ledger, by, output)
        if once:
            return
        time.sleep(interval)


def _print(ledger: Ledger, by: str, output: str) -> None:
    rows = top_rows(ledger, by)
    if output == "json":
        found = [{"name": name, **{state: milli / 1000 for state, milli in states.items()}} for name, states in rows]
        print_document(windlass_document("Top", now=format_timestamp(ledger.at), by=by, rows=found), output)
        return
    from windlass.telemetry.bottleneck import format_gpus

    cells = []
    for name, states in rows:
        amounts = [states.get(state, 0) for state in ("computing", "spinning", "held_idle", "unmeasured", WAITING)]
        cells.append((name, *(format_gpus(milli) for milli in (sum(amounts[:-1]), *amounts))))
    print_table(plain_table((by.upper(), *HEADINGS), cells))


def top_rows(ledger: Ledger, by: str) -> list[tuple[str, dict[str, int]]]:
    """(name, milli-GPU by state and `waiting`) of everything that holds or waits for GPUs."""
    from windlass.telemetry.ledger import ALLOCATED_STATES

    found: dict[str, dict[str, int]] = {}

    def add(name: str, state: str, milli: int) -> None:
        states = found.setdefault(name, {})
        states[state] = states.get(state, 0) + milli

    for share in ledger.shares:
        if share.holder is not None and share.state in ALLOCATED_STATES:
            name = {"node": share.node, "model": share.model}.get(by) or str(getattr(share.holder, by, ""))
            add(name, share.state, share.milli)
    for work in ledger.demand.waiting:
        if by in ("job", "team", "queue", "user"):
            add(str(getattr(work.holder, by)), WAITING, work.milli)
    return sorted(found.items(), key=lambda item: (-sum(v for s, v in item[1].items() if s != WAITING), item[0]))
