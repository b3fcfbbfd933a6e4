"""The one place where an exception becomes a line on stderr and an exit code.

`main` runs every command through `run_command`; nothing below it prints an error or calls `sys.exit`.

    0    done, nothing to report
    1    findings, or the answer is "no"
    2    wrong usage, bad input, or a library that is not installed
    3    the cluster, or a part of it, can't be reached or read
    70   a bug in Windlass (so that a script never takes it for a "no")
    130  Ctrl-C
"""

from __future__ import annotations

import difflib
import os
import sys
import traceback
from collections.abc import Iterable

import click

from windlass.cli.extras import missing_module
from windlass.cli.printable import printable
from windlass.model.errors import InputError, WindlassError

EXIT_DONE = 0
EXIT_FINDINGS = 1
EXIT_USAGE = 2
EXIT_BUG = 70
EXIT_INTERRUPTED = 130

DEBUG_VARIABLE = "WINDLASS_DEBUG"


def run_command(command: click.Command, arguments: list[str], program: str) -> int:
    """Runs the command line and returns its exit code; an error is one line on stderr."""
    try:
        code = _invoke(command, arguments, program)
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        _discard_stdout()
        return EXIT_DONE  # the reader (`| head`) closed the pipe, which is not a failure
    except KeyboardInterrupt:
        _print_error("interrupted")
        return EXIT_INTERRUPTED
    except Exception as error:
        code, line = describe(error)
        _print_error(line)
        return code


def describe(error: Exception) -> tuple[int, str]:
    """Exit code and message of an exception that reached the top."""
    match error:
        case click.exceptions.Abort():
            return EXIT_INTERRUPTED, "interrupted"
        case click.UsageError():
            return EXIT_USAGE, _usage_line(error)
        case click.ClickException():
            return EXIT_USAGE, error.format_message()
        case WindlassError():
            return error.exit_code, str(error)
        case ModuleNotFoundError() if (missing := missing_module(error)) is not None:
            return missing.exit_code, str(missing)
        case OSError() if error.filename is not None:
            return EXIT_USAGE, f"{os.fsdecode(error.filename)}: {error.strerror or error}"
        case _:
            return EXIT_BUG, (
                f"internal error, a bug in Windlass: {type(error).__name__}: {error} "
                f"(set {DEBUG_VARIABLE}=1 and run it again for the traceback)"
            )


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """` Did you mean 'x'?` if a known name is similar, else empty."""
    close = difflib.get_close_matches(name, list(known), n=3, cutoff=0.55)
    if not close:
        return ""
    return f" Did you mean {' or '.join(repr(match) for match in close)}?"


def check_names(what: str, names: Iterable[str], known: Iterable[str]) -> None:
    """Raises for an unknown name, with similar or all known names: `unknown policy 'fdg'`."""
    known = list(known)
    for name in names:
        if name not in known:
            hint = did_you_mean(name, known).strip() or f"known: {', '.join(known)}"
            raise InputError(f"unknown {what} '{name}'", remedy=hint)


def _invoke(command: click.Command, arguments: list[str], program: str) -> int:
    try:
        with command.make_context(program, arguments) as ctx:
            result = command.invoke(ctx)
    except click.exceptions.Exit as leave:
        return leave.exit_code
    except click.exceptions.NoArgsIsHelpError as no_arguments:
        click.echo(no_arguments.format_message())  # as kubectl: the bare command prints its help
        return EXIT_DONE
    return result if isinstance(result, int) else EXIT_DONE


def _usage_line(error: click.UsageError) -> str:
    line = error.format_message()
    if error.ctx is not None and error.ctx.command.get_help_option(error.ctx) is not None:
        stop = "" if line.endswith((".", "?", "!")) else "."
        line += f"{stop} See '{error.ctx.command_path} --help'."
    return line


def _print_error(line: str) -> None:
    if os.environ.get(DEBUG_VARIABLE):
        traceback.print_exc()
    click.echo("error: " + printable(" ".join(line.split())), err=True)


def _discard_stdout() -> None:
    """Redirects stdout to /dev/null, so that the interpreter's last flush doesn't fail again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
