"""`windlass top`: fleet, queues and jobs in the terminal (`tui`); in a pipe or with `--once`, a table."""

from __future__ import annotations

import contextlib
import io
import sys
import time
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from windlass.cli.observation_source import Source, observation_options, observe, take_source
from windlass.cli.output import output_option, plain_table, print_document, print_table, windlass_document
from windlass.cli.parameters import default_option
from windlass.model.times import format_timestamp

if TYPE_CHECKING:
    from windlass.telemetry.ledger import Ledger

EXAMPLES = """\b
Examples:
  windlass top
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
    """Every node, queue and job: who holds GPUs, what these do, and what waits; `?` lists the keys.

    Where stdout is no terminal, and with --once or -o json, it prints a table of jobs (--by), the most GPUs first.
    """
    source = take_source(given)
    if not once and output == "table" and sys.stdin.isatty() and sys.stdout.isatty():
        _show(source, by, interval)
        return
    while True:
        observation, _ = observe(source)
        _print(observation.ledger, by, output)
        if once:
            return
        time.sleep(interval)


def _show(source: Source, by: str, interval: float) -> None:
    from windlass.tui.terminal import run_top
    from windlass.tui.top_state import FLEET, JOBS, QUEUES, TopState

    asked = click.get_current_context().get_parameter_source("by") is ParameterSource.COMMANDLINE
    views = {"queue": QUEUES, "node": FLEET, "model": FLEET}
    state = TopState(views.get(by, JOBS) if asked else FLEET)

    def look() -> Ledger:
        # Notes about the input would be written across the screen; `--once` prints them.
        with contextlib.redirect_stderr(io.StringIO()):
            return observe(source)[0].ledger

    run_top(state, look, interval)


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
