"""The last output of a process, bounded in bytes, and how `kubectl logs` reads it.

`container_runtime` appends what it reads, whole or in the middle of a line. Positions count bytes from the beginning
of the process, so that a reader that follows goes on where it was, also after earlier output was dropped.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections import deque
from collections.abc import AsyncIterator, Callable

from windlass.embedded.api.timestamps import format_micro_time, parse_time
from windlass.embedded.runtime.kubelet_api import LogRequest
from windlass.embedded.runtime.pod_logs import POLL_SECONDS

MAX_BYTES = 10 << 20
PIECE_BYTES = 4096
PIECE_SECONDS = 0.05
"""Output that follows within this time is kept with the piece before it, if that is short."""
PIECE_COST = 200
"""What keeping a piece costs beside its bytes."""
DROPPED = b"... earlier output was dropped ...\n"


class LogBuffer:
    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self._max_bytes = max_bytes
        self._pieces: deque[tuple[int, float, bytes]] = deque()
        """Position, time, bytes."""
        self._cost = 0
        self.end = 0

    def append(self, now: float, data: bytes) -> None:
        last = self._pieces[-1] if self._pieces else None
        if last is not None and len(last[2]) < PIECE_BYTES and now - last[1] < PIECE_SECONDS:
            self._pieces[-1] = last[0], last[1], last[2] + data
        else:
            self._pieces.append((self.end, now, data))
            self._cost += PIECE_COST
        self._cost += len(data)
        self.end += len(data)
        while self._cost > self._max_bytes and len(self._pieces) > 1:
            self._cost -= PIECE_COST + len(self._pieces.popleft()[2])

    def read(self, position: int) -> list[tuple[float, bytes]]:
        """Everything from a position on, piece by piece; what was dropped is replaced by a line that says so."""
        if not self._pieces:
            return []
        found: list[tuple[float, bytes]] = []
        if position < self._pieces[0][0]:
            found.append((self._pieces[0][1], DROPPED))
            position = self._pieces[0][0]
        start = bisect_right(self._pieces, position, key=lambda piece: piece[0]) - 1
        for index in range(start, len(self._pieces)):
            begin, at, data = self._pieces[index]
            rest = data[max(0, position - begin) :]
            if rest:
                found.append((at, rest))
        return found

    @property
    def text(self) -> bytes:
        return b"".join(data for _, data in self.read(0))


async def stream_log(
    buffer: LogBuffer, is_over: Callable[[], bool], request: LogRequest, now: float
) -> AsyncIterator[bytes]:
    """The output that a request asks for, in pieces."""
    since = parse_time(request.since_time) if request.since_time else 0.0
    if request.since_seconds is not None:
        since = max(since, now - request.since_seconds)
    ended = is_over()
    pieces, position = [piece for piece in buffer.read(0) if piece[0] >= since], buffer.end
    if request.tail_lines is not None:
        pieces = _tail(pieces, request.tail_lines)
    left = request.limit_bytes
    writer = _Writer(request.timestamps)
    while True:
        for at, data in pieces:
            text = writer.format(at, data)
            text = text if left is None else text[:left]
            left = None if left is None else left - len(text)
            if text:
                yield text
            await asyncio.sleep(0)  # with times, a piece of short lines takes milliseconds
        if not request.follow or ended or left == 0:
            return
        await asyncio.sleep(POLL_SECONDS)
        ended = is_over()
        pieces, position = buffer.read(position), buffer.end


class _Writer:
    """Puts the time before each line, if it is asked for; a line may come in several pieces."""

    def __init__(self, with_times: bool) -> None:
        self._with_times, self._is_at_start = with_times, True

    def format(self, at: float, data: bytes) -> bytes:
        if not self._with_times:
            return data
        stamp = f"{format_micro_time(at)} ".encode()
        lines = data.splitlines(keepends=True) if b"\r" not in data else data.split(b"\n")
        if b"\r" in data:  # `splitlines` would split at carriage returns, too
            lines = [line + b"\n" for line in lines[:-1]] + ([lines[-1]] if lines[-1] else [])
        text = stamp.join(lines)
        text = stamp + text if self._is_at_start else text
        self._is_at_start = data.endswith(b"\n")
        return text


def _tail(pieces: list[tuple[float, bytes]], count: int) -> list[tuple[float, bytes]]:
    """The last lines; the last one may have no end yet."""
    chosen: deque[tuple[float, bytes]] = deque()
    if not count:
        return []
    needed = count + (bool(pieces) and pieces[-1][1].endswith(b"\n"))
    for at, data in reversed(pieces):
        if data.count(b"\n") < needed:
            needed -= data.count(b"\n")
            chosen.appendleft((at, data))
            continue
        start = len(data)
        for _ in range(needed):
            start = data.rindex(b"\n", 0, start)
        if data[start + 1 :]:
            chosen.appendleft((at, data[start + 1 :]))
        break
    return list(chosen)
