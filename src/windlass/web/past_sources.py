"""Where the page's past is read: the folder that the scheduler writes, or a Prometheus. Nothing is kept twice.

`web.past_page` calls a source in a thread of its own. With both, the folder has the sums, and the Prometheus the curves
of single GPUs.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from windlass.telemetry.job_view import Curves, JobPast, make_job_view, recorded_points
from windlass.telemetry.prometheus import Prometheus
from windlass.telemetry.prometheus_job import job_selector, read_job_curves
from windlass.telemetry.prometheus_time import PrometheusSummaries, job_points
from windlass.telemetry.prometheus_usage import read_prometheus_usage
from windlass.telemetry.step_table import slot_range
from windlass.telemetry.summaries import Summaries
from windlass.telemetry.time_view import Audience, TimeView, make_time_view
from windlass.telemetry.usage import Usage
from windlass.telemetry.usage_history import open_ledger_history, read_usage

NO_CURVES = "Curves of single GPUs are read from a Prometheus: none is named (--prometheus)."


class PastSource(Protocol):
    def has_any(self) -> bool: ...

    def load(self, start: int, end: int) -> None:
        """Reads ahead what the first viewer would wait for."""

    def time(self, start: int, end: int, audience: Audience) -> TimeView: ...

    def usage(self, start: int, end: int) -> Usage: ...

    def job(self, name: str, pods: Sequence[str], start: int, end: int, audience: Audience) -> JobPast:
        """`pods`: names of those that exist now."""


class RecordedPast:
    def __init__(self, folder: Path, prometheus: Prometheus | None = None) -> None:
        self._folder, self._prometheus = folder, prometheus
        self._summaries = Summaries(folder)
        self.has_any, self.load = self._summaries.has_any, self._summaries.load

    def time(self, start: int, end: int, audience: Audience) -> TimeView:
        return make_time_view(self._summaries, start, end, audience)

    def usage(self, start: int, end: int) -> Usage:
        return read_usage(open_ledger_history(self._folder), start, end)

    def job(self, name: str, pods: Sequence[str], start: int, end: int, audience: Audience) -> JobPast:
        start, end = slot_range(start, end)
        reader = open_ledger_history(self._folder)
        curves: list[Curves] = []
        if self._prometheus is not None:
            selector = job_selector(self._prometheus, name, pods, start, end)
            curves = read_job_curves(self._prometheus, selector, start, end) if selector else []
        return make_job_view(
            name,
            recorded_points(reader, name, start, end),
            reader.events(start, end),
            start,
            end,
            names_others=audience.namespaces is None,
            curves=curves,
            notes=() if self._prometheus is not None else (NO_CURVES,),
        )


class PrometheusPast:
    def __init__(self, prometheus: Prometheus) -> None:
        self._prometheus = prometheus

    def has_any(self) -> bool:
        return True

    def load(self, start: int, end: int) -> None:
        """Nothing is kept, so nothing is read ahead."""

    def time(self, start: int, end: int, audience: Audience) -> TimeView:
        return make_time_view(PrometheusSummaries(self._prometheus), start, end, audience)

    def usage(self, start: int, end: int) -> Usage:
        return read_prometheus_usage(self._prometheus, start, end)

    def job(self, name: str, pods: Sequence[str], start: int, end: int, audience: Audience) -> JobPast:
        start, end = slot_range(start, end)
        selector = job_selector(self._prometheus, name, pods, start, end)
        if not selector:
            return make_job_view(name, (), (), start, end)
        points = job_points(self._prometheus, selector, start, end)
        return make_job_view(
            name, points, (), start, end, curves=read_job_curves(self._prometheus, selector, start, end)
        )


def past_source(history: Path | None, prometheus: Prometheus | None) -> PastSource | None:
    if history is not None:
        return RecordedPast(history, prometheus)
    return PrometheusPast(prometheus) if prometheus is not None else None
