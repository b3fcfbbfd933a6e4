"""dcgm-exporter's counters file: which metrics, of which type, with which help text.

Fed with the text of the file by the exporter's start; a wrong line is an `InputError` with its number, as the original
refuses it. A field that DCGM has and Windlass doesn't is no error here: it is reported once and left out. What the
exporter makes itself is a closed list, so an unknown name among those is a mistake.
"""

from __future__ import annotations

import csv

import msgspec

from windlass.model.errors import InputError
from windlass.node.exporter.derived_metrics import DERIVED_METRICS
from windlass.node.exporter.fields import DEFAULT_COUNTERS, DESCRIPTION_FIELDS, FIELD_ALIASES, READING_FIELDS

TYPES = ("gauge", "counter", "histogram", "summary", "label")


class Counter(msgspec.Struct, frozen=True):
    """One line of the file."""

    field: str
    type: str
    help: str


def read_counters(text: str, file: str = "") -> tuple[tuple[Counter, ...], list[str]]:
    """The counters, and which of them are left out because Windlass can't measure them."""
    counters: dict[str, Counter] = {}
    left_out: list[str] = []
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip() or line.strip().startswith("#"):
            continue
        counter = _counter(line, number, file)
        if _can_be_had(counter):
            # A name that stands there twice is one metric: Prometheus refuses a page with two.
            counters.setdefault(counter.field, counter)
        elif counter.field.startswith("DCGM_FI_"):
            left_out.append(counter.field)
        else:
            raise InputError(
                f"unknown field {counter.field[:64]!r}",
                file=file,
                line=number,
                remedy=f"fields begin with DCGM_FI_, or are one of {', '.join(DERIVED_METRICS)}",
            )
    return tuple(counters.values()), left_out


def _can_be_had(counter: Counter) -> bool:
    """Numbers as metrics, words as labels."""
    field = FIELD_ALIASES.get(counter.field, counter.field)
    if counter.type == "label":
        return field in DESCRIPTION_FIELDS
    return field in READING_FIELDS or field in DERIVED_METRICS


def default_counters() -> tuple[Counter, ...]:
    return read_counters(DEFAULT_COUNTERS, "the default counters")[0]


def _counter(line: str, number: int, file: str) -> Counter:
    try:
        parts = [part.strip() for part in next(csv.reader([line], skipinitialspace=True))]
    except csv.Error as error:
        raise InputError(str(error), file=file, line=number, remedy="write: field, type, help") from None
    if len(parts) != 3:
        raise InputError(
            f"has {len(parts)} fields and not 3", file=file, line=number, remedy="write: field, type, help"
        )
    field, kind, text = parts
    if kind not in TYPES:
        raise InputError(
            f"unknown type {kind[:64]!r}", file=file, line=number, remedy=f"use one of {', '.join(TYPES)}"
        )
    return Counter(field, kind, text)
