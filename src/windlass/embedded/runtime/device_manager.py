"""The devices of one node as its kubelet hands them out: who holds which, and which are ill.

Made from a Node object (`Machine.of_node`), so that a Fleet's nodes, those of a dump and this machine's own are all
the same here. The kubelet takes and gives back; `runtime.faults` makes devices ill and well.
"""

from __future__ import annotations

import uuid as identifiers
from collections.abc import Mapping, Sequence

import msgspec

from windlass.model.device import Device, node_devices, node_replicas
from windlass.model.mig import MIG_RESOURCE_PREFIX, profile_of_resource
from windlass.model.node import Node
from windlass.model.requests import node_quantities

GPU_RESOURCE, SHARED_GPU_RESOURCE = "nvidia.com/gpu", "nvidia.com/gpu.shared"
FRACTIONAL_GPU = "share"
"""What a pod holds that asked for a part of a GPU by annotation: no resource counts it."""
_NAMESPACE = identifiers.UUID("2c5c4f6e-6e1f-4b3b-9c52-6d2a0e2f8a41")


class AllocatableDevice(msgspec.Struct, frozen=True, gc=False):
    """One thing that can be handed out: a GPU, a replica of one, or a MIG instance."""

    resource: str
    gpu_index: int
    """Of the device, as placement counts them."""
    slot: int = 0
    """The replica, or the instance on its GPU."""
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
        """`uuids` are the GPUs'; `unit_uuids` those of MIG instances. What isn't given is made up."""
        self.name, self.devices, self.replicas = name, tuple(devices), replicas
        self.devices_by_resource = {resource: tuple(each) for resource, each in devices_by_resource.items()}
        self.uuids = tuple(uuids) or tuple(f"GPU-{self._made(f'gpu/{at}')}" for at in range(len(devices)))
        self.unhealthy: dict[int, DeviceFault] = {
            device.index: DeviceFault(0, "unhealthy since the start")
            for device in devices
            if not device.healthy
        }
        self.unhealthy_mig_instances: dict[str, DeviceFault] = {}
        """MIG instances that are ill on a GPU that is well, by their UUIDs."""
        self._unit_uuids = dict(mig_uuids or {})
        self._held: dict[AllocatableDevice, str] = {}
        self._of_pod: dict[str, tuple[AllocatableDevice, ...]] = {}

    @classmethod
    def from_node(
        cls, node: Node, mig_instances: Sequence[tuple[int, str]] = (), uuids: Sequence[str] = ()
    ) -> DeviceManager:
        """`parts` says which GPU each MIG instance is cut from; without, they are dealt out in turn."""
        capacity, allocatable = node_quantities(node)
        devices = node_devices(node, allocatable, capacity)
        replicas = node_replicas(node)
        whole = [device.index for device in devices if device.mig != "static"]
        units = {
            GPU_RESOURCE: [
                AllocatableDevice(GPU_RESOURCE, at, part) for part in range(replicas) for at in whole
            ]
        }
        cut = [device.index for device in devices if device.mig == "static"]
        if capacity.get(SHARED_GPU_RESOURCE) and cut:
            each = capacity[SHARED_GPU_RESOURCE] // len(cut)
            units[SHARED_GPU_RESOURCE] = [
                AllocatableDevice(SHARED_GPU_RESOURCE, at, part) for part in range(each) for at in cut
            ]
        for resource, amount in capacity.items():
            if resource.startswith(MIG_RESOURCE_PREFIX):
                units[resource] = list(_instances(resource, amount, mig_instances, cut))
        return cls(node.name, devices, units, replicas, uuids)

    def allocate(
        self, pod: str, requests: Mapping[str, int], preferred: Sequence[int] = ()
    ) -> tuple[AllocatableDevice, ...]:
        """Devices for a pod: the wished-for ones where they are free and well, else the first that are."""
        given: list[AllocatableDevice] = []
        for resource, count in requests.items():
            if count:
                given += self._choose(resource, count, preferred, given)
        for unit in given:
            if unit.resource != FRACTIONAL_GPU:
                self._held[unit] = pod
        if given:
            self._of_pod[pod] = tuple(given)
        return tuple(given)

    def _choose(
        self, resource: str, count: int, wish: Sequence[int], given: Sequence[AllocatableDevice]
    ) -> list[AllocatableDevice]:
        if resource == FRACTIONAL_GPU or (
            resource not in self.devices_by_resource and self._can_cut(resource)
        ):
            chosen = [at for at in wish if at < len(self.devices) and at not in self.unhealthy][:count]
            if len(chosen) < count:
                raise DevicesUnavailable(resource, count, len(chosen))
            profile = profile_of_resource(resource) if resource != FRACTIONAL_GPU else ""
            taken = sum(unit.resource == resource for unit in self._held)
            return [AllocatableDevice(resource, at, taken + n, profile) for n, at in enumerate(chosen)]
        free = [
            unit
            for unit in self.devices_by_resource.get(resource, ())
            if unit not in self._held and not self._is_ill(unit) and unit not in given
        ]
        if len(free) < count:
            raise DevicesUnavailable(resource, count, len(free))
        chosen_units: list[AllocatableDevice] = []
        for at in wish:
            fits = next((unit for unit in free if unit.gpu_index == at and unit not in chosen_units), None)
            if fits is not None and len(chosen_units) < count:
                chosen_units.append(fits)
        rest = [unit for unit in free if unit not in chosen_units]
        return [*chosen_units, *rest[: count - len(chosen_units)]]

    def _can_cut(self, resource: str) -> bool:
        dynamic = any(device.mig == "dynamic" for device in self.devices)
        return dynamic and resource.startswith(MIG_RESOURCE_PREFIX)

    def release(self, pod: str) -> None:
        for unit in self._of_pod.pop(pod, ()):
            self._held.pop(unit, None)

    def allocated_to(self, pod: str) -> tuple[AllocatableDevice, ...]:
        return self._of_pod.get(pod, ())

    def pods_using(self, device: int | str) -> list[str]:
        """Pods that hold the device or a part of it; a MIG instance is named by its UUID."""

        def is_meant(unit: AllocatableDevice) -> bool:
            return unit.gpu_index == device if isinstance(device, int) else self.uuid_of(unit) == device

        return [pod for pod, units in self._of_pod.items() if any(map(is_meant, units))]

    def allocatable(self) -> dict[str, int]:
        """What is allocatable of each device resource."""
        return {
            resource: sum(not self._is_ill(unit) for unit in units)
            for resource, units in self.devices_by_resource.items()
        }

    def index_of(self, uuid: str) -> int | None:
        """Of a GPU, or of the GPU that a MIG instance is cut from; None for what isn't here."""
        if uuid in self.uuids:
            return self.uuids.index(uuid)
        return next((unit.gpu_index for unit, known in self._unit_uuids.items() if known == uuid), None)

    def _is_ill(self, unit: AllocatableDevice) -> bool:
        return unit.gpu_index in self.unhealthy or (
            bool(self.unhealthy_mig_instances) and self.uuid_of(unit) in self.unhealthy_mig_instances
        )

    def uuid_of(self, unit: AllocatableDevice) -> str:
        """As CUDA_VISIBLE_DEVICES and nvidia-smi name it."""
        if unit in self._unit_uuids:
            return self._unit_uuids[unit]
        if unit.profile:
            return f"MIG-{self._made(f'mig/{unit.gpu_index}/{unit.slot}/{unit.profile}')}"
        return self.uuids[unit.gpu_index]

    def _made(self, what: str) -> identifiers.UUID:
        return identifiers.uuid5(_NAMESPACE, f"{self.name}/{what}")


def _instances(
    resource: str, amount: int, parts: Sequence[tuple[int, str]], cut: Sequence[int]
) -> Sequence[AllocatableDevice]:
    profile = profile_of_resource(resource)
    places = [at for at, name in parts if name == profile]
    if len(places) != amount:
        places = [cut[number % len(cut)] if cut else 0 for number in range(amount)]
    return [AllocatableDevice(resource, at, number, profile) for number, at in enumerate(places)]
