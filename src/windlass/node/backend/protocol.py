"""The interface of a device back end: inventory, readings, faults, MIG changes, resets.

`nvml` and `simulated` implement it; health, exporter, MIG manager and validator use it. A reading maps a metric's
name (dcgm-exporter's, see `exporter.fields`) to a number; what the device does not give is absent, never a
sentinel.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
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
MAX_LINKS = 18
LINK_TRAFFIC = tuple(f"DCGM_FI_DEV_NVLINK_BANDWIDTH_L{link}" for link in range(MAX_LINKS))
"""By link."""

Reading = Mapping[str, float]


class DeviceError(WindlassError):
    """The driver refused a call, or a GPU did not answer; the message says which."""


class DriverChanged(DeviceError):
    """Another version of the driver is loaded: the process has to start again to use it."""


class MigModeChange(Enum):
    """The result of a change of MIG mode."""

    DONE = "done"
    NEEDS_RESET = "needs a GPU reset"


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """A fault that the driver reported about a GPU or one of its instances."""

    uuid: str
    """Of the GPU; empty if the driver does not say which."""
    xid: int
    gpu_instance: int = -1
    """-1: the whole GPU."""
    compute_instance: int = -1


class ProcessUsage(msgspec.Struct, frozen=True, kw_only=True):
    """One process on a GPU or an instance."""

    pid: int
    memory_mib: int = 0
    sm_percent: int = -1
    """Percentage of the GPU's time; -1 if the driver does not say (MIG mode)."""
    gpu_instance: int = -1


class ComputeResult(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The result of a computation with a known answer."""

    right: bool
    device: str = ""
    multiprocessors: int = 0
    memory_mib: int = 0
    milliseconds: float = 0.0
    error: str = ""
    is_busy: bool = False
    """Others have the device for themselves (exclusive mode, MPS): nothing was computed."""


class DeviceBackend(Protocol):
    reset_guard: Callable[[], AbstractContextManager[None]]
    """Open while a GPU is reset: the agent's other process lets the driver go."""

    def acquire(self) -> None:
        """Opens the driver, if it isn't open. Raises `DeviceError` without one."""

    def release(self) -> None:
        """Closes the driver: while it is open, no GPU can be reset and the driver can't be reloaded."""

    def inventory(self) -> Inventory:
        """The GPUs now; lost ones stay in the list, marked. Raises `DeviceError` without a driver."""

    def reading(self, uuid: str) -> Reading:
        """The counters of a GPU or MIG device; empty if it can't be reached."""

    def description(self, uuid: str) -> Mapping[str, str]:
        """Texts about a GPU that never change, by DCGM's names: serial number, VBIOS and the like."""

    def link_traffic(self, uuid: str) -> Reading:
        """Bytes of each NVLink of a GPU, by DCGM's names (`…_BANDWIDTH_L0`); apart, since it takes a call per link."""

    def processes(self, uuid: str) -> tuple[ProcessUsage, ...]:
        """Processes on the GPU or MIG device, with their share of its time since the last call."""

    def wait_for_faults(self, seconds: float) -> tuple[Fault, ...]:
        """Faults since the last call. Waits for the first at most `seconds`; may return early with none."""

    def set_mig_mode(self, uuid: str, enabled: bool) -> MigModeChange:
        """Raises `DeviceError` if the GPU is in use or has no MIG."""

    def create_instance(self, uuid: str, profile: str, start: int) -> None:
        """Creates a GPU instance at this memory slice, with one compute instance over all of it."""

    def destroy_instance(self, uuid: str, gpu_instance: int) -> None:
        """Destroys the instance and its compute instances; a `DeviceError` if a process uses it."""

    def reset(self, uuid: str) -> None:
        """Resets the GPU; only possible while nothing uses it."""

    def set_exclusive(self, uuid: str, exclusive: bool) -> None:
        """Sets the compute mode that the MPS daemon needs, or the default."""

    def set_time_slice(self, uuid: str, interval: str) -> None:
        """`default`, `short`, `medium` or `long`."""

    def compute(self, uuid: str) -> ComputeResult:
        """Runs a computation with a known answer on a GPU or MIG device; it may take seconds."""

    def close(self) -> None: ...
