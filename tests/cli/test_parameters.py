"""Lists of seeds and names on the command line."""

from __future__ import annotations

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.cli.parameters import NameList, SeedList


def seeds(text: str) -> tuple[int, ...]:
    return SeedList().convert(text, None, None)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("42", (42,)),
        ("42..45", (42, 43, 44, 45)),
        ("42,44", (42, 44)),
        ("50, 42..43,42", (50, 42, 43)),
        ("7..7", (7,)),
    ],
)
def test_seeds(text: str, expected: tuple[int, ...]) -> None:
    assert seeds(text) == expected


@pytest.mark.parametrize("text", ["", "a", "42..", "..42", "51..42", "1..1000000000", "-1", "4.2", "1,,2", "٤٢ x"])
def test_what_is_no_seed_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter):
        seeds(text)


@given(st.integers(0, 10**6), st.integers(0, 200))
def test_a_range_has_both_ends(first: int, length: int) -> None:
    assert seeds(f"{first}..{first + length}") == tuple(range(first, first + length + 1))


@given(st.text(max_size=30))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        assert all(seed >= 0 for seed in seeds(text))
    except click.BadParameter:
        return


def test_names_once_each_in_order() -> None:
    assert NameList().convert("fgd, windlass,fgd", None, None) == ("fgd", "windlass")


@pytest.mark.parametrize("text", ["", "fgd,", ",", "a,,b"])
def test_an_empty_name_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter):
        NameList().convert(text, None, None)
