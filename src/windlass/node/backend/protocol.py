"""What every device back end can do: list, measure, wait for faults, cut and reset.

`nvml` and `simulated` implement it; `inventory`, `health`, `exporter`, `mig_manager` and `validator` call it and know
no other. A reading is a map from a metric's name (dcgm-exporter's, see `exporter.fields`) to a number: what the device
doesn't give is absent, never a sentinel.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Protocol

import msgspec

from windlass.model.errors import WindlassError
from windlass.sharing.inventory import Inventory

RECOVERY_ACTION = "WINDLASS_GPU_RECOVERY_ACTION"
THROTTLE_REASONS = "DCGM_FI_DEV_CLOCKS_EVENT_REASONS"
ROW_REMAP_PENDING = "DCGM_FI_DEV_ROW_REMAP_PENDING"
ROW_REMAP_FAILURE = "DCGM_FI_DEV_ROW_REMAP_FAILURE"
LINKS_DOWN = "WINDLASS_NVLINKS_DOWN"

Reading = Mapping[str, float]


class DeviceError(WindlassError):
    """The driver refused something, or a GPU didn't answer; the message says what and which."""


class MigModeChange(Enum):
    """What became of a change of MIG mode."""

    DONE = "done"
    NEEDS_RESET = "needs a GPU reset"


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """Something that the driver reported about a GPU, or about one instance of it."""

    uuid: str
    """Of the GPU; empty where the driver couldn't say which."""
    xid: int
    gpu_instance: int = -1
    """-1: the whole GPU."""
    compute_instance: int = -1


class ProcessUsage(msgspec.Struct, frozen=True, kw_only=True):
    """One process on a GPU or an instance."""

    pid: int
    memory_mib: int = 0
    sm_percent: int = -1
    """Of the GPU's time; -1 where the driver doesn't say (MIG mode)."""
    gpu_instance: int = -1


class ComputeResult(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What came of a computation with a known answer."""

    right: bool
    device: str = ""
    multiprocessors: int = 0
    memory_mib: int = 0
    milliseconds: float = 0.0
    error: str = ""


class DeviceBackend(Protocol):
    def inventory(self) -> Inventory:
        """The GPUs as they are now; a lost one stays in the list, marked. Raises `DeviceError` without a driver."""
        ...

    def reading(self, uuid: str) -> Reading:
        """One pass over a GPU's (or MIG device's) counters; empty where it can't be reached."""
        ...

    def description(self, uuid: str) -> Mapping[str, str]:
        """Words about a GPU that never change, by DCGM's names for them: serial number, VBIOS and the like."""
        ...

    def processes(self, uuid: str) -> tuple[ProcessUsage, ...]:
        """Who uses the GPU or MIG device, and how much of its time since the last call."""
        ...

    def wait_for_faults(self, seconds: float) -> tuple[Fault, ...]:
        """Faults since the last call; waits for the first up to so long, and may return early with none."""
        ...

    def set_mig_mode(self, uuid: str, enabled: bool) -> MigModeChange:
        """Raises `DeviceError` where the GPU is in use or has no MIG."""
        ...

    def create_instance(self, uuid: str, profile: str, start: int) -> None:
        """A GPU instance at this memory slice, with one compute instance over all of it."""
        ...

    def destroy_instance(self, uuid: str, gpu_instance: int) -> None:
        """The instance and its compute instances; a `DeviceError` where a process uses it."""
        ...

    def reset(self, uuid: str) -> None:
        """A GPU reset; only possible while nothing uses the GPU."""
        ...

    def set_exclusive(self, uuid: str, exclusive: bool) -> None:
        """The compute mode that the MPS daemon needs, or the default."""
        ...

    def set_time_slice(self, uuid: str, interval: str) -> None:
        """`default`, `short`, `medium` or `long`."""
        ...

    def compute(self, uuid: str) -> ComputeResult:
        """Runs a computation with a known answer on a GPU or MIG device; it may take seconds."""
        ...

    def close(self) -> None: ...
