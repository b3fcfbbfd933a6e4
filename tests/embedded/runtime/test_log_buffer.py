"""The last output of a process: bounded, and read as lines however it came in pieces."""

from __future__ import annotations

import asyncio
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from windlass.embedded.runtime.kubelet_api import LogRequest
from windlass.embedded.runtime.process.log_buffer import DROPPED, LogBuffer, stream_log

PIECES = st.lists(
    st.lists(st.sampled_from([b"a", b"b", b"\n", b"\r"]), min_size=1, max_size=6).map(b"".join), max_size=12
)


def filled(pieces: list[bytes], seconds: float = 1.0) -> LogBuffer:
    buffer = LogBuffer()
    for number, piece in enumerate(pieces):
        buffer.append(100.0 + number * seconds, piece)
    return buffer


def read(buffer: LogBuffer, **request: Any) -> bytes:
    async def collect() -> bytes:
        return b"".join([text async for text in stream_log(buffer, lambda: True, LogRequest(**request), 1000.0)])

    return asyncio.run(collect())


@given(PIECES, st.integers(0, 8), st.sampled_from([0.0, 1.0]))
def test_the_last_lines(pieces: list[bytes], count: int, seconds: float) -> None:
    whole = b"".join(pieces)
    lines = [line + b"\n" for line in whole.split(b"\n")]
    lines[-1] = lines[-1][:-1]
    lines = [line for line in lines if line]
    buffer = filled(pieces, seconds)
    assert read(buffer) == whole
    assert read(buffer, tail_lines=count) == b"".join(lines[len(lines) - min(count, len(lines)) :])
    assert read(buffer, limit_bytes=count) == whole[:count]
    stamped = read(buffer, timestamps=True)
    assert stamped.count(b"1970-01-01T") == len(lines)


@given(PIECES, st.integers(0, 60))
def test_reading_goes_on_from_a_position(pieces: list[bytes], position: int) -> None:
    whole = b"".join(pieces)
    assert b"".join(data for _, data in filled(pieces).read(position)) == whole[position:]


def test_it_is_bounded_and_says_what_was_dropped() -> None:
    buffer = LogBuffer(10_000)
    for number in range(2000):
        buffer.append(float(number), b"%d\n" % number)
    text = buffer.text
    assert text.startswith(DROPPED)
    assert text.endswith(b"1999\n")
    assert len(text) < 10_000
    assert b"".join(data for _, data in buffer.read(buffer.end - 5)) == b"1999\n"


def test_a_reader_that_follows_gets_what_comes() -> None:
    buffer, is_over = filled([b"one\n"]), [False]

    async def follow() -> list[bytes]:
        found = []
        async for text in stream_log(buffer, lambda: is_over[0], LogRequest(follow=True), 1000.0):
            found.append(text)
            if text == b"one\n":
                buffer.append(200.0, b"two")
                is_over[0] = True
        return found

    assert asyncio.run(follow()) == [b"one\n", b"two"]
