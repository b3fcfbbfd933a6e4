"""A progress bar with an estimate, for commands that take longer than two seconds, on a terminal only.

Used by `simulate`, `scenario` and `cluster_option`. The bar goes to stderr and is removed at the end.
"""

from __future__ import annotations

import sys
import threading
from types import TracebackType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress

SHOW_AFTER_SECONDS = 2.0
"""Seconds before the bar appears."""


class ProgressBar:
    """Call it with how much of `total` is done. Used as a context manager."""

    def __init__(self, what: str, total: float) -> None:
        self._what = what
        self._total = total
        self._done = 0.0
        self._bar: Progress | None = None
        self._lock = threading.Lock()
        self._timer = threading.Timer(SHOW_AFTER_SECONDS, self._show)
        self._timer.daemon = True

    def __enter__(self) -> ProgressBar:
        if sys.stderr.isatty():
            self._timer.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._timer.cancel()
        with self._lock:
            if self._bar is not None:
                self._bar.stop()

    def __call__(self, done: float) -> None:
        self._done = done
        if self._bar is not None:
            self._bar.update(self._bar.task_ids[0], completed=done)

    def _show(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

        columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
        with self._lock:
            if self._timer.finished.is_set():
                return  # the work has just ended
            bar = Progress(*columns, console=Console(stderr=True), transient=True)
            task = bar.add_task(self._what, total=self._total)
            bar.update(task, completed=self._done)
            bar.start()
            self._bar = bar
