"""A table of a benchmark as data: what the sections make, and `report` prints or hands to scripts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from windlass_bench.play import Run
from windlass_bench.runs import Outcomes

Row = dict[str, Any]
ABSENT = "–"


class Column(msgspec.Struct, frozen=True):
    key: str
    title: str
    form: str = "{}"


def columns(form: str = "{}", /, **titles: str) -> tuple[Column, ...]:
    """Columns whose numbers look alike: key=title."""
    return tuple(Column(key, title, form) for key, title in titles.items())


class Section(msgspec.Struct, frozen=True):
    name: str
    """What scripts find it by."""
    title: str
    columns: tuple[Column, ...]
    rows: list[Row]
    note: str = ""
    """How to read it."""
    detail: bool = False
    """Too long for a first look: only in `-o wide` and in documents."""

    def cells(self, row: Row) -> list[str]:
        """A row as text, in the order of the columns."""
        return [_text(row.get(column.key), column.form) for column in self.columns]


class BenchPart(msgspec.Struct, frozen=True):
    """One question of a benchmark: the runs that it needs, and the tables that answer it."""

    runs: list[Run]
    sections: Callable[[Outcomes], list[Section]]


def _text(value: Any, form: str) -> str:
    if value is None:
        return ABSENT
    if isinstance(value, bool):
        return "yes" if value else "no"
    return form.format(value)
