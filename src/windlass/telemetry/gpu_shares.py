"""How much of which GPU every bound pod holds, in thousandths of a GPU.

`ledger` makes states of it. A pod's devices are those of its grants. Of GPUs with a fixed MIG layout, or with renamed
shares, Kubernetes only counts the parts: their pods are laid on the node's partitioned GPUs in order, so that the sums
of the node are right, while which of them it is on is not known. A MIG instance counts by its memory slices, as quota
does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np

from windlass.cluster.node_state import DEV_FIRST, GEOMETRY, MEMORY_MIB
from windlass.cluster.node_state_builder import read_node
from windlass.cluster.pod_table import UNREADABLE
from windlass.cluster.shape import Shape
from windlass.cluster.snapshot import Snapshot
from windlass.model.decision import DeviceGrant
from windlass.model.digits import is_digits
from windlass.model.errors import InputError
from windlass.model.mig import GEOMETRIES, find_profile, profile_of_resource
from windlass.model.names.nvidia import GPU_REPLICAS_LABEL, GPU_RESOURCE, MIG_RESOURCE_PREFIX, SHARED_GPU_RESOURCE
from windlass.model.pod import Pod
from windlass.model.requests import parse_amount

WHOLE_MILLI = 1000


class PodShare(NamedTuple):
    pod_row: int
    milli: int


def shares_by_device(snapshot: Snapshot) -> dict[int, list[PodShare]]:
    """Device row → what pods hold of it; never more than the whole GPU, whatever the kubelet has handed out twice."""
    divider = _Divider(snapshot)
    pods = snapshot.pods
    fixed = _fixed_layout_columns(snapshot)
    counted: dict[int, list[int]] = {}
    unreadable: list[int] = []
    for row in np.flatnonzero((pods.node >= 0) & (pods.alive == 1)).tolist():
        if int(pods.shape[row]) == UNREADABLE:
            unreadable.append(row)
            continue
        divider.take_grants(row)
        if not pods.grants[row] and fixed and _units(snapshot.shapes[int(pods.shape[row])], fixed):
            counted.setdefault(int(pods.node[row]), []).append(row)
    for node, rows in counted.items():
        divider.take_parts(node, rows, fixed)
    for row in unreadable:
        divider.take_unreadable(row)
    return divider.shares


class _Divider:
    """Divides GPUs among pods, each up to the whole GPU."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot, self._pods, self._state = snapshot, snapshot.pods, snapshot.node_state
        self.shares: dict[int, list[PodShare]] = {}
        self._left: dict[int, int] = {}

    def take_grants(self, row: int) -> None:
        devices = self._state.devices(int(self._pods.node[row]))
        for grant in self._pods.grants[row]:
            if grant.index < len(devices):
                device = devices[grant.index]
                self._take(device, row, _grant_milli(grant, int(self._state.device_info[device, GEOMETRY])))

    def take_parts(self, node: int, rows: list[int], fixed: Mapping[str, int]) -> None:
        """Pods of a node whose parts Kubernetes only counts, on its partitioned GPUs in order."""
        state = self._state
        first, indices, weights = int(state.node_info[node, DEV_FIRST]), *_fixed_layout(self._snapshot, node)
        total = sum(int(state.allocatable[node, fixed[name]]) * weight for name, weight in weights.items())
        for row in rows:
            shape = self._snapshot.shapes[int(self._pods.shape[row])]
            units = sum(amount * weights.get(name, 0) for name, amount in _units(shape, fixed).items())
            rest = WHOLE_MILLI * len(indices) * units // max(1, total)
            for index in indices:
                rest = self._take(first + index, row, rest)

    def take_unreadable(self, row: int) -> None:
        """A pod that runs, and whose request says something that can't be read, still has the GPUs of its limits: on
        those that nobody else holds, since nothing says which."""
        wanted = _limit_gpus(self._pods.objects[row])
        for device in self._state.devices(int(self._pods.node[row])):
            if not wanted:
                return
            if device not in self.shares:
                self._take(device, row, WHOLE_MILLI)
                wanted -= 1

    def _take(self, device: int, pod_row: int, milli: int) -> int:
        """What is left of the request."""
        left = self._left.get(device, WHOLE_MILLI)
        taken = max(0, min(milli, left))
        if taken:
            self.shares.setdefault(device, []).append(PodShare(pod_row, taken))
            self._left[device] = left - taken
        return milli - taken


