"""The metrics that dcgm-exporter makes itself instead of asking DCGM: counts over a window, health, links to peers.

Called by `collect` for the counters under `DCGM_EXP_`; values come out of the `View` and the inventory, so none of
them asks the hardware for anything. They are about whole GPUs, never about an instance.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from windlass.node.backend import protocol
from windlass.node.exporter.gpu_health import incidents
from windlass.node.exporter.view import WINDOW_SECONDS, Device, View

Points = list[tuple[dict[str, str], float]]
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


def xid_counts(device: Device, view: View) -> Points:
    found = {xid: count for (uuid, xid), count in view.recent_xids.items() if uuid == device.gpu.uuid}
    return _counts("xid", {str(xid): count for xid, count in sorted(found.items())})


def clock_event_counts(device: Device, view: View) -> Points:
    if protocol.THROTTLE_REASONS not in device.reading:
        return []
    counts = {
        name: view.recent_clock_events.get((device.gpu.uuid, bit), 0) for bit, name in CLOCK_EVENTS.items()
    }
    return _counts("clock_event", {name: count for name, count in counts.items() if count})


def _counts(label: str, counts: Mapping[str, int]) -> Points:
    """One point for each value that was seen; a plain zero where none was."""
    if not counts:
        return [({**_WINDOW}, 0)]
    return [({**_WINDOW, label: value}, count) for value, count in counts.items()]


def health_status(device: Device, view: View) -> Points:
    uuids = [device.gpu.uuid, *(instance.uuid for instance in device.gpu.instances)]
    kinds = {kind for uuid in uuids for kind in view.ailments.get(uuid, ())}
    return [
        ({"health_watch": found.watch, "health_error_code": found.error}, found.value)
        for found in incidents(kinds)
    ]


def peer_status(device: Device, view: View) -> Points:
    """Whether each other GPU of the node is reached over NVLink; DCGM's words and numbers for it."""
    gpus = device.inventory.gpus
    me = next(at for at, gpu in enumerate(gpus) if gpu.uuid == device.gpu.uuid)
    found: Points = []
    for at, peer in enumerate(gpus):
        if at != me:
            works = device.inventory.linked(me, at) and not (peer.is_lost or device.gpu.is_lost)
            word, value = ("OK", 0) if works else ("NotSupported", 5)
            found.append(({"peer_gpu": str(peer.index), "link_status": word}, value))
    return found


MADE_HERE: dict[str, Callable[[Device, View], Points]] = {
    "DCGM_EXP_XID_ERRORS_COUNT": xid_counts,
    "DCGM_EXP_CLOCK_EVENTS_COUNT": clock_event_counts,
    "DCGM_EXP_GPU_HEALTH_STATUS": health_status,
    "DCGM_EXP_P2P_STATUS": peer_status,
}
