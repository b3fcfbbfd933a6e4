"""The resources that a node advertises with a configuration, and the devices of each.

Used by the device plugin, the labels, `explain-config` and the exporter. Names and refusals are those of NVIDIA's
device plugin (`migStrategy` none, single, mixed; time-slicing and MPS multiply devices).
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from windlass.model.errors import InputError
from windlass.model.mig import mig_resource_name
from windlass.model.names.nvidia import NVIDIA_PREFIX
from windlass.sharing.inventory import Gpu, Inventory, MigInstance
from windlass.sharing.plugin_config import PluginConfig

GPU = f"{NVIDIA_PREFIX}gpu"
MAX_MPS_CLIENTS, MAX_MPS_CLIENTS_LEGACY = 48, 16
"""Clients that one GPU serves from compute capability 7.5 on, and before."""


class PluginDevice(msgspec.Struct, frozen=True, kw_only=True):
    """One device as the kubelet sees it: a GPU, a MIG device, or a replica of one."""

    id: str
    """A UUID, with `::<n>` behind it where the device is shared."""
    uuid: str
    """Of the GPU or MIG device."""
    gpu: Gpu
    instance: MigInstance | None = None
    replicas: int = 1

    @property
    def index(self) -> str:
        """As `deviceIDStrategy: index` hands it out: `0`, `0:3`."""
        return str(self.gpu.index) if self.instance is None else f"{self.gpu.index}:{self.instance.index}"


class PluginResource(msgspec.Struct, frozen=True, kw_only=True):
    """What one plugin socket serves."""

    name: str
    devices: tuple[PluginDevice, ...]
    is_shared: bool = False
    fail_above_one: bool = False


def advertised_resources(inventory: Inventory, config: PluginConfig) -> tuple[PluginResource, ...]:
    """Every resource, by name. Raises an `InputError` if the hardware does not suit the configuration."""
    plain = devices_by_resource(inventory, config)
    found: dict[str, list[PluginDevice]] = {}
    shared: dict[str, bool] = {}
    for base, members in plain.items():
        for position, (gpu, instance) in enumerate(members):
            entry = config.sharing.entry_for(base, gpu, instance, position) if config.sharing else None
            replicas = entry.replicas if entry else 1
            if entry and config.sharing and config.sharing.strategy == "mps":
                _check_mps(gpu, instance, replicas)
            name = entry.shared_name if entry else base
            uuid = instance.uuid if instance else gpu.uuid
            ids = [f"{uuid}::{n}" for n in range(replicas)] if entry else [uuid]
            if shared.setdefault(name, entry is not None) != (entry is not None):
                message = f"{name} would have both shared and unshared devices"
                remedy = "give the shared devices another name (rename)"
                raise InputError(message, path="sharing", remedy=remedy)
            found.setdefault(name, []).extend(
                PluginDevice(id=device_id, uuid=uuid, gpu=gpu, instance=instance, replicas=replicas)
                for device_id in ids
            )
    strict = config.sharing is not None and config.sharing.fail_requests_greater_than_one
    return tuple(
        PluginResource(
            name=name, devices=tuple(devices), is_shared=shared[name], fail_above_one=strict and shared[name]
        )
        for name, devices in sorted(found.items())
    )


def devices_by_resource(inventory: Inventory, config: PluginConfig) -> dict[str, list[tuple[Gpu, MigInstance | None]]]:
    """GPUs and MIG devices by resource, before sharing."""
    found: dict[str, list[tuple[Gpu, MigInstance | None]]] = {}
    for gpu, instance in _members(inventory, config):
        found.setdefault(unshared_resource_name(gpu, instance, config), []).append((gpu, instance))
    return found


def unshared_resource_name(gpu: Gpu, instance: MigInstance | None, config: PluginConfig) -> str:
    """The resource that a device belongs to before sharing renames it."""
    by_profile = config.mig_strategy == "mixed"
    usual = mig_resource_name(instance.profile) if instance is not None and by_profile else GPU
    return config.names.name_for(gpu, instance, usual)


def _members(inventory: Inventory, config: PluginConfig) -> Iterator[tuple[Gpu, MigInstance | None]]:
    """The GPUs and MIG devices that the MIG strategy advertises."""
    if config.mig_strategy == "single":
        reason = single_strategy_error(inventory)
        if reason:
            raise InputError(reason, path="flags.migStrategy", remedy="use mixed, or cut every GPU alike")
    for gpu in inventory.gpus:
        if config.mig_strategy == "none" or not gpu.mig_enabled:
            yield gpu, None
            continue
        yield from ((gpu, instance) for instance in gpu.instances if instance.has_all_compute_slices)


def single_strategy_error(inventory: Inventory) -> str:
    """Why the strategy single can't serve this node; empty where it can."""
    cut = [gpu for gpu in inventory.gpus if gpu.mig_enabled]
    if cut and len(cut) != len(inventory.gpus):
        return "all devices on the node must be configured with the same migEnabled value"
    empty = next((gpu.index for gpu in cut if not gpu.instances), None)
    if empty is not None:
        return (
            "at least one device with migEnabled=true was not configured correctly: "
            f"device {empty} has no MIG devices configured"
        )
    if any(not instance.has_all_compute_slices for gpu in cut for instance in gpu.instances):
        return "the MIG strategy single can't serve an instance with further compute instances"
    profiles = sorted({instance.profile for gpu in cut for instance in gpu.instances})
    if len(profiles) > 1:
        return f"more than one MIG device type present on node: {', '.join(profiles)}"
    return ""


def _check_mps(gpu: Gpu, instance: MigInstance | None, replicas: int) -> None:
    if instance is not None or gpu.mig_enabled:
        message = f"sharing using MPS is not supported for MIG devices (GPU {gpu.index} is cut)"
        raise InputError(message, path="sharing.mps", remedy="turn MIG off on it, or use time-slicing")
    most = MAX_MPS_CLIENTS if gpu.compute >= (7, 5) else MAX_MPS_CLIENTS_LEGACY
    if replicas > most:
        message = f"{gpu.name} serves at most {most} MPS clients, not {replicas}"
        raise InputError(message, path="sharing.mps.resources", remedy=f"use at most {most} replicas")
