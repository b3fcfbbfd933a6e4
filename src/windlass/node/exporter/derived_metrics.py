"""The metrics that dcgm-exporter computes itself instead of asking DCGM: counts over a window, health, links to
peers.

`collect` calls these for counters named `DCGM_EXP_…`. Values come from the `CollectionContext` and the inventory,
without asking the hardware. They concern whole GPUs, never an instance.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from windlass.node.backend import protocol
from windlass.node.exporter.collection_context import WINDOW_SECONDS, CollectionContext, MeasuredDevice
from windlass.node.exporter.gpu_health import incidents

LabelledValues = list[tuple[dict[str, str], float]]
"""Labels beyond the device's own, and the value."""

_WINDOW = {"window_size_in_ms": str(int(1000 * WINDOW_SECONDS))}
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


def xid_counts(device: MeasuredDevice, context: CollectionContext) -> LabelledValues:
    found = {xid: count for (uuid, xid), count in context.recent_xids.items() if uuid == device.gpu.uuid}
    return _counts("xid", {str(xid): count for xid, count in sorted(found.items())})


def clock_event_counts(device: MeasuredDevice, context: CollectionContext) -> LabelledValues:
    if protocol.THROTTLE_REASONS not in device.reading:
        return []
    seen, uuid = context.recent_clock_events, device.gpu.uuid
    counts = {name: seen.get((uuid, bit), 0) for bit, name in CLOCK_EVENTS.items()}
    return _counts("clock_event", {name: count for name, count in counts.items() if count})


def _counts(label: str, counts: Mapping[str, int]) -> LabelledValues:
    """One value for each label that was seen; a single zero if none was."""
    if not counts:
        return [({**_WINDOW}, 0)]
    return [({**_WINDOW, label: value}, count) for value, count in counts.items()]


def health_status(device: MeasuredDevice, context: CollectionContext) -> LabelledValues:
    uuids = [device.gpu.uuid, *(instance.uuid for instance in device.gpu.instances)]
    kinds = {kind for uuid in uuids for kind in context.problem_kinds.get(uuid, ())}
    return [
        ({"health_watch": found.watch, "health_error_code": found.error}, found.value) for found in incidents(kinds)
    ]


def peer_status(device: MeasuredDevice, context: CollectionContext) -> LabelledValues:
    """Whether each other GPU of the node is reached over NVLink, in DCGM's words and numbers."""
    gpus = device.inventory.gpus
    own_index = next(index for index, gpu in enumerate(gpus) if gpu.uuid == device.gpu.uuid)
    found: LabelledValues = []
    for index, peer in enumerate(gpus):
        if index != own_index:
            works = device.inventory.linked(own_index, index) and not (peer.is_lost or device.gpu.is_lost)
            status, value = ("OK", 0) if works else ("NotSupported", 5)
            found.append(({"peer_gpu": str(peer.index), "link_status": status}, value))
    return found


DERIVED_METRICS: dict[str, Callable[[MeasuredDevice, CollectionContext], LabelledValues]] = {
    "DCGM_EXP_XID_ERRORS_COUNT": xid_counts,
    "DCGM_EXP_CLOCK_EVENTS_COUNT": clock_event_counts,
    "DCGM_EXP_GPU_HEALTH_STATUS": health_status,
    "DCGM_EXP_P2P_STATUS": peer_status,
}
