"""Expands a Fleet into Node objects.

Called for everything that takes nodes: the simulator's `--nodes`, dumps, the embedded cluster, the simulated node
agent. The nodes have the labels of GPU Feature Discovery, the resources that the device plugin would
advertise, and the annotation from which `model.device` reads the exact devices back.
"""

from __future__ import annotations

import msgspec

from windlass.model.device import Device, DeviceGroup, encode_layout
from windlass.model.errors import InputError
from windlass.model.fleet_spec import (
    Fleet,
    FleetFault,
    FleetGpus,
    FleetPool,
    FleetSharing,
    FleetSpec,
    check_fleet,
    gpu_memory_mib,
    gpu_product,
)
from windlass.model.gpu_models import find_gpu_model, mig_geometry_of_model
from windlass.model.meta import ObjectMeta
from windlass.model.mig import mig_resource_name
from windlass.model.names.kubernetes import (
    ARCH_LABEL,
    HOSTNAME_LABEL,
    NOT_READY_TAINT,
    OS_LABEL,
    REGION_LABEL,
    ZONE_LABEL,
)
from windlass.model.names.nvidia import (
    GPU_CLIQUE_LABEL,
    GPU_COUNT_LABEL,
    GPU_MEMORY_LABEL,
    GPU_PRESENT_LABEL,
    GPU_PRODUCT_LABEL,
    GPU_REPLICAS_LABEL,
    GPU_RESOURCE,
    MIG_STRATEGY_LABEL,
    SHARED_GPU_RESOURCE,
    SHARING_STRATEGY_LABEL,
)
from windlass.model.names.windlass import (
    BLOCK_LABEL,
    DEVICES_LAYOUT_ANNOTATION,
    RACK_LABEL,
    UNHEALTHY_DEVICES_ANNOTATION,
)
from windlass.model.node import Node, NodeCondition, NodeSpec, NodeStatus, Taint
from windlass.model.pod import RawQuantity

__all__ = [
    "Fleet",
    "FleetFault",
    "FleetGpus",
    "FleetPool",
    "FleetSharing",
    "FleetSpec",
    "expand_fleet",
    "pool_devices",
]


def expand_fleet(fleet: Fleet) -> list[Node]:
    """All nodes of the fleet, pool by pool. Raises an `InputError` with the field's path."""
    try:
        check_fleet(fleet)
    except InputError as error:
        name = fleet.metadata.name
        raise error.with_context(object=f"Fleet {name}".rstrip(), code="INVALID_OBJECT") from None
    return [_node(pool, number) for pool in fleet.spec.pools for number in range(pool.count)]


def pool_devices(pool: FleetPool, number: int) -> tuple[Device, ...]:
    """The GPUs of one node of a pool, as `node_devices` will read them from it."""
    devices: list[Device] = []
    ill = _unhealthy_devices(pool, number)
    for group in _device_groups(pool):
        for _ in range(group.count):
            at = len(devices)
            devices.append(Device(at, group.model, group.memory, at not in ill, group.island, group.numa, group.mig))
    return tuple(devices)


def _node(pool: FleetPool, number: int) -> Node:
    name = f"{pool.name}-{number:0{len(str(pool.count - 1))}d}"
    ready = not any(fault.not_ready for fault in pool.faults if fault.node == number)
    taints = pool.taints if ready else (*pool.taints, *_NOT_READY)
    capacity, allocatable = _resources(pool, number)
    return Node(
        metadata=ObjectMeta(name=name, labels=_labels(pool, number, name), annotations=_annotations(pool, number)),
        spec=NodeSpec(unschedulable=pool.unschedulable, taints=taints),
        status=NodeStatus(
            capacity=capacity,
            allocatable=allocatable,
            conditions=(NodeCondition(type="Ready", status="True" if ready else "False"),),
        ),
    )


_NOT_READY = (
    Taint(key=NOT_READY_TAINT, effect="NoSchedule"),
    Taint(key=NOT_READY_TAINT, effect="NoExecute"),
)
"""The taints that the node lifecycle controller puts on a node that is not ready."""


def _device_groups(pool: FleetPool) -> list[DeviceGroup]:
    """One entry per device that placement sees: per GPU, or per MIG instance under the strategy single."""
    groups: list[DeviceGroup] = []
    renamed = pool.sharing is not None and pool.sharing.rename
    first_island = position = 0
    for group in pool.gpus:
        for at in range(group.count):
            entry = DeviceGroup(
                model=gpu_product(group),
                count=1,
                memory=gpu_memory_mib(group),
                island=first_island + at * group.islands // group.count,
                numa=position * pool.numa // pool.gpu_count,
                mig=group.mig if isinstance(group.mig, str) and not renamed else "static",
            )
            groups.append(_instances(entry, group) if pool.mig_strategy == "single" else entry)
            position += 1
        first_island += group.islands
    return groups


def _instances(gpu: DeviceGroup, group: FleetGpus) -> DeviceGroup:
    """A GPU that is partitioned into equal instances, each advertised as a GPU of its own."""
    profile = group.mig[0]
    geometry = mig_geometry_of_model(gpu.model, gpu.memory)
    found = geometry.profile(profile) if geometry else None
    assert geometry is not None, "check_fleet has seen to it"
    assert found is not None, "check_fleet has seen to it"
    return msgspec.structs.replace(
        gpu,
        model=f"{gpu.model}-MIG-{profile}".replace("+", "."),
        count=len(group.mig),
        memory=gpu.memory * found.memory_slices // geometry.memory_slices,
        mig="",
    )


