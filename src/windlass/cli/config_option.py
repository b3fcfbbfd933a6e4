"""`--config`, and the configuration that commands use without it.

`scheduler`, `up` and `simulate` use the file or the defaults. `why`, `plan` and `check` read a cluster or a dump:
without a file they use what its scheduler has published, else the defaults (`dump.configuration`).
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
    help="A SchedulerConfiguration, or Kueue's Configuration. [default: what the scheduler of the cluster "
    "or dump has published, else the defaults]",
)


def load_configuration(path: Path | None) -> Configuration | None:
    """The configuration in the file; None without a file."""
    from windlass.dump.configuration import load_configuration_file

    return None if path is None else load_configuration_file(path)


def resolve_configuration(
    path: Path | None, published: Sequence[Configuration] = (), names: Collection[str] = ()
) -> Configuration:
    """From the file, else as published by the scheduler with one of these names, else the defaults."""
    from windlass.dump.configuration import choose_configuration

    return load_configuration(path) or choose_configuration(published, names)


def print_configuration(configuration: UsedConfiguration, prefix: str = "") -> None:
    """`prefix` makes lines comments where stdout and stderr end up in one file."""
    for line in configuration.lines:
        print_note(f"{prefix}{line}")
