"""Real NVIDIA GPUs through NVML (nvidia-ml-py).

Implements `protocol.DeviceBackend` for the agent and `windlass up --gpus real`, with MIG in `nvml_mig` and counters
in `nvml_reading`. Every call can fail on its own (a lost GPU, MIG mode, an old driver): what fails is left out of
the inventory or the reading; only a missing driver is an error.
"""

from __future__ import annotations

import ctypes
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

import msgspec
import pynvml as nv

from windlass.node.backend import nvml_calls, nvml_description, nvml_events, nvml_mig, nvml_reading
from windlass.node.backend.nvml_calls import call_or_raise, decode_text, nvidia_smi, short_bus_id, try_call
from windlass.node.backend.nvml_events import FaultEvents
from windlass.node.backend.nvml_prune import prune_binding
from windlass.node.backend.nvml_reading import NvmlReader
from windlass.node.backend.protocol import (
    MAX_LINKS,
    ComputeResult,
    DeviceError,
    DriverChanged,
    Fault,
    MigModeChange,
    ProcessUsage,
    Reading,
)
from windlass.node.driver_libraries import kernel_module_version
from windlass.node.host_root import HostRoot
from windlass.node.validator.compute import compute_in_process
from windlass.sharing.inventory import Driver, Gpu, Inventory

NO_GPU_INSTANCE = 0xFFFFFFFF
"""NVML's value for "the whole GPU, not an instance"."""
SKIPPED_NAMES = ("DGX Display", "NVIDIA DGX Display")
NVLINK_CACHE_SECONDS = 10.0
"""How long NVLink data is cached: reading it takes most of the time of an inventory."""


