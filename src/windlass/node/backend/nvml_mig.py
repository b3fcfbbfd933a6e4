"""MIG through NVML: a GPU's profiles and instances, and how to create and destroy instances.

Used by `nvml.NvmlBackend`. NVML numbers a profile in two ways (an enum for queries, an id for creation) and names
it in neither; names come from `sharing.mig`'s formula, with the suffix that the enum stands for.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from typing import Any

import msgspec
import pynvml as nv

from windlass.node.backend.nvml_calls import call_or_raise, decode_text, try_call
from windlass.node.backend.protocol import DeviceError
from windlass.sharing.inventory import Engines, MigInstance
from windlass.sharing.mig import profile_name

RETRY_SECONDS = (0.02, 0.05, 0.1)
_SUFFIXES = {7: "+me", 8: "+me", 0xA: "+gfx", 0xB: "+gfx", 0xC: "+gfx", 0x11: "+gfx"}
_SUFFIXES |= {0xD: "-me", 0xE: "-me", 0xF: "+me.all", 0x10: "+me.all"}


class Profile(msgspec.Struct, frozen=True):
    """A GPU instance profile with the driver's id."""

    name: str
    id: int
    slices: int


def profiles_of(handle: Any) -> tuple[Profile, ...]:
    total = nv.nvmlDeviceGetMemoryInfo(handle).total >> 20
    found = []
    for number in range(nv.NVML_GPU_INSTANCE_PROFILE_COUNT):
        info = try_call(nv.nvmlDeviceGetGpuInstanceProfileInfo, handle, number)
        if info is not None and info.memorySizeMB:
            name = profile_name(info.sliceCount, min(info.memorySizeMB, total), total)
            found.append(Profile(name + _SUFFIXES.get(number, ""), info.id, info.sliceCount))
    return tuple(found)


def instances_of(handle: Any, name_of: Callable[[int], str]) -> tuple[MigInstance, ...]:
    """The MIG devices of a GPU, by index. `name_of` knows the driver's ids of profiles."""
    found = []
    for index in range(try_call(nv.nvmlDeviceGetMaxMigDeviceCount, handle) or 0):
        instance = _instance_if_there(handle, index, name_of)
        if instance is not None:
            found.append(instance)
    return tuple(found)


def _instance_if_there(handle: Any, index: int, name_of: Callable[[int], str]) -> MigInstance | None:
    """Asked again where the driver fails: for moments an H200 left out instances whose processes had just ended."""
    for pause in RETRY_SECONDS:
        try:
            device = nv.nvmlDeviceGetMigDeviceHandleByIndex(handle, index)
            return _instance(handle, device, index, name_of)
        except (nv.NVMLError_NotFound, nv.NVMLError_InvalidArgument):
            return None
        except nv.NVMLError:
            time.sleep(pause)
    return None


def _instance(handle: Any, device: Any, index: int, name_of: Callable[[int], str]) -> MigInstance:
    attributes = nv.nvmlDeviceGetAttributes_v2(device)
    gpu_instance = nv.nvmlDeviceGetGpuInstanceId(device)
    info = nv.nvmlGpuInstanceGetInfo(nv.nvmlDeviceGetGpuInstanceById(handle, gpu_instance))
    slices, compute_slices = attributes.gpuInstanceSliceCount, attributes.computeInstanceSliceCount
    total = nv.nvmlDeviceGetMemoryInfo(handle).total >> 20
    default_name = profile_name(slices, attributes.memorySizeMB, total)
    name = name_of(info.profileId) or default_name
    return MigInstance(
        uuid=decode_text(nv.nvmlDeviceGetUUID(device)),
        index=index,
        gpu_instance=gpu_instance,
        compute_instance=nv.nvmlDeviceGetComputeInstanceId(device),
        profile=name if compute_slices >= slices else f"{compute_slices}c.{name}",
        start=info.placement.start,
        size=info.placement.size,
        memory_mib=attributes.memorySizeMB,
        multiprocessors=attributes.multiprocessorCount,
        compute_slices=compute_slices,
        instance_slices=slices,
        engines=Engines(
            attributes.sharedCopyEngineCount,
            attributes.sharedDecoderCount,
            attributes.sharedEncoderCount,
            attributes.sharedJpegCount,
            attributes.sharedOfaCount,
        ),
    )


def create(handle: Any, profile: Profile, start: int, what: str) -> None:
    """Creates a GPU instance at this slice with one compute instance over all of it; neither if one fails."""
    placement = nv.c_nvmlGpuInstancePlacement_t(start, _size_at(handle, profile, start, what))
    instance = call_or_raise(
        what, nv.nvmlDeviceCreateGpuInstanceWithPlacement, handle, profile.id, ctypes.byref(placement)
    )
    try:
        call_or_raise(f"compute instance of {what}", _create_compute, instance, profile.slices)
    except DeviceError:
        try_call(nv.nvmlGpuInstanceDestroy, instance)
        raise


def destroy(handle: Any, gpu_instance: int, what: str) -> None:
    instance = call_or_raise(what, nv.nvmlDeviceGetGpuInstanceById, handle, gpu_instance)
    for compute in _compute_instances(instance):
        call_or_raise(f"compute instance of {what}", nv.nvmlComputeInstanceDestroy, compute)
    call_or_raise(what, nv.nvmlGpuInstanceDestroy, instance)


def _size_at(handle: Any, profile: Profile, start: int, what: str) -> int:
    count = ctypes.c_uint(0)
    possible = nv.nvmlDeviceGetGpuInstancePossiblePlacements
    call_or_raise(what, possible, handle, profile.id, None, ctypes.byref(count))
    placements = (nv.c_nvmlGpuInstancePlacement_t * max(1, count.value))()
    call_or_raise(what, possible, handle, profile.id, placements, ctypes.byref(count))
    for placement in placements[: count.value]:
        if placement.start == start:
            return int(placement.size)
    starts = ", ".join(str(placement.start) for placement in placements[: count.value])
    raise DeviceError(f"{what}: the driver allows the starts {starts or 'none'}")


def _create_compute(instance: Any, slices: int) -> Any:
    """The largest that the driver offers, as `nvidia-smi mig -cci` makes it.

    Profiles of one slice count may differ: 1g.35gb has one with 16 multiprocessors and one with all its 26.
    """
    numbers = range(nv.NVML_COMPUTE_INSTANCE_PROFILE_COUNT)
    offered = [try_call(nv.nvmlGpuInstanceGetComputeInstanceProfileInfo, instance, number, 0) for number in numbers]
    whole = [info for info in offered if info is not None and info.sliceCount >= slices]
    if not whole:
        raise DeviceError(f"the driver offers no compute instance of {slices} slices")
    largest = max(whole, key=lambda info: int(info.multiprocessorCount))
    return nv.nvmlGpuInstanceCreateComputeInstance(instance, largest.id)


def _compute_instances(instance: Any) -> list[Any]:
    found = []
    for number in range(nv.NVML_COMPUTE_INSTANCE_PROFILE_COUNT):
        info = try_call(nv.nvmlGpuInstanceGetComputeInstanceProfileInfo, instance, number, 0)
        if info is None:
            continue
        count = ctypes.c_uint(0)
        handles = (nv.c_nvmlComputeInstance_t * max(1, info.instanceCount))()
        listing = nv.nvmlGpuInstanceGetComputeInstances
        if try_call(listing, instance, info.id, handles, ctypes.byref(count)) is not None:
            found += list(handles[: count.value])
    return found
