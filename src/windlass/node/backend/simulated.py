"""A simulated node's GPUs, made from a Fleet entry, with real MIG geometry and injected faults.

Implements `protocol.DeviceBackend` for tests, `windlass up` and `windlass node run --fleet`. Possible MIG layouts
come from `model.mig`, clocks and temperatures are functions of the given clock (`simulated_reading`), mutable
state is in `simulated_state`, and `simulated_host_files` writes the files that a machine would show (`/dev`,
`/proc`, `/sys`).
"""

from __future__ import annotations

import os
import threading
import time
import uuid as identifiers
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import msgspec

from windlass.model.fleet_spec import FleetGpus, FleetPool, gpu_memory_mib, gpu_product
from windlass.model.gpu_models import find_gpu_model, mig_geometry_of_model
from windlass.model.mig import MigGeometry, MigProfile, place_layout
from windlass.node.backend.protocol import (
    LINK_TRAFFIC,
    ComputeResult,
    DeviceError,
    Fault,
    MigModeChange,
    ProcessUsage,
    Reading,
)
from windlass.node.backend.simulated_boards import GpuBoard, board_of
from windlass.node.backend.simulated_host_files import write_host_files
from windlass.node.backend.simulated_reading import describe_gpu, read_gpu, read_instance
from windlass.node.backend.simulated_state import GpuState, Machine, MigInstanceState, StateStore
from windlass.sharing.inventory import Driver, Gpu, Inventory, MigInstance
from windlass.sharing.mig_sizes import instance_engines, instance_memory_mib, instance_multiprocessors

DRIVER = Driver("580.159.04", (13, 0))
UUID_NAMESPACE = identifiers.UUID("6d1c1a0e-6b0f-4d8e-9f0a-2f5f5a0f6a10")
STATE_FILE = "run/windlass/simulated-gpus.json"
_POLL_SECONDS = 0.02


