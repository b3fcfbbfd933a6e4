"""The devices of one node as its kubelet allocates them: which pod holds which, and which are unhealthy.

Made from a Node object (`DeviceManager.from_node`), so that nodes of a Fleet, of a dump and this machine are
handled alike. The kubelet allocates and releases; `faults` and `process.gpu_health` mark devices unhealthy.
"""

from __future__ import annotations

import uuid as identifiers
from collections.abc import Mapping, Sequence

import msgspec

from windlass.model.device import Device, node_devices, node_replicas
from windlass.model.mig import profile_of_resource
from windlass.model.names.nvidia import GPU_RESOURCE, MIG_RESOURCE_PREFIX, SHARED_GPU_RESOURCE
from windlass.model.node import Node
from windlass.model.requests import node_quantities

FRACTIONAL_GPU = "share"
"""Resource name of a GPU fraction requested by annotation; no extended resource counts it."""
_NAMESPACE = identifiers.UUID("2c5c4f6e-6e1f-4b3b-9c52-6d2a0e2f8a41")


class AllocatableDevice(msgspec.Struct, frozen=True, gc=False):
    """A unit of allocation: a GPU, a replica of one, or a MIG instance."""

    resource: str
    gpu_index: int
    """Index of the GPU on the node."""
    slot: int = 0
    """Number of the replica or MIG instance."""
    profile: str = ""


class DeviceFault(msgspec.Struct, frozen=True):
    xid: int
    message: str


class DevicesUnavailable(Exception):
    """There are fewer healthy, free devices than the pod needs."""

    def __init__(self, resource: str, wanted: int, free: int) -> None:
        super().__init__(
            f"Allocate failed due to requested number of devices unavailable for {resource}. "
            f"Requested: {wanted}, Available: {free}, which is unexpected"
        )


