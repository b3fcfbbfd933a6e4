"""Options that the commands under `windlass node` share: which hardware, and where its files are."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from windlass.cli.parameters import default_option
from windlass.node.agent import AgentOptions, make_backend
from windlass.node.backend.protocol import DeviceBackend

Command = TypeVar("Command", bound=Callable[..., Any])
FOLDER = click.Path(path_type=Path, file_okay=False)
FILE = click.Path(path_type=Path, dir_okay=False, exists=True)


def hardware_options(command: Command) -> Command:
    """`--fleet`, `--node-name` and `--root`."""
    for option in (
        default_option(
            "--root",
            type=FOLDER,
            default="/",
            help="Where the host's /dev, /proc and /sys are; with --fleet, the folder that stands for them.",
        ),
        click.option(
            "--node-name",
            default="",
            envvar="NODE_NAME",
            help="Name of this node. [default: the host's name; with --fleet, the first node with GPUs]",
        ),
        click.option("--fleet", type=FILE, help="Simulate the GPUs of a node of this Fleet instead of asking NVML."),
    ):
        command = option(command)
    return command


def open_backend(fleet: Path | None, node_name: str, root: Path) -> DeviceBackend:
    return make_backend(AgentOptions(fleet=fleet, node_name=node_name, root=root))
