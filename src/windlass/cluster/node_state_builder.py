"""The arrays of `NodeState` from Node objects, before any pod is accounted.

Called by `node_table` with nodes in rank order. GPU models and MIG geometries get small codes here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec
import numpy as np

from windlass.cluster.node_state import GPU_POD_KINDS, MAX_DEVICES, Ints, NodeState
from windlass.cluster.resource_columns import ResourceColumns
from windlass.model.errors import InputError
from windlass.model.gpu import Device, node_devices, node_replicas
from windlass.model.gpu_models import mig_geometry_of_model
from windlass.model.node import Node
from windlass.model.numa_alignment import ANY_NUMA_NODES, numa_alignment
from windlass.model.requests import node_quantities

MAX_MODELS = 62
"""Limit of GPU models: a pod's allowed models are a bit mask in one signed word."""


class GpuModelCodes:
    """GPU model name → code; only ever grows."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self._codes: dict[str, int] = {}

    def code(self, name: str) -> int:
        found = self._codes.get(name)
        if found is None:
            if len(self.names) == MAX_MODELS:
                raise InputError(f"GPU model {name!r} exceeds the limit of {MAX_MODELS} GPU models")
            found = self._codes[name] = len(self.names)
            self.names.append(name)
        return found

    def mask(self, allowed: Iterable[str]) -> int:
        """The codes of these models as bits; all bits where none is given."""
        wanted = set(allowed)
        if not wanted:
            return (1 << MAX_MODELS) - 1
        return sum(1 << code for code, name in enumerate(self.names) if name in wanted)


class NodeRow(msgspec.Struct, frozen=True):
    """What the arrays need of a node."""

    allocatable: dict[str, int]
    devices: tuple[Device, ...]
    replicas: int
    alignment: int = ANY_NUMA_NODES


def read_node(node: Node) -> NodeRow:
    capacity, allocatable = node_quantities(node)
    replicas = node_replicas(node)
    devices = node_devices(node, allocatable, capacity, replicas)
    if len(devices) > MAX_DEVICES:
        raise InputError(
            f"has {len(devices)} GPUs; the limit is {MAX_DEVICES} per node",
            object=f"Node {node.name}",
            path="status.allocatable",
        )
    several = len({device.numa for device in devices}) > 1
    return NodeRow(
        allocatable, devices, replicas, numa_alignment(node.metadata.annotations) if several else ANY_NUMA_NODES
    )


def build_state(rows: Sequence[NodeRow], resources: ResourceColumns, models: GpuModelCodes) -> NodeState:
    """Arrays for these nodes with everything free."""
    allocatable = np.zeros((len(rows), len(resources)), dtype=np.int64)
    for index, row in enumerate(rows):
        for name, amount in row.allocatable.items():
            allocatable[index, resources.column(name)] = amount
    ends = np.cumsum([len(row.devices) for row in rows], dtype=np.int64)
    counts = np.diff(ends, prepend=0)
    devices = [device for row in rows for device in row.devices]
    groups = [group for row in rows for group in _close_groups(row)]
    return NodeState(
        free=allocatable.copy(),
        allocatable=allocatable,
        node_info=_table([(0, 0, row.replicas, 0, row.alignment) for row in rows], 5)
        + np.stack([ends - counts, ends, 0 * ends, 0 * ends, 0 * ends], 1),
        device_occupancy=_table([(1000 if device.healthy and not device.mig else 0, 0) for device in devices], 2),
        device_info=_table(_device_rows(devices, groups, models), 5),
        gpu_pod_counts=np.zeros((len(rows), GPU_POD_KINDS), dtype=np.int64),
    )


def _close_groups(row: NodeRow) -> list[int]:
    """[device of a node] group of close devices: its NVLink island; or, where NVLink joins all devices or none, or the
    kubelet asks for it, its NUMA node, so that a pod's GPUs share a processor."""
    has_islands = len({device.island for device in row.devices}) > 1 and row.alignment == ANY_NUMA_NODES
    return [device.island if has_islands else device.numa for device in row.devices]


def _device_rows(devices: Sequence[Device], groups: Sequence[int], models: GpuModelCodes) -> list[tuple[int, ...]]:
    """Most devices of a cluster are equal, so each kind is computed once."""
    row_by_kind: dict[tuple[object, ...], tuple[int, ...]] = {}
    rows = []
    for device, group in zip(devices, groups, strict=True):
        kind = (device.model, device.memory_mib, device.healthy, group, device.mig)
        row = row_by_kind.get(kind)
        if row is None:
            code, healthy = models.code(device.model), int(device.healthy)
            row = row_by_kind[kind] = (code, device.memory_mib, healthy, group, _geometry(device))
        rows.append(row)
    return rows


def _geometry(device: Device) -> int:
    found = mig_geometry_of_model(device.model, device.memory_mib)
    return found.number if found and device.mig == "dynamic" and device.healthy else -1


def _table(rows: Sequence[tuple[int, ...]], width: int) -> Ints:
    return np.array(rows, dtype=np.int64).reshape(len(rows), width)
