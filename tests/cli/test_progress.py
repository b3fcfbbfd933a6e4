"""The progress bar: only for somebody who watches, only for what takes a while."""

from __future__ import annotations

import io
from contextlib import redirect_stderr

import pytest

from windlass.cli import progress
from windlass.cli.progress import ProgressBar


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_shows_how_far_it_is_once_patience_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "SHOW_AFTER_SECONDS", 0.0)
    monkeypatch.setenv("TERM", "xterm")
    with redirect_stderr(Terminal()) as screen, ProgressBar("20 runs", 20) as bar:
        bar(5.0)
        bar._timer.join()
        bar(10.0)
    assert "20 runs" in screen.getvalue()
    assert "50%" in screen.getvalue()


def test_shows_nothing_for_what_is_quick() -> None:
    with redirect_stderr(Terminal()) as screen, ProgressBar("1 run", 1) as bar:
        bar(1.0)
    bar._timer.join()
    assert screen.getvalue() == ""


def test_shows_nothing_where_nobody_watches(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "SHOW_AFTER_SECONDS", 0.0)
    with ProgressBar("1 run", 1) as bar:
        bar(1.0)
        assert not bar._timer.is_alive()
    assert capsys.readouterr() == ("", "")
