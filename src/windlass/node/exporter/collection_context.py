"""Input of one collection: devices with their readings, and what is known besides the hardware.

`exporter` fills the context (holders, faults, problems) and `collect` the readings; `collect` and `derived_metrics`
turn them into samples.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from windlass.node.backend.protocol import Fault, ProcessUsage, Reading
from windlass.sharing.inventory import Gpu, Inventory, MigInstance

WINDOW_SECONDS = 300.0
"""The window of the counts of Xids and clock events."""


class DeviceClaim(msgspec.Struct, frozen=True):
    """The ResourceClaim (DRA) through which a container holds a device."""

    name: str
    namespace: str
    driver: str
    pool: str
    device: str

    def labels(self) -> dict[str, str]:
        return {
            "dra_claim_name": self.name,
            "dra_claim_namespace": self.namespace,
            "dra_driver_name": self.driver,
            "dra_pool_name": self.pool,
            "dra_device_name": self.device,
        }


class DeviceHolder(msgspec.Struct, frozen=True):
    """A container that holds a device."""

    pod: str
    namespace: str
    container: str
    uid: str = ""
    claim: DeviceClaim | None = None
    """None for a device of a device plugin."""


class CollectionContext(msgspec.Struct, frozen=True, kw_only=True):
    """What a collection knows besides the hardware."""

    hostname: str = ""
    hostname_label: str = "Hostname"
    holders: Mapping[str, Sequence[DeviceHolder]] = {}
    """By UUID of the GPU or MIG device."""
    pod_labels: Mapping[tuple[str, str], Mapping[str, str]] = {}
    """More labels of a pod's samples, by namespace and name."""
    hpc_jobs: Mapping[str, Sequence[str]] = {}
    """Jobs of an HPC scheduler, by GPU index, and for a MIG instance by `GPU.instance`."""
    processes: Mapping[str, Sequence[ProcessUsage]] = {}
    """Processes on devices that several containers share, by UUID; read once per collection."""
    pods_of_processes: Mapping[int, str] = {}
    """UID of the pod that a process belongs to."""
    last_faults: Mapping[tuple[str, int], Fault] = {}
    """By GPU and its instance (-1: the whole GPU), the newest last."""
    recent_xids: Mapping[tuple[str, int], int] = {}
    """How often each Xid was seen on each GPU within the window."""
    recent_clock_events: Mapping[tuple[str, int], int] = {}
    """In how many collections within the window each bit of the clock event reasons was set, by GPU."""
    problem_kinds: Mapping[str, Sequence[str]] = {}
    """Kinds of health problems, by UUID of the GPU or MIG device."""


class MeasuredDevice(msgspec.Struct, frozen=True):
    """A GPU, or one of its instances, as read in this collection."""

    inventory: Inventory
    gpu: Gpu
    instance: MigInstance | None
    reading: Reading

    @property
    def uuid(self) -> str:
        return self.instance.uuid if self.instance else self.gpu.uuid
