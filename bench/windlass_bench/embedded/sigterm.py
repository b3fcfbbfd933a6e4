"""How a benchmark ends on SIGTERM: through every `finally`, so that no server is left running.

`cli.embedded` measures inside `sigterm_as_exit`; `contenders` starts its servers inside `put_off`.
"""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator


class _Ending:
    """SIGTERM as an exception, which can be put off for a moment."""

    def __init__(self) -> None:
        self._is_put_off = self._is_due = False

    def tell(self, number: int, _: object) -> None:
        signal.signal(number, signal.SIG_IGN)  # once is enough: what is being stopped is left to stop
        if self._is_put_off:
            self._is_due = True
        else:
            raise SystemExit(128 + number)

    @contextlib.contextmanager
    def put_off(self) -> Iterator[None]:
        self._is_put_off = True
        try:
            yield
        finally:
            self._is_put_off = False
        if self._is_due:
            raise SystemExit(128 + signal.SIGTERM)


_ending = _Ending()
defer_sigterm = _ending.put_off
"""Between the birth of a process and the moment when it is known, nobody could end it."""


@contextlib.contextmanager
def sigterm_as_exit() -> Iterator[None]:
    """For so long SIGTERM ends the program as Ctrl-C does, with the exit code that a shell expects (143)."""
    before = signal.signal(signal.SIGTERM, _ending.tell)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
