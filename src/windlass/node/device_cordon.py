"""Devices that nobody is given while they are cut anew: the MIG manager asks, the plugin tells the kubelet.

A change of layout takes seconds, and what was free when it was planned may be given to a pod in the middle of it. So
the process beside the plugin leaves the devices that will go in a file, the plugin shows them as unhealthy and says
that it did, and only then is it looked once more who holds what. Word of a process that is gone counts no longer.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from windlass.node.atomic_file import write_atomically

CORDON_REASON = "it is being cut anew"
REQUEST_FILE, ACKNOWLEDGED_FILE = "held-back.json", "held-back.done.json"
ACKNOWLEDGE_TIMEOUT_SECONDS = 5.0
"""A plugin that takes longer isn't there, and then the kubelet can give nothing away either."""
KUBELET_SECONDS = 0.3
"""For the kubelet to read what it was sent."""
POLL_SECONDS = 0.02


class CordonRequest(msgspec.Struct, frozen=True):
    pid: int
    """Of who asks."""
    uuids: frozenset[str]


@contextmanager
def cordon_devices(state: Path, uuids: frozenset[str], *, has_plugin: bool = True) -> Iterator[None]:
    """Inside, the kubelet gives none of the devices to anybody."""
    if not uuids or not has_plugin:
        yield
        return
    word = CordonRequest(os.getpid(), uuids)
    write_atomically(state / REQUEST_FILE, msgspec.json.encode(word))
    try:
        end = time.monotonic() + ACKNOWLEDGE_TIMEOUT_SECONDS
        while _read(state / ACKNOWLEDGED_FILE) != word and time.monotonic() < end:
            time.sleep(POLL_SECONDS)
        time.sleep(KUBELET_SECONDS)
        yield
    finally:
        (state / REQUEST_FILE).unlink(missing_ok=True)


class DeviceCordon:
    """The plugin's side."""

    def __init__(self, state: Path) -> None:
        self._state = state
        self._told: CordonRequest | None = None
        (state / ACKNOWLEDGED_FILE).unlink(missing_ok=True)  # what another plugin told, this one hasn't

    def requested(self) -> CordonRequest | None:
        word = _read(self._state / REQUEST_FILE)
        return word if word is not None and _is_alive(word.pid) else None

    def acknowledge(self, request: CordonRequest | None) -> None:
        """The kubelet was told of them."""
        if request is not None and request != self._told:
            write_atomically(self._state / ACKNOWLEDGED_FILE, msgspec.json.encode(request))
        elif request is None and self._told is not None:
            (self._state / ACKNOWLEDGED_FILE).unlink(missing_ok=True)
        self._told = request


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
