"""A click group whose commands are imported only when they are called.

`main`, `plan`, `node` and `bench` declare their commands as a table, which is enough for `--help` and completion.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import click

from windlass.cli.errors import did_you_mean


@dataclass(frozen=True)
class LazyCommand:
    """A command that is not imported yet."""

    target: str
    """`package.module:attribute` of the click command."""
    summary: str
    """One line for the group's help."""
    section: str
    """Its heading in the group's help."""


def lazy_commands(prefix: str, *rows: tuple[str, ...]) -> dict[str, LazyCommand]:
    """By rows of name, section and summary; a fourth column is the target where it is not `prefixNAME:NAME`."""
    return {
        name: LazyCommand(target[0] if target else f"{prefix}{name}:{name}", summary, section)
        for name, section, summary, *target in rows
    }


class LazyGroup(click.Group):
    def __init__(self, *args: Any, table: Mapping[str, LazyCommand], epilogue: str = "", **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.table = table
        self.epilogue = epilogue
        """Printed verbatim after the help (click would re-wrap an epilog)."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.table)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        entry = self.table.get(cmd_name)
        if entry is None:
            return None
        module, _, attribute = entry.target.partition(":")
        command = getattr(importlib.import_module(module), attribute)
        assert isinstance(command, click.Command), entry.target
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in self.table and not name.startswith("-"):
            raise click.UsageError(f"there is no command '{name}'.{did_you_mean(name, self.table)}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for section in dict.fromkeys(entry.section for entry in self.table.values()):
            rows = [(name, entry.summary) for name, entry in self.table.items() if entry.section == section]
            with formatter.section(section):
                formatter.write_dl(rows)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        if self.epilogue:
            formatter.write("\n" + self.epilogue.replace("{command}", ctx.command_path).rstrip() + "\n")
