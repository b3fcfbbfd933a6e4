"""CDI specs for devices that accompany GPUs: IMEX channels, GPUDirect Storage, GDRCopy and MOFED network cards.

`cdi_writer` writes the specs that the configuration enables; `plugin.allocate` passes their names to containers.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from windlass.model.errors import InputError
from windlass.node.cdi import CdiDevice, CdiMount, CdiSpec, edits_for
from windlass.node.host_root import HostRoot
from windlass.sharing.plugin_config import PluginConfig

IMEX_CHANNEL_FOLDER = "/dev/nvidia-caps-imex-channels"
VERSION = "0.5.0"


class Extra(msgspec.Struct, frozen=True):
    """The device nodes of one kind, and the files that its library needs."""

    nodes: tuple[str, ...]
    files: tuple[str, ...] = ()


_EXTRAS = {
    "gds": Extra(("/dev/nvidia-fs*",), ("/run/udev", "/etc/cufile.json")),
    "mofed": Extra(("/dev/infiniband/uverbs*", "/dev/infiniband/rdma_cm")),
    "gdrcopy": Extra(("/dev/gdrdrv",)),
}


def present_imex_channels(config: PluginConfig, root: HostRoot) -> tuple[int, ...]:
    """The configured IMEX channels that exist here; an `InputError` if a required one is missing."""
    found = tuple(channel for channel in config.imex_channel_ids if root.device_node(channel_path(channel)) is not None)
    if config.imex_required and found != config.imex_channel_ids:
        missing = next(channel for channel in config.imex_channel_ids if channel not in found)
        remedy = "start the IMEX daemon on this node, or set imex.required: false"
        raise InputError(f"there is no {channel_path(missing)}", path="imex.required", remedy=remedy)
    return found


def channel_path(channel: int) -> str:
    return f"{IMEX_CHANNEL_FOLDER}/channel{channel}"


def present_extras(config: PluginConfig, root: HostRoot) -> tuple[str, ...]:
    """The enabled kinds that this machine has devices of: a CDI name without a spec fails the container."""
    enabled = {"gds": config.gds_enabled, "mofed": config.mofed_enabled, "gdrcopy": config.gdrcopy_enabled}
    return tuple(kind for kind, extra in _EXTRAS.items() if enabled[kind] and _devices_of_kind(extra, root))


def extra_specs(config: PluginConfig, root: HostRoot, vendor: str) -> Iterator[CdiSpec]:
    """One spec per enabled kind, without devices if the machine has none of them."""
    switches = {"gds": config.gds_enabled, "mofed": config.mofed_enabled, "gdrcopy": config.gdrcopy_enabled}
    for name, extra in _EXTRAS.items():
        if switches[name]:
            yield CdiSpec(cdi_version=VERSION, kind=f"{vendor}/{name}", devices=_devices_of_kind(extra, root))
    channels = present_imex_channels(config, root)
    if channels:
        paths = {str(channel): [channel_path(channel)] for channel in channels}
        paths["all"] = [channel_path(channel) for channel in channels]
        devices = (CdiDevice(name=name, container_edits=edits_for(nodes, root)) for name, nodes in paths.items())
        yield CdiSpec(cdi_version=VERSION, kind=f"{vendor}/imex-channel", devices=tuple(devices))


def _devices_of_kind(extra: Extra, root: HostRoot) -> tuple[CdiDevice, ...]:
    nodes = [path for pattern in extra.nodes for path in root.glob(pattern)]
    if not nodes:
        return ()
    edits = edits_for(nodes, root)
    files = tuple(
        CdiMount(host_path=str(root.path(path)), container_path=path, options=("ro", "bind"))
        for path in extra.files
        if root.host_file(path).exists()
    )
    return (CdiDevice(name="all", container_edits=msgspec.structs.replace(edits, mounts=(*edits.mounts, *files))),)
