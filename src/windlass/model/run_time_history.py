"""`kind: RunTimeHistory`: how long the workloads of a LocalQueue have run.

The live scheduler writes one per LocalQueue, with the same name and namespace, and reads it back through the watch or
from a dump; the snapshot has it. `queueing.run_time_estimates` counts runs and computes percentiles.

    apiVersion: windlass.dev/v1
    kind: RunTimeHistory
    metadata: {name: gpu, namespace: research}
    periods:
    - from: 2026-01-01T00:00:00Z
      runs: {"1664": 3, "3584": 12}

Twelve runs that ended in the week from the first of January took at most 3,584 seconds, and more than the next lower
bound. Unknown fields are ignored: a newer version of the scheduler may have written them.
"""

from __future__ import annotations

from typing import Any

import msgspec

from windlass.model.errors import InputError
from windlass.model.meta import KubeStruct, ObjectMeta
from windlass.model.times import format_timestamp, parse_timestamp

PERIOD_SECONDS = 7 * 86_400


class FinishedRun(msgspec.Struct, frozen=True, gc=False):
    """A workload of a queue that has succeeded."""

    local_queue: str
    """LocalQueue, `namespace/name`."""
    seconds: int
    ended_at: int


class RunTimes(msgspec.Struct, frozen=True):
    """Finished runs of one queue."""

    periods: dict[int, dict[int, int]] = {}
    """Weeks since 1970 → upper bound of the run time in seconds → number of runs."""


class RunPeriod(KubeStruct, frozen=True):
    from_: str = msgspec.field(name="from", default="")
    runs: dict[str, int] = {}


class RunTimeHistoryObject(KubeStruct, frozen=True):
    """The Kubernetes object."""

    metadata: ObjectMeta = ObjectMeta()
    periods: tuple[RunPeriod, ...] = ()

    @property
    def key(self) -> str:
        return f"{self.metadata.namespace or 'default'}/{self.metadata.name}"


def run_times_from_object(wire: RunTimeHistoryObject) -> RunTimes:
    """The runs of the object. Raises an `InputError` that names the field."""
    periods: dict[int, dict[int, int]] = {}
    for index, period in enumerate(wire.periods):
        path = f"periods[{index}]"
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
    return RunTimes(periods)


def run_time_periods(times: RunTimes) -> list[dict[str, Any]]:
    """The object's `periods`, the oldest first."""
    return [
        {
            "from": format_timestamp(number * PERIOD_SECONDS),
            "runs": {str(seconds): runs for seconds, runs in sorted(counts.items())},
        }
        for number, counts in sorted(times.periods.items())
    ]
