"""The progress bar: only for somebody who watches, only for what takes a while."""

from __future__ import annotations

import io
import sys

import pytest

from windlass.cli import progress
from windlass.cli.progress import ProgressBar


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    screen = Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setenv("TERM", "xterm")
    return screen


def test_shows_how_far_it_is_once_patience_is_over(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "PATIENCE", 0.0)
    with ProgressBar("20 runs", 20) as bar:
        bar(5.0)
        bar._timer.join()
        bar(10.0)
    assert "20 runs" in terminal.getvalue()
    assert "50%" in terminal.getvalue()


def test_shows_nothing_for_what_is_quick(terminal: Terminal) -> None:
    with ProgressBar("1 run", 1) as bar:
        bar(1.0)
    bar._timer.join()
    assert terminal.getvalue() == ""


def test_shows_nothing_where_nobody_watches(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "PATIENCE", 0.0)
    with ProgressBar("1 run", 1) as bar:
        bar(1.0)
        assert not bar._timer.is_alive()
    assert capsys.readouterr() == ("", "")
