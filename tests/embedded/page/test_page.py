"""The page in a real Chromium, on a real `windlass up`: what happens is seen, and can be done by keyboard."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Page, expect
from tests.embedded.cluster_up import Up
from tests.embedded.page.conftest import PATIENCE, Open

from windlass.demo.api import ApiClient
from windlass.demo.kubectl import BuiltInKubectl
from windlass.demo.presenter import Presenter
from windlass.demo.steps import DEMO_STEPS, clean_up

STEPS = {step.name: step for step in DEMO_STEPS}
expect.set_options(timeout=PATIENCE)


@pytest.fixture
def stage(windlass_up: Up) -> Iterator[Presenter]:
    """The demo's own stage on the running cluster: its steps are played, and what they leave is looked at."""
    api = ApiClient(windlass_up.kubeconfig)
    made = Presenter(api, BuiltInKubectl(api), windlass_up.kubeconfig, step=False, fast=True)
    clean_up(made)
    yield made
    clean_up(made)
    made.close()


def job(page: Page, name: str) -> Any:
    exactly = re.compile(f"^{re.escape(name)}$")
    return page.locator("#jobs .job", has=page.locator(".job-name", has_text=exactly))


def gpu(page: Page, node: str, index: int) -> Any:
    return page.locator(f"#racks .gpu[data-node='{node}'][data-gpu='{index}']")


def test_the_whole_fleet_is_shown_and_the_token_is_gone_from_the_address(page: Page, windlass_up: Up) -> None:
    assert "token" not in page.url
    expect(page.locator("#racks .gpu")).to_have_count(40)
    expect(page.locator("#racks .rack h3")).to_have_text(
        ["rack-0", "rack-1", "zone-a, no rack", "zone-b, no rack", "CPU nodes"]
    )
    assert page.context.cookies()[0]["httpOnly"] is True
    assert page.context.cookies()[0]["sameSite"] == "Strict"
    assert page.evaluate("document.cookie") == ""


def test_the_story_is_seen(page: Page, stage: Presenter) -> None:
    """Steps of the demo, each looked at on the page before it is cleared away."""
    STEPS["toleration"].run(stage)
    row = job(page, "train")
    expect(row).to_have_attribute("data-state", "waiting")
    expect(row.locator(".job-why")).to_contain_text("untolerated taint")
    STEPS["patch"].run(stage)
    expect(row).to_have_attribute("data-state", "running")
    expect(page.locator("#racks .gpu.busy")).to_have_count(1)
    clean_up(stage)
    expect(row).to_have_count(0)
    expect(page.locator("#racks .gpu.taken")).to_have_count(0)

    STEPS["slice"].run(stage)
    expect(page.locator("#racks .gpu.mig.taken")).to_have_count(1)
    expect(page.locator("#racks .gpu.mig i.used")).to_have_count(1)
    expect(page.locator("#racks .gpu.shared.taken")).to_have_count(1)
    clean_up(stage)

    STEPS["gangs"].run(stage)
    expect(page.locator("#racks .gpu.busy")).to_have_count(24)
    expect(page.locator(".jobs.waiting .job")).to_have_count(1)
    winner = page.locator(".jobs.running .job-name").first.text_content()
    assert winner in ("red", "blue")
    job(page, winner).click()
    expect(page.locator("#details h2")).to_have_text(winner)
    expect(page.locator("#racks .gpu.lit")).to_have_count(24)
    expect(page.locator("#details .placement li")).to_have_count(3)
    page.keyboard.press("Escape")
    expect(page.locator("#details")).to_be_hidden()
    clean_up(stage)

    STEPS["quota"].run(stage)
    expect(page.locator(".queue", has_text="team-b")).to_contain_text("16 of 16 GPUs")
    expect(page.locator(".jobs.waiting .job")).to_have_count(2)


