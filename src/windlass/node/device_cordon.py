"""Keeps devices from being allocated while MIG changes them: the MIG manager asks, the plugin tells the kubelet.

A layout change takes seconds, and a device that was free when it was planned may be allocated in the middle of it.
So the sidecar writes the UUIDs to a file; the plugin reports them as unhealthy to the kubelet and acknowledges in a
second file; then the MIG manager checks once more which pods hold devices. A request of a process that has died is
ignored.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from windlass.node.atomic_file import write_atomically

CORDON_REASON = "its MIG layout is being changed"
REQUEST_FILE, ACKNOWLEDGED_FILE = "device-cordon.json", "device-cordon.done.json"
ACKNOWLEDGE_TIMEOUT_SECONDS = 5.0
"""A plugin that takes longer is not running, and without it the kubelet can't allocate either."""
KUBELET_SECONDS = 0.3
"""How long the kubelet gets to read the list that it was sent."""
POLL_SECONDS = 0.02


class CordonRequest(msgspec.Struct, frozen=True):
    pid: int
    """The process that asks."""
    uuids: frozenset[str]


@contextmanager
def cordon_devices(state: Path, uuids: frozenset[str], *, has_plugin: bool = True) -> Iterator[None]:
    """While the context is open, the kubelet allocates none of the devices."""
    if not uuids or not has_plugin:
        yield
        return
    request = CordonRequest(os.getpid(), uuids)
    write_atomically(state / REQUEST_FILE, msgspec.json.encode(request))
    try:
        deadline = time.monotonic() + ACKNOWLEDGE_TIMEOUT_SECONDS
        while _read(state / ACKNOWLEDGED_FILE) != request and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)
        time.sleep(KUBELET_SECONDS)
        yield
    finally:
        (state / REQUEST_FILE).unlink(missing_ok=True)


class DeviceCordon:
    """The plugin's side."""

    def __init__(self, state: Path) -> None:
        self._state = state
        self._acknowledged: CordonRequest | None = None
        (state / ACKNOWLEDGED_FILE).unlink(missing_ok=True)  # it belongs to an earlier plugin process

    def requested(self) -> CordonRequest | None:
        request = _read(self._state / REQUEST_FILE)
        return request if request is not None and _is_alive(request.pid) else None

    def acknowledge(self, request: CordonRequest | None) -> None:
        """To be called when the kubelet has the list with these devices unhealthy."""
        if request is not None and request != self._acknowledged:
            write_atomically(self._state / ACKNOWLEDGED_FILE, msgspec.json.encode(request))
        elif request is None and self._acknowledged is not None:
            (self._state / ACKNOWLEDGED_FILE).unlink(missing_ok=True)
        self._acknowledged = request


def _read(path: Path) -> CordonRequest | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=CordonRequest)
    except (OSError, msgspec.MsgspecError):
        return None


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return True
    return True
