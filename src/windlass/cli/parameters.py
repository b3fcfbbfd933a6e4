"""Option types and options that several commands share: lists of seeds and names, `--traces`, `--jobs`.

click calls `convert` while it parses the command line, so that an invalid value is refused before anything runs.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypeVar

import click
from click.shell_completion import CompletionItem

Command = TypeVar("Command", bound=Callable[..., object])
MOST_SEEDS = 10_000
"""More seeds than this in one command are a typing error (`1..1000000000`) and would fill the memory."""


default_option = partial(click.option, show_default=True)
"""An option whose help shows its default."""

traces_option = click.option(
    "--traces",
    type=click.Path(path_type=Path, file_okay=False),
    envvar="WINDLASS_TRACES",
    show_envvar=True,
    help="Folder of the public trace files.",
)


def jobs_option(extra_help: str = "") -> Callable[[Command], Command]:
    """`-j`: how many processes; `extra_help` is appended to the help."""
    return default_option(
        "-j",
        "--jobs",
        type=click.IntRange(0, 1024),
        default=1,
        help=f"Number of processes; 0 means one per core. {extra_help}".strip(),
    )


class SeedList(click.ParamType[tuple[int, ...]]):
    """`42`, `42..51`, `42,44`, or a mixture; each seed once, in the order given."""

    name = "SEEDS"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, ...]:
        seeds: dict[int, None] = {}
        for part in str(value).split(","):
            match = re.fullmatch(r"\s*(\d{1,18})(?:\.\.(\d{1,18}))?\s*", part)
            if match is None:
                self.fail(f"'{part.strip()}' is not a seed; write 42, 42..51 or 42,44", param, ctx)
            first, last = int(match[1]), int(match[2] or match[1])
            if last < first:
                self.fail(f"'{part.strip()}' runs backwards", param, ctx)
            if last - first + len(seeds) >= MOST_SEEDS:
                self.fail(f"'{value}' names more than {MOST_SEEDS:,} seeds", param, ctx)
            seeds.update(dict.fromkeys(range(first, last + 1)))
        return tuple(seeds)


class NameList(click.ParamType[tuple[str, ...]]):
    """Comma-separated names; the command checks which names exist."""

    name = "NAME,…"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, ...]:
        names = [name.strip() for name in str(value).split(",")]
        if not all(names):
            self.fail(f"'{value}' has an empty name in it", param, ctx)
        return tuple(dict.fromkeys(names))


class PolicyList(NameList):
    """Placement policies; knows how to complete them."""

    name = "POLICY,…"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        from windlass.simulate.trace_run import POLICIES

        before, comma, begun = incomplete.rpartition(",")
        return [CompletionItem(before + comma + name) for name in POLICIES if name.startswith(begun)]
