"""Output of all commands: `-o FORMAT`, data on stdout, everything else on stderr, files written atomically."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from windlass.cli.parameters import default_option
from windlass.cli.printable import printable
from windlass.model.errors import InputError
from windlass.model.names.windlass import WINDLASS_API_VERSION

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table

Command = TypeVar("Command", bound=Callable[..., Any])

PIPE_WIDTH = 240
"""Columns for a table that doesn't go to a terminal: wide enough that nothing is cut."""


def output_option(*formats: str) -> Callable[[Command], Command]:
    """The `-o/--output` option with these formats; the first is the default."""
    return default_option(
        "-o", "--output", type=click.Choice(formats), default=formats[0], help="How to print the result."
    )


def print_document(document: dict[str, Any], output: str) -> None:
    """A document for scripts, as JSON or YAML, on stdout."""
    if output == "yaml":
        import yaml

        text = yaml.dump(document, Dumper=yaml.CSafeDumper, sort_keys=False, allow_unicode=True)
    else:
        import msgspec

        text = msgspec.json.format(msgspec.json.encode(document), indent=2).decode() + "\n"
    click.echo(text, nl=False)


def windlass_document(kind: str, **fields: Any) -> dict[str, Any]:
    """A document of our API: its kind, then the fields in this order."""
    return {"apiVersion": WINDLASS_API_VERSION, "kind": kind, **fields}


def plain_table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    """A table without lines. Cells are Text, since names may contain what rich takes for markup."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in headings:
        table.add_column(heading, overflow="fold")
    for row in rows:
        table.add_row(*(Text(printable(cell)) for cell in row))
    return table


def counted(number: int, noun: str) -> str:
    """`1 node`, `2 nodes`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def print_table(table: RenderableType) -> None:
    """A table for people, on stdout."""
    _console().print(table)


def print_note(text: str) -> None:
    """Anything that isn't the result, on stderr, so that a pipe carries data only."""
    click.echo(printable(text), err=True)


def check_writable(path: Path) -> Path:
    """Raises `InputError` for a path that can't be written, before any work is done."""
    if path.is_dir():
        raise InputError("is a folder, not a file", file=str(path))
    if not path.absolute().parent.is_dir():
        raise InputError("can't be written, since its folder does not exist", file=str(path))
    if not os.access(path if path.exists() else path.absolute().parent, os.W_OK):
        raise InputError("can't be written (no permission)", file=str(path))
    return path


@contextmanager
def atomic_output_file(path: Path) -> Iterator[Path]:
    """A temporary file in the same folder that replaces `path` if the block succeeds, and is removed if not."""
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=path.suffix, dir=path.absolute().parent)
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        temporary.chmod(0o666 & ~_umask())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def _console() -> Console:
    from rich.console import Console

    return Console(highlight=False, width=None if sys.stdout.isatty() else PIPE_WIDTH)


def _umask() -> int:
    """The process's umask, which can only be read by setting it."""
    mask = os.umask(0)
    os.umask(mask)
    return mask
