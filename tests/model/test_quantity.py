"""Quantities: Kubernetes' grammar, exact values, canonical form and back."""

from __future__ import annotations

from decimal import ROUND_UP, Context, Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.model.errors import InputError
from windlass.model.quantity import (
    INT64_MAX,
    QuantityStyle,
    format_quantity,
    milli_value,
    parse_quantity,
    whole_value,
)

EXACT = Context(prec=400)
SUFFIX_FACTORS = {
    **{s: EXACT.power(10, e) for s, e in zip("num", (-9, -6, -3), strict=True)},
    **{s: EXACT.power(1000, e) for e, s in enumerate(("", "k", "M", "G", "T", "P", "E"))},
    **{s: EXACT.power(1024, e) for e, s in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi", "Ei"), start=1)},
}


@pytest.mark.parametrize(
    ("raw", "value"),
    [
        ("100m", Fraction(1, 10)),
        ("1.5Gi", Fraction(3 * 2**29)),
        ("1e3", Fraction(1000)),
        ("1E3", Fraction(1000)),
        ("1e-3", Fraction(1, 1000)),
        ("1Ei", Fraction(2**60)),
        ("0.5", Fraction(1, 2)),
        (".5", Fraction(1, 2)),
        ("5.", Fraction(5)),
        ("+3", Fraction(3)),
        ("-3k", Fraction(-3000)),
        ("0", Fraction(0)),
        ("0e999999999", Fraction(0)),
        (7, Fraction(7)),
        (0.1, Fraction(1, 10)),
        (1e15, Fraction(10**15)),
        ("1n", Fraction(1, 10**9)),
        ("0.1n", Fraction(1, 10**9)),
        ("-0.1n", Fraction(-1, 10**9)),
        ("1e-999999999", Fraction(1, 10**9)),
        (str(INT64_MAX), Fraction(INT64_MAX)),
    ],
)
def test_examples(raw: str | int | float, value: Fraction) -> None:
    assert parse_quantity(raw) == value


@pytest.mark.parametrize(
    "raw",
    [
        "",
        " ",
        "1 Gi",
        *[".", "m", "Gi", "1gi", "1KI", "1ki", "1K", "1e", "1e1.5", "1ee3", "1mi", "--1", "0x10", "1_0"],
    ],
)
def test_broken_spellings_are_refused(raw: str) -> None:
    with pytest.raises(InputError, match="not a quantity"):
        parse_quantity(raw)


@pytest.mark.parametrize("raw", ["١", "nan", "1e3k", "1,5", "1Gi ", "\n1", float("nan"), float("inf"), True])
def test_what_is_no_number_is_refused(raw: str | float) -> None:
    with pytest.raises(InputError, match="quantity"):
        parse_quantity.__wrapped__(raw)


@pytest.mark.parametrize("raw", ["8Ei", "1e19", "9E999999999", "-10E", 2**63, -(2**63) - 1, 1e300, "9" * 30])
def test_the_absurd_is_refused_and_not_capped(raw: str | int | float) -> None:
    with pytest.raises(InputError, match="too large"):
        parse_quantity(raw)


def test_a_number_too_long_to_print_is_refused_all_the_same() -> None:
    with pytest.raises(InputError, match="too large"):
        parse_quantity(10**5000)


def test_very_long_text_is_refused_before_it_costs_anything() -> None:
    with pytest.raises(InputError, match="too long"):
        parse_quantity("0" * 100_000)


@st.composite
def written_quantities(draw: st.DrawFn) -> tuple[str, Decimal]:
    """A quantity as text, and its value as a decimal computed from the parts that made it."""
    whole = draw(st.integers(0, 10**6))
    places = draw(st.integers(0, 5))
    part = draw(st.integers(0, 10**places - 1)) if places else 0
    number = EXACT.add(Decimal(whole), EXACT.divide(Decimal(part), EXACT.power(10, places)))
    text = f"{whole}.{part:0{places}d}" if places else str(whole)
    if draw(st.booleans()):
        exponent = draw(st.integers(-8, 10))
        suffix, factor = f"{draw(st.sampled_from('eE'))}{exponent}", EXACT.power(10, exponent)
    else:
        suffix, factor = draw(st.sampled_from(sorted(SUFFIX_FACTORS.items())))
    sign = draw(st.sampled_from(["", "+", "-"]))
    value = EXACT.multiply(number, factor)
    return f"{sign}{text}{suffix}", -value if sign == "-" else value


def nano(value: Decimal) -> Decimal:
    return EXACT.multiply(value, Decimal(10**9)).to_integral_value(ROUND_UP)


@given(written_quantities())
def test_values_agree_with_decimal_arithmetic(written: tuple[str, Decimal]) -> None:
    text, expected = written
    if abs(nano(expected)) > INT64_MAX * 10**9:
        with pytest.raises(InputError):
            parse_quantity(text)
    else:
        assert parse_quantity(text) * 10**9 == int(nano(expected))


@given(written_quantities())
def test_rounding_goes_away_from_zero(written: tuple[str, Decimal]) -> None:
    text, _ = written
    try:
        value, whole, milli = parse_quantity(text), whole_value(text), milli_value(text)
    except InputError:
        return
    for rounded, exact in ((whole, value), (milli, value * 1000)):
        assert abs(exact) <= abs(rounded) < abs(exact) + 1
        assert rounded * exact >= 0


@given(
    st.integers(-(INT64_MAX * 10**9), INT64_MAX * 10**9),
    st.sampled_from(["DecimalSI", "BinarySI", "DecimalExponent"]),
)
def test_formatting_round_trips_exactly(nanos: int, style: QuantityStyle) -> None:
    value = Fraction(nanos, 10**9)
    text = format_quantity(value, style)
    assert parse_quantity(text) == value
    assert format_quantity(parse_quantity(text), style) == text
    assert "." not in text


@pytest.mark.parametrize(
    ("value", "style", "text"),
    [
        (0, "DecimalSI", "0"),
        (Fraction(3, 2), "DecimalSI", "1500m"),
        (1000, "DecimalSI", "1k"),
        (1500, "DecimalSI", "1500"),
        (2**30, "BinarySI", "1Gi"),
        (3 * 2**29, "BinarySI", "1536Mi"),
        (1023, "BinarySI", "1023"),
        (1000, "BinarySI", "1k"),
        (1500, "BinarySI", "1500"),
        (Fraction(1, 2), "BinarySI", "500m"),
        (-(2**20), "BinarySI", "-1Mi"),
        (Fraction(3, 2), "DecimalExponent", "1500e-3"),
        (5000, "DecimalExponent", "5e3"),
        (7, "DecimalExponent", "7"),
    ],
)
def test_canonical_form(value: Fraction | int, style: QuantityStyle, text: str) -> None:
    assert format_quantity(value, style) == text


def test_what_is_finer_than_a_quantity_is_not_formatted() -> None:
    with pytest.raises(ValueError, match="finer"):
        format_quantity(Fraction(1, 3))


def test_milli_values_that_leave_63_bits_are_refused() -> None:
    assert whole_value("9E") == 9 * 10**18
    with pytest.raises(InputError, match="too large"):
        milli_value("9E")
