"""The GPUs of a node, from its labels, annotations, capacity and allocatable.

Reads `model.node`; feeds the device rows in `cluster`. In order of trust: the annotation `windlass.dev/devices-layout`
(written by Fleet expansion and by the node agent: several models in one node, NVLink islands, NUMA), then GPU
Feature Discovery's labels with the advertised `nvidia.com/gpu`, then the 2023 production trace's names.

`windlass.dev/devices-layout` is a JSON list of groups, in the order of device indices:

    [{"model": "NVIDIA-H100-80GB-HBM3", "memory": 81559, "count": 4, "island": 0, "numa": 0, "mig": ""}, …]

`model` and `count` are required, `memory` (MiB) defaults to what is known of the model, the rest to 0 or empty.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

import msgspec

from windlass.model.errors import InputError
from windlass.model.gpu_models import find_gpu_model
from windlass.model.names.nvidia import (
    GPU_COUNT_LABEL,
    GPU_MEMORY_LABEL,
    GPU_PRODUCT_LABEL,
    GPU_REPLICAS_LABEL,
    GPU_RESOURCE,
    MIG_RESOURCE_PREFIX,
    MIG_STRATEGY_LABEL,
    SHARED_GPU_RESOURCE,
    SHARING_STRATEGY_LABEL,
)
from windlass.model.names.others import ALIBABA_COUNT, ALIBABA_MODEL
from windlass.model.names.windlass import (
    DEVICES_LAYOUT_ANNOTATION,
    HELD_DEVICES_ANNOTATION,
    REPAIR_UNTIL_ANNOTATION,
    TOPOLOGY_MANAGER_ANNOTATION,
    UNHEALTHY_DEVICES_ANNOTATION,
)
from windlass.model.node import Node

NODE_ANNOTATIONS = (
    DEVICES_LAYOUT_ANNOTATION,
    HELD_DEVICES_ANNOTATION,
    REPAIR_UNTIL_ANNOTATION,
    TOPOLOGY_MANAGER_ANNOTATION,
    UNHEALTHY_DEVICES_ANNOTATION,
)
"""The annotations of a node that placement reads: a change of any other one is no change to it."""
MAX_DEVICES = 16
"""GPUs of one node that are told apart: a packed grant has one hexadecimal digit per device."""
MAX_NODE_DEVICES = 256
"""More than any node has, including MIG instances that count as GPUs; a typing error must not exhaust the memory."""

_SHARED_SUFFIX = "-SHARED"


class Device(msgspec.Struct, frozen=True):
    """One GPU of a node, as placement sees it."""

    index: int
    model: str
    memory_mib: int
    healthy: bool = True
    island: int = 0
    """NVLink island inside the node."""
    numa: int = 0
    mig: str = ""
    """`""`: allocated whole or in shares. `dynamic`: MIG instances are created as needed. `static`: partitioned already
    (a fixed MIG layout, or renamed shared replicas); its parts are counted as extended resources."""


class DeviceGroup(msgspec.Struct, frozen=True, omit_defaults=True):
    """Equal devices with consecutive indices: one entry of the layout annotation."""

    model: str
    count: int
    memory: int = 0
    island: int = 0
    numa: int = 0
    mig: str = ""


def node_devices(
    node: Node, allocatable: Mapping[str, int], capacity: Mapping[str, int], replicas: int | None = None
) -> tuple[Device, ...]:
    """The GPUs of a node by index; empty if it has none. `allocatable` and `capacity` are from `node_quantities`, and
    `replicas` from `node_replicas`, where the caller has asked for it already."""
    if not _has_gpus(node, capacity):
        return ()
    replicas = node_replicas(node) if replicas is None else replicas
    try:
        groups = _groups(node, capacity, replicas)
        devices = _expand_groups(groups)
        return _mark_unhealthy(devices, node, allocatable, capacity, replicas)
    except InputError as error:
        raise error.with_context(object=f"Node {node.name}", code="INVALID_OBJECT") from None


def node_replicas(node: Node) -> int:
    """Replicas of each `nvidia.com/gpu` of the node (time-slicing or MPS without renaming); 1 without sharing.

    No machine has more GPUs than `MAX_DEVICES`: where more are advertised and no label says why (time-slicing without
    GPU Feature Discovery, vGPU), they are replicas too.
    """
    try:
        replicas = _label_number(node, GPU_REPLICAS_LABEL) or 1
        labelled = _label_number(node, GPU_COUNT_LABEL)
    except InputError as error:
        raise error.with_context(object=f"Node {node.name}", code="INVALID_OBJECT") from None
    if node.labels.get(SHARING_STRATEGY_LABEL, "none") not in ("", "none"):
        return replicas
    advertised = _advertised(node)
    if advertised <= MAX_DEVICES or DEVICES_LAYOUT_ANNOTATION in node.metadata.annotations:
        return 1
    return -(-advertised // (labelled if 0 < labelled <= MAX_DEVICES else MAX_DEVICES))


def has_unknown_gpus(node: Node) -> bool:
    """Whether it advertises more GPUs than a machine has, and no label says which GPUs they are replicas of."""
    if _advertised(node) <= MAX_DEVICES or node_replicas(node) == 1:
        return False
    if node.labels.get(SHARING_STRATEGY_LABEL, "none") not in ("", "none"):
        return False
    return not 0 < _label_number(node, GPU_COUNT_LABEL) <= MAX_DEVICES


def _advertised(node: Node) -> int:
    """`nvidia.com/gpu` of the capacity; 0 where it is absent or can't be read, which `node_quantities` reports."""
    text = str(node.status.capacity.get(GPU_RESOURCE, ""))
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 12 else 0


