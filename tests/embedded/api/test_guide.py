"""The guide's table of behaviours: every test that it names is there."""

from __future__ import annotations

import re
from pathlib import Path

GUIDE = Path(__file__).resolve().parents[3] / "docs" / "guide" / "embedded-api.md"


def test_every_test_that_is_named_exists() -> None:
    named = re.findall(r"\[(test_\w+)\]\(([^)]+)\)", GUIDE.read_text())
    assert len(named) > 50
    for name, link in named:
        source = (GUIDE.parent / link).read_text()
        assert re.search(rf"^ *(async )?def {name}\(", source, re.MULTILINE), f"{name} in {link}"
