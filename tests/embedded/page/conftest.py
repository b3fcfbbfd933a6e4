"""Debian's Chromium for the tests of the page; see `tools/test-packages`."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, sync_playwright
from tests.cluster.fixtures import unavailable
from tests.embedded.cluster_up import Up

PATIENCE = 120_000
"""Milliseconds that the page may take to show something on a busy machine."""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    program = shutil.which("chromium")
    if program is None:
        unavailable("there is no chromium here")
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-gpu"])
        yield started
        started.close()


@pytest.fixture
def page(browser: Browser, windlass_up: Up) -> Iterator[Page]:
    """The page as `windlass up` shows it, opened by the printed link. Whatever it complains of fails the test."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    opened = context.new_page()
    opened.set_default_timeout(PATIENCE)
    complaints: list[str] = []
    opened.on("pageerror", lambda error: complaints.append(str(error)))
    opened.on("console", lambda said: complaints.append(said.text) if said.type == "error" else None)
    opened.goto(windlass_up.page)
    opened.wait_for_selector("#link[data-state=live]")
    opened.wait_for_selector("#racks .gpu")
    yield opened
    context.close()
    assert not complaints, complaints
