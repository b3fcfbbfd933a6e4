"""The paths that docs/architecture.md lists are those of the code: every function exists, and each path is short."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

TEXT = (Path(__file__).parents[2] / "docs" / "architecture.md").read_text()
PATHS = dict(re.findall(r"^### (The path of [^\n]+)\n((?:\d+\. [^\n]+\n)+)", TEXT, re.MULTILINE))


def found(name: str) -> object:
    """The module, class, function or method of that dotted name."""
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        try:
            thing: object = importlib.import_module(".".join(parts[:length]))
        except ModuleNotFoundError:
            continue
        for part in parts[length:]:
            thing = getattr(thing, part)
        return thing
    raise AssertionError(f"no module of {name}")


def test_there_are_four_paths() -> None:
    assert len(PATHS) == 4


@pytest.mark.parametrize("title", PATHS)
def test_every_function_exists_and_the_path_is_ten_lines_at_most(title: str) -> None:
    lines = PATHS[title].splitlines()
    assert len(lines) <= 10
    for line in lines:
        (name,) = re.findall(r"`(windlass\.[\w.]+)`", line)
        assert found(name) is not None
