"""One pass over the hardware, turned into metric families.

Reads the device back end once per interval, joins what `pods` knows about who holds which device, and hands the
families to `server`. A device that several pods share has one sample a pod: utilisation and memory are the pod's own
where the driver counts by process, and the device's where it doesn't. Nothing that the device doesn't give is exported.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from windlass.node.backend.protocol import DeviceBackend, Fault, ProcessUse, Reading
from windlass.node.exporter.counters import Counter
from windlass.node.exporter.fields import SAME_AS
from windlass.node.exporter.text import Family, Sample
from windlass.sharing.inventory import Gpu, Instance, Inventory

XID = "DCGM_FI_DEV_XID_ERRORS"
XID_COUNT = "DCGM_EXP_XID_ERRORS_COUNT"
CLOCK_COUNT = "DCGM_EXP_CLOCK_EVENTS_COUNT"
UTILISATION, MEMORY_USED = "DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_FB_USED"
CLOCK_EVENTS = {
    0x1: "gpu_idle",
    0x2: "clocks_setting",
    0x4: "power_cap",
    0x8: "hw_slowdown",
    0x10: "sync_boost",
    0x20: "sw_thermal",
    0x40: "hw_thermal",
    0x80: "hw_power_brake",
    0x100: "display_clocks",
}


class Holder(msgspec.Struct, frozen=True):
    """A container that was given a device."""

    pod: str
    namespace: str
    container: str
    uid: str = ""


class View(msgspec.Struct, frozen=True, kw_only=True):
    """What a pass knows besides the hardware."""

    hostname: str = ""
    hostname_label: str = "Hostname"
    holders: Mapping[str, Sequence[Holder]] = {}
    """By UUID of the GPU or MIG device."""
    pods_of_processes: Mapping[int, str] = {}
    """UID of the pod that a process belongs to."""
    last_faults: Mapping[str, Fault] = {}
    recent_xids: Mapping[tuple[str, int], int] = {}
    """How often each Xid was seen on each GPU within the window."""


class _Device(msgspec.Struct, frozen=True):
    gpu: Gpu
    instance: Instance | None
    reading: Reading
    processes: tuple[ProcessUse, ...]

    @property
    def uuid(self) -> str:
        return self.instance.uuid if self.instance else self.gpu.uuid


def collect(backend: DeviceBackend, counters: Sequence[Counter], view: View) -> list[Family]:
    """The families of one pass, in the order of the counters file."""
    inventory = backend.inventory()
    devices = [device for gpu in inventory.gpus for device in _devices(backend, gpu, view)]
    extra = _extra_labels(inventory, counters)
    families = []
    for counter in counters:
        if counter.type == "label":
            continue
        samples = [sample for device in devices for sample in _samples(counter.field, device, view, extra)]
        families.append(Family(counter.field, _type(counter), counter.help, samples))
    return families


def _devices(backend: DeviceBackend, gpu: Gpu, view: View) -> list[_Device]:
    """A GPU; with MIG, its instances too, which then carry the pods."""
    found = [_Device(gpu, None, backend.reading(gpu.uuid), _processes(backend, gpu.uuid, view))]
    for instance in gpu.instances:
        uuid = instance.uuid
        found.append(_Device(gpu, instance, backend.reading(uuid), _processes(backend, uuid, view)))
    return found


def _processes(backend: DeviceBackend, uuid: str, view: View) -> tuple[ProcessUse, ...]:
    """Asked for only where somebody shares the device: it is the dearest of the calls."""
    return backend.processes(uuid) if len(view.holders.get(uuid, ())) > 1 else ()


def _samples(field: str, device: _Device, view: View, extra: Mapping[str, str]) -> list[Sample]:
    base = {**_labels(device, view), **extra}
    if field == XID_COUNT:
        found = [(xid, count) for (uuid, xid), count in view.recent_xids.items() if uuid == device.gpu.uuid]
        if device.instance is not None:
            return []
        return [Sample({**base, "xid": str(xid)}, count) for xid, count in sorted(found)]
    if field == CLOCK_COUNT:
        return _clock_events(device, base)
    value = _value(field, device, view)
    if value is None:
        return []
    holders = view.holders.get(device.uuid, ())
    if not holders:
        return [Sample(base, value)]
    return [
        Sample({**base, **_pod_labels(holder)}, _share(field, value, holder, device, view))
        for holder in holders
    ]


def _value(field: str, device: _Device, view: View) -> float | None:
    if field == XID:
        if device.instance is not None or not device.reading:
            return None
        fault = view.last_faults.get(device.gpu.uuid)
        return fault.xid if fault else 0
    return device.reading.get(SAME_AS.get(field, field))


def _share(field: str, value: float, holder: Holder, device: _Device, view: View) -> float:
    """A pod's own part where the driver counts by process; the device's value otherwise."""
    if field not in (UTILISATION, MEMORY_USED) or not holder.uid:
        return value
    mine = [each for each in device.processes if view.pods_of_processes.get(each.pid) == holder.uid]
    if field == MEMORY_USED:
        return sum(each.memory_mib for each in mine)
    if any(each.sm_percent < 0 for each in mine):
        return value
    return sum(each.sm_percent for each in mine)


def _clock_events(device: _Device, base: Mapping[str, str]) -> list[Sample]:
    if device.instance is not None:
        return []
    reasons = device.reading.get("DCGM_FI_DEV_CLOCKS_EVENT_REASONS")
    if reasons is None:
        return []
    return [
        Sample({**base, "clock_event": name}, 1) for bit, name in CLOCK_EVENTS.items() if int(reasons) & bit
    ]


def _labels(device: _Device, view: View) -> dict[str, str]:
    gpu = device.gpu
    labels = {
        "gpu": str(gpu.index),
        "UUID": gpu.uuid,
        "pci_bus_id": f"0000{gpu.bus_id.upper()}",
        "device": f"nvidia{gpu.minor}",
        "modelName": gpu.name,
    }
    if device.instance is not None:
        labels["GPU_I_PROFILE"] = device.instance.profile
        labels["GPU_I_ID"] = str(device.instance.gpu_instance)
    if view.hostname:
        labels[view.hostname_label] = view.hostname
    return labels


def _extra_labels(inventory: Inventory, counters: Sequence[Counter]) -> dict[str, str]:
    wanted = {counter.field for counter in counters if counter.type == "label"}
    return {"DCGM_FI_DRIVER_VERSION": inventory.driver.version} if "DCGM_FI_DRIVER_VERSION" in wanted else {}


def _pod_labels(holder: Holder) -> dict[str, str]:
    return {"container": holder.container, "namespace": holder.namespace, "pod": holder.pod}


def _type(counter: Counter) -> str:
    return counter.type if counter.type in ("gauge", "counter") else "gauge"
