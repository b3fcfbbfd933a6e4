"""What the sidecar asks of the plugin process while MIG changes: not to allocate devices, and to let the driver go.

A layout change takes seconds, and a device that was free when it was planned may be allocated in the middle of it.
So the sidecar writes the UUIDs to a file; the plugin reports them as unhealthy to the kubelet and acknowledges in a
second file; then the MIG manager checks once more which pods hold devices. In the same way the plugin closes the driver
while a GPU is reset. A request of a process that has died is ignored.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

import msgspec

from windlass.node.atomic_file import write_atomically

CORDON_REASON = "its MIG layout is being changed"
CORDON, RELEASE = "device-cordon", "driver-release"
"""Names of the two requests: not to allocate devices, and to let the driver go, which a reset needs."""
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
    with _requested(state, CORDON, uuids):
        time.sleep(KUBELET_SECONDS)
        yield


def release_elsewhere(state: Path, *, has_plugin: bool = True) -> AbstractContextManager[None]:
    """While the context is open, the plugin process has the driver closed. Its devices stay advertised."""
    return _requested(state, RELEASE, frozenset()) if has_plugin else nullcontext()


@contextmanager
def _requested(state: Path, name: str, uuids: frozenset[str]) -> Iterator[None]:
    request = CordonRequest(os.getpid(), uuids)
    write_atomically(state / f"{name}.json", msgspec.json.encode(request))
    try:
        deadline = time.monotonic() + ACKNOWLEDGE_TIMEOUT_SECONDS
        while _read(state / f"{name}.done.json") != request and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)
        yield
    finally:
        (state / f"{name}.json").unlink(missing_ok=True)


class DeviceCordon:
    """The plugin's side of one of the two requests."""

    def __init__(self, state: Path, name: str = CORDON) -> None:
        self._request_file, self._acknowledged_file = state / f"{name}.json", state / f"{name}.done.json"
        self._acknowledged: CordonRequest | None = None
        self._acknowledged_file.unlink(missing_ok=True)  # it belongs to an earlier plugin process

    def requested(self) -> CordonRequest | None:
        request = _read(self._request_file)
        return request if request is not None and _is_alive(request.pid) else None

    def acknowledge(self, request: CordonRequest | None) -> None:
        """To be called when it is done: the kubelet has the list with these devices unhealthy, the driver is closed."""
        if request is not None and request != self._acknowledged:
            write_atomically(self._acknowledged_file, msgspec.json.encode(request))
        elif request is None and self._acknowledged is not None:
            self._acknowledged_file.unlink(missing_ok=True)
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