def _limit_gpus(pod: Pod) -> int:
    total = 0
    for container in pod.spec.containers:
        try:
            total += parse_amount(GPU_RESOURCE, container.resources.limits.get(GPU_RESOURCE, 0))
        except InputError:
            continue
    return total


def shape_milli(shape: Shape, snapshot: Snapshot) -> int:
    """Milli-GPU that a pod of the shape asks for; of memory, as on the largest GPU of the cluster."""
    gpu = shape.gpu
    if gpu is None:
        return sum(
            _unit_milli(name, snapshot) * amount
            for name, amount in shape.requests
            if name == SHARED_GPU_RESOURCE or name.startswith(MIG_RESOURCE_PREFIX)
        )
    if gpu.profile:
        return gpu.count * profile_milli(gpu.profile)
    if gpu.memory_mib:
        largest = int(snapshot.node_state.device_info[:, MEMORY_MIB].max(initial=1))
        return gpu.count * min(WHOLE_MILLI, -(-gpu.memory_mib * WHOLE_MILLI // max(1, largest)))
    return gpu.count * gpu.milli


def _grant_milli(grant: DeviceGrant, geometry: int) -> int:
    if not grant.profile:
        return grant.milli
    profile = find_profile(geometry, grant.profile)
    if profile is None:
        return profile_milli(grant.profile)
    return WHOLE_MILLI * profile.memory_slices // GEOMETRIES[geometry].memory_slices


def profile_milli(name: str) -> int:
    """Of the first geometry that has the profile; a whole GPU for a profile that none has."""
    for geometry in GEOMETRIES:
        profile = geometry.profile(name)
        if profile is not None:
            return WHOLE_MILLI * profile.memory_slices // geometry.memory_slices
    return WHOLE_MILLI


def _unit_milli(resource: str, snapshot: Snapshot) -> int:
    if resource != SHARED_GPU_RESOURCE:
        try:
            return profile_milli(profile_of_resource(resource))
        except InputError:
            return WHOLE_MILLI
    replicas = (node.labels.get(GPU_REPLICAS_LABEL, "") for node in snapshot.nodes.objects)
    return WHOLE_MILLI // max((int(text) for text in replicas if is_digits(text) and int(text)), default=1)


def _fixed_layout_columns(snapshot: Snapshot) -> dict[str, int]:
    """Resources that count parts of partitioned GPUs → their columns."""
    width = snapshot.node_state.allocatable.shape[1]
    names = (snapshot.resources.name(column) for column in range(width))
    return {
        name: column
        for column, name in enumerate(names)
        if name == SHARED_GPU_RESOURCE or name.startswith(MIG_RESOURCE_PREFIX)
    }


def _units(shape: Shape, fixed: Mapping[str, int]) -> dict[str, int]:
    return {name: amount for name, amount in shape.requests if name in fixed}


def _fixed_layout(snapshot: Snapshot, node: int) -> tuple[list[int], dict[str, int]]:
    """Indices of the node's partitioned GPUs, and the weight of a unit of each resource that counts their parts."""
    try:
        devices = read_node(snapshot.nodes.objects[node]).devices
    except InputError:
        return [], {}
    indices = [device.index for device in devices if device.mig == "static"]
    return indices, {name: _unit_weight(name) for name in _advertised(snapshot, node)}


def _advertised(snapshot: Snapshot, node: int) -> Iterator[str]:
    for name, column in _fixed_layout_columns(snapshot).items():
        if snapshot.node_state.allocatable[node, column]:
            yield name


def _unit_weight(resource: str) -> int:
    """Weight beside the other parts of the node: thousandths of a GPU of an instance, 1 for an equal share."""
    if resource == SHARED_GPU_RESOURCE:
        return 1
    try:
        return profile_milli(profile_of_resource(resource))
    except InputError:
        return 1
