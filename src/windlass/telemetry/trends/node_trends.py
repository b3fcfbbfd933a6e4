"""The trends of a node's own GPUs, out of the history that its agent keeps. Called by `windlass node trends`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from statistics import median

import msgspec

from windlass.model.times import format_timestamp
from windlass.telemetry.history import gpu_metrics
from windlass.telemetry.history.reader import HistoryReader
from windlass.telemetry.trends.error_growth import find_growth, hourly_increments
from windlass.telemetry.trends.heat import HeatSample, daily_resistance, find_heat_drift
from windlass.telemetry.trends.memory_leak import find_leak, find_service_leak
from windlass.telemetry.trends.robust import Series

DAY = 86_400
HELD_MIB = 512
"""Less than this in use: no job has the GPU."""
SERVICE_DAYS, SERVICE_SECONDS = 4, 55 * 3600
"""What holds its memory for longer may be a service, which follows the day: it is compared with the days before."""
COUNTERS = {
    gpu_metrics.PCIE_REPLAYS: "PCIe replays",
    gpu_metrics.NVLINK_ERRORS: "NVLink CRC errors",
    gpu_metrics.ECC_CORRECTED: "corrected ECC errors",
    gpu_metrics.ECC_UNCORRECTED: "uncorrected ECC errors",
}


class TrendFinding(msgspec.Struct, frozen=True):
    uuid: str
    kind: str
    """`leak`, `heat` or `errors`."""
    text: str
    facts: dict[str, str] = {}
    """Serial number, model, node and index of the GPU."""


def find_node_trends(reader: HistoryReader, now: int) -> list[TrendFinding]:
    return list(_NodeTrends(reader, now).find())


class _NodeTrends:
    def __init__(self, reader: HistoryReader, now: int) -> None:
        self._reader, self._now = reader, now
        self._facts = reader.facts(now - 30 * DAY, now + 1)
        self._limits: dict[str, float] = {}

    def find(self) -> Iterator[TrendFinding]:
        resistances = {uuid: self._resistance(uuid) for uuid in self._facts}
        rates = {field: {uuid: self._increments(uuid, field) for uuid in self._facts} for field in COUNTERS}
        for uuid in sorted(self._facts):
            yield from self._leak(uuid)
            yield from self._heat(uuid, resistances)
            for field, words in COUNTERS.items():
                yield from self._growth(uuid, words, rates[field])

    def _series(self, uuid: str, field: str, days: int) -> Series:
        scale = gpu_metrics.SCALES[field]
        points = self._reader.points(f"{uuid}/{field}", self._now - days * DAY, self._now + 1)
        return [(float(at), value / scale) for at, value in points]

    def _leak(self, uuid: str) -> Iterator[TrendFinding]:
        used = self._series(uuid, gpu_metrics.MEMORY_USED, SERVICE_DAYS)
        total = self._series(uuid, gpu_metrics.MEMORY_TOTAL, 1)
        if not used or not total:
            return
        free_at = max((at for at, value in used if value < HELD_MIB), default=0.0)
        of_job = [point for point in used if point[0] > free_at]
        is_long = bool(of_job) and self._now - of_job[0][0] > SERVICE_SECONDS
        leak = (find_service_leak if is_long else find_leak)(of_job, total[-1][1], self._now)
        if leak is not None:
            full = format_timestamp(int(leak.full_at))
            rest = f"{leak.used_mib:,.0f} of {total[-1][1]:,.0f} MiB are in use, and full at about {full} if it goes on"
            yield self._finding(uuid, "leak", f"memory grows by {leak.mib_per_hour:,.0f} MiB an hour; {rest}")

    def _resistance(self, uuid: str) -> Series:
        celsius = dict(self._series(uuid, gpu_metrics.TEMPERATURE, 30))
        watts = self._series(uuid, gpu_metrics.POWER, 30)
        limit = max((value for _, value in watts), default=0.0)
        self._limits[uuid] = limit
        samples = [HeatSample(at, celsius[at], value) for at, value in watts if at in celsius]
        return daily_resistance(samples, limit) if limit else []

    def _heat(self, uuid: str, resistances: Mapping[str, Series]) -> Iterator[TrendFinding]:
        model = self._facts[uuid].get("model", "")
        peers = {
            other: series
            for other, series in resistances.items()
            if other != uuid and self._facts[other].get("model", "") == model
        }
        drift = find_heat_drift(resistances[uuid], peers, self._limits[uuid])
        if drift is not None:
            words = {
                "own": "than in its first weeks, and its peers are not: paste, fan or dust",
                "rack": "than in its first weeks, and so are its peers: air",
                "peers": "than its peers, and always was",
            }
            text = f"{drift.kelvin:.0f} °C warmer at the same power {words[drift.kind]}"
            yield self._finding(uuid, "heat", text)

    def _increments(self, uuid: str, field: str) -> Series:
        return hourly_increments(self._series(uuid, field, 30))

    def _growth(self, uuid: str, words: str, increments: Mapping[str, Series]) -> Iterator[TrendFinding]:
        others = [_rate(series) for other, series in increments.items() if other != uuid and series]
        usual = median(others) if others else 0.0
        growth = find_growth(increments[uuid], usual)
        if growth is not None:
            since = format_timestamp(int(growth.since))
            text = f"{growth.per_hour:.1f} {words} an hour since {since}; usual here are {growth.usual_per_hour:.1f}"
            yield self._finding(uuid, "errors", text)

    def _finding(self, uuid: str, kind: str, text: str) -> TrendFinding:
        return TrendFinding(uuid, kind, text, self._facts[uuid])


def _rate(series: Series) -> float:
    return sum(value for _, value in series) / len(series)