def test_a_gpu_is_broken_and_mended_by_keyboard_alone(page: Page, stage: Presenter) -> None:
    """No pointer: Tab and arrows to a GPU, Enter, to the button, and back."""
    page.keyboard.press("g")
    expect(gpu(page, "h100-0", 0)).to_be_focused()
    for _ in range(3):
        page.keyboard.press("ArrowRight")
    expect(gpu(page, "h100-0", 3)).to_be_focused()
    page.keyboard.press("ArrowDown")
    expect(gpu(page, "h100-0", 7)).to_be_focused()
    page.keyboard.press("ArrowUp")
    page.keyboard.press("Enter")
    expect(page.locator("#details")).to_be_visible()
    expect(page.locator("#details h2")).to_have_text("GPU 3")
    expect(page.get_by_role("dialog", name="h100-0 GPU 3")).to_be_focused()
    for stop in ("✕", "79: fallen off the bus", "Fail this GPU"):
        page.keyboard.press("Tab")
        expect(page.locator("#details :focus")).to_contain_text(stop)
    page.keyboard.press("Enter")
    expect(gpu(page, "h100-0", 3)).to_have_class("gpu ill u0 picked")
    expect(page.locator("#toast")).to_contain_text("Xid 79")
    expect(page.locator("#details :focus")).to_have_attribute("aria-disabled", "true")
    page.keyboard.press("Tab")
    expect(page.locator("#details :focus")).to_have_text("Heal this GPU")
    page.keyboard.press("Enter")
    expect(gpu(page, "h100-0", 3)).to_have_class("gpu free u0 picked")
    page.keyboard.press("Escape")
    expect(page.locator("#details")).to_be_hidden()
    expect(gpu(page, "h100-0", 3)).to_be_focused()


def test_jobs_are_found_and_walked_by_keyboard(page: Page, stage: Presenter) -> None:
    STEPS["slice"].run(stage)
    expect(page.locator(".jobs.running .job")).to_have_count(2)
    page.keyboard.press("q")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(page.locator("#details .facts")).to_contain_text("Asks for")
    page.keyboard.press("Escape")
    page.keyboard.press("/")
    page.keyboard.type("slice")
    expect(page.locator(".jobs.running .job")).to_have_count(1)
    expect(page.locator("#racks .gpu.lit")).to_have_count(1)
    page.keyboard.press("Escape")
    expect(page.locator(".jobs.running .job")).to_have_count(2)


def test_a_node_that_fails_is_seen_and_its_silence_ends(page: Page, windlass_up: Up, stage: Presenter) -> None:
    page.locator(".node-name[data-node='h100-3']").click()
    page.locator("#details .action.fail").click()
    expect(page.locator("#toast")).to_contain_text("h100-3")
    expect(page.locator(".node.not-ready")).to_have_count(1)
    expect(page.locator("#racks .gpu.off")).to_have_count(8)
    page.locator("#details .action.heal").click()
    expect(page.locator(".node.not-ready")).to_have_count(0)


@pytest.mark.parametrize("width", [390, 820, 1280, 2200])
def test_it_fits_every_screen(open_page: Open, windlass_up: Up, width: int) -> None:
    with open_page(windlass_up.page, width=width) as page:
        page.wait_for_selector("#racks .gpu")
        assert page.evaluate("document.documentElement.scrollWidth") <= width, "nothing sticks out at the side"
        expect(page.locator("#find")).to_be_visible()
        if width == 390:
            page.get_by_role("button", name="Jobs").click()
            expect(page.locator("#fleet")).to_be_hidden()
        expect(page.locator("#jobs")).to_be_visible()
        page.locator("#help-button").click()
        box = page.locator("#help").bounding_box()
        assert box is not None
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= width


def test_everything_has_a_name_for_those_who_do_not_see_it(page: Page) -> None:
    unnamed = page.evaluate(
        """() => [...document.querySelectorAll('button, input, select')].filter(
            (one) => !(one.getAttribute('aria-label') || one.textContent.trim() || one.labels?.length)
        ).map((one) => one.outerHTML)"""
    )
    assert unnamed == []
    expect(gpu(page, "h100-0", 0)).to_have_attribute("aria-label", "h100-0 GPU 0, H100 80GB HBM3: free")
    stops = page.evaluate("document.querySelectorAll('#racks [tabindex=\"0\"]').length")
    assert stops == 1, "the grid is one stop for the Tab key"
