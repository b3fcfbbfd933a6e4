"""Settings of a configuration that have no effect on this node: warnings, since the hardware may be added later.

Called by `windlass node explain-config` before a configuration is applied, and by the plugin when it takes effect.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from windlass.sharing.advertised_resources import devices_by_resource
from windlass.sharing.inventory import Gpu, Inventory, MigInstance
from windlass.sharing.plugin_config import PluginConfig
from windlass.sharing.sharing_config import SharedResource, Sharing

Member = tuple[Gpu, MigInstance | None]


def ineffective_settings(inventory: Inventory, config: PluginConfig) -> tuple[str, ...]:
    """One warning per setting without effect, with its field."""
    members = devices_by_resource(inventory, config)
    found = _empty_gpus(inventory, config)
    if config.sharing is None:
        return found
    section = "sharing.mps" if config.sharing.strategy == "mps" else "sharing.timeSlicing"
    for at, entry in enumerate(config.sharing.resources):
        warnings = _entry_warnings(entry, config.sharing, members.get(entry.name, ()))
        found += tuple(f"{section}.resources[{at}]{warning}" for warning in warnings)
    return found


def _empty_gpus(inventory: Inventory, config: PluginConfig) -> tuple[str, ...]:
    if config.mig_strategy != "mixed":
        return ()
    empty = [gpu.index for gpu in inventory.gpus if gpu.mig_enabled and not gpu.instances]
    return tuple(f"device {index} has no MIG devices configured: it is not advertised" for index in empty)


def _entry_warnings(entry: SharedResource, sharing: Sharing, members: Sequence[Member]) -> list[str]:
    if not members:
        return [f".name: this node has no {entry.name}"]
    if isinstance(entry.devices, int) and entry.devices > len(members):
        return [
            f".devices: requested {entry.devices} devices to be replicated, but only {len(members)} devices available"
        ]
    missing = [device for device in _listed(entry) if not _covers(device, entry, members)]
    found = [f".devices: no matching device {_kind(device)}: {device}" for device in missing]
    entries = {sharing.entry_for(entry.name, *member, at) for at, member in enumerate(members)}
    if not found and entry not in entries:
        found.append(": what it names is shared by an entry before it")
    return found


def _listed(entry: SharedResource) -> tuple[str, ...]:
    return entry.devices if isinstance(entry.devices, tuple) else ()


def _covers(device: str, entry: SharedResource, members: Sequence[Member]) -> bool:
    alone = msgspec.structs.replace(entry, devices=(device,))
    return any(alone.covers(*member, at) for at, member in enumerate(members))


def _kind(device: str) -> str:
    return "with UUID" if "-" in device else "at index"