def encode_layout(groups: tuple[DeviceGroup, ...]) -> str:
    """The value of the layout annotation."""
    return msgspec.json.encode(groups).decode()


def _has_gpus(node: Node, capacity: Mapping[str, int]) -> bool:
    if capacity.get(GPU_RESOURCE) or capacity.get(SHARED_GPU_RESOURCE) or capacity.get(ALIBABA_COUNT):
        return True
    return DEVICES_LAYOUT_ANNOTATION in node.metadata.annotations or (
        GPU_PRODUCT_LABEL in node.labels and any(name.startswith(MIG_RESOURCE_PREFIX) for name in capacity)
    )


def _groups(node: Node, capacity: Mapping[str, int], replicas: int) -> tuple[DeviceGroup, ...]:
    layout = node.metadata.annotations.get(DEVICES_LAYOUT_ANNOTATION)
    if layout is not None:
        return _decode_layout(layout)
    model = node.labels.get(GPU_PRODUCT_LABEL) or node.labels.get(ALIBABA_MODEL, "")
    model = model.removesuffix(_SHARED_SUFFIX)
    memory = _label_number(node, GPU_MEMORY_LABEL)
    whole, cut = _counts(node, capacity, replicas)
    return (
        DeviceGroup(model, whole, memory),
        DeviceGroup(model, cut, memory, mig="static"),
    )


