"""The terminal of `windlass top`: keys in, lines out, until the state says that it is over.

The cluster is read in a thread, so that keys are answered while it is. A frame is written whole, since it has a few
thousand letters; it goes to the alternate screen, so that what was there before comes back.
"""

from __future__ import annotations

import os
import select
import shutil
import sys
import termios
import time
import tty
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager

from windlass.model.errors import WindlassError
from windlass.telemetry.ledger import Ledger
from windlass.tui.top_screen import HEAD_LINES, Line, draw
from windlass.tui.top_state import TopState

ESCAPE = "\x1b"
ENTER_SCREEN, LEAVE_SCREEN = f"{ESCAPE}[?1049h{ESCAPE}[?25l", f"{ESCAPE}[?25h{ESCAPE}[?1049l"
STYLES = {
    "bold": "1",
    "dim": "2",
    "chosen": "7",
    "computing": "34",
    "spinning": "35",
    "held_idle": "33",
    "unmeasured": "90",
    "free": "32",
    "stranded": "36",
    "reserved": "94",
    "in_change": "93",
    "unhealthy": "31",
}
COLOURLESS = ("bold", "dim", "chosen")
SEQUENCES = {
    "[A": "up",
    "[B": "down",
    "OA": "up",
    "OB": "down",
    "[5~": "page-up",
    "[6~": "page-down",
    "[H": "home",
    "[F": "end",
    "OH": "home",
    "OF": "end",
    "[1~": "home",
    "[4~": "end",
}
NAMES = {"\r": "enter", "\n": "enter", "\t": "tab", "\x7f": "backspace", "\b": "backspace", "\x03": "ctrl-c"}
LONGEST_WAIT = 0.5
"""Seconds until the size of the terminal is looked at again."""


def run_top(state: TopState, look: Callable[[], Ledger], interval: float) -> None:
    """`look` reads the cluster. Its errors are shown, and it is tried again."""
    with ThreadPoolExecutor(1, thread_name_prefix="windlass-top") as pool, _raw_terminal() as keys:
        looking: Future[Ledger] | None = pool.submit(look)
        next_look, frame = 0.0, ""
        while not state.is_over:
            if looking is not None and looking.done():
                _take(state, looking)
                looking, next_look = None, time.monotonic() + interval
            elif looking is None and (state.wants_look or time.monotonic() >= next_look):
                state.wants_look = False
                looking = pool.submit(look)
            size = shutil.get_terminal_size()
            drawn = render(draw(state, size.columns, size.lines), os.environ)
            if drawn != frame:
                frame = drawn
                _write(f"{ESCAPE}[H{frame}{ESCAPE}[J")
            for key in keys(LONGEST_WAIT if looking is None else 0.1):
                state.press(key, max(1, size.lines - HEAD_LINES - 1))


def render(lines: list[Line], environment: os._Environ[str] | dict[str, str]) -> str:
    """With escapes for the styles; without colours where `NO_COLOR` is set."""
    is_plain = bool(environment.get("NO_COLOR"))
    shown = []
    for line in lines:
        text = "".join(_styled(part, style, is_plain) for part, style in line)
        shown.append(f"{text}{ESCAPE}[K")
    return "\r\n".join(shown)


def parse_keys(text: str) -> list[str]:
    """Keys of what a terminal sends: characters, and names of the others. A lone escape is the key."""
    keys = []
    while text:
        if text[0] == ESCAPE:
            name = next((known for known in SEQUENCES if text.startswith(known, 1)), None)
            if name is not None:
                keys.append(SEQUENCES[name])
                text = text[1 + len(name) :]
                continue
            keys.append("escape")
        else:
            keys.append(NAMES.get(text[0], text[0]))
        text = text[1:]
    return keys


def _styled(text: str, style: str, is_plain: bool) -> str:
    clean = "".join(letter if letter.isprintable() else "?" for letter in text)
    code = STYLES.get(style, "") if not is_plain or style in COLOURLESS else ""
    return f"{ESCAPE}[{code}m{clean}{ESCAPE}[0m" if code and clean else clean


def _take(state: TopState, looked: Future[Ledger]) -> None:
    try:
        state.look(looked.result())
        state.note = ""
    except WindlassError as error:
        state.note = str(error)


@contextmanager
def _raw_terminal() -> Iterator[Callable[[float], list[str]]]:
    """Yields what reads the keys that come within so many seconds."""
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)

    def keys(seconds: float) -> list[str]:
        if not select.select([descriptor], [], [], seconds)[0]:
            return []
        return parse_keys(os.read(descriptor, 4096).decode("utf-8", "replace"))

    try:
        tty.setraw(descriptor, termios.TCSANOW)
        _write(ENTER_SCREEN)
        yield keys
    finally:
        _write(LEAVE_SCREEN)
        termios.tcsetattr(descriptor, termios.TCSANOW, before)


def _write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()
