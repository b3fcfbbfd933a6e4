"""CDI specs for what may come with GPUs: IMEX channels, GPUDirect Storage, GDRCopy, and the network cards of MOFED.

Made for what the configuration switches on; `plugin.allocate` names them to containers, `cdi_writer` checks and writes
them beside the spec of the GPUs.
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
    """Which device nodes belong to a kind, and which files its library looks at."""

    nodes: tuple[str, ...]
    files: tuple[str, ...] = ()


_EXTRAS = {
    "gds": Extra(("/dev/nvidia-fs*",), ("/run/udev", "/etc/cufile.json")),
    "mofed": Extra(("/dev/infiniband/uverbs*", "/dev/infiniband/rdma_cm")),
    "gdrcopy": Extra(("/dev/gdrdrv",)),
}


def present_imex_channels(config: PluginConfig, root: HostRoot) -> tuple[int, ...]:
    """The wanted IMEX channels that this machine has; an `InputError` where one is required and isn't there."""
    found = tuple(
        each for each in config.imex_channel_ids if root.device_node(channel_path(each)) is not None
    )
    if config.imex_required and found != config.imex_channel_ids:
        missing = next(each for each in config.imex_channel_ids if each not in found)
        raise InputError(
            f"there is no {channel_path(missing)}",
            path="imex.required",
            remedy="start the IMEX daemon on this node, or set imex.required: false",
        )
    return found


def channel_path(channel: int) -> str:
    return f"{IMEX_CHANNEL_FOLDER}/channel{channel}"


def extra_specs(config: PluginConfig, root: HostRoot, vendor: str) -> Iterator[CdiSpec]:
    """A spec for each kind that is switched on; one without devices where the machine has none of it."""
    switches = {
        "gds": config.gds_enabled,
        "mofed": config.mofed_enabled,
        "gdrcopy": config.gdrcopy_enabled,
    }
    for name, extra in _EXTRAS.items():
        if switches[name]:
            yield CdiSpec(cdi_version=VERSION, kind=f"{vendor}/{name}", devices=_all(extra, root))
    channels = present_imex_channels(config, root)
    if channels:
        paths = {str(each): [channel_path(each)] for each in channels}
        paths["all"] = [path for one in paths.values() for path in one]
        devices = (
            CdiDevice(name=name, container_edits=edits_for(each, root)) for name, each in paths.items()
        )
        yield CdiSpec(cdi_version=VERSION, kind=f"{vendor}/imex-channel", devices=tuple(devices))


def _all(extra: Extra, root: HostRoot) -> tuple[CdiDevice, ...]:
    nodes = [path for pattern in extra.nodes for path in root.glob(pattern)]
    if not nodes:
        return ()
    edits = edits_for(nodes, root)
    files = tuple(
        CdiMount(host_path=str(root.path(path)), container_path=path, options=("ro", "bind"))
        for path in extra.files
        if root.exists(path)
    )
    return (
        CdiDevice(name="all", container_edits=msgspec.structs.replace(edits, mounts=(*edits.mounts, *files))),
    )
