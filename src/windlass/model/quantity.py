"""Kubernetes quantities, exactly: `100m`, `1.5Gi`, `1e3`, `0.5`, `12E`, `-1`.

Every number of a manifest, a watch event or a trace's node list comes through here; `model.requests` turns the
result into the integers that the arrays hold. Nothing is ever a float on the way. As in Kubernetes, what is finer
than one nano is rounded away from zero; unlike there, a value beyond 63 bits is an error and not silently capped,
since no machine has it and a wrong suffix is more likely.
"""

from __future__ import annotations

import re
from fractions import Fraction
from functools import lru_cache
from typing import Literal

from windlass.model.errors import InputError
from windlass.model.pod import RawQuantity

INT64_MAX = 2**63 - 1
_NANO = 10**9
_LONGEST = 128
_LARGEST_EXPONENT = 64

QuantityStyle = Literal["DecimalSI", "BinarySI", "DecimalExponent"]

_GRAMMAR = re.compile(
    r"(?P<sign>[+-]?)(?P<whole>[0-9]*)(?:\.(?P<part>[0-9]*))?"
    r"(?:(?P<binary>[KMGTPE]i)|[eE](?P<exponent>[+-]?[0-9]+)|(?P<decimal>[numkMGTPE]?))",
)
_DECIMAL_EXPONENTS = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_DECIMAL_SUFFIXES = {exponent: suffix for suffix, exponent in _DECIMAL_EXPONENTS.items()}
_BINARY_SUFFIXES = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")

_EXAMPLES = "write a number with an optional suffix, such as 2, 500m, 1.5Gi or 1e3"
_TOO_LARGE = "check the suffix: the limit is 2^63 - 1"


@lru_cache(maxsize=1 << 16)
def parse_quantity(raw: RawQuantity) -> Fraction:
    """The exact value; an `InputError` for anything that is not a quantity."""
    if isinstance(raw, bool) or not isinstance(raw, str | int | float):
        raise InputError(f"expected a quantity, found {raw!r}", remedy=_EXAMPLES)
    if isinstance(raw, int):
        return _in_range(Fraction(raw), "an integer beyond 63 bits")
    text = raw if isinstance(raw, str) else repr(raw)
    if len(text) > _LONGEST:
        raise InputError(f"quantity of {len(text)} characters is too long", remedy=_EXAMPLES)
    match = _GRAMMAR.fullmatch(text)
    if match is None or not (match["whole"] or match["part"]):
        raise InputError(f"{text!r} is not a quantity", remedy=_EXAMPLES)
    magnitude = _in_range(_to_nano(_magnitude(match, text)), repr(text))
    return -magnitude if match["sign"] == "-" else magnitude


def _magnitude(match: re.Match[str], text: str) -> Fraction:
    part = match["part"] or ""
    digits = Fraction(int((match["whole"] or "0") + part), 10 ** len(part))
    if match["binary"]:
        return digits * (1 << 10 * _BINARY_SUFFIXES.index(match["binary"]))
    exponent = int(match["exponent"]) if match["exponent"] else _DECIMAL_EXPONENTS[match["decimal"] or ""]
    # The exponent is bounded before the power is computed: 1e999999999 would exhaust the memory.
    if digits and exponent > _LARGEST_EXPONENT + len(part):
        raise InputError(f"{text!r} is too large", remedy=_TOO_LARGE)
    exponent = max(exponent, -_LONGEST - _LARGEST_EXPONENT) if digits else 0
    power: Fraction = Fraction(10) ** exponent
    return digits * power


def _to_nano(magnitude: Fraction) -> Fraction:
    if _NANO % magnitude.denominator == 0:
        return magnitude
    return Fraction(_ceil(magnitude * _NANO), _NANO)


def _in_range(value: Fraction, named: str) -> Fraction:
    if abs(value) > INT64_MAX:
        raise InputError(f"{named} is too large", remedy=_TOO_LARGE)
    return value


def _ceil(value: Fraction) -> int:
    return -((-value.numerator) // value.denominator)


def _away_from_zero(value: Fraction, raw: RawQuantity) -> int:
    whole = _ceil(value) if value >= 0 else -_ceil(-value)
    if abs(whole) > INT64_MAX:
        raise InputError(f"{raw!r} is too large", remedy=_TOO_LARGE)
    return whole


@lru_cache(maxsize=1 << 16)
def whole_value(raw: RawQuantity) -> int:
    """In base units (bytes, devices), rounded up as Kubernetes rounds: away from zero."""
    return _away_from_zero(parse_quantity(raw), raw)


@lru_cache(maxsize=1 << 16)
def milli_value(raw: RawQuantity) -> int:
    """In thousandths of the base unit (milli-CPU), rounded up."""
    return _away_from_zero(parse_quantity(raw) * 1000, raw)


def format_quantity(value: Fraction | int, style: QuantityStyle = "DecimalSI") -> str:
    """Kubernetes' canonical form: no fraction digits, no precision lost, the largest suffix that allows both."""
    exact = Fraction(value)
    if (exact * _NANO).denominator != 1:
        raise ValueError(f"{value} is finer than a quantity can be")
    if not exact:
        return "0"
    if style == "BinarySI" and exact.denominator == 1 and abs(exact.numerator) >= 1024:
        return _format_binary(exact.numerator)
    return _format_decimal((exact * _NANO).numerator, style)


def _format_binary(value: int) -> str:
    power = 0
    while value % 1024 == 0 and power < len(_BINARY_SUFFIXES) - 1:
        value //= 1024
        power += 1
    return f"{value}{_BINARY_SUFFIXES[power]}"


def _format_decimal(nano: int, style: QuantityStyle) -> str:
    exponent = -9
    while nano % 1000 == 0 and exponent < 18:
        nano //= 1000
        exponent += 3
    if style != "DecimalExponent":
        return f"{nano}{_DECIMAL_SUFFIXES[exponent]}"
    return f"{nano}e{exponent}" if exponent else str(nano)
