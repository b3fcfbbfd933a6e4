"""A stranger's session: the README's commands, as they stand there, in order."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = ("README.md", "docs/guide/simulate.md")


def commands(page: str) -> list[str]:
    """The lines of the page's `console` blocks that begin with `$ `."""
    text = (ROOT / page).read_text(encoding="utf-8")
    blocks = re.findall(r"^```console\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    return [line[2:] for block in blocks for line in block.splitlines() if line.startswith("$ ")]


def needs_traces(command: str) -> bool:
    return re.search(r"\b(openb|philly|helios)\b", command) is not None


def run(command: str, folder: Path) -> None:
    """Runs it as typed, but where files that it writes are not in the way.

    `make` is only asked what it would do: the environment that runs this test is not to be touched by it.
    """
    words = shlex.split(command)
    if words[0] == "make":
        done = subprocess.run(["make", "-n", *words[1:]], cwd=ROOT, capture_output=True, text=True, check=False)
    else:
        assert words[0] == ".venv/bin/windlass", command
        program = Path(sys.executable).parent / "windlass"
        done = subprocess.run([program, *words[1:]], cwd=folder, capture_output=True, text=True, check=False)
    found = 1 if words[1] == "why" else 0  # a cause is a finding
    assert done.returncode == found, f"{command}\n{done.stderr}"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A place to type in, with the examples where the project has them."""
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    return tmp_path


@pytest.mark.parametrize("page", PAGES)
def test_commands_without_trace_files(page: str, folder: Path) -> None:
    to_run = [command for command in commands(page) if not needs_traces(command)]
    assert to_run
    for command in to_run:
        run(command, folder)


@pytest.mark.traces
@pytest.mark.parametrize("page", PAGES)
def test_commands_with_trace_files(page: str, folder: Path) -> None:
    assert os.environ["WINDLASS_TRACES"]
    for command in commands(page):
        if needs_traces(command):
            run(command, folder)


def test_the_readme_has_the_two_commands() -> None:
    assert commands("README.md")[0] == "make up"
    assert "make test" in commands("README.md")
