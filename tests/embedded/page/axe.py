"""What axe-core, which comes with the page's packages, says of a page: accessibility as far as a program can check."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from playwright.sync_api import Page
from tests.real_cluster.fixtures import unavailable

AXE = Path(__file__).resolve().parents[3] / "web" / "node_modules" / "axe-core" / "axe.min.js"


def findings(page: Page) -> list[str]:
    """One line for each element that breaks a rule."""
    if not AXE.is_file():
        unavailable("axe-core is missing: run make page")
    page.evaluate(AXE.read_text())
    # The page stands still: what moves or is faded in has no colour of its own yet.
    page.evaluate("() => Promise.all(document.getAnimations().map((one) => one.finished.catch(() => 0)))")
    found: dict[str, Any] = page.evaluate("() => axe.run({ resultTypes: ['violations'] })")
    return [
        f"{rule['id']}: {node['target']} {node['failureSummary']}"
        for rule in found["violations"]
        for node in rule["nodes"]
    ]
