"""Real NVIDIA GPUs through NVML, by way of nvidia-ml-py.

Fed by the driver's `libnvidia-ml.so.1`; implements `protocol.DeviceBackend`. Every call can fail on its own (a lost
GPU, MIG mode, an old driver): what fails is left out of the inventory or the reading, and only a missing driver is an
error. NVML gives profile enums, profile ids and names that are three different things; the table of a GPU's profiles is
asked for once and kept.
"""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec
import pynvml as nv

from windlass.node.backend.nvml_reading import NvmlReader
from windlass.node.backend.protocol import DeviceError, Fault, ModeChange, ProcessUse, Reading
from windlass.node.root import HostRoot
from windlass.sharing.inventory import Driver, Engines, Gpu, Instance, Inventory
from windlass.sharing.mig import profile_name

EVERYWHERE = 0xFFFFFFFF
"""NVML's word for "not one instance but the whole GPU"."""
SKIPPED_NAMES = ("DGX Display", "NVIDIA DGX Display")
_SUFFIXES = {7: "+me", 8: "+me", 0xA: "+gfx", 0xB: "+gfx", 0xC: "+gfx", 0x11: "+gfx"}
_SUFFIXES |= {0xD: "-me", 0xE: "-me", 0xF: "+me.all", 0x10: "+me.all"}
_MOST_LINKS = 18
Value = TypeVar("Value")


class Profile(msgspec.Struct, frozen=True):
    """A GPU instance profile as this driver numbers it."""

    name: str
    id: int
    slices: int
    memory_mib: int
    multiprocessors: int
    engines: Engines


