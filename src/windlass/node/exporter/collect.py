"""One pass over the hardware, turned into metric families.

Reads the device back end once per interval, joins what `pods` knows about who holds which device, and hands the
families to `server`. A device that several pods share has one sample a pod: utilisation and memory are the pod's own
where the driver counts by process, and the device's where it doesn't. Nothing that the device doesn't give is exported.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from windlass.node.backend.protocol import DeviceBackend
from windlass.node.exporter.collection_context import CollectionContext, DeviceHolder, MeasuredDevice
from windlass.node.exporter.counters import Counter
from windlass.node.exporter.derived_metrics import DERIVED_METRICS, LabelledValues
from windlass.node.exporter.fields import FIELD_ALIASES
from windlass.node.exporter.prometheus_text import Family, Sample
from windlass.sharing.inventory import Gpu, Inventory

XID = "DCGM_FI_DEV_XID_ERRORS"
UTILISATION, MEMORY_USED = "DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_FB_USED"


def collect_families(
    backend: DeviceBackend,
    counters: Sequence[Counter],
    context: CollectionContext,
    devices: Sequence[MeasuredDevice] | None = None,
) -> list[Family]:
    """The families of one pass, in the order of the counters file."""
    found = read_devices(backend) if devices is None else devices
    extra = {device.gpu.uuid: _extra_labels(backend, device, counters) for device in found}
    families = []
    for counter in counters:
        if counter.type == "label":
            continue
        samples = [sample for device in found for sample in _samples(counter.field, device, context, extra)]
        families.append(Family(counter.field, _type(counter), counter.help, samples))
    return families


def read_devices(backend: DeviceBackend) -> list[MeasuredDevice]:
    """Every GPU; with MIG, its instances too, which then carry the pods."""
    inventory = backend.inventory()
    return [device for gpu in inventory.gpus for device in _of_gpu(backend, inventory, gpu)]


def _of_gpu(backend: DeviceBackend, inventory: Inventory, gpu: Gpu) -> list[MeasuredDevice]:
    whole = MeasuredDevice(inventory, gpu, None, backend.reading(gpu.uuid))
    return [
        whole,
        *(MeasuredDevice(inventory, gpu, each, backend.reading(each.uuid)) for each in gpu.instances),
    ]


def _samples(
    field: str, device: MeasuredDevice, view: CollectionContext, extra: Mapping[str, Mapping[str, str]]
) -> list[Sample]:
    base = {**_labels(device, view), **extra[device.gpu.uuid]}
    holders = view.holders.get(device.uuid, ())
    found = []
    for labels, value in _points(field, device, view):
        if not holders:
            found.append(Sample({**base, **labels}, value))
        for holder in holders:
            share = _share(field, value, holder, device, view)
            found.append(Sample({**base, **labels, **_pod_labels(holder)}, share))
    return found


def _points(field: str, device: MeasuredDevice, view: CollectionContext) -> LabelledValues:
    if field in DERIVED_METRICS:
        return DERIVED_METRICS[field](device, view) if device.instance is None else []
    value = _value(field, device, view)
    return [] if value is None else [({}, value)]


def _value(field: str, device: MeasuredDevice, view: CollectionContext) -> float | None:
    if field == XID:
        if device.instance is not None or not device.reading:
            return None
        fault = view.last_faults.get(device.gpu.uuid)
        return fault.xid if fault else 0
    return device.reading.get(FIELD_ALIASES.get(field, field))


def _share(
    field: str, value: float, holder: DeviceHolder, device: MeasuredDevice, view: CollectionContext
) -> float:
    """A pod's own part where the driver counts by process; the device's value otherwise."""
    processes = view.processes.get(device.uuid)
    if field not in (UTILISATION, MEMORY_USED) or not holder.uid or processes is None:
        return value
    mine = [each for each in processes if view.pods_of_processes.get(each.pid) == holder.uid]
    if field == MEMORY_USED:
        return sum(each.memory_mib for each in mine)
    if any(each.sm_percent < 0 for each in mine):
        return value
    return sum(each.sm_percent for each in mine)


def _labels(device: MeasuredDevice, view: CollectionContext) -> dict[str, str]:
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


def _extra_labels(
    backend: DeviceBackend, device: MeasuredDevice, counters: Sequence[Counter]
) -> dict[str, str]:
    """What the counters file wants as labels: words that describe the GPU, where it has them."""
    wanted = [counter.field for counter in counters if counter.type == "label"]
    known = {
        "DCGM_FI_DRIVER_VERSION": device.inventory.driver.version,
        "DCGM_FI_DEV_NAME": device.gpu.name,
        "DCGM_FI_DEV_UUID": device.gpu.uuid,
    }
    if not known.keys() >= set(wanted):
        known |= backend.description(device.gpu.uuid)
    return {name: known[name] for name in wanted if name in known}


def _pod_labels(holder: DeviceHolder) -> dict[str, str]:
    return {"container": holder.container, "namespace": holder.namespace, "pod": holder.pod}


def _type(counter: Counter) -> str:
    return counter.type if counter.type in ("gauge", "counter") else "gauge"
