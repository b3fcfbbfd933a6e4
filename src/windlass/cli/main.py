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
from windlass.cli.lazy_group import LazyCommand, LazyGroup

if TYPE_CHECKING:
    from typing import TextIO

COMPLETION_VARIABLE = "_WINDLASS_COMPLETE"

COMMANDS = {
    "up": LazyCommand(
        "windlass.cli.up:up",
        "A working GPU cluster on this machine, simulated or real.",
        "Run it",
    ),
    "demo": LazyCommand(
        "windlass.cli.demo:demo",
        "A guided tour of it, with every outcome checked.",
        "Run it",
    ),
    "page": LazyCommand(
        "windlass.cli.page:page",
        "A new link to the page of the cluster that `up` runs.",
        "Run it",
    ),
    "sandbox": LazyCommand(
        "windlass.cli.sandbox:sandbox",
        "Fail and repair nodes and GPUs of the cluster that `up` runs.",
        "Run it",
    ),
    "why": LazyCommand(
        "windlass.cli.why:why_command",
        "Why it is not running, and the smallest change that would help.",
        "Find out",
    ),
    "check": LazyCommand(
        "windlass.cli.check:check",
        "Will this manifest run: rules, offline or against a cluster.",
        "Find out",
    ),
    "doctor": LazyCommand(
        "windlass.cli.doctor:doctor",
        "Is this cluster, this node or this container ready for GPU work.",
        "Find out",
    ),
    "dump": LazyCommand(
        "windlass.cli.dump:dump",
        "Save a live cluster to a file, as input for the commands above.",
        "Find out",
    ),
    "simulate": LazyCommand(
        "windlass.cli.simulate:simulate",
        "Run placement policies on a trace and compare them.",
        "Try things out",
    ),
    "plan": LazyCommand(
        "windlass.cli.plan:plan",
        "What would be decided now; nothing is executed.",
        "Try things out",
    ),
    "scheduler": LazyCommand(
        "windlass.cli.scheduler:scheduler",
        "Schedule a real cluster.",
        "Run it",
    ),
    "node": LazyCommand(
        "windlass.cli.node:node",
        "The agent of a GPU node, and its tools.",
        "Run it",
    ),
    "bench": LazyCommand(
        "windlass_bench.cli:bench",
        "Run the project's benchmarks (the distribution windlass-bench).",
        "Try things out",
    ),
    "install": LazyCommand(
        "windlass.cli.install:install",
        "Print the manifests that put Windlass into a cluster.",
        "Set up",
    ),
    "uninstall": LazyCommand(
        "windlass.cli.install:uninstall",
        "Remove what `install` made; running pods stay.",
        "Set up",
    ),
    "completion": LazyCommand(
        "windlass.cli.completion:completion",
        "Print the completion script for your shell.",
        "Set up",
    ),
}

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
