"""Writes Prometheus' text format.

`exporter` calls it once per collection. Labels keep dcgm-exporter's names and order, since dashboards and recording
rules match on them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import msgspec

_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})
_HELP_ESCAPES = str.maketrans({"\\": r"\\", "\n": r"\n"})


class Sample(msgspec.Struct, frozen=True):
    labels: Mapping[str, str]
    value: float


class Family(msgspec.Struct, frozen=True):
    name: str
    type: str
    help: str
    samples: Sequence[Sample]


def write_text(families: Iterable[Family]) -> str:
    """The page that Prometheus scrapes, without empty families and non-finite values."""
    lines: list[str] = []
    for family in families:
        samples = [sample for sample in family.samples if math.isfinite(sample.value)]
        if not samples:
            continue
        lines.append(f"# HELP {family.name} {family.help.translate(_HELP_ESCAPES)}")
        lines.append(f"# TYPE {family.name} {family.type}")
        lines += [f"{family.name}{_labels(sample.labels)} {_number(sample.value)}" for sample in samples]
    return "\n".join(lines) + "\n" if lines else ""


def _labels(labels: Mapping[str, str]) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{value.translate(_ESCAPES)}"' for name, value in labels.items()) + "}"


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) and abs(value) < 1e15 else repr(value)