def _counts(node: Node, capacity: Mapping[str, int], replicas: int) -> tuple[int, int]:
    """`(allocated whole, already partitioned)`.

    The advertised number is preferred to the label: in a node with several models the label differs from run to run.
    """
    labelled = _label_number(node, GPU_COUNT_LABEL)
    advertised = capacity.get(GPU_RESOURCE, 0) or capacity.get(ALIBABA_COUNT, 0)
    if replicas > 1 and advertised:
        # With MIG's single strategy the label counts instances, as the resource does.
        return labelled if 0 < labelled <= MAX_DEVICES else -(-advertised // replicas), 0
    if capacity.get(SHARED_GPU_RESOURCE):
        return advertised, max(0, (labelled or capacity[SHARED_GPU_RESOURCE] // replicas) - advertised)
    if node.labels.get(MIG_STRATEGY_LABEL) == "mixed":
        return advertised, max(0, labelled - advertised)
    return advertised, 0


def _decode_layout(text: str) -> tuple[DeviceGroup, ...]:
    path = f"metadata.annotations.{DEVICES_LAYOUT_ANNOTATION}"
    try:
        groups = msgspec.json.decode(text, type=tuple[DeviceGroup, ...])
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise InputError(
            f"not a list of device groups: {error}",
            path=path,
            remedy='write a JSON list such as [{"model": "NVIDIA-L40S", "memory": 46068, "count": 4}]',
        ) from None
    for position, group in enumerate(groups):
        if min(group.count, group.memory, group.island, group.numa) < 0 or group.count > MAX_NODE_DEVICES:
            raise InputError(
                f"group {position} has a number out of range",
                path=path,
                remedy=f"count is 0 to {MAX_NODE_DEVICES}, the other numbers are 0 or more",
            )
        if group.mig not in ("", "dynamic", "static"):
            raise InputError(
                f"group {position} has unknown mig {group.mig!r}",
                path=path,
                remedy='use "dynamic", "static" or ""',
            )
    return groups


@lru_cache(maxsize=1 << 8)  # nodes of one kind have the same groups
def _expand_groups(groups: tuple[DeviceGroup, ...]) -> tuple[Device, ...]:
    total = sum(group.count for group in groups)
    if total > MAX_NODE_DEVICES:
        raise InputError(
            f"more than {MAX_NODE_DEVICES} GPUs in one node: {total}",
            path=f"status.capacity.{GPU_RESOURCE}",
            remedy="correct the number of GPUs",
        )
    devices: list[Device] = []
    for group in groups:
        memory = group.memory or _known_memory(group.model)
        for _ in range(group.count):
            devices.append(Device(len(devices), group.model, memory, True, group.island, group.numa, group.mig))
    return tuple(devices)


def _known_memory(model: str) -> int:
    known = find_gpu_model(model)
    return known.memory_mib if known else 0


def _mark_unhealthy(
    devices: tuple[Device, ...], node: Node, allocatable: Mapping[str, int], capacity: Mapping[str, int], replicas: int
) -> tuple[Device, ...]:
    """Kubernetes only counts unhealthy GPUs (capacity - allocatable): those of the annotation, then the last ones."""
    named = _named_unhealthy(node, len(devices))
    resource = GPU_RESOURCE if capacity.get(GPU_RESOURCE) else ALIBABA_COUNT
    missing = (capacity.get(resource, 0) - allocatable.get(resource, 0)) // replicas
    if not named and missing <= 0:
        return devices
    counted = [device.index for device in devices if device.mig != "static"]
    unnamed = [index for index in counted if index not in named]
    further = max(0, missing - (len(counted) - len(unnamed)))
    unhealthy = named.union(unnamed[-further:] if further else ())
    return tuple(
        msgspec.structs.replace(device, healthy=False) if device.index in unhealthy else device for device in devices
    )


def _named_unhealthy(node: Node, count: int) -> frozenset[int]:
    text = node.metadata.annotations.get(UNHEALTHY_DEVICES_ANNOTATION, "")
    if not text:
        return frozenset()  # most nodes
    named = set()
    for item in filter(None, (part.strip() for part in text.split(","))):
        index = int(item) if item.isascii() and item.isdigit() and len(item) < 9 else -1
        if not 0 <= index < count:
            raise InputError(
                f"{item[:64]!r} is not the index of one of the node's {count} GPUs",
                path=f"metadata.annotations.{UNHEALTHY_DEVICES_ANNOTATION}",
                remedy='list indices separated by commas, such as "3,5"',
            )
        named.add(index)
    return frozenset(named)


def _label_number(node: Node, name: str) -> int:
    """0 where the label is absent."""
    text = node.labels.get(name, "")
    if not text:
        return 0
    if not (text.isascii() and text.isdigit() and len(text) <= 12):
        raise InputError(
            f"{text[:64]!r} is not a whole number",
            path=f"metadata.labels.{name}",
            remedy="GPU Feature Discovery writes digits only; remove or correct the label",
        )
    return int(text)