class NvmlBackend:
    def __init__(self, root: HostRoot | None = None) -> None:
        self.root = root or HostRoot()
        self.reset_guard: Callable[[], AbstractContextManager[None]] = nullcontext
        self._events = FaultEvents()
        self._is_open = False
        self._module = ""
        """Version of the kernel module when NVML was opened."""
        self.acquire()
        self._known: dict[int, Gpu] = {}
        self._profiles: dict[str, tuple[nvml_mig.Profile, ...]] = {}
        self._descriptions: dict[str, Mapping[str, str]] = {}
        self._reader = NvmlReader()
        self._answering: frozenset[str] = frozenset()
        self._links: dict[str, tuple[float, int, str, tuple[int, ...]]] = {}

    def acquire(self) -> None:
        if self._is_open:
            return
        try:
            nv.nvmlInit()
        except nv.NVMLError as error:
            raise DeviceError(f"NVML can't be used: {error}; is the NVIDIA driver loaded?") from None
        self._is_open, self._module = True, kernel_module_version(self.root)
        self._events.open()

    def release(self) -> None:
        if self._is_open:
            self._is_open = False
            self._events.close()
            self._reader.forget()
            try_call(nv.nvmlShutdown)

    def inventory(self) -> Inventory:
        self._check_driver()
        count = call_or_raise("NVML doesn't count the GPUs", nv.nvmlDeviceGetCount)
        cuda = call_or_raise("NVML doesn't know CUDA's version", nv.nvmlSystemGetCudaDriverVersion_v2)
        version = decode_text(call_or_raise("NVML doesn't know the driver's version", nv.nvmlSystemGetDriverVersion))
        seen = [gpu for index in range(count) if (gpu := self._gpu(index)) is not None]
        # A GPU that fell off the bus may no longer be listed: it stays known, marked as lost, until the agent restarts.
        seen_uuids = {gpu.uuid for gpu in seen}
        answering = frozenset(gpu.uuid for gpu in seen if not gpu.is_lost)
        if answering != self._answering:
            self._answering = answering
            self._events.renew()
        seen += [gpu for gpu in self._known.values() if gpu.uuid not in seen_uuids]
        for gpu in seen:
            self._known[gpu.index] = msgspec.structs.replace(gpu, is_lost=True)
        shown = [gpu for gpu in seen if gpu.name not in SKIPPED_NAMES]
        addresses = {gpu.bus_id: position for position, gpu in enumerate(shown)}
        gpus = tuple(self._with_links(gpu, addresses) for gpu in shown)
        return Inventory(Driver(version, (cuda // 1000, cuda % 1000 // 10)), gpus)

    def _check_driver(self) -> None:
        """A library that is loaded can't be exchanged, so another driver needs another process."""
        if not self._is_open:
            raise DeviceError("the driver is let go for now, so that it can be reset or exchanged")
        module = kernel_module_version(self.root)
        if self._module and not module:
            self.release()
            raise DeviceError("the NVIDIA driver was unloaded")
        if self._module and module != self._module:
            self.release()
            raise DriverChanged(
                f"the driver changed from {self._module} to {module}; starting again with its libraries"
            )

    def _with_links(self, gpu: Gpu, addresses: dict[str, int]) -> Gpu:
        """Adds the GPU's NVLinks, at most `NVLINK_CACHE_SECONDS` old."""
        read_at, switches, clique, peers = self._links.get(gpu.uuid, (-NVLINK_CACHE_SECONDS, 0, "", ()))
        now = time.monotonic()
        if now - read_at >= NVLINK_CACHE_SECONDS or len(peers) != len(addresses):
            handle = try_call(nv.nvmlDeviceGetHandleByUUID, gpu.uuid)
            if handle is not None:
                switches, clique, peers = _switch_links(handle), _clique(handle), _peers(handle, addresses)
                self._links[gpu.uuid] = (now, switches, clique, peers)
        return msgspec.structs.replace(gpu, switch_links=switches, clique=clique, peers=peers)

    def _gpu(self, index: int) -> Gpu | None:
        try:
            return self._describe(index, nv.nvmlDeviceGetHandleByIndex(index))
        except nv.NVMLError:
            return self._known.get(index)

    def _describe(self, index: int, handle: Any) -> Gpu:
        pci = nv.nvmlDeviceGetPciInfo(handle)
        bus_id = short_bus_id(decode_text(pci.busId))
        mode = try_call(nv.nvmlDeviceGetMigMode, handle)
        uuid = decode_text(nv.nvmlDeviceGetUUID(handle))
        instances = nvml_mig.instances_of(handle, partial(self._profile_name, handle, uuid)) if mode and mode[0] else ()
        return Gpu(
            index=index,
            minor=nv.nvmlDeviceGetMinorNumber(handle),
            uuid=uuid,
            name=decode_text(nv.nvmlDeviceGetName(handle)),
            memory_mib=_memory_mib(handle),
            compute=tuple(nv.nvmlDeviceGetCudaComputeCapability(handle)),
            bus_id=bus_id,
            pci_id=f"0x{pci.pciDeviceId:08X}",
            subsystem_id=f"0x{pci.pciSubSystemId:08X}",
            pci_class=self.root.pci_class(bus_id),
            numa=self.root.numa_of(bus_id),
            multiprocessors=getattr(try_call(nv.nvmlDeviceGetAttributes_v2, handle), "multiprocessorCount", 0),
            mig_capable=mode is not None,
            mig_enabled=bool(mode and mode[0]),
            mig_pending=bool(mode and mode[1]),
            instances=instances,
        )

    def reading(self, uuid: str) -> Reading:
        handle = try_call(nv.nvmlDeviceGetHandleByUUID, uuid)
        return self._reader.read(handle, uuid) if handle is not None else {}

    def link_traffic(self, uuid: str) -> Reading:
        handle = try_call(nv.nvmlDeviceGetHandleByUUID, uuid)
        return nvml_reading.link_traffic(handle) if handle is not None else {}

    def description(self, uuid: str) -> Mapping[str, str]:
        handle = try_call(nv.nvmlDeviceGetHandleByUUID, uuid) if uuid not in self._descriptions else None
        if handle is not None:
            self._descriptions[uuid] = nvml_description.describe_gpu(handle)
        return self._descriptions.get(uuid, {})

    def processes(self, uuid: str) -> tuple[ProcessUsage, ...]:
        handle = try_call(nv.nvmlDeviceGetHandleByUUID, uuid)
        if handle is None:
            return ()
        sm_percent_by_pid = self._reader.process_utilization(handle, uuid)
        found: dict[int, ProcessUsage] = {}
        for listing in (
            nv.nvmlDeviceGetGraphicsRunningProcesses,
            nv.nvmlDeviceGetMPSComputeRunningProcesses,
            nv.nvmlDeviceGetComputeRunningProcesses,
        ):
            for process in try_call(listing, handle) or ():
                instance = getattr(process, "gpuInstanceId", NO_GPU_INSTANCE)
                found[process.pid] = ProcessUsage(
                    pid=process.pid,
                    memory_mib=(process.usedGpuMemory or 0) >> 20,
                    sm_percent=-1 if sm_percent_by_pid is None else sm_percent_by_pid.get(process.pid, 0),
                    gpu_instance=_instance_or_whole(instance),
                )
        return tuple(found[pid] for pid in sorted(found))

    def wait_for_faults(self, seconds: float) -> tuple[Fault, ...]:
        event = self._events.wait(seconds)
        if event is None:
            return ()
        return (
            Fault(
                uuid=decode_text(try_call(nv.nvmlDeviceGetUUID, event.device) or ""),
                xid=int(event.eventData),
                gpu_instance=_instance_or_whole(event.gpuInstanceId),
                compute_instance=_instance_or_whole(event.computeInstanceId),
            ),
        )

    def set_mig_mode(self, uuid: str, enabled: bool) -> MigModeChange:
        what = f"MIG mode of {uuid}"
        status = call_or_raise(what, nv.nvmlDeviceSetMigMode, self._handle(uuid), int(enabled))
        if status == nv.NVML_ERROR_RESET_REQUIRED:
            return MigModeChange.NEEDS_RESET
        if status != nv.NVML_SUCCESS:
            raise DeviceError(f"{what}: {decode_text(nv.nvmlErrorString(status))}")
        return MigModeChange.DONE

    def create_instance(self, uuid: str, profile: str, start: int) -> None:
        handle = self._handle(uuid)
        for known in self._profiles_of(handle, uuid):
            if known.name == profile:
                nvml_mig.create(handle, known, start, f"{profile} at slice {start} of {uuid}")
                return
        raise DeviceError(f"the driver knows no profile {profile} on {uuid}")

    def destroy_instance(self, uuid: str, gpu_instance: int) -> None:
        nvml_mig.destroy(self._handle(uuid), gpu_instance, f"instance {gpu_instance} of {uuid}")

    def reset(self, uuid: str) -> None:
        """Nobody may have the GPU open, not even to look at it: neither this process nor the agent's other one."""
        with self.reset_guard():
            self.release()
            try:
                nvidia_smi("--gpu-reset", "-i", uuid)
            finally:
                self.acquire()

    def set_exclusive(self, uuid: str, exclusive: bool) -> None:
        mode = nv.NVML_COMPUTEMODE_EXCLUSIVE_PROCESS if exclusive else nv.NVML_COMPUTEMODE_DEFAULT
        call_or_raise(f"compute mode of {uuid}", nv.nvmlDeviceSetComputeMode, self._handle(uuid), mode)

    def set_time_slice(self, uuid: str, interval: str) -> None:
        number = ("default", "short", "medium", "long").index(interval)
        nvidia_smi("compute-policy", "-i", uuid, f"--set-timeslice={number}")

    def compute(self, uuid: str) -> ComputeResult:
        return compute_in_process(uuid)

    def close(self) -> None:
        self.release()

    def _handle(self, uuid: str) -> Any:
        return call_or_raise(f"GPU {uuid}", nv.nvmlDeviceGetHandleByUUID, uuid)

    def _profile_name(self, handle: Any, uuid: str, number: int) -> str:
        """Empty if the driver has no such profile. While MIG mode changes, it doesn't list all of them."""
        names = {profile.id: profile.name for profile in self._profiles_of(handle, uuid)}
        if number not in names:
            self._profiles.pop(uuid)
            names = {profile.id: profile.name for profile in self._profiles_of(handle, uuid)}
        return names.get(number, "")

    def _profiles_of(self, handle: Any, uuid: str) -> tuple[nvml_mig.Profile, ...]:
        if uuid not in self._profiles:
            self._profiles[uuid] = nvml_mig.profiles_of(handle)
        return self._profiles[uuid]


def _memory_mib(handle: Any) -> int:
    """0 for a GPU without memory of its own."""
    return getattr(try_call(nv.nvmlDeviceGetMemoryInfo, handle), "total", 0) >> 20


def _peers(handle: Any, addresses: dict[str, int]) -> tuple[int, ...]:
    """Counts the NVLinks to each GPU by the PCI addresses at their other ends."""
    peers = [0] * len(addresses)
    for link in range(MAX_LINKS) if len(addresses) > 1 else ():
        remote = try_call(nv.nvmlDeviceGetNvLinkRemotePciInfo, handle, link)
        position = addresses.get(short_bus_id(decode_text(remote.busId))) if remote is not None else None
        if position is not None:
            peers[position] += 1
    return tuple(peers)


def _switch_links(handle: Any) -> int:
    count = 0
    for link in range(MAX_LINKS):
        if try_call(nv.nvmlDeviceGetNvLinkState, handle, link):
            kind = try_call(nv.nvmlDeviceGetNvLinkRemoteDeviceType, handle, link)
            count += kind == nv.NVML_NVLINK_DEVICE_TYPE_SWITCH
    return count


def _clique(handle: Any) -> str:
    info = nv.c_nvmlGpuFabricInfoV_t()
    try_call(nv.nvmlDeviceGetGpuFabricInfoV, handle, ctypes.byref(info))
    cluster = bytes(info.clusterUuid).hex()
    if info.state != nv.NVML_GPU_FABRIC_STATE_COMPLETED or not int(cluster, 16):
        return ""
    parts = (cluster[:8], cluster[8:12], cluster[12:16], cluster[16:20], cluster[20:])
    return f"{'-'.join(parts)}.{info.cliqueId}"


def _instance_or_whole(instance: int) -> int:
    return -1 if instance == NO_GPU_INSTANCE else int(instance)


prune_binding(nv, (sys.modules[__name__], nvml_calls, nvml_events, nvml_mig, nvml_reading, nvml_description))
