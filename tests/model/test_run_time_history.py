"""`kind: RunTimeHistory` as it is read: an error names the field."""

from __future__ import annotations

from typing import Any

import pytest

from windlass.model.codec import decode_object
from windlass.model.errors import InputError
from windlass.model.run_time_history import RunTimeHistoryObject, run_times_from_object
from windlass.model.times import format_duration, parse_duration


def history(**fields: Any) -> dict[str, Any]:
    metadata = {"name": "gpu", "namespace": "research"}
    return {"apiVersion": "windlass.dev/v1", "kind": "RunTimeHistory", "metadata": metadata, **fields}


def test_it_is_read() -> None:
    week = {"from": "2026-01-01T00:00:00Z", "runs": {"60": 3}}
    found = decode_object(history(periods=[week, {**week, "from": "2026-01-08T00:00:00Z"}]))
    assert isinstance(found, RunTimeHistoryObject)
    assert found.key == "research/gpu"
    assert list(run_times_from_object(found).periods.values()) == [{60: 3}, {60: 3}]


@pytest.mark.parametrize(
    ("periods", "path"),
    [
        ([{"from": "soon", "runs": {"60": 1}}], "periods[0].from"),
        ([{"from": "2026-01-01T00:00:00Z", "runs": {"a": 1}}], "periods[0].runs"),
        ([{"from": "2026-01-01T00:00:00Z", "runs": {"60": -1}}], "periods[0].runs"),
    ],
)
def test_what_makes_no_sense_is_refused_by_name(periods: Any, path: str) -> None:
    with pytest.raises(InputError) as caught:
        decode_object(history(periods=periods))
    assert caught.value.path.startswith(path)


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0s"), (45, "45s"), (600, "10m"), (3840, "1h4m"), (90061, "25h1m1s")]
)
def test_durations_are_written_as_they_are_read(seconds: int, text: str) -> None:
    assert format_duration(seconds) == text
    assert parse_duration(text) == seconds
