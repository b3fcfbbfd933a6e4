"""Parses dcgm-exporter's counters file: which metrics, of which type, with which help text.

`counters_file` passes the text. A malformed line is an `InputError` with its number, as in dcgm-exporter. A DCGM
field that Windlass can't measure is no error: it is logged once and left out. The `DCGM_EXP_` names are a closed
list, so an unknown one is an error.
"""

from __future__ import annotations

import csv

import msgspec

from windlass.model.errors import InputError
from windlass.node.exporter.derived_metrics import DERIVED_METRICS
from windlass.node.exporter.fields import (
    DEFAULT_COUNTERS,
    DESCRIPTION_FIELDS,
    LINK_FIELDS,
    READING_FIELDS,
    reading_name,
)

TYPES = ("gauge", "counter", "histogram", "summary", "label")


class Counter(msgspec.Struct, frozen=True):
    """One line of the file."""

    field: str
    type: str
    help: str


def read_counters(text: str, file: str = "") -> tuple[tuple[Counter, ...], list[str]]:
    """The counters, and the fields left out because Windlass can't measure them."""
    counters: dict[str, Counter] = {}
    left_out: list[str] = []
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip() or line.strip().startswith("#"):
            continue
        counter = _counter(line, number, file)
        if _is_supported(counter):
            # A duplicate is exported once: Prometheus refuses a page with two families of one name.
            counters.setdefault(counter.field, counter)
        elif counter.field.startswith(("DCGM_FI_", "dcgm_")):
            left_out.append(counter.field)
        else:
            remedy = f"fields begin with DCGM_FI_, or are one of {', '.join(DERIVED_METRICS)}"
            raise InputError(f"unknown field {counter.field[:64]!r}", file=file, line=number, remedy=remedy)
    return tuple(counters.values()), left_out


def _is_supported(counter: Counter) -> bool:
    """Numbers can be metrics, texts only labels."""
    field = reading_name(counter.field)
    if counter.type == "label":
        return field in DESCRIPTION_FIELDS
    return field in READING_FIELDS or field in LINK_FIELDS or field in DERIVED_METRICS


def default_counters() -> tuple[Counter, ...]:
    return read_counters(DEFAULT_COUNTERS, "the default counters")[0]


def _counter(line: str, number: int, file: str) -> Counter:
    def refused(message: str, remedy: str = "write: field, type, help") -> InputError:
        return InputError(message, file=file, line=number, remedy=remedy)

    try:
        parts = [part.strip() for part in next(csv.reader([line], skipinitialspace=True))]
    except csv.Error as error:
        raise refused(str(error)) from None
    if len(parts) != 3:
        raise refused(f"has {len(parts)} fields instead of 3")
    field, kind, text = parts
    if kind not in TYPES:
        raise refused(f"unknown type {kind[:64]!r}", f"use one of {', '.join(TYPES)}")
    return Counter(field, kind, text)
