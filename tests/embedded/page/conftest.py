"""Debian's Chromium for the tests of the page; see `tools/test-packages`."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, sync_playwright
from tests.embedded.cluster_up import Up
from tests.embedded.page.served import Served
from tests.real_cluster.fixtures import unavailable

PATIENCE = 120_000
"""Milliseconds that the page may take to show something on a busy machine."""

Open = Callable[..., AbstractContextManager[Page]]
"""Opens a link in a browser of its own; keywords are Playwright's of `new_context`, `width` the window's."""


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
def open_page(browser: Browser) -> Open:
    """Whatever the page complains of fails the test, but what `allow` has a part of."""

    @contextmanager
    def opened(link: str, width: int = 1280, allow: str = "", **context_options: Any) -> Iterator[Page]:
        context = browser.new_context(viewport={"width": width, "height": 844}, **context_options)
        page = context.new_page()
        page.set_default_timeout(PATIENCE)
        complaints: list[str] = []
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("console", lambda said: complaints.append(said.text) if said.type == "error" else None)
        page.goto(link)
        page.wait_for_selector("#link[data-state=live]")
        yield page
        context.close()
        complaints = [complaint for complaint in complaints if not allow or allow not in complaint]
        assert not complaints, complaints

    return opened


@pytest.fixture
def page(open_page: Open, windlass_up: Up) -> Iterator[Page]:
    """The page as `windlass up` shows it."""
    with open_page(windlass_up.page) as opened:
        opened.wait_for_selector("#racks .gpu")
        yield opened


@pytest.fixture
def served() -> Iterator[Served]:
    """The page without a cluster."""
    made = Served()
    yield made
    made.close()
