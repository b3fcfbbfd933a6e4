"""`kind: RunTimeHistory`: how long the workloads of a LocalQueue have run.

The live scheduler writes one per LocalQueue, with the same name and namespace, and reads it back through the watch or
from a dump; the snapshot has it. `queueing.run_time_estimates` counts runs and computes percentiles.

    apiVersion: windlass.dev/v1
    kind: RunTimeHistory
    metadata: {name: gpu, namespace: research}
    periods:
    - from: 2026-01-01T00:00:00Z
      runs: {"1664": 3, "3584": 12}

    shapes:
    - shape: 4x(nvidia.com/gpu=8), priority 0
      periods: […]

Twelve runs that ended in the week from the first of January took at most 3,584 seconds, and more than the next lower
bound. `shapes` has the same for work of one size and priority. Unknown fields are ignored: a newer version of the
scheduler may have written them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec

from windlass.model.errors import InputError
from windlass.model.meta import KubeStruct, ObjectMeta
from windlass.model.pod import Pod
from windlass.model.quota import format_quota, quota_requests
from windlass.model.times import format_timestamp, parse_timestamp
from windlass.model.workload import Workload

PERIOD_SECONDS = 7 * 86_400


class FinishedRun(msgspec.Struct, frozen=True, gc=False):
    """A workload of a queue that has succeeded."""

    local_queue: str
    """LocalQueue, `namespace/name`."""
    seconds: int
    ended_at: int
    shape: str = ""
    """Size and priority (`run_shape`)."""


RunPeriods = dict[int, dict[int, int]]
"""Weeks since 1970 → upper bound of the run time in seconds → number of runs."""


class RunTimes(msgspec.Struct, frozen=True):
    """Finished runs of one queue."""

    periods: RunPeriods = {}
    shapes: dict[str, RunPeriods] = {}
    """The same by size and priority; not every shape is kept."""


def run_shape(workload: Workload, pods: Sequence[Pod] = ()) -> str:
    """What distinguishes work whose run times are counted together: pods, the devices of each, and priority;
    empty where that can't be read. The pods are all members of a group, of which the workload has those left."""
    if workload.unreadable:
        return ""
    counted = [(pod, 1) for pod in pods] or [(pod_set.template, pod_set.count) for pod_set in workload.pod_sets]
    by_devices: Counter[str] = Counter()
    for pod, count in counted:
        amounts = quota_requests(pod)
        names = [name for name in sorted(amounts) if "/" in name]
        by_devices[",".join(f"{name}={format_quota(name, amounts[name])}" for name in names)] += count
    sets = " + ".join(f"{count}x({devices})" for devices, count in sorted(by_devices.items()))
    return f"{sets}, priority {workload.priority}"


class RunPeriod(KubeStruct, frozen=True):
    from_: str = msgspec.field(name="from", default="")
    runs: dict[str, int] = {}


class RunShape(KubeStruct, frozen=True):
    shape: str = ""
    periods: tuple[RunPeriod, ...] = ()


class RunTimeHistoryObject(KubeStruct, frozen=True):
    """The Kubernetes object."""

    metadata: ObjectMeta = ObjectMeta()
    periods: tuple[RunPeriod, ...] = ()
    shapes: tuple[RunShape, ...] = ()

    @property
    def key(self) -> str:
        return f"{self.metadata.namespace or 'default'}/{self.metadata.name}"


def run_times_from_object(wire: RunTimeHistoryObject) -> RunTimes:
    """The runs of the object. Raises an `InputError` that names the field."""
    shapes = {
        shape.shape: _periods_from_wire(shape.periods, f"shapes[{index}].periods")
        for index, shape in enumerate(wire.shapes)
    }
    return RunTimes(_periods_from_wire(wire.periods, "periods"), shapes)


def _periods_from_wire(wire: tuple[RunPeriod, ...], field: str) -> RunPeriods:
    periods: RunPeriods = {}
    for index, period in enumerate(wire):
        path = f"{field}[{index}]"
        start = parse_timestamp(period.from_)
        if not start:
            raise InputError(
                f"{period.from_[:64]!r} is not a time",
                path=f"{path}.from",
                remedy="write 2026-01-01T00:00:00Z",
            )
        counts = periods.setdefault(start // PERIOD_SECONDS, {})
        for text, runs in period.runs.items():
            if not (text.isascii() and text.isdigit() and len(text) < 12) or runs < 0:
                remedy = "delete the object: the scheduler collects it anew"
                raise InputError(
                    f"{text[:64]!r}: {runs} is not seconds and a number of runs",
                    path=f"{path}.runs",
                    remedy=remedy,
                )
            counts[int(text)] = counts.get(int(text), 0) + runs
    return periods


def run_time_fields(times: RunTimes) -> dict[str, Any]:
    """The object's fields."""
    shapes = [{"shape": shape, "periods": run_time_periods(periods)} for shape, periods in sorted(times.shapes.items())]
    return {"periods": run_time_periods(times.periods), "shapes": shapes}


def run_time_periods(periods: RunPeriods) -> list[dict[str, Any]]:
    """The oldest first."""
    return [
        {
            "from": format_timestamp(number * PERIOD_SECONDS),
            "runs": {str(seconds): runs for seconds, runs in sorted(counts.items())},
        }
        for number, counts in sorted(periods.items())
    ]