def _unhealthy_gpus(pool: FleetPool, number: int) -> frozenset[int]:
    return frozenset(device for fault in pool.faults if fault.node == number for device in fault.devices)


def _unhealthy_devices(pool: FleetPool, number: int) -> frozenset[int]:
    """Indices of devices, where one GPU may be several (MIG strategy single)."""
    ill = _unhealthy_gpus(pool, number)
    devices: list[int] = []
    first = 0
    for gpu, group in enumerate(_device_groups(pool)):
        if gpu in ill:
            devices.extend(range(first, first + group.count))
        first += group.count
    return frozenset(devices)


def _resources(pool: FleetPool, number: int) -> tuple[dict[str, RawQuantity], dict[str, RawQuantity]]:
    """`(capacity, allocatable)`: an unhealthy GPU is in the first and not in the second."""
    common: dict[str, RawQuantity] = {
        "cpu": pool.cpu,
        "memory": pool.memory,
        "ephemeral-storage": pool.ephemeral_storage,
        "pods": pool.pods,
    }
    everything: dict[str, int] = {}
    healthy: dict[str, int] = {}
    ill = _unhealthy_gpus(pool, number)
    layouts = [group.mig for group in pool.gpus for _ in range(group.count)]
    for gpu, layout in enumerate(layouts):
        for name, amount in _advertised(pool, layout).items():
            everything[name] = everything.get(name, 0) + amount
            healthy[name] = healthy.get(name, 0) + (0 if gpu in ill else amount)
    return {**common, **everything}, {**common, **healthy}


def _advertised(pool: FleetPool, layout: str | tuple[str, ...]) -> dict[str, int]:
    """The resources that one GPU adds to the node."""
    if isinstance(layout, str):
        sharing = pool.sharing
        name = SHARED_GPU_RESOURCE if sharing and sharing.rename else GPU_RESOURCE
        return {name: sharing.replicas if sharing else 1}
    if pool.mig_strategy == "single":
        return {GPU_RESOURCE: len(layout)}
    names = [mig_resource_name(profile) for profile in layout]
    return {name: names.count(name) for name in names}


def _annotations(pool: FleetPool, number: int) -> dict[str, str]:
    if not pool.gpus:
        return {}
    annotations = {DEVICES_LAYOUT_ANNOTATION: encode_layout(tuple(_merged(_device_groups(pool))))}
    ill = _unhealthy_devices(pool, number)
    if ill:
        annotations[UNHEALTHY_DEVICES_ANNOTATION] = ",".join(map(str, sorted(ill)))
    return annotations


def _merged(groups: list[DeviceGroup]) -> list[DeviceGroup]:
    """Merges equal neighbours, which keeps the annotation short."""
    merged: list[DeviceGroup] = []
    for group in groups:
        last = merged[-1] if merged else None
        if last is not None and msgspec.structs.replace(last, count=group.count) == group:
            merged[-1] = msgspec.structs.replace(last, count=last.count + group.count)
        else:
            merged.append(group)
    return merged


def _labels(pool: FleetPool, number: int, name: str) -> dict[str, str]:
    labels = {HOSTNAME_LABEL: name, OS_LABEL: "linux", ARCH_LABEL: "amd64"}
    rack = pool.rack
    if pool.nodes_per_rack:
        rack = f"{pool.rack or pool.name}-{number // pool.nodes_per_rack}"
    clique = (rack or pool.name) if pool.clique == "rack" else pool.clique
    places = {
        REGION_LABEL: pool.region,
        ZONE_LABEL: pool.zone,
        BLOCK_LABEL: pool.block,
        RACK_LABEL: rack,
        GPU_CLIQUE_LABEL: clique,
    }
    labels.update({key: value for key, value in places.items() if value})
    if pool.gpus:
        labels.update(_gpu_labels(pool))
    labels.update(pool.labels)
    return labels


def _gpu_labels(pool: FleetPool) -> dict[str, str]:
    """GPU Feature Discovery's labels; with several models they describe the first, where GFD takes any of them."""
    first = pool.gpus[0]
    product, memory, count = gpu_product(first), gpu_memory_mib(first), first.count
    cut = any(not isinstance(group.mig, str) for group in pool.gpus)
    if cut and pool.mig_strategy == "single":
        groups = _device_groups(pool)
        product, memory, count = groups[0].model, groups[0].memory, sum(group.count for group in groups)
    elif len({gpu_product(group) for group in pool.gpus}) == 1:
        count = pool.gpu_count
    sharing = pool.sharing
    labels = {
        GPU_PRESENT_LABEL: "true",
        GPU_PRODUCT_LABEL: f"{product}-SHARED" if sharing and not sharing.rename else product,
        GPU_COUNT_LABEL: str(count),
        GPU_MEMORY_LABEL: str(memory),
        GPU_REPLICAS_LABEL: str(sharing.replicas if sharing else 1),
        SHARING_STRATEGY_LABEL: sharing.strategy if sharing else "none",
        "nvidia.com/gpu.mode": "compute",
        "nvidia.com/mps.capable": "true" if sharing and sharing.strategy == "mps" else "false",
        "nvidia.com/mig.capable": "true" if mig_geometry_of_model(gpu_product(first), memory) else "false",
    }
    if cut:
        labels[MIG_STRATEGY_LABEL] = pool.mig_strategy
    known = find_gpu_model(first.model)
    if known:
        major, minor = known.compute_capability.split(".")
        labels["nvidia.com/gpu.family"] = known.family
        labels["nvidia.com/gpu.compute.major"] = major
        labels["nvidia.com/gpu.compute.minor"] = minor
    return labels
