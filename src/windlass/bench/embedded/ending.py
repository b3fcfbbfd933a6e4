"""How a benchmark ends that is told to: by way of every `finally`, so that no server is left running.

`cli.bench_embedded` measures inside of it.
"""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator


@contextlib.contextmanager
def sigterm_unwinds() -> Iterator[None]:
    """For so long SIGTERM ends the program as Ctrl-C does, with the exit code that a shell expects (143)."""
    before = signal.signal(signal.SIGTERM, _leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _leave(number: int, _: object) -> None:
    signal.signal(number, signal.SIG_IGN)  # once is enough: what is being stopped is left to stop
    raise SystemExit(128 + number)
