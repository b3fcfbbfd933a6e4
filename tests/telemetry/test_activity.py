"""What GPUs do, by what an H200 reported while it did it (`tools/gpu/activity.py`; medians of 15 seconds)."""

from __future__ import annotations

import pytest

from windlass.telemetry.activity import GpuSample, activity_of

NOW = 1_800_000_000
RECORDED = {
    # busy %, SM active, tensor active, DRAM active, watts
    "context alone": ((0, 0.00, 0.00, 0.00, 119), "held_idle"),
    "40 GiB held": ((0, 0.00, 0.00, 0.00, 120), "held_idle"),
    "one thread spins": ((100, 0.00, 0.00, 0.00, 120), "spinning"),
    "matrix products": ((100, 0.96, 0.93, 0.16, 691), "computing"),
    "products, a third of the time": ((35, 0.28, 0.27, 0.06, 344), "computing"),
    "copies in memory": ((100, 0.99, 0.00, 0.88, 402), "computing"),
    "small kernels one by one": ((30, 0.00, 0.00, 0.00, 121), "computing"),
    "leaks 256 MiB a second": ((0, 0.00, 0.00, 0.00, 120), "held_idle"),
    "caching allocator": ((4, 0.01, 0.00, 0.00, 124), "computing"),
}


@pytest.mark.parametrize("name", RECORDED)
def test_recordings_of_an_h200(name: str) -> None:
    (busy, sm, tensor, dram, watts), expected = RECORDED[name]
    sample = GpuSample(NOW, busy, sm_active=sm, tensor_active=tensor, dram_active=dram, power_watts=watts)
    assert activity_of(sample, NOW) == expected


def test_what_is_not_measured_is_never_idle() -> None:
    assert activity_of(None, NOW) == "unmeasured"
    assert activity_of(GpuSample(NOW, power_watts=77.0), NOW) == "unmeasured"
    assert activity_of(GpuSample(NOW - 301, busy_percent=0.0), NOW) == "unmeasured"
    assert activity_of(GpuSample(NOW + 301, busy_percent=0.0), NOW) == "unmeasured", "a clock that is wrong"


def test_instances_have_no_utilisation_and_are_told_by_their_engine() -> None:
    assert activity_of(GpuSample(NOW, engine_active=0.0), NOW) == "held_idle"
    assert activity_of(GpuSample(NOW, engine_active=0.4), NOW) == "computing"
