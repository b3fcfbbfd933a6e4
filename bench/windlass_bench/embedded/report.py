"""The results as tables: the embedded server's rates, its peer's, and the ratio."""

from __future__ import annotations

from collections.abc import Sequence

from windlass_bench.embedded.contenders import EMBEDDED
from windlass_bench.embedded.run import Result
from windlass_bench.section import Column, Row, Section, columns

_COLUMNS = (
    *columns(server="server", kept="kept"),
    *columns("{:,.0f}", creates="creates/s", binds="binds/s", events="watch events/s"),
    Column("crowd", "watchers served", "{:,}"),
    Column("crowd_events", "events/s to them", "{:,.0f}"),
    Column("cpu_seconds", "CPU s, creating and binding", "{:.1f}"),
    *columns("{:,.0f}", rss_mib="RSS MiB", peak_rss_mib="peak RSS MiB"),
)
_RATES = (
    *columns("{:.2f}", creates="creates", binds="binds", events="watch events"),
    Column("crowd_events", "events to the many", "{:.2f}"),
)


def sections_of(results: Sequence[Result], note: str) -> list[Section]:
    made = [
        Section(
            "rates",
            "The embedded API server and a real one, on the same requests",
            _COLUMNS,
            [_row(result) for result in results],
            note=note,
        ),
        Section("ratios", "Times as many as the real one", (Column("kept", "kept"), *_RATES), _ratios(results)),
    ]
    return [section for section in made if section.rows]


def _row(result: Result) -> Row:
    kept = "on disk" if result.durable else "in memory" if result.server == EMBEDDED else "without fsync"
    numbers = {column.key: getattr(result, column.key) for column in _COLUMNS[2:]}
    return {"server": result.server, "kept": kept, **numbers}


def _ratios(results: Sequence[Result]) -> list[Row]:
    """Ours over theirs, of the same form: more is better in each."""
    rows = []
    for mine in results:
        same_kind = (other for other in results if other.server != EMBEDDED and other.durable == mine.durable)
        peer = next(same_kind, None)
        if mine.server != EMBEDDED or peer is None:
            continue
        row: Row = {"kept": "on disk" if mine.durable else "in memory"}
        keys = [column.key for column in _RATES if getattr(peer, column.key)]
        rows.append({**row, **{key: getattr(mine, key) / getattr(peer, key) for key in keys}})
    return rows
