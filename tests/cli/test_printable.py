"""Names in files of others move no cursor and change no title of the terminal that shows them."""

from __future__ import annotations

from pathlib import Path

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.cli.check import check
from windlass.cli.errors import run_command
from windlass.cli.printable import printable

TITLE = "\x1b]0;owned\x07"


@given(st.text())
def test_nothing_is_left_that_a_terminal_would_act_on(text: str) -> None:
    assert not {*printable(text)} & {*"\x00\x07\x08\r\x7f\x9b\u202e"}


@pytest.mark.parametrize("text", ["plain", "två\n\tlines", click.style("red", fg="red", bold=True)])
def test_what_is_harmless_stays(text: str) -> None:
    assert printable(text) == text


def test_escapes_are_spelled_out() -> None:
    assert printable(f"a{TITLE}b\x1b[2J") == "a\\x1b]0;owned\\x07b\\x1b[2J"


def test_a_manifest_does_not_change_the_title(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    escaped = TITLE.replace("\x1b", "\\e").replace("\x07", "\\a")
    manifest = tmp_path / "pod.yaml"
    manifest.write_text(
        f'apiVersion: v1\nkind: Pod\nmetadata: {{name: "p{escaped}"}}\nspec:\n  containers:\n  - name: "c{escaped}"\n'
        f'    resources: {{limits: {{nvidia.com/gpu: "{escaped}"}}}}\n'
    )
    run_command(check, ["-f", str(manifest)], "windlass")
    printed = capsys.readouterr()
    assert "owned" in printed.out + printed.err
    assert "\x1b]" not in printed.out + printed.err
