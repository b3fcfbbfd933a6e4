"""Follows the record of a live scheduler (`--record`) and tells the judge of every plan, as worlds on the virtual clock
see them. `live_cluster` runs it in a thread."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from windlass.model.decision_document import parse_plan
from windlass.model.plan import Plan
from windlass.scheduler.decision_record import RECORD_FILE

POLL_SECONDS = 0.1


def follow_record(folder: Path, tell: Callable[[Plan], None], stopped: threading.Event) -> None:
    """Until it is stopped; a scheduler that starts again begins a new file."""
    for line in _lines(folder / RECORD_FILE, stopped):
        found = msgspec.json.decode(line)
        if found.get("decisions") is not None:
            tell(parse_plan(found))


def _lines(path: Path, stopped: threading.Event) -> Iterator[bytes]:
    at, inode, rest = 0, 0, b""
    while not stopped.wait(POLL_SECONDS):
        if not path.exists():
            continue
        if path.stat().st_ino != inode:
            at, inode, rest = 0, path.stat().st_ino, b""
        with path.open("rb") as file:
            file.seek(at)
            read = file.read()
        at += len(read)
        *whole, rest = (rest + read).split(b"\n")
        yield from whole
