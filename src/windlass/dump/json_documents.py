"""Parses JSON documents, with the line of every item of a List; duplicate keys are errors.

Called by `dump.files` with the text. Lines are computed only on request, which is when there is an error to report.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from windlass.model.errors import InputError

_SPACE = " \t\r\n"


class JsonDocument:
    """One document: its value, and the lines of its items."""

    def __init__(self, text: str, start: int, value: Any) -> None:
        self._text = text
        self._start = start
        self.value = value

    def position_of(self, item: int | None, path: str) -> tuple[int, int]:
        """Line and column, from 1, of the document or of one item of its `items`; `path` is ignored in JSON."""
        offset = self._start if item is None else _item_offset(self._text, self._start, item)
        return _line_and_column(self._text, offset)


def read_documents(text: str, file: str) -> Iterator[JsonDocument]:
    """The documents of a text, which may follow one another. Raises `InputError` with the line."""
    decoder = json.JSONDecoder(object_pairs_hook=_without_repeats)
    start = _skip_space(text, 0)
    while start < len(text):
        try:
            value, end = decoder.raw_decode(text, start)
        except json.JSONDecodeError as error:
            raise InputError(f"is not JSON: {error.msg}", file=file, line=error.lineno, column=error.colno) from error
        except _RepeatedKey as error:
            raise InputError(f"the key '{error}' is given twice in one object", file=file) from error
        except (RecursionError, ValueError) as error:
            raise InputError(f"is not JSON that can be read: {error}", file=file) from error
        yield JsonDocument(text, start, value)
        start = _skip_space(text, end)


class _RepeatedKey(Exception):
    pass


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        keys = [key for key, _ in pairs]
        raise _RepeatedKey(next(key for key in keys if keys.count(key) > 1))
    return value


def _item_offset(text: str, start: int, item: int) -> int:
    """Where the item of the top level's `items` begins. The text has been parsed before, so it is well formed."""
    decoder = json.JSONDecoder()
    at = _skip_space(text, start + 1)
    while text[at] != "}":
        key, at = decoder.raw_decode(text, at)
        at = _skip_space(text, _skip_space(text, at) + 1)  # over the colon
        if key == "items":
            at = _skip_space(text, at + 1)
            for _ in range(item):
                at = _after_value(decoder, text, at)
            return at
        at = _after_value(decoder, text, at)
    return start


def _after_value(decoder: json.JSONDecoder, text: str, at: int) -> int:
    """The offset after the value that begins here, and after a comma that follows."""
    at = _skip_space(text, decoder.raw_decode(text, at)[1])
    return _skip_space(text, at + 1) if text[at] == "," else at


def _skip_space(text: str, at: int) -> int:
    while at < len(text) and text[at] in _SPACE:
        at += 1
    return at


def _line_and_column(text: str, offset: int) -> tuple[int, int]:
    return text.count("\n", 0, offset) + 1, offset - text.rfind("\n", 0, offset)
