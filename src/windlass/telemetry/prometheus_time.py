"""The recorded ledger out of a Prometheus: what `summaries.Summaries` reads from a folder, by PromQL.

The page's Time view reads it where a Prometheus scrapes the scheduler (`windlass_gpus`, which is the ledger), or at
least dcgm-exporter: then held and busy GPUs are known, all others count as free, and nothing says why work waits.
Nothing is kept here. A sum over a step is one subquery, which Prometheus computes; gaps stay gaps.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from windlass.telemetry.activity import COMPUTING, HELD_IDLE, SPINNING, UNMEASURED
from windlass.telemetry.gpu_shares import WHOLE_MILLI, profile_milli
from windlass.telemetry.history.day import Event
from windlass.telemetry.ledger import FREE, STATES
from windlass.telemetry.prometheus import Prometheus
from windlass.telemetry.prometheus_usage import BUSY, ENGINE, PRESENT, SM, PodLabels
from windlass.telemetry.step_table import step_seconds
from windlass.telemetry.usage_history import COVERED, EVICTED, HELD, QUOTA, SUM, WAITING, join_name, split_name

LEDGER = "windlass_gpus"
GPU = 'resource="nvidia.com/gpu"'
RESOLUTIONS = (60, 300)
"""Seconds between two samples of a sum: fine for short steps, coarse for long ones."""
LEDGER_NOTE = (
    "Read from Prometheus: waiting times, first GPU work and racks are not in its metrics, but in the history of "
    "`windlass scheduler --history`."
)
DEVICES_NOTE = (
    "Read from dcgm-exporter's metrics alone: GPUs without a pod count as free, and what waits is not known. With the "
    "scheduler's metrics in the same Prometheus everything is there."
)
Point = tuple[str, int, int]


class PrometheusSummaries:
    def __init__(self, prometheus: Prometheus) -> None:
        self._prometheus = prometheus
        self.notes: list[str] = []

    def points(self, start: int, end: int) -> Iterator[Point]:
        """(name, time, value), as the scheduler would have recorded them."""
        found = _Steps(self._prometheus, start, end)
        ledger = list(found.sums(f"max by (state, model) ({LEDGER})", ("state", "model")))
        self.notes = [LEDGER_NOTE if ledger else DEVICES_NOTE]
        if ledger:
            yield from found.covered(f"max({LEDGER})")
            for (state, model), at, amount in ledger:
                if state in STATES:
                    yield join_name(SUM, state, model), at, round(amount * WHOLE_MILLI)
            yield from _work(found)
        else:
            yield from found.covered(f"count({PRESENT})")
            names = PodLabels(self._prometheus, end)
            yield from _held(found, names, f'{names.pod}!=""')
            yield from _free(found, names)

    def events(self, start: int, end: int) -> list[Event]:
        """What evictions lost, as one event a queue and reason; how many they were is not in the metrics."""
        query = f"sum by (cluster_queue, reason) (increase(windlass_lost_gpu_seconds_total[{end - start}s]))"
        samples = [sample for sample in self._prometheus.query(query, end - 1) if sample.value >= 1]
        return [
            Event(
                end - 1,
                EVICTED,
                {
                    "queue": sample.labels.get("cluster_queue", ""),
                    "reason": sample.labels.get("reason", ""),
                    "lost": round(sample.value),
                    "evictions": None,
                },
            )
            for sample in samples
        ]

    def facts(self, start: int, end: int) -> Mapping[str, Mapping[str, str]]:
        return {}

    def has_any(self) -> bool:
        return True

    def load(self, start: int, end: int) -> None:
        """Nothing is kept, so nothing is read ahead."""


class _Steps:
    """Sums over the steps of a range, by one range query each."""

    def __init__(self, prometheus: Prometheus, start: int, end: int) -> None:
        self._prometheus, self._start, self._end = prometheus, start, end
        self._step = step_seconds(start, end)
        self._resolution = RESOLUTIONS[self._step > 3600]

    def sums(self, expression: str, labels: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], int, float]]:
        """(values of the labels, beginning of the step, seconds times the value)."""
        query = f"sum_over_time(({expression})[{self._step}s:{self._resolution}s])"
        # A subquery's window includes its end: a moment earlier, so that no sample counts in two steps.
        first, last = self._start + self._step - 1, self._end + self._step - 1
        for series in self._prometheus.query_range(query, first, last, self._step):
            key = tuple(series.labels.get(label, "") for label in labels)
            for at, value in series.points:
                begins = round(at) + 1 - self._step
                if begins < self._end:
                    yield key, begins, value * self._resolution

    def covered(self, expression: str) -> Iterator[Point]:
        for _, at, seconds in self.sums(f"({expression}) >= bool 0", ()):
            yield COVERED, at, min(self._step, round(seconds))


def _work(steps: _Steps) -> Iterator[Point]:
    """What waited, and what queues held, where Windlass or Kueue exports it."""
    by_queue = "max by (cluster_queue, {}) ({})"
    waiting = by_queue.format("cause", "windlass_waiting_gpus")
    for (cause,), at, amount in steps.sums(f"sum by (cause) ({waiting})", ("cause",)):
        yield join_name(WAITING, cause, ""), at, round(amount * WHOLE_MILLI)
    for kind, metric in ((HELD, "resource_usage"), (QUOTA, "nominal_quota")):
        cells = by_queue.format("flavor", f"kueue_cluster_queue_{metric}{{{GPU}}}")
        for (queue,), at, amount in steps.sums(f"sum by (cluster_queue) ({cells})", ("cluster_queue",)):
            yield join_name(kind, queue), at, round(amount * WHOLE_MILLI)


def job_points(prometheus: Prometheus, selector: str, start: int, end: int) -> Iterator[Point]:
    """The same of the pods that the selector takes, by state alone; `covered` says when anything was recorded."""
    steps = _Steps(prometheus, start, end)
    yield from steps.covered(f"count({PRESENT})")
    for name, at, amount in _held(steps, PodLabels(prometheus, end), selector):
        yield split_name(name)[1], at, amount


_LABELS = ("modelName", "GPU_I_PROFILE")


def _each(metric: str, names: PodLabels, selector: str) -> str:
    """Once for every GPU, or MIG instance, and pod."""
    by = ("UUID", "GPU_I_ID", *_LABELS, names.namespace, names.pod)
    return f"max by ({', '.join(by)}) ({metric}{{{selector}}})"


def _amounts(steps: _Steps, expression: str) -> dict[tuple[str, int], float]:
    """(model, beginning of the step) → milli-GPU-seconds in which the expression was 1."""
    found: dict[tuple[str, int], float] = {}
    for (model, profile), at, amount in steps.sums(f"sum by ({', '.join(_LABELS)}) ({expression})", _LABELS):
        key = (model.replace(" ", "-"), at)
        found[key] = found.get(key, 0.0) + amount * (profile_milli(profile) if profile else WHOLE_MILLI)
    return found


def _held(steps: _Steps, names: PodLabels, selector: str) -> Iterator[Point]:
    """GPUs of pods, by what they do."""
    present, use, engine, sm = (_each(metric, names, selector) for metric in (PRESENT, BUSY, ENGINE, SM))
    held = _amounts(steps, f"{present} >= bool 0")
    measured = _amounts(steps, f"({use} >= bool 0) or ({engine} >= bool 0)")
    busy = _amounts(steps, f"({use} >= bool 1) or ({engine} >= bool 0.01)")
    spinning = _amounts(steps, f"({use} >= bool 95) * ({sm} <= bool 0.02)")
    for (model, at), total in held.items():
        known = min(total, measured.get((model, at), 0.0))
        working = min(known, busy.get((model, at), 0.0))
        waiting = min(working, spinning.get((model, at), 0.0))
        states = {
            COMPUTING: working - waiting,
            SPINNING: waiting,
            HELD_IDLE: known - working,
            UNMEASURED: total - known,
        }
        yield from ((join_name(SUM, state, model), at, round(amount)) for state, amount in states.items() if amount)


def _free(steps: _Steps, names: PodLabels) -> Iterator[Point]:
    nobodys = _each(PRESENT, names, f'{names.pod}=""')
    for (model, at), amount in _amounts(steps, f"{nobodys} >= bool 0").items():
        yield join_name(SUM, FREE, model), at, round(amount)
