"""The Time and Teams views in a real browser: their numbers are those of the recorded ledger, and gaps are gaps."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from playwright.sync_api import expect
from tests.embedded.page.conftest import Open
from tests.embedded.page.feed import nodes
from tests.embedded.page.served import Served

from windlass.telemetry.demand import Demand, WaitingWork
from windlass.telemetry.holders import Holder
from windlass.telemetry.ledger import GpuShare, Ledger
from windlass.telemetry.starts import Start
from windlass.telemetry.usage import UsageKey
from windlass.telemetry.usage_history import LedgerHistory

A100, V100 = "NVIDIA-A100-SXM4-40GB", "Tesla-V100-SXM2-16GB"
HOLDER = Holder("vision", "research", "ada", "Job vision/train")


def written(folder: Path) -> None:
    """The last six hours but one in the middle: 40 of 100 GPUs are held, 30 of these busy, and 41 are waited for."""
    states = ["computing"] * 30 + ["held_idle"] * 10
    held = [GpuShare(f"a{n // 8}", n % 8, A100, state, 1000, HOLDER, "vision/p") for n, state in enumerate(states)]
    free = [GpuShare(f"v{n // 6}", n % 6, V100, "stranded", 1000, why="SELECTOR_MISMATCH") for n in range(60)]
    waiting = tuple(WaitingWork(f"nlp/w{n}", HOLDER, "GPU_FULL", 1000, 0, (A100,)) for n in range(41))
    found = Ledger(0, (*held, *free), Demand(waiting), 0, {"research": 32_000})
    now = int(time.time()) // 300 * 300
    history = LedgerHistory(folder)
    for at in range(now - 6 * 3600, now + 1, 100):
        if not now - 4 * 3600 < at < now - 3 * 3600:
            history.observe(msgspec.structs.replace(found, at=at))
    for waited in (60, 120, 7200):
        history.started(now - 600, Start(HOLDER, 8000, waited))
    history.evicted(now - 600, UsageKey.of(HOLDER, ""), 7200, "Priority", "nlp/x")
    history.close()


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    written(tmp_path)
    made = Served(simulated=False, history=tmp_path)
    made.put("nodes", *nodes())
    yield made
    made.close()


@pytest.mark.parametrize("width", [390, 1280])
def test_time_says_what_the_ledger_says(open_page: Open, served: Served, width: int) -> None:
    with open_page(served.link(), width=width) as page:
        page.get_by_role("button", name="Time", exact=True).click()
        page.get_by_role("button", name="6 hours").click()
        story = page.locator(".story")
        expect(story).to_have_text(
            "41 GPUs wait for A100-40 while 60 V100 are free; 40% of all GPUs are held (means of this time)."
        )
        expect(page.locator("main")).to_be_hidden()
        panels = page.locator(".panel")
        expect(panels.nth(0)).to_contain_text("40 % of all GPUs were held; these were busy for 75 % of the time.")
        expect(page.locator(".chart .mark-name")).to_have_text("70 %")
        assert page.locator(".curve.busy").count() == 2, "the hour that was not recorded is no line"
        expect(panels.nth(3).locator("tbody tr")).to_have_text("research2 to 8 GPUs32 min2 h")
        expect(panels.nth(5).locator("tbody tr")).to_have_text("researchPriority12.0")
        expect(panels.nth(6).locator("tbody tr")).to_have_text("research4032125 %")
        assert page.evaluate("document.documentElement.scrollWidth") <= width, "nothing sticks out at the side"


def test_teams_and_any_range(open_page: Open, served: Served) -> None:
    with open_page(served.link(), allow="400 (Bad Request)") as page:
        page.get_by_role("button", name="Teams").click()
        expect(page.locator(".panel").nth(0)).to_contain_text("vision")
        expect(page.locator(".panel").nth(1)).to_contain_text("Job vision/train")
        page.get_by_role("button", name="Time", exact=True).click()
        page.locator("#range-from").fill("2020-01-01T00:00")
        page.locator("#range-to").fill("2020-01-02T00:00")
        page.get_by_role("button", name="Show").click()
        expect(page.locator(".story")).to_have_text("Nothing was recorded in this time.")
        page.locator("#range-to").fill("2020-03-02T00:00")
        page.get_by_role("button", name="Show").click()
        expect(page.locator(".past-note")).to_contain_text("between five minutes and 31 days")
        page.get_by_role("button", name="24 hours").click()
        expect(page.locator(".story")).to_contain_text("41 GPUs wait")
        page.get_by_role("button", name="Now").click()
        expect(page.locator("#racks .gpu").first).to_be_visible()
        page.goto(page.url.partition("#")[0] + "#teams")
        expect(page.locator(".panel").nth(0)).to_contain_text("vision")


def test_without_history_it_says_what_to_do(open_page: Open) -> None:
    made = Served(simulated=False)
    made.put("nodes", *nodes())
    try:
        with open_page(made.link(), allow="404 (Not Found)") as page:
            page.get_by_role("button", name="Time", exact=True).click()
            expect(page.locator(".past-note")).to_contain_text("windlass scheduler --history")
    finally:
        made.close()
