"""Reads a CSV file as a strict table: errors name the file, the line, the column and what was expected.

All readers of `simulate.traces` use it. A table is read and checked as a whole before its rows are used.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from windlass.model.errors import InputError

MAX_INTEGER = 2**53
"""Largest whole number that every tool that writes such files represents exactly."""


def read_text(path: Path) -> str:
    """The whole file, without the byte order mark that spreadsheets write."""
    try:
        return path.read_bytes().decode().removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise InputError("expected text in UTF-8", file=str(path), line=line) from error
    except OSError as error:
        raise InputError(f"can't be read: {error.strerror}", file=str(path)) from error


class Table:
    """Rows of strings, all as wide as the header; `row` counts from 0 below the header, `lines` has their lines."""

    def __init__(
        self,
        path: Path,
        rows: list[list[str]],
        header: Sequence[str],
        lines: Sequence[int],
        *,
        csv: bool = True,
    ) -> None:
        self.path, self.rows, self._lines, self._csv = path, rows, lines, csv
        self.columns = {name: index for index, name in enumerate(header)}

    def line(self, row: int) -> int:
        return self._lines[row]

    def text(self, row: int, column: str) -> str:
        """A field; empty if the table has no such column."""
        index = self.columns.get(column)
        return "" if index is None else self.rows[row][index]

    def integer(self, row: int, column: str, least: int = 0, most: int = MAX_INTEGER) -> int:
        text = self.text(row, column)
        number = int(text) if text.isascii() and text.isdigit() and len(text) < 20 else -1
        if not least <= number <= most:
            small = most == MAX_INTEGER and not (text.isdigit() and len(text) > 15)
            bounds = f"{least} or more" if small else f"{least} to {most}"
            self.fail(row, column, f"a whole number, {bounds}")
        return number

    def seconds(self, row: int, column: str) -> int:
        """A whole number of seconds, which may be written as `66.0`."""
        text = self.text(row, column)
        digits, _, fraction = text.partition(".")
        if not (digits.isascii() and digits.isdigit() and len(digits) < 16) or fraction.strip("0"):
            self.fail(row, column, "whole seconds, 0 or more")
        return int(digits)

    def fail(self, row: int, column: str, expected: str) -> NoReturn:
        text = self.text(row, column)
        raise InputError(
            f"expected {expected}, got {text if len(text) <= 80 else text[:77] + '…'!r}",
            file=str(self.path),
            line=self.line(row),
            column=self._offset(row, column),
            path=column,
        )

    def _offset(self, row: int, column: str) -> int:
        """Column of the field's first character, from 1; 0 if it is unknown."""
        index = self.columns.get(column, 0)
        preceding = self.rows[row][:index]
        if not self._csv or any('"' in field or "," in field for field in preceding):
            return 0
        return sum(len(field) + 1 for field in preceding) + 1


def read_table(
    path: Path,
    required: Sequence[str],
    optional: Sequence[str] = (),
    *,
    skip: int = 0,
    text: str | None = None,
) -> Table:
    """Reads a CSV whose header has all `required` columns, and no others but `optional`, after `skip` lines."""
    lines = (read_text(path) if text is None else text).split("\n")
    while len(lines) > skip and not lines[-1].strip():
        lines.pop()
    if len(lines) <= skip:
        raise InputError("is empty; expected a header line", file=str(path), line=skip + 1)
    header, *rows = _split(path, lines[skip:], skip + 1)
    problem = _header_problem(header, required, optional)
    if problem:
        raise InputError(problem, file=str(path), line=skip + 1)
    for line, fields in enumerate(rows, start=skip + 2):
        if len(fields) != len(header):
            message = f"expected {len(header)} fields ({','.join(header)}), got {len(fields)}"
            raise InputError(message, file=str(path), line=line)
    return Table(path, rows, header, range(skip + 2, skip + 2 + len(rows)))


def _split(path: Path, lines: list[str], first_line: int) -> list[list[str]]:
    reader = csv.reader(lines, strict=True)
    rows: list[list[str]] = []
    try:
        for fields in reader:
            rows.append(fields)
            if reader.line_num != len(rows):
                line = first_line + len(rows) - 1
                raise InputError("expected one record a line", file=str(path), line=line)
    except csv.Error as error:
        line = first_line + reader.line_num - 1
        raise InputError(f"is not CSV: {error}", file=str(path), line=line) from error
    return rows


def _header_problem(header: list[str], required: Sequence[str], optional: Sequence[str]) -> str:
    problems = [f"lacks {name}" for name in required if name not in header]
    problems += [f"has {name!r}" for name in header if name not in required and name not in optional]
    problems += ["names a column twice"] if len(set(header)) != len(header) else []
    expected = ",".join(required) + (f" and perhaps {','.join(optional)}" if optional else "")
    return f"the header {problems[0]}; expected {expected}" if problems else ""
