"""`windlass node explain-config FILE`: what a device plugin config would advertise on this node."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from windlass.cli.node_options import hardware_options, open_backend
from windlass.cli.output import (
    output_option,
    plain_table,
    print_document,
    print_note,
    print_table,
    windlass_document,
)
from windlass.dump.files import parse_documents
from windlass.model.errors import InputError
from windlass.node.config_source import read_yaml
from windlass.sharing.advertised_resources import PluginResource, advertised_resources
from windlass.sharing.config_warnings import ineffective_settings
from windlass.sharing.plugin_config import PluginConfig, resolve_config

if TYPE_CHECKING:
    pass


HEADINGS = ("RESOURCE", "COUNT", "DEVICES", "× REPLICAS", "SHARING", "MADE OF", "AT MOST PER POD")


@click.command("explain-config")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@hardware_options
@click.option("--key", default="", help="The entry of a ConfigMap, where it has several.")
@click.option("--mig-strategy", help="As the plugin's flag, over the file's.")
@click.option("--honor-renames", is_flag=True, help="Keep per-resource rename and devices.")
@output_option("table", "json", "yaml")
def explain_config(
    file: Path,
    fleet: Path | None,
    node_name: str,
    root: Path,
    key: str,
    mig_strategy: str | None,
    honor_renames: bool,
    output: str,
) -> None:
    """What FILE, a device plugin config or a ConfigMap with one, would advertise on this node, before it is applied.

    Says for each resource how many devices it would have and how they come about; what the config asks for in vain is
    told as a warning, and what can't be is refused with the field's path (exit 2).
    """
    flags = {"--mig-strategy": mig_strategy} if mig_strategy else {}
    try:
        config = resolve_config(_config_in(read_yaml(file), key), os.environ, flags, honor_renames=honor_renames)
        inventory = open_backend(fleet, node_name, root).inventory()
        resources = advertised_resources(inventory, config)
    except InputError as error:
        raise error.with_context(file=str(file)) from None
    warnings = [*config.warnings, *ineffective_settings(inventory, config)]
    for warning in warnings:
        print_note(f"warning: {warning}")
    rows = [explain_resource(resource, config) for resource in resources]
    if output == "table":
        print_table(plain_table(HEADINGS, ([str(value) for value in row.values()] for row in rows)))
    else:
        document = windlass_document(
            "AdvertisedResources",
            resources=rows,
            migStrategy=config.mig_strategy,
            deviceListStrategy=list(config.device_list_strategy),
            warnings=warnings,
        )
        print_document(document, output)


def _config_in(document: Any, key: str) -> Any:
    """The config itself; of a ConfigMap, the entry of that name, or the only one."""
    if not isinstance(document, dict) or document.get("kind") != "ConfigMap":
        return document
    entries = document.get("data")
    entries = entries if isinstance(entries, dict) else {}
    if key not in entries and (key or len(entries) != 1):
        there = f"there are: {', '.join(sorted(map(str, entries)))}" if entries else "its data is empty"
        if key:
            raise InputError(f"has no entry {key!r}", path="data", remedy=there)
        raise InputError(f"has {len(entries)} entries", path="data", remedy=f"choose one with --key; {there}")
    name = key or next(iter(entries))
    parsed = list(parse_documents(str(entries[name]), f"data.{name}"))
    return parsed[0].value if parsed else None


def explain_resource(resource: PluginResource, config: PluginConfig) -> dict[str, Any]:
    """One resource in words and numbers."""
    physical = list(dict.fromkeys(device.uuid for device in resource.devices))
    models = Counter(
        device.gpu.name + (f" {device.instance.profile}" if device.instance else "")
        for device in {device.uuid: device for device in resource.devices}.values()
    )
    replicas = sorted({device.replicas for device in resource.devices})
    return {
        "name": resource.name,
        "count": len(resource.devices),
        "devices": len(physical),
        "replicas": replicas if len(replicas) != 1 else replicas[0],
        "sharing": config.sharing_strategy if resource.is_shared else "none",
        "made_of": ", ".join(f"{count}× {name}" for name, count in models.items()),
        "at_most_per_pod": 1 if resource.fail_above_one else len(resource.devices),
    }
