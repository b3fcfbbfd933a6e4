"""Follows the counters file: read at the start, and again when it changes, as dcgm-exporter does.

`exporter` calls `reload_if_changed` before each collection. A wrong file is an error at the start; later the last
good counters stay in force and the error is logged once. Without a file the default counters apply.
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
        self._version = self._current_version()
        self._counters = self._read()

    def reload_if_changed(self) -> Sequence[Counter]:
        """The counters in force now."""
        version = self._current_version()
        if version != self._version:
            self._version = version
            try:
                self._counters = self._read()
            except InputError as error:
                self._log(f"the last good counters stay in force: {error}")
            else:
                self._log("the counters file has changed and is in force")
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
            self._log(f"left out, since Windlass can't measure them: {', '.join(left_out)}")
        return counters

    def _current_version(self) -> tuple[int, int, int] | None:
        if self._path is None:
            return None
        try:
            status = self._path.stat()
        except OSError:
            return None
        return status.st_mtime_ns, status.st_ino, status.st_size
