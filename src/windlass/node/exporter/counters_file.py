"""The counters file as the exporter follows it: read at the start, and again when it changes, as dcgm-exporter does.

At the start a wrong file is an error; later the last good counters stay in force and the mistake is told once. Without
a file there is the default set.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from windlass.model.errors import InputError
from windlass.node.exporter.counters import Counter, default_counters, read_counters


class CountersFile:
    def __init__(self, path: Path | None, log: Callable[[str], None] = lambda line: None) -> None:
        self._path = path
        self._log = log
        self._seen = self._stamp()
        self._counters = self._read()

    def reload_if_changed(self) -> Sequence[Counter]:
        """The counters that are in force now."""
        seen = self._stamp()
        if seen != self._seen:
            self._seen = seen
            try:
                self._counters = self._read()
            except InputError as error:
                self._log(f"the last good counters stay in force: {error}")
            else:
                self._log("the counters have changed")
        return self._counters

    def _read(self) -> Sequence[Counter]:
        if self._path is None:
            return default_counters()
        try:
            text = self._path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"can't be read: {error}", file=str(self._path)) from None
        counters, left_out = read_counters(text, str(self._path))
        if left_out:
            self._log(f"not measured here and left out: {', '.join(left_out)}")
        return counters

    def _stamp(self) -> tuple[int, int, int] | None:
        if self._path is None:
            return None
        try:
            found = self._path.stat()
        except OSError:
            return None
        return found.st_mtime_ns, found.st_ino, found.st_size