class NvmlBackend:
    def __init__(self, root: HostRoot | None = None) -> None:
        self.root = root or HostRoot()
        try:
            nv.nvmlInit()
        except nv.NVMLError as error:
            raise DeviceError(f"NVML can't be used: {error}; is the NVIDIA driver loaded?") from None
        self._known: dict[int, Gpu] = {}
        self._profiles: dict[str, tuple[Profile, ...]] = {}
        self._reader = NvmlReader()
        self._events: Any = None

    def inventory(self) -> Inventory:
        try:
            count = nv.nvmlDeviceGetCount()
            cuda = nv.nvmlSystemGetCudaDriverVersion_v2()
            driver = Driver(nv.nvmlSystemGetDriverVersion(), (cuda // 1000, cuda % 1000 // 10))
        except nv.NVMLError as error:
            raise DeviceError(f"NVML doesn't answer: {error}") from None
        gpus = [self._gpu(index) for index in range(count)]
        seen = [gpu for gpu in gpus if gpu is not None and gpu.name not in SKIPPED_NAMES]
        # A GPU that fell off the bus is no longer counted: it stays known, marked, until the agent starts anew.
        seen += [gpu for index, gpu in self._known.items() if index >= count and not _among(gpu, seen)]
        for gpu in seen:
            self._known[gpu.index] = msgspec.structs.replace(gpu, is_lost=True)
        return Inventory(driver, _with_peers(tuple(seen)))

    def _gpu(self, index: int) -> Gpu | None:
        try:
            handle = nv.nvmlDeviceGetHandleByIndex(index)
            return self._describe(index, handle)
        except nv.NVMLError:
            return self._known.get(index)

    def _describe(self, index: int, handle: Any) -> Gpu:
        pci = nv.nvmlDeviceGetPciInfo(handle)
        bus_id = _short_bus_id(_text(pci.busId))
        mode = _maybe(lambda: nv.nvmlDeviceGetMigMode(handle))
        total = nv.nvmlDeviceGetMemoryInfo(handle).total >> 20
        uuid = _text(nv.nvmlDeviceGetUUID(handle))
        attributes = _maybe(lambda: nv.nvmlDeviceGetAttributes_v2(handle))
        return Gpu(
            index=index,
            minor=nv.nvmlDeviceGetMinorNumber(handle),
            uuid=uuid,
            name=_text(nv.nvmlDeviceGetName(handle)),
            memory_mib=total,
            compute=tuple(nv.nvmlDeviceGetCudaComputeCapability(handle)),
            bus_id=bus_id,
            pci_id=f"0x{pci.pciDeviceId:08X}",
            pci_class=self.root.pci_class(bus_id),
            numa=self.root.numa_of(bus_id),
            multiprocessors=attributes.multiprocessorCount if attributes else 0,
            mig_capable=mode is not None,
            mig_enabled=bool(mode and mode[0]),
            mig_pending=bool(mode and mode[1]),
            instances=self._instances(handle, uuid, total) if mode and mode[0] else (),
            switch_links=_switch_links(handle),
            clique=_clique(handle),
        )

    def _instances(self, handle: Any, uuid: str, total_mib: int) -> tuple[Instance, ...]:
        found = []
        for index in range(_maybe(lambda: nv.nvmlDeviceGetMaxMigDeviceCount(handle)) or 0):
            try:
                device = nv.nvmlDeviceGetMigDeviceHandleByIndex(handle, index)
                found.append(self._instance(handle, uuid, device, index, total_mib))
            except nv.NVMLError:
                continue
        return tuple(found)

    def _instance(self, handle: Any, uuid: str, device: Any, index: int, total_mib: int) -> Instance:
        attributes = nv.nvmlDeviceGetAttributes_v2(device)
        gpu_instance = nv.nvmlDeviceGetGpuInstanceId(device)
        info = nv.nvmlGpuInstanceGetInfo(nv.nvmlDeviceGetGpuInstanceById(handle, gpu_instance))
        profile = next((each for each in self._profiles_of(handle, uuid) if each.id == info.profileId), None)
        slices, cut = attributes.gpuInstanceSliceCount, attributes.computeInstanceSliceCount
        name = profile.name if profile else profile_name(slices, attributes.memorySizeMB, total_mib)
        return Instance(
            uuid=_text(nv.nvmlDeviceGetUUID(device)),
            index=index,
            gpu_instance=gpu_instance,
            compute_instance=nv.nvmlDeviceGetComputeInstanceId(device),
            profile=name if cut == slices else f"{cut}c.{name}",
            start=info.placement.start,
            size=info.placement.size,
            memory_mib=attributes.memorySizeMB,
            multiprocessors=attributes.multiprocessorCount,
            compute_slices=cut,
            instance_slices=slices,
            engines=Engines(
                attributes.sharedCopyEngineCount,
                attributes.sharedDecoderCount,
                attributes.sharedEncoderCount,
                attributes.sharedJpegCount,
                attributes.sharedOfaCount,
            ),
        )

    def _profiles_of(self, handle: Any, uuid: str) -> tuple[Profile, ...]:
        if uuid not in self._profiles:
            total = nv.nvmlDeviceGetMemoryInfo(handle).total >> 20
            found = []
            for number in range(nv.NVML_GPU_INSTANCE_PROFILE_COUNT):
                info = _maybe(lambda n=number: nv.nvmlDeviceGetGpuInstanceProfileInfo(handle, n))
                if info is not None:
                    found.append(_profile(info, number, total))
            self._profiles[uuid] = tuple(found)
        return self._profiles[uuid]

    def reading(self, uuid: str) -> Reading:
        try:
            return self._reader.read(nv.nvmlDeviceGetHandleByUUID(uuid), uuid)
        except nv.NVMLError:
            return {}

    def processes(self, uuid: str) -> tuple[ProcessUse, ...]:
        try:
            handle = nv.nvmlDeviceGetHandleByUUID(uuid)
        except nv.NVMLError:
            return ()
        busy = self._reader.process_utilization(handle, uuid)
        found: dict[int, ProcessUse] = {}
        for ask in (
            nv.nvmlDeviceGetComputeRunningProcesses,
            nv.nvmlDeviceGetMPSComputeRunningProcesses,
            nv.nvmlDeviceGetGraphicsRunningProcesses,
        ):
            for process in _maybe(lambda ask=ask: ask(handle)) or ():
                instance = getattr(process, "gpuInstanceId", EVERYWHERE)
                found[process.pid] = ProcessUse(
                    pid=process.pid,
                    memory_mib=(process.usedGpuMemory or 0) >> 20,
                    sm_percent=busy.get(process.pid, -1),
                    gpu_instance=-1 if instance == EVERYWHERE else instance,
                )
        return tuple(found[pid] for pid in sorted(found))

    def wait_for_faults(self, seconds: float) -> tuple[Fault, ...]:
        if self._events is None:
            self._events = self._register()
        try:
            event = nv.nvmlEventSetWait_v2(self._events, int(seconds * 1000))
        except nv.NVMLError_Timeout:
            return ()
        except nv.NVMLError as error:
            raise DeviceError(f"waiting for faults failed: {error}") from None
        if event.eventType != nv.nvmlEventTypeXidCriticalError:
            return ()
        return (
            Fault(
                uuid=_maybe(lambda: _text(nv.nvmlDeviceGetUUID(event.device))) or "",
                xid=int(event.eventData),
                gpu_instance=-1 if event.gpuInstanceId == EVERYWHERE else event.gpuInstanceId,
                compute_instance=-1 if event.computeInstanceId == EVERYWHERE else event.computeInstanceId,
            ),
        )

    def _register(self) -> Any:
        events = nv.nvmlEventSetCreate()
        for index in range(nv.nvmlDeviceGetCount()):
            handle = _maybe(lambda i=index: nv.nvmlDeviceGetHandleByIndex(i))
            supported = _maybe(lambda h=handle: nv.nvmlDeviceGetSupportedEventTypes(h)) if handle else 0
            wanted = (supported or 0) & (nv.nvmlEventTypeXidCriticalError | nv.nvmlEventTypeDoubleBitEccError)
            if wanted:
                _maybe(lambda h=handle, w=wanted: nv.nvmlDeviceRegisterEvents(h, w, events))
        return events

    def set_mig_mode(self, uuid: str, enabled: bool) -> ModeChange:
        handle = self._handle(uuid)
        status = _call(f"MIG mode of {uuid}", lambda: nv.nvmlDeviceSetMigMode(handle, int(enabled)))
        if status == nv.NVML_ERROR_RESET_REQUIRED:
            return ModeChange.NEEDS_RESET
        if status != nv.NVML_SUCCESS:
            raise DeviceError(f"MIG mode of {uuid} was not changed: {nv.nvmlErrorString(status)}")
        return ModeChange.DONE

    def create_instance(self, uuid: str, profile: str, start: int) -> None:
        handle = self._handle(uuid)
        found = next((each for each in self._profiles_of(handle, uuid) if each.name == profile), None)
        if found is None:
            raise DeviceError(f"the driver knows no profile {profile} on {uuid}")
        size = self._size(handle, found, start)
        place = nv.c_nvmlGpuInstancePlacement_t(start, size)
        what = f"{profile} at slice {start} of {uuid}"
        instance = _call(
            what,
            lambda: nv.nvmlDeviceCreateGpuInstanceWithPlacement(handle, found.id, ctypes.byref(place)),
        )
        try:
            _call(f"compute instance of {what}", lambda: _create_compute(instance, found.slices))
        except DeviceError:
            _maybe(lambda: nv.nvmlGpuInstanceDestroy(instance))
            raise

    def _size(self, handle: Any, profile: Profile, start: int) -> int:
        count = ctypes.c_uint(0)
        nv.nvmlDeviceGetGpuInstancePossiblePlacements(handle, profile.id, None, ctypes.byref(count))
        places = (nv.c_nvmlGpuInstancePlacement_t * max(1, count.value))()
        nv.nvmlDeviceGetGpuInstancePossiblePlacements(handle, profile.id, places, ctypes.byref(count))
        for place in places[: count.value]:
            if place.start == start:
                return int(place.size)
        starts = ", ".join(str(place.start) for place in places[: count.value])
        raise DeviceError(f"{profile.name} can't start at {start}; the driver allows {starts or 'nothing'}")

    def destroy_instance(self, uuid: str, gpu_instance: int) -> None:
        handle = self._handle(uuid)
        instance = _call(
            f"instance {gpu_instance} of {uuid}",
            lambda: nv.nvmlDeviceGetGpuInstanceById(handle, gpu_instance),
        )
        for compute in _compute_instances(instance):
            _call(
                f"compute instance of {gpu_instance} on {uuid}",
                lambda c=compute: nv.nvmlComputeInstanceDestroy(c),
            )
        _call(f"instance {gpu_instance} of {uuid}", lambda: nv.nvmlGpuInstanceDestroy(instance))

    def reset(self, uuid: str) -> None:
        _nvidia_smi("--gpu-reset", "-i", uuid)

    def set_exclusive(self, uuid: str, exclusive: bool) -> None:
        handle = self._handle(uuid)
        mode = nv.NVML_COMPUTEMODE_EXCLUSIVE_PROCESS if exclusive else nv.NVML_COMPUTEMODE_DEFAULT
        _call(f"compute mode of {uuid}", lambda: nv.nvmlDeviceSetComputeMode(handle, mode))

    def set_time_slice(self, uuid: str, interval: str) -> None:
        number = ("default", "short", "medium", "long").index(interval)
        _nvidia_smi("compute-policy", "-i", uuid, f"--set-timeslice={number}")

    def close(self) -> None:
        if self._events is not None:
            _maybe(lambda: nv.nvmlEventSetFree(self._events))
            self._events = None
        _maybe(nv.nvmlShutdown)

    def _handle(self, uuid: str) -> Any:
        return _call(f"GPU {uuid}", lambda: nv.nvmlDeviceGetHandleByUUID(uuid))


def _profile(info: Any, number: int, total_mib: int) -> Profile:
    base = profile_name(info.sliceCount, min(info.memorySizeMB, total_mib), total_mib)
    engines = Engines(
        info.copyEngineCount, info.decoderCount, info.encoderCount, info.jpegCount, info.ofaCount
    )
    return Profile(
        base + _SUFFIXES.get(number, ""),
        info.id,
        info.sliceCount,
        info.memorySizeMB,
        info.multiprocessorCount,
        engines,
    )


def _create_compute(instance: Any, slices: int) -> Any:
    """A compute instance over the whole GPU instance."""
    for number in range(nv.NVML_COMPUTE_INSTANCE_PROFILE_COUNT):
        info = _maybe(lambda n=number: nv.nvmlGpuInstanceGetComputeInstanceProfileInfo(instance, n, 0))
        if info is not None and info.sliceCount == slices:
            return nv.nvmlGpuInstanceCreateComputeInstance(instance, info.id)
    raise DeviceError(f"the driver offers no compute instance of {slices} slices")


def _compute_instances(instance: Any) -> list[Any]:
    found = []
    for number in range(nv.NVML_COMPUTE_INSTANCE_PROFILE_COUNT):
        info = _maybe(lambda n=number: nv.nvmlGpuInstanceGetComputeInstanceProfileInfo(instance, n, 0))
        if info is None:
            continue
        count = ctypes.c_uint(0)
        handles = (nv.c_nvmlComputeInstance_t * max(1, info.instanceCount))()
        asked = _maybe(
            lambda i=info, h=handles, c=count: nv.nvmlGpuInstanceGetComputeInstances(
                instance, i.id, h, ctypes.byref(c)
            )
        )
        found += list(handles[: count.value]) if asked is not None else []
    return found


def _with_peers(gpus: tuple[Gpu, ...]) -> tuple[Gpu, ...]:
    """Counts the NVLinks between each two GPUs by the PCI addresses at their far ends."""
    at = {gpu.bus_id: position for position, gpu in enumerate(gpus)}
    wired = []
    for gpu in gpus:
        peers = [0] * len(gpus)
        handle = _maybe(lambda u=gpu.uuid: nv.nvmlDeviceGetHandleByUUID(u)) if len(gpus) > 1 else None
        for link in range(_MOST_LINKS) if handle is not None else ():
            remote = _maybe(lambda h=handle, k=link: nv.nvmlDeviceGetNvLinkRemotePciInfo(h, k))
            position = at.get(_short_bus_id(_text(remote.busId))) if remote is not None else None
            if position is not None:
                peers[position] += 1
        wired.append(msgspec.structs.replace(gpu, peers=tuple(peers)))
    return tuple(wired)


def _switch_links(handle: Any) -> int:
    count = 0
    for link in range(_MOST_LINKS):
        if not _maybe(lambda k=link: nv.nvmlDeviceGetNvLinkState(handle, k)):
            continue
        kind = _maybe(lambda k=link: nv.nvmlDeviceGetNvLinkRemoteDeviceType(handle, k))
        count += kind == nv.NVML_NVLINK_DEVICE_TYPE_SWITCH
    return count


def _clique(handle: Any) -> str:
    info = nv.c_nvmlGpuFabricInfoV_t()
    if _maybe(lambda: nv.nvmlDeviceGetGpuFabricInfoV(handle, ctypes.byref(info)) or True) is None:
        return ""
    cluster = bytes(info.clusterUuid).hex()
    if info.state != nv.NVML_GPU_FABRIC_STATE_COMPLETED or not int(cluster, 16):
        return ""
    parts = (cluster[:8], cluster[8:12], cluster[12:16], cluster[16:20], cluster[20:])
    return f"{'-'.join(parts)}.{info.cliqueId}"


def _nvidia_smi(*arguments: str) -> None:
    """For the few things that NVML has no call for."""
    done = subprocess.run(
        ["nvidia-smi", *arguments], capture_output=True, text=True, timeout=120, check=False
    )
    if done.returncode != 0:
        words = " ".join((done.stdout + done.stderr).split())
        raise DeviceError(f"nvidia-smi {' '.join(arguments)} failed: {words}")


def _call(what: str, ask: Callable[[], Value]) -> Value:
    try:
        return ask()
    except nv.NVMLError as error:
        raise DeviceError(f"{what}: {error}") from None


def _maybe(ask: Callable[[], Value]) -> Value | None:
    """None where the driver or the device doesn't give it."""
    try:
        return ask()
    except nv.NVMLError:
        return None


def _among(gpu: Gpu, others: list[Gpu]) -> bool:
    return any(other.uuid == gpu.uuid for other in others)


def _short_bus_id(bus_id: str) -> str:
    """NVML writes the domain with eight digits, sysfs with four."""
    domain, _, rest = bus_id.lower().partition(":")
    return f"{domain[-4:]}:{rest}"


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value
