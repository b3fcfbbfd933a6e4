"""`windlass node labels`: the labels that this node would get, as GPU Feature Discovery writes them."""

from __future__ import annotations

import os
import time
from pathlib import Path

import click

from windlass.cli.node_options import FILE, hardware_options, open_backend
from windlass.cli.output import output_option, print_document
from windlass.model.names.windlass import WINDLASS_API_VERSION
from windlass.node.config_source import read_yaml
from windlass.node.host_root import HostRoot
from windlass.node.labels.features import node_labels
from windlass.node.labels.vgpu import find_virtual_gpus
from windlass.sharing.plugin_config import resolve_config


@click.command()
@hardware_options
@click.option("--config-file", type=FILE, envvar="CONFIG_FILE", help="NVIDIA's device plugin config, v1.")
@click.option("--mig-strategy", help="As the plugin's flag, over the file's.")
@output_option("text", "json", "yaml")
def labels(
    fleet: Path | None,
    node_name: str,
    root: Path,
    config_file: Path | None,
    mig_strategy: str | None,
    output: str,
) -> None:
    """The labels that this node would get: name=value lines, as in NFD's feature file."""
    flags = {"--mig-strategy": mig_strategy} if mig_strategy else {}
    config = resolve_config(read_yaml(config_file) if config_file else None, os.environ, flags)
    inventory = open_backend(fleet, node_name, root).inventory()
    host = HostRoot(root)
    found = node_labels(
        inventory,
        config,
        machine=host.read(config.machine_type_file),
        timestamp=int(time.time()),
        virtual=find_virtual_gpus(host),
    )
    if output == "text":
        click.echo("".join(f"{name}={value}\n" for name, value in sorted(found.items())), nl=False)
    else:
        print_document({"apiVersion": WINDLASS_API_VERSION, "kind": "NodeLabels", "labels": found}, output)
