"""One collection: reads the hardware once and turns it into metric families.

`exporter` calls it once per interval. A device that several pods share has one sample per pod: utilisation and
memory are the pod's own if the driver counts by process, else the device's. A GPU with MIG instances is exported by
its instances alone, as dcgm-exporter does it: each carries the board's values beside its own, so that power and
temperature have a pod, and sums of memory count nothing twice. Values that the device does not give are not exported.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from windlass.node.backend.protocol import DeviceBackend
from windlass.node.exporter.collection_context import CollectionContext, DeviceHolder, MeasuredDevice
from windlass.node.exporter.counters import Counter
from windlass.node.exporter.derived_metrics import DERIVED_METRICS, LabelledValues
from windlass.node.exporter.extra_labels import HPC_JOB
from windlass.node.exporter.fields import LINK_FIELDS, reading_name
from windlass.node.exporter.prometheus_text import Family, Sample
from windlass.sharing.inventory import Gpu, Inventory

XID = "DCGM_FI_DEV_XID_ERRORS"
OWN_OF_INSTANCE = ("DCGM_FI_DEV_FB_", "DCGM_FI_PROF_", "DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_MEM_COPY_UTIL")
"""What an instance has for itself; a value of the whole GPU would be counted once per instance."""
UTILISATION, MEMORY_USED = "DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_FB_USED"


def collect_families(
    backend: DeviceBackend,
    counters: Sequence[Counter],
    context: CollectionContext,
    devices: Sequence[MeasuredDevice] | None = None,
) -> list[Family]:
    """The families of one collection, in the order of the counters file."""
    found = read_devices(backend, counters) if devices is None else devices
    extra = {device.gpu.uuid: _extra_labels(backend, device, counters) for device in found}
    families = []
    for counter in counters:
        if counter.type == "label":
            continue
        samples = [sample for device in found for sample in _samples(counter.field, device, context, extra)]
        families.append(Family(counter.field, _type(counter), counter.help, samples))
    return families


def read_devices(backend: DeviceBackend, counters: Sequence[Counter]) -> list[MeasuredDevice]:
    """Every GPU and its MIG instances, these with the board's values."""
    inventory = backend.inventory()
    by_link = any(counter.field in LINK_FIELDS for counter in counters)
    return [device for gpu in inventory.gpus for device in _read_gpu(backend, inventory, gpu, by_link)]


def _read_gpu(backend: DeviceBackend, inventory: Inventory, gpu: Gpu, by_link: bool) -> list[MeasuredDevice]:
    board = {**backend.reading(gpu.uuid), **(backend.link_traffic(gpu.uuid) if by_link else {})}
    shared = {name: value for name, value in board.items() if not name.startswith(OWN_OF_INSTANCE)}
    instances = [
        MeasuredDevice(inventory, gpu, instance, {**shared, **backend.reading(instance.uuid)})
        for instance in gpu.instances
    ]
    return [MeasuredDevice(inventory, gpu, None, board), *instances]


def _samples(
    field: str, device: MeasuredDevice, context: CollectionContext, extra: Mapping[str, Mapping[str, str]]
) -> list[Sample]:
    base = {**_labels(device, context), **extra[device.gpu.uuid]}
    holders = context.holders.get(device.uuid, ())
    found = []
    for labels, value in _labelled_values(field, device, context):
        if not holders:
            found.append(Sample({**base, **labels}, value))
        for holder in holders:
            share = _share(field, value, holder, device, context)
            more = context.pod_labels.get((holder.namespace, holder.pod), {})
            found.append(Sample({**base, **labels, **_pod_labels(holder), **more}, share))
    place = f".{device.instance.gpu_instance}" if device.instance is not None else ""
    jobs = context.hpc_jobs.get(f"{device.gpu.index}{place}", ())
    return [Sample({**each.labels, HPC_JOB: job}, each.value) for each in found for job in jobs] or found


def _labelled_values(field: str, device: MeasuredDevice, context: CollectionContext) -> LabelledValues:
    if field in DERIVED_METRICS:
        return DERIVED_METRICS[field](device, context) if device.instance is None else []
    is_parent = device.instance is None and bool(device.gpu.instances)
    value = None if is_parent else _value(field, device, context)
    return [] if value is None else [({}, value)]


def _value(field: str, device: MeasuredDevice, context: CollectionContext) -> float | None:
    if field == XID:
        return _last_xid(device, context) if device.reading else None
    return device.reading.get(reading_name(field))


def _last_xid(device: MeasuredDevice, context: CollectionContext) -> int:
    """Of the instance, or of the whole GPU; 0 if there was none."""
    numbers = (-1,) if device.instance is None else (-1, device.instance.gpu_instance)
    known = [context.last_faults.get((device.gpu.uuid, number)) for number in numbers]
    found = [fault for fault in known if fault is not None]
    order = list(context.last_faults.values())
    return max(found, key=order.index).xid if found else 0


def _share(field: str, value: float, holder: DeviceHolder, device: MeasuredDevice, context: CollectionContext) -> float:
    """The pod's own value if the driver counts by process; else the device's."""
    processes = context.processes.get(device.uuid)
    if field not in (UTILISATION, MEMORY_USED) or not holder.uid or processes is None:
        return value
    own = [process for process in processes if context.pods_of_processes.get(process.pid) == holder.uid]
    if field == MEMORY_USED:
        return sum(process.memory_mib for process in own)
    if any(process.sm_percent < 0 for process in own):
        return value
    return sum(process.sm_percent for process in own)


def _labels(device: MeasuredDevice, context: CollectionContext) -> dict[str, str]:
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
    if context.hostname:
        labels[context.hostname_label] = context.hostname
    return labels


def _extra_labels(backend: DeviceBackend, device: MeasuredDevice, counters: Sequence[Counter]) -> dict[str, str]:
    """The values that the counters file asks for as labels, if the GPU has them."""
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
    labels = {"container": holder.container, "namespace": holder.namespace, "pod": holder.pod}
    return labels if holder.claim is None else {**labels, **holder.claim.labels()}


def _type(counter: Counter) -> str:
    return counter.type if counter.type in ("gauge", "counter") else "gauge"
