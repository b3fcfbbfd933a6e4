"""What a GPU does, from one measurement: computing, idle, spinning, or unmeasured.

`ledger` calls `activity_of` for every GPU that a pod holds. "Utilisation" (`DCGM_FI_DEV_GPU_UTIL`) is the share of time
in which any kernel ran: one busy SM of 132 reads 100 %, and so does a collective that waits for a lost peer. Whether
the SMs work is known only from the profiling fields, which NVML gives from Hopper on and DCGM from Volta on. Without
them a GPU that spins counts as computing, and `can_tell_spinning` says so.
"""

from __future__ import annotations

from typing import Literal

import msgspec

Activity = Literal["computing", "held_idle", "spinning", "unmeasured"]
COMPUTING: Activity = "computing"
HELD_IDLE: Activity = "held_idle"
SPINNING: Activity = "spinning"
UNMEASURED: Activity = "unmeasured"


class GpuSample(msgspec.Struct, frozen=True, gc=False):
    """One GPU at one moment. None: the GPU does not give the value."""

    at: int
    """When it was measured, in seconds since 1970."""
    busy_percent: float | None = None
    """`DCGM_FI_DEV_GPU_UTIL`: time in which any kernel ran."""
    engine_active: float | None = None
    """`DCGM_FI_PROF_GR_ENGINE_ACTIVE`, 0 to 1: the same for MIG instances, which have no utilisation."""
    sm_active: float | None = None
    """`DCGM_FI_PROF_SM_ACTIVE`, 0 to 1: SMs with work, over all SMs and time."""
    tensor_active: float | None = None
    dram_active: float | None = None
    power_watts: float | None = None
    memory_mib: float | None = None
    uuid: str = ""


class ActivityRules(msgspec.Struct, frozen=True):
    """The limits between the activities. Decision 0043 has recordings of an H200 beside them. Power is none of them: a
    kernel that spins on one SM draws as much as a context that does nothing."""

    max_age_seconds: int = 300
    """An older measurement says nothing about now."""
    busy_percent: float = 1.0
    """Less than this, as a mean over the sampling interval, is idle."""
    spinning_percent: float = 95.0
    """A kernel that never ends is at 100 %; a stream of small kernels has pauses between them."""
    spinning_sm_active: float = 0.02
    """Two of 132 SMs, and a little. More SMs than that is work, or can't be told from it."""
    spinning_pipe_active: float = 0.005
    """Tensor cores and memory interface, which a waiting kernel leaves alone."""


DEFAULT_RULES = ActivityRules()


def activity_of(sample: GpuSample | None, now: int, rules: ActivityRules = DEFAULT_RULES) -> Activity:
    """What the GPU does now; `unmeasured` where that is not known, which is never the same as idle."""
    if sample is None or not now - rules.max_age_seconds <= sample.at <= now + rules.max_age_seconds:
        return UNMEASURED
    busy = _busy_percent(sample)
    if busy is None:
        return UNMEASURED
    if busy < rules.busy_percent and (sample.sm_active or 0.0) * 100 < rules.busy_percent:
        return HELD_IDLE
    return SPINNING if busy >= rules.spinning_percent and _looks_like_waiting(sample, rules) else COMPUTING


def can_tell_spinning(sample: GpuSample) -> bool:
    """Whether the GPU gives what is needed to tell a kernel that only waits from work."""
    return sample.sm_active is not None


def _busy_percent(sample: GpuSample) -> float | None:
    if sample.busy_percent is not None:
        return sample.busy_percent
    ratio = sample.engine_active if sample.engine_active is not None else sample.sm_active
    return None if ratio is None else ratio * 100


def _looks_like_waiting(sample: GpuSample, rules: ActivityRules) -> bool:
    if sample.sm_active is None or sample.sm_active > rules.spinning_sm_active:
        return False
    pipes = (sample.tensor_active or 0.0, sample.dram_active or 0.0)
    return max(pipes) <= rules.spinning_pipe_active
