"""`--config`: the one option by which commands take a configuration, and what it means where it is not given.

`scheduler`, `up` and `simulate` take the file or the defaults. `why`, `plan` and `check` look at a cluster or a dump:
there, what its scheduler has published comes before the defaults (`dump.configuration`).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from windlass.cli.output import print_note

if TYPE_CHECKING:
    from windlass.dump.configuration import Configuration, UsedConfiguration

config_option = click.option(
    "--config",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="A SchedulerConfiguration, or Kueue's Configuration as it is. [default: what the scheduler of the cluster "
    "or dump has published, else the defaults]",
)


def load_configuration(path: Path | None) -> Configuration | None:
    """The file's, where one is given."""
    from windlass.dump.configuration import load_configuration_file

    return None if path is None else load_configuration_file(path)


def resolve_configuration(
    path: Path | None, published: Sequence[Configuration] = (), names: Collection[str] = ()
) -> Configuration:
    """The file's, else what the scheduler has published that the pods name, else the defaults."""
    from windlass.dump.configuration import choose_configuration

    return load_configuration(path) or choose_configuration(published, names)


def print_configuration(configuration: UsedConfiguration, prefix: str = "") -> None:
    """`before` each line: what makes it a comment where both streams end up in one file."""
    for line in configuration.lines:
        print_note(f"{prefix}{line}")
