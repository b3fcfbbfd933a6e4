"""The results as tables: the embedded server's rates, its peer's, and the ratio."""

from __future__ import annotations

from collections.abc import Sequence

from windlass_bench.embedded.contenders import EMBEDDED
from windlass_bench.embedded.run import Result
from windlass_bench.section import Column, Row, Section

_COLUMNS = (
    Column("server", "server"),
    Column("kept", "kept"),
    Column("creates", "creates/s", "{:,.0f}"),
    Column("binds", "binds/s", "{:,.0f}"),
    Column("events", "watch events/s", "{:,.0f}"),
    Column("crowd", "watchers served", "{:,}"),
    Column("crowd_events", "events/s to them", "{:,.0f}"),
    Column("cpu_seconds", "CPU s, creating and binding", "{:.1f}"),
    Column("rss_mib", "RSS MiB", "{:,.0f}"),
    Column("peak_rss_mib", "peak RSS MiB", "{:,.0f}"),
)
_RATES = (
    Column("creates", "creates", "{:.2f}"),
    Column("binds", "binds", "{:.2f}"),
    Column("events", "watch events", "{:.2f}"),
    Column("crowd_events", "events to the many", "{:.2f}"),
)


def sections_of(results: Sequence[Result], note: str) -> list[Section]:
    made = [
        Section(
            name="rates",
            title="The embedded API server and a real one, on the same requests",
            note=note,
            columns=_COLUMNS,
            rows=[_row(result) for result in results],
        ),
        Section(
            name="ratios",
            title="Times as many as the real one",
            columns=(Column("kept", "kept"), *_RATES),
            rows=_ratios(results),
        ),
    ]
    return [section for section in made if section.rows]


def _row(result: Result) -> Row:
    kept = "on disk" if result.durable else "in memory" if result.server == EMBEDDED else "without fsync"
    return {
        "server": result.server,
        "kept": kept,
        "creates": result.creates,
        "binds": result.binds,
        "events": result.events,
        "crowd": result.crowd,
        "crowd_events": result.crowd_events,
        "cpu_seconds": result.cpu_seconds,
        "rss_mib": result.rss_mib,
        "peak_rss_mib": result.peak_rss_mib,
    }


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
