"""The `windlass` command: the table of commands and the console script.

Only click is imported here. A command's module, and what it needs (numpy, rich, YAML), is imported when it runs.
"""

from __future__ import annotations

import gc
import os
import sys
import warnings
from typing import TYPE_CHECKING

import click

from windlass import __version__
from windlass.cli.errors import run_command
from windlass.cli.lazy_group import LazyGroup, lazy_commands

if TYPE_CHECKING:
    from typing import TextIO

COMPLETION_VARIABLE = "_WINDLASS_COMPLETE"

COMMANDS = lazy_commands(
    "windlass.cli.",
    ("up", "Run it", "A working GPU cluster on this machine, simulated or real."),
    ("demo", "Run it", "A guided tour of it, with every outcome checked."),
    ("observe", "Run it", "The page for a real cluster: now, and the last month."),
    ("page", "Run it", "A new link to the page of the cluster that `up` runs."),
    ("sandbox", "Run it", "Fail and repair nodes and GPUs of the cluster that `up` runs."),
    (
        "why",
        "Find out",
        "Why it is not running, and the smallest change that would help.",
        "windlass.cli.why:why_command",
    ),
    ("check", "Find out", "Will this manifest run: rules, offline or against a cluster."),
    ("status", "Find out", "What every GPU does, what waits and for what, on one screen."),
    ("top", "Find out", "The GPUs of each job, team, queue, user, model or node."),
    ("usage", "Find out", "Who has used which GPUs, how well, and what it cost."),
    ("trends", "Find out", "Jobs that idle, spin, leak memory, or wait for one slow GPU."),
    ("doctor", "Find out", "Is this cluster, this node or this container ready for GPU work."),
    ("dump", "Find out", "Save a live cluster to a file, as input for the commands above."),
    ("simulate", "Try things out", "Run placement policies on a trace and compare them."),
    ("plan", "Try things out", "What would be decided now; nothing is executed."),
    ("scheduler", "Run it", "Schedule a real cluster."),
    ("node", "Run it", "The agent of a GPU node, and its tools."),
    ("operator", "Run it", "Bring GPU nodes up, change and repair them."),
    ("stack", "Operate", "What the nodes run, and why a node is not ready."),
    ("change", "Operate", "Change drivers or MIG layouts: canary first, with a way back."),
    ("repair", "Operate", "GPUs that are being healed, or wait for a person."),
    (
        "quarantine",
        "Operate",
        "Take a GPU or a node out of service.",
        "windlass.cli.repair:quarantine",
    ),
    (
        "bench",
        "Try things out",
        "Run the project's benchmarks (the distribution windlass-bench).",
        "windlass_bench.cli:bench",
    ),
    ("freeze", "Run it", "Stop all writes of Windlass in a cluster, and let it go on."),
    ("handover", "Run it", "Hand waiting pods to kube-scheduler, and back."),
    ("audit", "Find out", "What was admitted and evicted, when, why and for which work."),
    ("install", "Set up", "Print the manifests that put Windlass into a cluster."),
    (
        "uninstall",
        "Set up",
        "Remove what `install` made; running pods stay.",
        "windlass.cli.install:uninstall",
    ),
    ("completion", "Set up", "Print the completion script for your shell."),
)

START_HERE = """\
Start here (nothing to download; only the very first run has to compile, up to a minute):
  {command} simulate synthetic/small --policy fgd,windlass
  {command} simulate --list

Help for one command:  {command} COMMAND --help
Exit codes: 0 done, 1 findings or "no", 2 wrong usage or bad input, 3 cluster not readable, 130 Ctrl-C.
"""


@click.group(
    cls=LazyGroup,
    table=COMMANDS,
    epilogue=START_HERE,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__, "-V", "--version", message="windlass %(version)s")
def cli() -> None:
    """The GPU layer of a Kubernetes cluster: decides where GPU work goes, and says why it waits."""


def main() -> None:
    """The console script, under both of its names."""
    # Imports create many objects that stay alive; collecting among them would take a good part of a short command.
    gc.set_threshold(50_000, 20, 20)
    program = _program_name(sys.argv[0])
    instruction = os.environ.get(COMPLETION_VARIABLE)
    if instruction:
        from click.shell_completion import shell_complete

        try:
            sys.exit(shell_complete(cli, {}, "windlass", COMPLETION_VARIABLE, instruction))
        except ModuleNotFoundError:
            sys.exit(0)  # the command's extra is not installed: there is nothing to complete
    warnings.showwarning = _show_warning
    sys.exit(run_command(cli, sys.argv[1:], program))


def _program_name(executable: str) -> str:
    """`kubectl-windlass` is called by kubectl, and its user typed `kubectl windlass`."""
    return "kubectl windlass" if os.path.basename(executable).startswith("kubectl-") else "windlass"


_show_any_warning = warnings.showwarning


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """Our own warnings are meant for users: one line, without a place in the code."""
    if category.__module__.partition(".")[0] == "windlass":
        click.echo(f"note: {message}", err=True)
    else:
        _show_any_warning(message, category, filename, lineno, file, line)
