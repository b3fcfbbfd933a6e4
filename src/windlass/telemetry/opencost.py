"""The bill in the shape of OpenCost's allocation API, for what reads that: GPUs only, out of the same `Usage`.

    GET /allocation/compute?window=7d&aggregate=namespace&step=1d&accumulate=false

`web.past_page` answers it, so that a report that asks OpenCost can be pointed at `windlass observe`. CPU,
memory, network and storage are not in it: their fields are left out, not zero.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from windlass.model.errors import InputError
from windlass.model.times import format_timestamp, parse_timestamp
from windlass.telemetry.ledger import SumsBy
from windlass.telemetry.usage import Usage, UsageRow, usage_rows

_SPAN = re.compile(r"([0-9]{1,6})(m|h|d|w)")
_UNITS = {"m": 60, "h": 3600, "d": 86_400, "w": 7 * 86_400}
MAX_STEPS = 31 * 24
AGGREGATES: dict[str, SumsBy] = {
    "namespace": "team",
    "controller": "job",
    "label:team": "team",
    "label:windlass.dev/team": "team",
    "label:user": "user",
    "label:windlass.dev/user": "user",
    "label:queue": "queue",
    "label:kueue.x-k8s.io/queue-name": "queue",
}
"""OpenCost's word → what a row of `usage` is by."""


def allocation_set(usage: Usage, by: SumsBy, micro_prices: Mapping[str, int]) -> dict[str, dict[str, Any]]:
    """Name → allocation, of one window."""
    start, end = format_timestamp(usage.start), format_timestamp(usage.end)
    return {row.name: _allocation(row, by, start, end, usage) for row in usage_rows(usage, by, micro_prices)}


def parse_window(text: str, now: int) -> tuple[int, int]:
    """`90m`, `24h`, `7d`, `4w`, or two times with a comma between. Raises an `InputError`."""
    found = _SPAN.fullmatch(text)
    if found:
        return now - int(found[1]) * _UNITS[found[2]], now
    first, _, last = text.partition(",")
    start, end = (int(part) if part.isascii() and part.isdigit() else parse_timestamp(part) for part in (first, last))
    if not 0 < start < end:
        raise InputError(f"{text[:64]!r} is not a window", path="window", remedy="write 7d, or two times with a comma")
    return start, end


def parse_step(text: str) -> int:
    """Seconds of `1h` or `1d`."""
    found = _SPAN.fullmatch(text)
    if not found or not int(found[1]):
        raise InputError(f"{text[:64]!r} is not a step", path="step", remedy="write 1d")
    return int(found[1]) * _UNITS[found[2]]


def steps(start: int, end: int, step: int) -> Iterator[tuple[int, int]]:
    """At most `MAX_STEPS`: the last one is longer where there would be more."""
    for _ in range(MAX_STEPS - 1):
        if start + step >= end:
            break
        yield start, start + step
        start += step
    yield start, end


def _allocation(row: UsageRow, by: str, start: str, end: str, usage: Usage) -> dict[str, Any]:
    hours = max(1, usage.covered_seconds) / 3600
    return {
        "name": row.name,
        "properties": {"namespace": row.name} if by == "team" else {"controller": row.name} if by == "job" else {},
        "window": {"start": start, "end": end},
        "start": start,
        "end": end,
        "minutes": usage.covered_seconds / 60,
        "gpuHours": row.allocated_hours,
        "gpuCount": row.allocated_hours / hours,
        "gpuCost": row.cost or 0.0,
        "gpuCostAdjustment": 0.0,
        "gpuCostIdle": row.idle_cost or 0.0,
        "gpuRequestAverage": row.allocated_hours / hours,
        "gpuUsageAverage": row.busy_hours / hours,
        "totalCost": row.cost or 0.0,
    }
