"""The code of a hold stays at the end of its message, however long the message is."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from windlass.apply.messages import code_of_message
from windlass.model.message_code import shorten_message


@given(st.text(max_size=3000), st.integers(40, 1024))
def test_what_is_cut_is_never_the_code(text: str, length: int) -> None:
    short = shorten_message(f"{text} (GPU_FULL)", length)
    assert len(short) <= length
    assert code_of_message(short) == "GPU_FULL"
    assert shorten_message(text[:length], length) == text[:length]


def test_a_message_without_a_code_is_cut_at_its_end() -> None:
    assert shorten_message("x" * 50, 40) == "x" * 40
