"""What `windlass top` shows, and what a key does to it. Pure: no clock, no terminal.

ledger ─► TopState.look      key ─► TopState.press      TopState ─► top_screen.draw
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import msgspec

from windlass.telemetry.activity import COMPUTING, HELD_IDLE, SPINNING
from windlass.telemetry.ledger import ALLOCATED_STATES, Ledger
from windlass.tui.top_rows import Row, gpu_rows, job_rows, node_rows, queue_rows

FLEET, QUEUES, JOBS, GPUS = "fleet", "queues", "jobs", "gpus"
VIEWS = (FLEET, QUEUES, JOBS)
LOOKS = 60
"""Kept for sparklines."""
Key = Callable[[Row], float | str]
SORTS: dict[str, tuple[tuple[str, Key], ...]] = {
    FLEET: (
        ("name", lambda row: _natural(row.name)),
        ("held", lambda row: -row.held),
        ("idle", lambda row: -row.idle),
        ("use", lambda row: row.use if row.use is not None else 2.0),
    ),
    QUEUES: (
        ("held", lambda row: -row.held),
        ("waiting", lambda row: -row.waiting),
        ("oldest", lambda row: row.since or 2**62),
        ("name", lambda row: _natural(row.name)),
    ),
    JOBS: (
        ("held", lambda row: -row.held),
        ("idle", lambda row: -row.idle),
        ("waiting", lambda row: -row.waiting),
        ("oldest", lambda row: row.since or 2**62),
        ("name", lambda row: _natural(row.name)),
    ),
    GPUS: (("name", lambda row: _natural(row.name)),),
}


class Place(msgspec.Struct):
    """A view, what it is narrowed to, and where the cursor is."""

    view: str
    node: str = ""
    queue: str = ""
    job: str = ""
    filter: str = ""
    sort: int = 0
    is_reversed: bool = False
    chosen: int = 0
    first: int = 0
    """The row at the top."""


class TopState:
    def __init__(self, view: str = FLEET) -> None:
        self.ledger: Ledger | None = None
        self.stack = [Place(view)]
        self.typing = False
        """A filter is being typed."""
        self.help = False
        self.note = ""
        self.wants_look = False
        self.is_over = False
        self._lines: dict[tuple[str, str], deque[float | None]] = {}
        """(view, name) → use at each look; of queues, the GPUs that they hold."""

    @property
    def place(self) -> Place:
        return self.stack[-1]

    def look(self, ledger: Ledger) -> None:
        """A new ledger."""
        self.ledger = ledger
        states = ledger.by_state()
        busy = states[COMPUTING] + states[SPINNING]
        held = sum(states[state] for state in ALLOCATED_STATES)
        measured = busy + states[HELD_IDLE]
        self._keep(("", "held"), held / ledger.total_milli if ledger.total_milli else None)
        self._keep(("", "busy"), busy / measured if measured else None)
        self._keep(("", "waiting"), sum(work.milli for work in ledger.demand.waiting) / 1000)
        seen = set(self._lines) & {("", "held"), ("", "busy"), ("", "waiting")}
        for view, rows in ((FLEET, node_rows(ledger)), (QUEUES, queue_rows(ledger)), (JOBS, job_rows(ledger))):
            for row in rows:
                self._keep((view, row.name), row.held / 1000 if view == QUEUES else row.use)
                seen.add((view, row.name))
        self._lines = {name: line for name, line in self._lines.items() if name in seen}

    def line(self, view: str, name: str) -> list[float | None]:
        return list(self._lines.get((view, name), ()))

    def rows(self) -> list[Row]:
        """Those of the place, filtered and sorted."""
        ledger, place = self.ledger, self.place
        if ledger is None:
            return []
        if place.view == FLEET:
            rows = node_rows(ledger)
        elif place.view == QUEUES:
            rows = queue_rows(ledger)
        elif place.view == JOBS:
            rows = job_rows(ledger, node=place.node, queue=place.queue)
        else:
            rows = gpu_rows(ledger, place.job)
        text = place.filter.lower()
        rows = [row for row in rows if text in _searched(row)]
        key = SORTS[place.view][place.sort][1]
        return sorted(rows, key=lambda row: (key(row), _natural(row.name)), reverse=place.is_reversed)

    def press(self, key: str, page: int = 10) -> None:
        """`key`: a character, or a name such as `up`, `enter` or `escape`; `page`: rows on the screen."""
        if self.typing:
            self._type(key)
        elif self.help:
            self.help = False
        elif key in ("q", "ctrl-c"):
            self.is_over = True
        elif key in ("1", "2", "3"):
            self.stack = [Place(VIEWS[int(key) - 1])]
        elif key == "tab":
            self.stack = [Place(VIEWS[(_number(self.stack[0].view) + 1) % len(VIEWS)])]
        elif key == "/":
            self.typing = True
        elif key == "?":
            self.help = True
        elif key == "r":
            self.wants_look = True
        elif key == "s":
            self.place.sort = (self.place.sort + 1) % len(SORTS[self.place.view])
        elif key == "S":
            self.place.is_reversed = not self.place.is_reversed
        elif key == "enter":
            self._open()
        elif key in ("escape", "backspace"):
            self._go_back()
        else:
            self._move(key, page)

    def _type(self, key: str) -> None:
        if key == "enter":
            self.typing = False
        elif key in ("escape", "ctrl-c"):
            self.typing, self.place.filter = False, ""
        elif key == "backspace":
            self.place.filter = self.place.filter[:-1]
        elif len(key) == 1 and key.isprintable():
            self.place.filter += key
        self.place.chosen = self.place.first = 0

    def _open(self) -> None:
        rows, place = self.rows(), self.place
        if not rows or place.view == GPUS:
            return
        row = rows[min(place.chosen, len(rows) - 1)]
        if place.view == FLEET:
            self.stack.append(Place(JOBS, node=row.name))
        elif place.view == QUEUES:
            self.stack.append(Place(JOBS, queue=row.name))
        else:
            self.stack.append(Place(GPUS, job=row.name))

    def _go_back(self) -> None:
        if self.place.filter:
            self.place.filter = ""
        elif len(self.stack) > 1:
            self.stack.pop()

    def _move(self, key: str, page: int) -> None:
        last = max(0, len(self.rows()) - 1)
        steps = {"up": -1, "k": -1, "down": 1, "j": 1, "page-up": -page, "page-down": page, "home": -last, "end": last}
        if key in steps:
            chosen = min(self.place.chosen, last) + steps[key]
            self.place.chosen = max(0, min(last, chosen))

    def _keep(self, name: tuple[str, str], value: float | None) -> None:
        self._lines.setdefault(name, deque(maxlen=LOOKS)).append(value)

    def is_drilled(self) -> bool:
        return len(self.stack) > 1


def _searched(row: Row) -> str:
    return " ".join((row.name, row.queue, row.user, row.team, row.model, row.cause, row.pod)).lower()


def _number(view: str) -> int:
    return VIEWS.index(view)


def _natural(name: str) -> str:
    """`gpu-9` before `gpu-10`: numbers are padded."""
    padded, digits = "", ""
    for letter in f"{name} ":
        if letter.isdigit():
            digits += letter
            continue
        padded += digits.rjust(12, "0") if digits else ""
        padded, digits = padded + letter, ""
    return padded
