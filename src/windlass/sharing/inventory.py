"""The GPUs of one node as sharing sees them: what each is, how it is cut, what it is wired to.

Made by the node agent's back ends (`node.backend`); read by everything that decides what a node offers:
`advertised_resources`, `mig_plan`, the preferred allocation, labels, CDI specs and the exporter. They share one
inventory, so that they can't disagree about the hardware.
"""

from __future__ import annotations

import msgspec

from windlass.model.gpu_models import mig_geometry_of_model
from windlass.model.mig import MigGeometry


class Engines(msgspec.Struct, frozen=True):
    """What an instance has besides multiprocessors and memory."""

    copy: int = 0
    decoder: int = 0
    encoder: int = 0
    jpeg: int = 0
    ofa: int = 0


class MigInstance(msgspec.Struct, frozen=True, kw_only=True):
    """One MIG device: a compute instance that has its GPU instance to itself."""

    uuid: str
    index: int
    """MIG index on its GPU, as in `0:3`."""
    gpu_instance: int
    compute_instance: int = 0
    profile: str
    """`1g.18gb`, `1g.18gb+me`; with a `2c.` in front where the compute instance is smaller than the GPU instance."""
    start: int
    size: int
    """Memory slices."""
    memory_mib: int = 0
    multiprocessors: int = 0
    compute_slices: int = 0
    instance_slices: int = 0
    engines: Engines = Engines()

    @property
    def has_all_compute_slices(self) -> bool:
        """Whether it has all compute slices of its GPU instance; only such instances are advertised."""
        return "c." not in self.profile


class Gpu(msgspec.Struct, frozen=True, kw_only=True):
    """One GPU that the driver knows, or knew until it was lost."""

    index: int
    minor: int
    """Of `/dev/nvidia<minor>`; not always the index."""
    uuid: str
    name: str
    """As the driver says: `NVIDIA H200`."""
    memory_mib: int
    compute: tuple[int, int]
    """Compute capability."""
    bus_id: str
    """`0000:18:00.0`, lower case, as under `/sys/bus/pci`."""
    pci_id: str = ""
    """`0x<device><vendor>`, as in mig-parted's device filters: `0x233510DE`."""
    subsystem_id: str = "0x00000000"
    """Of the board that the chip is on, in the same form; zero if unknown."""
    pci_class: str = "0x030200"
    numa: int = -1
    """-1 if unknown."""
    multiprocessors: int = 0
    mig_capable: bool = False
    mig_enabled: bool = False
    mig_pending: bool = False
    """The mode after the next reset."""
    instances: tuple[MigInstance, ...] = ()
    peers: tuple[int, ...] = ()
    """NVLinks to each GPU of the node, by position in the inventory."""
    switch_links: int = 0
    """NVLinks to a switch: GPUs that have any reach each other through it."""
    clique: str = ""
    """`<cluster uuid>.<clique id>` of the NVLink domain across nodes."""
    is_lost: bool = False
    """The driver can't talk to it any more; everything else is what was last known."""

    @property
    def geometry(self) -> MigGeometry | None:
        return mig_geometry_of_model(self.name.replace(" ", "-"), self.memory_mib)


class Driver(msgspec.Struct, frozen=True):
    version: str
    cuda: tuple[int, int]
    """The newest CUDA that the driver serves."""


class Inventory(msgspec.Struct, frozen=True):
    """Everything on the node at one moment."""

    driver: Driver
    gpus: tuple[Gpu, ...]

    def gpu(self, uuid: str) -> Gpu | None:
        return next((gpu for gpu in self.gpus if gpu.uuid == uuid), None)

    def parent_of(self, uuid: str) -> Gpu | None:
        """The GPU with this UUID, or the one that the MIG device with this UUID is cut from."""
        for gpu in self.gpus:
            if gpu.uuid == uuid or any(instance.uuid == uuid for instance in gpu.instances):
                return gpu
        return None

    def linked(self, a: int, b: int) -> bool:
        """Whether two GPUs, by position, reach each other over NVLink or a switch without a third GPU."""
        first, second = self.gpus[a], self.gpus[b]
        direct = b < len(first.peers) and first.peers[b] > 0
        return direct or (first.switch_links > 0 and second.switch_links > 0)

    def islands(self) -> tuple[int, ...]:
        """The NVLink island of each GPU: the position of its first member. A GPU without links is its own."""
        island = list(range(len(self.gpus)))
        for at in range(len(self.gpus)):
            for other in range(at):
                if self.linked(at, other) and island[other] != island[at]:
                    joined = sorted((island[other], island[at]))
                    island = [joined[0] if label == joined[1] else label for label in island]
        return tuple(island)
