"""How NVML is called here: with its refusals either counted as "not given" or turned into a `DeviceError`.

Shared by the `nvml` modules. NVML refuses a call for many reasons that are no failure of the node (an older GPU, MIG
mode, a missing privilege); whoever asks says which way it wants to hear of it.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from typing import Any

import pynvml as nv

from windlass.node.backend.protocol import DeviceError


def try_call(function: Callable[..., Any], *arguments: Any) -> Any:
    """What the driver answers; None where it doesn't give it."""
    try:
        return function(*arguments)
    except nv.NVMLError:
        return None


def call_or_raise(what: str, function: Callable[..., Any], *arguments: Any) -> Any:
    """What the driver answers; a `DeviceError` that begins with `what` where it refuses."""
    try:
        return function(*arguments)
    except nv.NVMLError as error:
        raise DeviceError(f"{what}: {error}") from None


def nvidia_smi(*arguments: str) -> None:
    """For the few things that NVML has no call for."""
    try:
        done = subprocess.run(
            ["nvidia-smi", *arguments], capture_output=True, text=True, timeout=120, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise DeviceError(f"nvidia-smi {' '.join(arguments)}: {error}") from None
    if done.returncode != 0:
        words = " ".join((done.stdout + done.stderr).split())
        raise DeviceError(f"nvidia-smi {' '.join(arguments)} failed: {words}")


def decode_text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


def short_bus_id(bus_id: str) -> str:
    """NVML writes the domain with eight digits, sysfs with four."""
    domain, _, rest = bus_id.lower().partition(":")
    return f"{domain[-4:]}:{rest}"
