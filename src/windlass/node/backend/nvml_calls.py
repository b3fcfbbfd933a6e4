"""Calls NVML and turns its errors either into None or into a `DeviceError`.

Shared by the `nvml` modules. NVML refuses calls for many reasons that are no failure of the node (an older GPU, MIG
mode, a missing privilege), so the caller chooses.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from typing import Any

import pynvml as nv

from windlass.node.backend.protocol import DeviceError


def try_call(function: Callable[..., Any], *arguments: Any) -> Any:
    """The driver's answer; None if it refuses."""
    try:
        return function(*arguments)
    except nv.NVMLError:
        return None


def call_or_raise(what: str, function: Callable[..., Any], *arguments: Any) -> Any:
    """The driver's answer; a `DeviceError` that begins with `what` if it refuses."""
    try:
        return function(*arguments)
    except nv.NVMLError as error:
        raise DeviceError(f"{what}: {error}") from None


def nvidia_smi(*arguments: str) -> None:
    """For the operations that NVML has no call for."""
    try:
        result = subprocess.run(["nvidia-smi", *arguments], capture_output=True, text=True, timeout=120, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise DeviceError(f"nvidia-smi {' '.join(arguments)}: {error}") from None
    if result.returncode != 0:
        output = " ".join((result.stdout + result.stderr).split())
        raise DeviceError(f"nvidia-smi {' '.join(arguments)} failed: {output}")


def decode_text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


def short_bus_id(bus_id: str) -> str:
    """NVML writes the PCI domain with eight digits, sysfs with four."""
    domain, _, rest = bus_id.lower().partition(":")
    return f"{domain[-4:]}:{rest}"