class DeviceManager:
    def __init__(
        self,
        name: str,
        devices: Sequence[Device],
        devices_by_resource: Mapping[str, Sequence[AllocatableDevice]],
        replicas: int = 1,
        uuids: Sequence[str] = (),
        mig_uuids: Mapping[AllocatableDevice, str] | None = None,
    ) -> None:
        """`uuids` are the GPUs' UUIDs, `mig_uuids` those of MIG instances; missing ones are generated."""
        self.name, self.devices, self.replicas = name, tuple(devices), replicas
        self.devices_by_resource = {resource: tuple(units) for resource, units in devices_by_resource.items()}
        self.uuids = tuple(uuids) or tuple(f"GPU-{self._new_uuid(f'gpu/{at}')}" for at in range(len(devices)))
        self.unhealthy: dict[int, DeviceFault] = {
            device.index: DeviceFault(0, "unhealthy since windlass up was started")
            for device in devices
            if not device.healthy
        }
        self.unhealthy_mig_instances: dict[str, DeviceFault] = {}
        """Unhealthy MIG instances of healthy GPUs, by UUID."""
        self.held: set[int] = set()
        """GPUs that the operator has taken out of service."""
        self.has_driver = True
        """Without one no device can be handed out."""
        self._mig_uuids = dict(mig_uuids or {})
        self._pod_of_device: dict[AllocatableDevice, str] = {}
        self._devices_of_pod: dict[str, tuple[AllocatableDevice, ...]] = {}

    @classmethod
    def from_node(
        cls, node: Node, mig_instances: Sequence[tuple[int, str]] = (), uuids: Sequence[str] = ()
    ) -> DeviceManager:
        """`mig_instances` says which GPU each MIG instance is on; without it they are distributed round-robin."""
        capacity, allocatable = node_quantities(node)
        devices = node_devices(node, allocatable, capacity)
        replicas = node_replicas(node)
        full_gpus = [device.index for device in devices if device.mig != "static"]
        units = {
            GPU_RESOURCE: [
                AllocatableDevice(GPU_RESOURCE, index, replica) for replica in range(replicas) for index in full_gpus
            ]
        }
        mig_gpus = [device.index for device in devices if device.mig == "static"]
        if capacity.get(SHARED_GPU_RESOURCE) and mig_gpus:
            per_gpu = capacity[SHARED_GPU_RESOURCE] // len(mig_gpus)
            units[SHARED_GPU_RESOURCE] = [
                AllocatableDevice(SHARED_GPU_RESOURCE, index, replica)
                for replica in range(per_gpu)
                for index in mig_gpus
            ]
        for resource, amount in capacity.items():
            if resource.startswith(MIG_RESOURCE_PREFIX):
                units[resource] = list(_instances(resource, amount, mig_instances, mig_gpus))
        return cls(node.name, devices, units, replicas, uuids)

    def allocate(
        self, pod: str, requests: Mapping[str, int], preferred: Sequence[int] = ()
    ) -> tuple[AllocatableDevice, ...]:
        """Allocates devices for a pod: the preferred ones if they are free and healthy, else the first that are."""
        allocated: list[AllocatableDevice] = []
        for resource, count in requests.items():
            if count:
                allocated += self._choose(resource, count, preferred, allocated)
        for unit in allocated:
            if unit.resource != FRACTIONAL_GPU:
                self._pod_of_device[unit] = pod
        if allocated:
            self._devices_of_pod[pod] = tuple(allocated)
        return tuple(allocated)

    def _choose(
        self, resource: str, count: int, preferred: Sequence[int], allocated: Sequence[AllocatableDevice]
    ) -> list[AllocatableDevice]:
        if resource == FRACTIONAL_GPU or (
            resource not in self.devices_by_resource and self._can_create_instance(resource)
        ):
            taken = self._whole_gpus() if resource == FRACTIONAL_GPU else set()
            usable = set(range(len(self.devices))) - self.unhealthy.keys() - taken - self.held
            usable = usable if self.has_driver else set()
            chosen = [gpu for gpu in preferred if gpu in usable][:count]
            if len(chosen) < count:
                raise DevicesUnavailable(resource, count, len(chosen))
            profile = profile_of_resource(resource) if resource != FRACTIONAL_GPU else ""
            in_use = sum(unit.resource == resource for unit in self._pod_of_device)
            return [AllocatableDevice(resource, gpu, in_use + number, profile) for number, gpu in enumerate(chosen)]
        shared = self._shared_gpus() if resource == GPU_RESOURCE else set()
        free = [
            unit
            for unit in self.devices_by_resource.get(resource, ())
            if unit not in self._pod_of_device
            and not self._is_unhealthy(unit)
            and unit not in allocated
            and unit.gpu_index not in shared
        ]
        if len(free) < count:
            raise DevicesUnavailable(resource, count, len(free))
        picked: list[AllocatableDevice] = []
        for gpu in preferred:
            match = next((unit for unit in free if unit.gpu_index == gpu and unit not in picked), None)
            if match is not None and len(picked) < count:
                picked.append(match)
        rest = [unit for unit in free if unit not in picked]
        return [*picked, *rest[: count - len(picked)]]

    def _shared_gpus(self) -> set[int]:
        """GPUs of which pods hold shares: they are not given whole. Replicas may stand beside shares."""
        held = (unit for units in self._devices_of_pod.values() for unit in units)
        return {unit.gpu_index for unit in held if unit.resource == FRACTIONAL_GPU} if self.replicas == 1 else set()

    def _whole_gpus(self) -> set[int]:
        held = (unit for unit in self._pod_of_device if unit.resource == GPU_RESOURCE)
        return {unit.gpu_index for unit in held} if self.replicas == 1 else set()

    def _can_create_instance(self, resource: str) -> bool:
        dynamic = any(device.mig == "dynamic" for device in self.devices)
        return dynamic and resource.startswith(MIG_RESOURCE_PREFIX)

    def release(self, pod: str) -> None:
        for device in self._devices_of_pod.pop(pod, ()):
            self._pod_of_device.pop(device, None)

    def allocated_to(self, pod: str) -> tuple[AllocatableDevice, ...]:
        return self._devices_of_pod.get(pod, ())

    def pods_using(self, device: int | str) -> list[str]:
        """Pods that hold the device or a part of it; a MIG instance is given by its UUID."""

        def matches(held: AllocatableDevice) -> bool:
            return held.gpu_index == device if isinstance(device, int) else self.uuid_of(held) == device

        return [pod for pod, held_devices in self._devices_of_pod.items() if any(map(matches, held_devices))]

    def allocatable(self) -> dict[str, int]:
        """The number of healthy devices of each resource."""
        return {
            resource: sum(not self._is_unhealthy(unit) for unit in units)
            for resource, units in self.devices_by_resource.items()
        }

    def index_of(self, uuid: str) -> int | None:
        """The index of a GPU, or of the GPU that a MIG instance is on; None if unknown."""
        if uuid in self.uuids:
            return self.uuids.index(uuid)
        return next((device.gpu_index for device, known in self._mig_uuids.items() if known == uuid), None)

    def _is_unhealthy(self, unit: AllocatableDevice) -> bool:
        if unit.gpu_index in self.held or not self.has_driver:
            return True
        return unit.gpu_index in self.unhealthy or (
            bool(self.unhealthy_mig_instances) and self.uuid_of(unit) in self.unhealthy_mig_instances
        )

    def uuid_of(self, device: AllocatableDevice) -> str:
        """As CUDA_VISIBLE_DEVICES and nvidia-smi name it."""
        if device in self._mig_uuids:
            return self._mig_uuids[device]
        if device.profile:
            return f"MIG-{self._new_uuid(f'mig/{device.gpu_index}/{device.slot}/{device.profile}')}"
        return self.uuids[device.gpu_index]

    def _new_uuid(self, name: str) -> identifiers.UUID:
        return identifiers.uuid5(_NAMESPACE, f"{self.name}/{name}")


def _instances(
    resource: str, amount: int, mig_instances: Sequence[tuple[int, str]], mig_gpus: Sequence[int]
) -> Sequence[AllocatableDevice]:
    profile = profile_of_resource(resource)
    indices = [index for index, name in mig_instances if name == profile]
    if len(indices) != amount:
        indices = [mig_gpus[number % len(mig_gpus)] if mig_gpus else 0 for number in range(amount)]
    return [AllocatableDevice(resource, index, number, profile) for number, index in enumerate(indices)]
