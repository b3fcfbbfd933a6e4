"""Quantities as the API server returns them: `0.5` becomes `500m`, `1024Mi` becomes `1Gi`.

Used by `decode`, quotas, limit ranges and validation. The arithmetic is in `model.quantity`; this adds the API
server's error messages, and that a value beyond 63 bits is capped.
"""

from __future__ import annotations

import re
from fractions import Fraction

from windlass.embedded.api.bounded_cache import bounded_cache
from windlass.model.errors import InputError
from windlass.model.quantity import INT64_MAX, QuantityStyle, format_quantity, parse_quantity

MAX_LENGTH = 256
"""Of a quantity. Longer ones say nothing that 63 bits can hold, and would be kept in caches."""
_SHAPE = re.compile(r"[+-]?[0-9.]+[eEinumkKMGTP]*[-+]?[0-9]*")
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)")
_BINARY = re.compile(r"[KMGTPE]i$")
_EXPONENT = re.compile(r"[eE][+-]?[0-9]+$")


class InvalidQuantity(ValueError):
    """With Kubernetes' message."""


@bounded_cache(1 << 16)
def canonical(raw: str | int | float) -> str:
    """The form that the API server returns."""
    text = raw if isinstance(raw, str) else _number_text(raw)
    return format_quantity(quantity_value(text), style(text))


def _number_text(raw: object) -> str:
    if isinstance(raw, bool) or not isinstance(raw, int | float):
        raise InvalidQuantity(NO_MATCH)
    return str(raw) if isinstance(raw, int) else repr(raw)


def style(text: str) -> QuantityStyle:
    """The kind of suffix with which a quantity was written, and which it keeps."""
    if _BINARY.search(text):
        return "BinarySI"
    return "DecimalExponent" if _EXPONENT.search(text) else "DecimalSI"


@bounded_cache(1 << 16)
def quantity_value(text: str) -> Fraction:
    """The exact value."""
    if len(text) > MAX_LENGTH or not _SHAPE.fullmatch(text) or not _NUMBER.match(text):
        raise InvalidQuantity(NO_MATCH)
    try:
        return parse_quantity(text)
    except InputError as problem:
        if "large" in str(problem):
            return Fraction(-INT64_MAX if text.startswith("-") else INT64_MAX)
        raise InvalidQuantity("unable to parse quantity's suffix") from None


def format_quantity_like(value: Fraction, like: str) -> str:
    """A value with the kind of suffix of another quantity."""
    return format_quantity(value, style(like))


NO_MATCH = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
