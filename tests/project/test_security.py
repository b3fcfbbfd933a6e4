"""docs/security.md: every claim names tests, and these exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
NAMED = sorted(set(re.findall(r"`(tests/[^`]+)`", TEXT)))
SILENT_SECTIONS = ("Assets", "Actors", "Doors")
"""They claim nothing."""


def test_many_are_named() -> None:
    assert len(NAMED) > 40


@pytest.mark.parametrize("named", NAMED)
def test_a_named_test_exists(named: str) -> None:
    file, *names = named.split("::")
    path = ROOT / file
    assert path.is_file()
    found: ast.AST = ast.parse(path.read_text(encoding="utf-8"))
    for name in names:
        inside = [node for node in ast.iter_child_nodes(found) if getattr(node, "name", "") == name]
        assert inside, f"{file} has no {name}"
        found = inside[0]


def test_every_section_of_claims_names_a_test() -> None:
    for section in TEXT.split("\n## ")[1:]:
        title = section.splitlines()[0]
        assert title in SILENT_SECTIONS or "`tests/" in section, title


def test_the_way_to_report_is_said() -> None:
    text = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    assert "in private" in text
    assert "Supported releases" in text
