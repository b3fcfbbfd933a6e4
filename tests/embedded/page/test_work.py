"""What waits, what is planned, what the operator does and what a job's past was, in a real browser: everything is said
in words, can be done by keyboard, and breaks no rule of accessibility in light, dark, wide and narrow."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect
from tests.embedded.page import scene
from tests.embedded.page.axe import findings
from tests.embedded.page.conftest import PATIENCE, Open
from tests.embedded.page.served import Served
from tests.web.test_changes import CHANGE, with_status

expect.set_options(timeout=PATIENCE)


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    scene.record(tmp_path)
    made = Served(simulated=False, history=tmp_path)
    scene.fill(made)
    yield made
    made.close()


def names(page: Page, which: str) -> list[str]:
    texts = page.locator(f"#jobs .jobs.{which} .job .job-name").all_inner_texts()
    return ["".join(text.split()).rpartition("/")[2] for text in texts]


def test_what_needs_a_person_is_apart_from_what_only_needs_time(served: Served, open_page: Open) -> None:
    with open_page(served.link()) as page:
        person = page.locator(".jobs.person")
        expect(person.locator(".job-name")).to_have_text(["repair h100-4-1", "node h100-5", "vision/forgot-toleration"])
        expect(person.locator(".number")).to_have_text("3")
        expect(person.locator(".matter").first).to_contain_text("repair it, then: windlass repair return")
        assert names(page, "time") == ["finetune", "moe-train", "ablation"]
        expect(page.locator(".jobs.time .job-why").first).to_contain_text("Starts in 1 h 30 min, ")
        page.keyboard.press("q")
        expect(person.locator(".matter").first).to_be_focused()
        page.keyboard.press("ArrowDown")
        page.keyboard.press("ArrowDown")
        expect(person.locator(".job")).to_be_focused()
        page.keyboard.press("ArrowUp")
        page.keyboard.press("Enter")
        expect(page.locator("#details h2")).to_have_text("h100-5")


def test_filters_and_sorting(served: Served, open_page: Open) -> None:
    with open_page(served.link()) as page:
        expect(page.locator(".jobs.time .job")).to_have_count(3)
        page.locator("#filter-team").select_option("vision")
        expect(page.locator(".jobs.time .job")).to_have_count(2)
        page.locator("#filter-cause").select_option("KUEUE_QUOTA_INSUFFICIENT")
        expect(page.locator(".jobs.time .job")).to_have_count(1)
        expect(page.locator("#plans")).to_be_hidden()
        page.locator("#filter-cause").select_option("")
        page.locator("#filter-team").select_option("")
        page.locator("#filter-queue").select_option("nlp-queue")
        expect(page.locator(".jobs.time .job")).to_have_count(1)
        expect(page.locator(".jobs.running .empty")).to_have_text("No match.")
        page.locator("#filter-queue").select_option("")
        for order, first in (
            ("gpus", "moe-train"),
            ("start", "moe-train"),
            ("longest", "finetune"),
            ("name", "ablation"),
        ):
            page.locator("#sort").select_option(order)
            expect(page.locator(".jobs.time .job-name").first).to_contain_text(first)
        served.put("pods", scene.waiting("later", scene.QUOTA, "chem", "chem-queue", 1))
        expect(page.locator("#filter-team").locator("option")).to_have_text(
            ["Every team", "chem", "default", "nlp", "vision"]
        )
        expect(page.locator("#sort")).to_have_value("name")


def test_planned_starts_are_a_chart_and_words(served: Served, open_page: Open) -> None:
    with open_page(served.link()) as page:
        plans = page.locator("#plans .plan")
        expect(plans).to_have_count(2)
        expect(plans.first.locator(".plan-words")).to_contain_text("in 30 min, ")
        expect(plans.first.locator(".plan-words")).to_contain_text("8 GPUs · for 2 h at most")
        expect(plans.last.locator(".plan-words")).to_contain_text("for an unknown time")
        first, last = (plans.nth(at).locator(".plan-track i").bounding_box() for at in (0, 1))
        track = plans.first.locator(".plan-track").bounding_box()
        assert first is not None
        assert last is not None
        assert track is not None
        assert track["x"] < first["x"] < last["x"], "later is to the right"
        assert first["x"] + first["width"] <= track["x"] + track["width"] + 1
        assert abs(last["x"] + last["width"] - track["x"] - track["width"]) <= 1, "without an end"
        plans.first.focus()
        page.keyboard.press("Enter")
        expect(page.locator("#details h2")).to_have_text("moe-train")
        expect(page.locator("#details")).to_contain_text("Planned start")


def test_changes_and_repairs(served: Served, open_page: Open) -> None:
    with open_page(served.link(), allow="404") as page:
        page.get_by_role("button", name="Changes 2 need a person").click()
        expect(page.locator("main")).to_be_hidden()
        story = page.locator("#changes .story")
        expect(story).to_have_text("4 under way: 2 need a person, 2 only need time.")
        change = page.locator("#changes .card", has_text="Change r590")
        expect(change).to_contain_text("driver of h100: 580.95.05 → 590.44.01")
        expect(change).to_contain_text("3 of 8 nodes, 1 failed · wave 2 of 2")
        expect(change).to_contain_text("goes on by itself in 20 min, ")
        expect(change.locator(".needs")).to_have_text("only needs time")
        repair = page.locator("#changes .card", has_text="Repair h100-4-1")
        expect(repair.locator(".remedy")).to_have_text("What to do: repair it, then: windlass repair return")
        expect(repair).to_contain_text("Ticket OPS-7")
        expect(page.locator("#changes .panel").last).to_contain_text("Change r580")
        served.put("fleetchanges.windlass.dev", with_status(CHANGE, phase="Held", reason="GateFailing"))
        expect(story).to_have_text("4 under way: 3 need a person, 1 only needs time.")
        repair.get_by_role("button", name="h100-4").click()
        expect(page.locator("#details h2")).to_have_text("h100-4")
        page.keyboard.press("Escape")
        page.reload()
        expect(story).to_be_visible()


def test_changes_without_an_operator(open_page: Open) -> None:
    made = Served(simulated=False)
    try:
        with open_page(made.link()) as page:
            page.get_by_role("button", name="Changes").click()
            expect(page.locator("#changes .story")).to_contain_text("windlass install operator")
            assert findings(page) == []
    finally:
        made.close()


def test_a_jobs_past(served: Served, open_page: Open) -> None:
    with open_page(served.link()) as page:
        page.get_by_role("button", name="Teams").click()
        page.get_by_role("button", name="6 hours").click()
        page.get_by_role("link", name="Job vision/train").click()
        story = page.locator("#past .story")
        expect(story).to_contain_text("Job vision/train: 240.0 GPU-hours on up to 40 GPUs, busy for 75%")
        expect(page.locator(".timeline b")).to_have_text(["started", "first GPU work", "evicted"])
        expect(page.locator(".timeline li").first).to_contain_text("40 GPUs after waiting for 32m")
        expect(page.locator(".past .command").first).to_have_text("DataLoader(num_workers=8, pin_memory=True)")
        assert "#job=vision%2FJob%2Ftrain" in page.url
        page.reload()
        expect(story).to_contain_text("Job vision/train")
        page.get_by_role("button", name="Now").click()
        expect(page.locator("#racks .gpu").first).to_be_visible()
        page.locator("#jobs .job", has_text="serve").click()
        page.get_by_role("link", name="Its past").click()
        expect(story).to_have_text("Pod default/serve held no GPU in this time.")


def test_time_has_racks_and_phases(served: Served, open_page: Open) -> None:
    with open_page(served.link()) as page:
        page.get_by_role("button", name="Time", exact=True).click()
        page.get_by_role("button", name="6 hours").click()
        racks = page.locator(".panel", has=page.get_by_role("heading", name="Health by rack"))
        expect(racks.locator("tbody tr")).to_have_text(
            ["rack-w40.024.00 %", "rack-a400.00.0100 %", "rack-v560.00.0100 %"]
        )
        phases = page.locator(".panel", has=page.get_by_role("heading", name="From submission"))
        expect(phases.locator("tbody tr").first).to_contain_text("in the queue132 min")
        expect(phases.locator(".phase-bar i")).to_have_count(3)
        last = page.locator(".panel").last
        last.scroll_into_view_if_needed()
        box = last.bounding_box()
        assert box is not None
        assert box["y"] < 844, "the last panel can be scrolled to"


PLACES = ("", "#changes", "#time", "#teams", "#job=vision%2FJob%2Ftrain")


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (1280, "dark"), (390, "light")])
def test_axe_finds_nothing(served: Served, open_page: Open, place: str, width: int, scheme: Any) -> None:
    with open_page(served.link(), width=width, color_scheme=scheme) as page:
        page.evaluate("(place) => { location.hash = place; document.body.dataset.view = 'work'; }", place)
        expect(page.locator(":is(.past .panel, #plans .plan):visible").first).to_be_visible()
        expect(page.locator("[aria-busy]")).to_have_count(0)
        assert findings(page) == []
        assert page.evaluate("document.documentElement.scrollWidth") <= width, "nothing sticks out at the side"
