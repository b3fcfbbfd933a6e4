"""This machine as a Node: its CPUs and memory, and its GPUs, as the node agent would advertise them.

`nodes` registers the result. Without a driver the node has no GPUs, and the note says why.
"""

from __future__ import annotations

import os
import platform
import re
import socket
from collections.abc import Callable
from dataclasses import dataclass

from windlass.embedded.runtime.device_manager import AllocatableDevice, DeviceManager
from windlass.embedded.runtime.fleet_nodes import KUBELET_VERSION, registered_node
from windlass.embedded.runtime.simulated_fleet import SIMULATED_NODE_ANNOTATION
from windlass.model.convert import convert
from windlass.model.device import node_devices
from windlass.model.names.kubernetes import ARCH_LABEL, HOSTNAME_LABEL, OS_LABEL
from windlass.model.names.nvidia import GPU_PRESENT_LABEL, GPU_RESOURCE
from windlass.model.names.windlass import DEVICES_LAYOUT_ANNOTATION
from windlass.model.node import Node
from windlass.model.requests import node_quantities
from windlass.model.unstructured import Unstructured
from windlass.node.backend.protocol import DeviceBackend, DeviceError
from windlass.node.labels.features import device_annotations, node_labels
from windlass.sharing.advertised_resources import PluginResource, advertised_resources
from windlass.sharing.inventory import Inventory
from windlass.sharing.plugin_config import PluginConfig, resolve_config


@dataclass(frozen=True)
class ThisMachine:
    node: Unstructured
    device_manager: DeviceManager
    inventory: Inventory | None
    note: str
    """For the user: the GPUs, or why there are none."""


def discover_this_machine(
    backend: Callable[[], DeviceBackend], replicas: int, mps_root: str, now: float
) -> tuple[ThisMachine, DeviceBackend | None]:
    """`mps_root` is the folder for MPS pipes; empty for time-slicing. Raises `InputError` if sharing is impossible."""
    try:
        opened = backend()
        inventory = opened.inventory()
    except (DeviceError, ImportError, OSError) as error:
        tree = _node(None, {}, (), {}, now)
        note = f"none ({error})"
        return ThisMachine(tree, DeviceManager(tree["metadata"]["name"], (), {}), None, note), None
    config = sharing_config(inventory, replicas, mps_root)
    advertised = advertised_resources(inventory, config)
    labels = node_labels(inventory, config, machine=platform.node())
    tree = _node(inventory, labels, advertised, {DEVICES_LAYOUT_ANNOTATION: device_annotations(inventory)[0]}, now)
    names = ", ".join(f"{gpu.index}: {gpu.name}" for gpu in inventory.gpus) or "none (the driver lists none)"
    return ThisMachine(tree, _make_device_manager(tree, inventory, advertised), inventory, names), opened


def sharing_config(inventory: Inventory, replicas: int, mps_root: str) -> PluginConfig:
    has_mig = any(gpu.mig_enabled for gpu in inventory.gpus)
    config: Unstructured = {"flags": {"migStrategy": "mixed" if has_mig else "none"}}
    if mps_root:
        config["flags"]["mpsRoot"] = mps_root
    if replicas > 1:
        shared = {"name": GPU_RESOURCE, "replicas": replicas}
        config["sharing"] = {"mps" if mps_root else "timeSlicing": {"resources": [shared]}}
    return resolve_config(config)


def node_name() -> str:
    """The host name as a valid node name."""
    name = re.sub(r"[^a-z0-9.-]+", "-", socket.gethostname().lower()).strip("-.")
    return name[:63].strip("-.") or "this-machine"


def _node(
    inventory: Inventory | None,
    labels: dict[str, str],
    advertised: tuple[PluginResource, ...],
    annotations: dict[str, str],
    now: float,
) -> Unstructured:
    name = node_name()
    architecture = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
    capacity = {
        "cpu": str(os.cpu_count() or 1),
        "memory": str(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")),
        "ephemeral-storage": str(_disk_bytes()),
        "pods": "110",
        **{resource.name: str(len(resource.devices)) for resource in advertised},
    }
    own_labels = {HOSTNAME_LABEL: name, OS_LABEL: "linux", ARCH_LABEL: architecture}
    if inventory is not None and inventory.gpus:
        own_labels[GPU_PRESENT_LABEL] = "true"
    tree = registered_node(
        {
            "metadata": {"name": name, "labels": {**labels, **own_labels}, "annotations": annotations},
            "status": {"capacity": capacity, "allocatable": capacity},
        },
        0,
        now,
    )
    tree["metadata"]["annotations"][SIMULATED_NODE_ANNOTATION] = "process"
    tree["status"]["nodeInfo"] |= {
        "architecture": architecture,
        "kernelVersion": platform.release(),
        "kubeletVersion": KUBELET_VERSION,
        "osImage": "this machine",
        "containerRuntimeVersion": "windlass-process://1.0.0",
    }
    tree["status"]["addresses"][0]["address"] = "127.0.0.1"
    return tree


def _disk_bytes() -> int:
    filesystem = os.statvfs("/")
    return filesystem.f_frsize * filesystem.f_blocks


def _make_device_manager(
    tree: Unstructured, inventory: Inventory, advertised: tuple[PluginResource, ...]
) -> DeviceManager:
    node = convert(tree, Node)
    assert isinstance(node, Node)
    capacity, allocatable = node_quantities(node)
    positions = {gpu.uuid: index for index, gpu in enumerate(inventory.gpus)}
    devices_by_resource: dict[str, list[AllocatableDevice]] = {}
    device_uuids: dict[AllocatableDevice, str] = {}
    replicas = 1
    for resource in advertised:
        for number, device in enumerate(resource.devices):
            profile = device.instance.profile if device.instance is not None else ""
            allocatable_device = AllocatableDevice(resource.name, positions[device.gpu.uuid], number, profile)
            devices_by_resource.setdefault(resource.name, []).append(allocatable_device)
            device_uuids[allocatable_device] = device.uuid
            replicas = max(replicas, device.replicas)
    devices = node_devices(node, allocatable, capacity)
    gpu_uuids = [gpu.uuid for gpu in inventory.gpus]
    return DeviceManager(node.name, devices, devices_by_resource, replicas, gpu_uuids, device_uuids)
