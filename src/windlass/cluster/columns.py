"""Nodes into numbers: the state arrays of a list of Node objects, before any pod is counted.

Fed by the store with nodes in rank order; feeds `NodeState`. GPU models and MIG geometries get small codes here.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from windlass.cluster.resources import ResourceBook
from windlass.cluster.state import GPU_KINDS, MAX_DEVICES, NodeState
from windlass.model.catalogue import find_model
from windlass.model.errors import InputError
from windlass.model.gpu import Device, node_devices, node_replicas
from windlass.model.mig import GEOMETRIES, MigProfile
from windlass.model.node import Node
from windlass.model.requests import node_quantities


GEOMETRY_NAMES = tuple(GEOMETRIES)
"""A MIG geometry's code is its place here."""


class ModelBook:
    """GPU model name → code; only ever grows."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self._codes: dict[str, int] = {}

    def code(self, name: str) -> int:
        found = self._codes.get(name)
        if found is None:
            found = self._codes[name] = len(self.names)
            self.names.append(name)
        return found


class NodeRow(msgspec.Struct, frozen=True):
    """One node, read once: its quantities and its devices."""

    allocatable: dict[str, int]
    devices: tuple[Device, ...]
    replicas: int


def read_node(node: Node) -> NodeRow:
    capacity, allocatable = node_quantities(node)
    devices = node_devices(node, allocatable, capacity)
    if len(devices) > MAX_DEVICES:
        raise InputError(
            f"has {len(devices)} GPUs; a node can have at most {MAX_DEVICES}",
            object=f"Node {node.name}",
            path="status.allocatable",
        )
    return NodeRow(allocatable, devices, node_replicas(node))


def build_state(rows: Sequence[NodeRow], resources: ResourceBook, models: ModelBook) -> NodeState:
    """Arrays for these nodes with everything free."""
    for row in rows:
        for name in row.allocatable:
            resources.column(name)
    total = np.zeros((len(rows), len(resources)), dtype=np.int64)
    for i, row in enumerate(rows):
        for name, amount in row.allocatable.items():
            total[i, resources.column(name)] = amount
    devices = [device for row in rows for device in row.devices]
    counts = np.array([0, *(len(row.devices) for row in rows)], dtype=np.int64)
    whole = [device.healthy and device.mig == "" for device in devices]
    return NodeState(
        free=total.copy(),
        total=total,
        dev_start=np.cumsum(counts),
        dev_free=_ints(1000 if usable else 0 for usable in whole),
        dev_model=_ints(models.code(device.model) for device in devices),
        dev_memory=_ints(device.memory_mib for device in devices),
        dev_healthy=_ints(int(device.healthy) for device in devices),
        dev_island=_ints(device.island for device in devices),
        dev_geometry=_ints(_geometry(device) for device in devices),
        dev_slices=np.zeros(len(devices), dtype=np.int64),
        replicas=_ints(row.replicas for row in rows),
        kinds=np.zeros((len(rows), GPU_KINDS), dtype=np.int64),
        blocked=np.zeros(len(rows), dtype=np.int64),
    )


def _geometry(device: Device) -> int:
    model = find_model(device.model)
    if device.mig != "dynamic" or not device.healthy or model is None or not model.geometry:
        return -1
    return GEOMETRY_NAMES.index(model.geometry)


def profile_in(geometry: int, name: str) -> MigProfile | None:
    """The MIG profile of that name in a geometry, given by its code."""
    return GEOMETRIES[GEOMETRY_NAMES[geometry]].profile(name) if geometry >= 0 else None


def instance_mask(geometry: int, profile: MigProfile, start: int) -> int:
    """The bits of `NodeState.dev_slices` that an instance takes."""
    return GEOMETRIES[GEOMETRY_NAMES[geometry]].mask(profile, start)


def _ints(values: object) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.fromiter(values, dtype=np.int64)  # type: ignore[call-overload,no-any-return]