class SimulatedBackend:
    def __init__(
        self,
        pool: FleetPool,
        number: int = 0,
        *,
        folder: Path | None = None,
        clock: Callable[[], float] = time.time,
        driver: Driver = DRIVER,
    ) -> None:
        self.folder = folder
        self._clock = clock
        self._driver = driver
        self._gpus_as_built = tuple(_plain_gpus(pool, number))
        self._groups = [group for group in pool.gpus for _ in range(group.count)]
        path = folder / STATE_FILE if folder is not None else None
        self.store = StateStore(_initial_state(self._gpus_as_built, self._groups, pool, number), path)
        self._faults_read = len(self.store.read().faults)
        self.reset_guard: Callable[[], AbstractContextManager[None]] = nullcontext
        self._name = f"{os.getpid()} {id(self)}"
        """Under which this back end holds the driver."""
        self._files_generation = -1
        self._files_lock = threading.Lock()
        self._write_files()

    def acquire(self) -> None:
        self._hold(True)

    def release(self) -> None:
        self._hold(False)

    def _hold(self, holds: bool) -> None:
        if holds != (self._name in self.store.read().holders):
            with self.store.change() as machine:
                others = [name for name in machine.holders if name != self._name]
                machine.holders = [*others, self._name] if holds else others

    def inventory(self) -> Inventory:
        self._write_files()
        return Inventory(self._driver, self._gpus())

    def _gpus(self) -> tuple[Gpu, ...]:
        states = self.store.read().gpus
        return tuple(_current(gpu, state) for gpu, state in zip(self._gpus_as_built, states, strict=True))

    def reading(self, uuid: str) -> Reading:
        for gpu, state in zip(self._gpus(), self.store.read().gpus, strict=True):
            if state.is_lost:
                continue
            if gpu.uuid == uuid:
                return read_gpu(gpu, state, self._board(gpu), self._clock())
            for instance in gpu.instances:
                if instance.uuid == uuid:
                    return read_instance(gpu, instance, state, self._board(gpu), self._clock())
        return {}

    def link_traffic(self, uuid: str) -> Reading:
        total = self.reading(uuid).get("DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL")
        links = next((self._board(gpu).links for gpu in self._gpus_as_built if gpu.uuid == uuid), 0)
        return dict.fromkeys(LINK_TRAFFIC[:links], total // links) if total is not None else {}

    def description(self, uuid: str) -> Mapping[str, str]:
        return next((describe_gpu(gpu) for gpu in self._gpus_as_built if gpu.uuid == uuid), {})

    def processes(self, uuid: str) -> tuple[ProcessUsage, ...]:
        for gpu, state in zip(self._gpus(), self.store.read().gpus, strict=True):
            if gpu.uuid == uuid:
                return tuple(state.processes)
            for instance in gpu.instances:
                if instance.uuid == uuid:
                    number = instance.gpu_instance
                    return tuple(process for process in state.processes if process.gpu_instance == number)
        return ()

    def wait_for_faults(self, seconds: float) -> tuple[Fault, ...]:
        deadline = time.monotonic() + seconds
        while True:
            faults = self.store.read().faults
            if len(faults) > self._faults_read:
                new = tuple(faults[self._faults_read :])
                self._faults_read = len(faults)
                return new
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                return ()
            time.sleep(min(_POLL_SECONDS, remaining))

    def set_mig_mode(self, uuid: str, enabled: bool) -> MigModeChange:
        with self.store.change() as machine:
            gpu, state = self._find(machine, uuid)
            _raise_if_refused(state, "mig-mode", f"MIG mode of {uuid}")
            if not gpu.mig_capable:
                raise DeviceError(f"MIG mode of {uuid}: Not Supported")
            if state.processes or (state.cuts and not enabled):
                raise DeviceError(f"MIG mode of {uuid}: In use by another client")
            state.mig_pending = enabled
            if state.needs_reset:
                return MigModeChange.NEEDS_RESET
            state.mig_enabled = enabled
        return MigModeChange.DONE

    def create_instance(self, uuid: str, profile: str, start: int) -> None:
        with self.store.change() as machine:
            gpu, state = self._find(machine, uuid)
            what = f"{profile} at slice {start} of {uuid}"
            _raise_if_refused(state, "create", what)
            _raise_if_refused(state, f"create {profile}", what)
            if not state.mig_enabled:
                raise DeviceError(f"{what}: Not Supported")
            geometry, found = _profile_of(gpu, profile)
            taken = _occupied_slices(geometry, state.cuts)
            if start not in found.starts or taken & geometry.mask(found, start):
                raise DeviceError(f"{what}: Insufficient Resources")
            _cut(state, f"{uuid}/{profile}/{start}/{machine.generation}", profile, start)
            state.cuts.sort(key=lambda cut: cut.start)
        self._write_files()

    def destroy_instance(self, uuid: str, gpu_instance: int) -> None:
        with self.store.change() as machine:
            _, state = self._find(machine, uuid)
            what = f"instance {gpu_instance} of {uuid}"
            _raise_if_refused(state, "destroy", what)
            if not any(cut.gpu_instance == gpu_instance for cut in state.cuts):
                raise DeviceError(f"{what}: Not Found")
            if any(process.gpu_instance == gpu_instance for process in state.processes):
                raise DeviceError(f"{what}: In use by another client")
            state.cuts = [cut for cut in state.cuts if cut.gpu_instance != gpu_instance]
        self._write_files()

    def reset(self, uuid: str) -> None:
        with self.reset_guard(), self.store.change() as machine:
            _, state = self._find(machine, uuid)
            _raise_if_refused(state, "reset", f"reset of {uuid}")
            if state.processes or any(name != self._name and _is_alive(name) for name in machine.holders):
                raise DeviceError(f"reset of {uuid}: In use by another client")
            heal(state)
            state.mig_enabled = state.mig_pending
            state.cuts = []
        self._write_files()

    def set_exclusive(self, uuid: str, exclusive: bool) -> None:
        with self.store.change() as machine:
            _, state = self._find(machine, uuid)
            _raise_if_refused(state, "exclusive", f"compute mode of {uuid}")
            state.is_exclusive = exclusive

    def set_time_slice(self, uuid: str, interval: str) -> None:
        if interval not in ("default", "short", "medium", "long"):
            raise DeviceError(f"time slice of {uuid}: {interval!r} is not default, short, medium or long")

    def compute(self, uuid: str) -> ComputeResult:
        for gpu, state in zip(self._gpus(), self.store.read().gpus, strict=True):
            if uuid == gpu.uuid or any(instance.uuid == uuid for instance in gpu.instances):
                if state.is_lost:
                    return ComputeResult(right=False, error="cuInit: no CUDA-capable device is detected (100)")
                if state.is_exclusive and state.processes:
                    busy = "cuCtxCreate: CUDA-capable device(s) is/are busy or unavailable (46)"
                    return ComputeResult(right=False, error=busy, is_busy=True)
                if "compute" in state.refuses:
                    return ComputeResult(right=False, error="17 of 1048576 numbers are wrong")
                return ComputeResult(right=True, device=gpu.name, multiprocessors=gpu.multiprocessors, milliseconds=0.1)
        return ComputeResult(right=False, error="cuDeviceGet: invalid device ordinal (101)")

    def close(self) -> None:
        """Nothing is open."""

    def inject(self, index: int, xid: int = 0, *, gpu_instance: int = -1, **fields: object) -> None:
        """Injects a fault: an Xid as the driver would report it, and fields of `GpuState` that change with it."""
        with self.store.change() as machine:
            state = machine.gpus[index]
            for name, value in fields.items():
                setattr(state, name, value)
            if xid:
                state.xids.append(xid)
                machine.faults.append(Fault(uuid=self._gpus_as_built[index].uuid, xid=xid, gpu_instance=gpu_instance))

    def recover(self, index: int) -> None:
        """Repairs the GPU completely."""
        with self.store.change() as machine:
            heal(machine.gpus[index])

    def _find(self, machine: Machine, uuid: str) -> tuple[Gpu, GpuState]:
        for gpu, state in zip(self._gpus_as_built, machine.gpus, strict=True):
            if gpu.uuid == uuid:
                if state.is_lost:
                    raise DeviceError(f"GPU {uuid}: GPU is lost")
                return gpu, state
        raise DeviceError(f"GPU {uuid}: Not Found")

    def _board(self, gpu: Gpu) -> GpuBoard:
        return board_of(gpu.name.replace(" ", "-"), gpu.geometry)

    def _write_files(self) -> None:
        if self.folder is None:
            return
        if self.store.read().generation == self._files_generation:
            return
        with self._files_lock, self.store.locked():
            generation = self.store.read().generation
            write_host_files(self.folder, self._driver, self._gpus())
            self._files_generation = generation


def heal(state: GpuState) -> None:
    """Clears all faults, as a reset or a repair does."""
    state.is_lost = state.remap_pending = state.remap_failure = False
    state.xids = []
    state.double_bit_errors = state.single_bit_errors = 0
    state.throttle = state.links_down = state.link_errors = state.recovery_action = state.pcie_replays = 0


def _plain_gpus(pool: FleetPool, number: int) -> list[Gpu]:
    """The GPUs without MIG instances and faults."""
    gpus: list[Gpu] = []
    first_island = 0
    islands: list[int] = []
    for group in pool.gpus:
        for position in range(group.count):
            gpus.append(_plain_gpu(pool, number, group, len(gpus)))
            islands.append(first_island + position * group.islands // group.count)
        first_island += group.islands
    return [_with_links(gpu, position, gpus, islands) for position, gpu in enumerate(gpus)]


def _plain_gpu(pool: FleetPool, number: int, group: FleetGpus, index: int) -> Gpu:
    product, memory = gpu_product(group), gpu_memory_mib(group)
    geometry = mig_geometry_of_model(product, memory)
    known = find_gpu_model(product)
    board = board_of(product, geometry)
    major, minor = (known.compute_capability if known else "8.0").split(".")
    numa = index * pool.numa // pool.gpu_count if pool.numa > 1 else 0
    return Gpu(
        index=index,
        minor=index,
        uuid=f"GPU-{identifiers.uuid5(UUID_NAMESPACE, f'{pool.name}/{number}/{index}')}",
        name=product.replace("-", " ") if known is None else _driver_name(product),
        memory_mib=memory,
        compute=(int(major), int(minor)),
        bus_id=f"0000:{0x18 + 0x10 * (index % 8) + index // 8:02x}:00.0",
        pci_id=f"0x{board.device_id}10DE",
        subsystem_id="0x16C110DE",
        numa=numa,
        multiprocessors=board.multiprocessors,
        mig_capable=geometry is not None,
        clique=f"{identifiers.uuid5(UUID_NAMESPACE, pool.clique)}.1" if pool.clique else "",
    )


def _driver_name(product: str) -> str:
    """`NVIDIA-A100-SXM4-80GB` → `NVIDIA A100-SXM4-80GB`: in a label, blanks have become dashes."""
    return product.replace("NVIDIA-H100-80GB-HBM3", "NVIDIA H100 80GB HBM3").replace("-", " ", 1)


def _with_links(gpu: Gpu, position: int, gpus: list[Gpu], islands: list[int]) -> Gpu:
    """NVSwitch if at least eight GPUs are one island, else direct links between the members of an island."""
    board = board_of(gpu.name.replace(" ", "-"), gpu.geometry)
    mates = [peer for peer, island in enumerate(islands) if island == islands[position] and peer != position]
    if not board.links or not mates:
        return msgspec.structs.replace(gpu, peers=(0,) * len(gpus))
    if len(set(islands)) == 1 and len(gpus) >= 8:
        return msgspec.structs.replace(gpu, peers=(0,) * len(gpus), switch_links=board.links)
    links_per_peer = max(1, board.links // len(mates))
    peers = tuple(links_per_peer if peer in mates else 0 for peer in range(len(gpus)))
    return msgspec.structs.replace(gpu, peers=peers)


def _initial_state(gpus: tuple[Gpu, ...], groups: list[FleetGpus], pool: FleetPool, number: int) -> Machine:
    faulty = {index for fault in pool.faults if fault.node == number for index in fault.devices}
    states = []
    for gpu, group in zip(gpus, groups, strict=True):
        board = board_of(gpu.name.replace(" ", "-"), gpu.geometry)
        state = GpuState(minor=gpu.minor, needs_reset=board.resets_for_mig)
        if group.mig and not isinstance(group.mig, str) and gpu.geometry is not None:
            state.mig_enabled = state.mig_pending = True
            for profile, start in place_layout(gpu.geometry, group.mig) or ():
                _cut(state, f"{gpu.uuid}/{profile}/{start}/0", profile, start)
        if gpu.index in faulty:
            state.recovery_action = 1
        states.append(state)
    return Machine(gpus=states)


def _cut(state: GpuState, name: str, profile: str, start: int) -> None:
    """`name` is what its UUID is derived from."""
    uuid = f"MIG-{identifiers.uuid5(UUID_NAMESPACE, name)}"
    cut = MigInstanceState(gpu_instance=state.next_instance, profile=profile, start=start, uuid=uuid)
    state.cuts.append(cut)
    state.next_instance += 1


def _current(gpu: Gpu, state: GpuState) -> Gpu:
    return msgspec.structs.replace(
        gpu,
        minor=state.minor,
        mig_enabled=state.mig_enabled,
        mig_pending=state.mig_pending,
        is_lost=state.is_lost,
        instances=tuple(_instance(gpu, cut, at) for at, cut in enumerate(state.cuts)),
    )


def _instance(gpu: Gpu, cut: MigInstanceState, index: int) -> MigInstance:
    geometry, profile = _profile_of(gpu, cut.profile)
    return MigInstance(
        uuid=cut.uuid,
        index=index,
        gpu_instance=cut.gpu_instance,
        profile=cut.profile,
        start=cut.start,
        size=profile.memory_slices,
        memory_mib=instance_memory_mib(geometry, profile, gpu.memory_mib),
        multiprocessors=instance_multiprocessors(geometry, profile),
        compute_slices=profile.compute_slices,
        instance_slices=profile.compute_slices,
        engines=instance_engines(geometry, profile),
    )


def _profile_of(gpu: Gpu, name: str) -> tuple[MigGeometry, MigProfile]:
    geometry = gpu.geometry
    profile = geometry.profile(name) if geometry else None
    if geometry is None or profile is None:
        raise DeviceError(f"the driver knows no profile {name} on {gpu.uuid}")
    return geometry, profile


def _occupied_slices(geometry: MigGeometry, cuts: list[MigInstanceState]) -> int:
    taken = 0
    for cut in cuts:
        profile = geometry.profile(cut.profile)
        assert profile is not None, "only known profiles are ever cut"
        taken |= geometry.mask(profile, cut.start)
    return taken


def _is_alive(holder: str) -> bool:
    return Path(f"/proc/{holder.partition(' ')[0]}").exists()


def _raise_if_refused(state: GpuState, operation: str, what: str) -> None:
    if operation in state.refuses:
        raise DeviceError(f"{what}: Unknown Error")
