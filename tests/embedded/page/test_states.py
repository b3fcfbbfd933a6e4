"""The page in Chromium on made-up objects: nothing there, names that are too long, thousands of GPUs, a server that
goes away, and what stays as it is while everything changes."""

from __future__ import annotations

from typing import Any

from playwright.sync_api import Page, expect
from tests.embedded.page.conftest import PATIENCE, Open
from tests.embedded.page.feed import nodes, pod
from tests.embedded.page.served import Served

expect.set_options(timeout=PATIENCE)
GPU = "nvidia.com/gpu"
LONG = "gke-prod-eu-west4-a3-megagpu-8g-nodepool-7f3c2d9b"


def fleet(name: str, count: int, **more: Any) -> dict[str, Any]:
    pool = {
        "name": name,
        "count": count,
        "gpus": [{"model": "H100", "count": 8}],
        "rack": f"{name[:40]}-rack",
        **more,
    }
    return {
        "apiVersion": "windlass.dev/v1",
        "kind": "Fleet",
        "metadata": {"name": "states"},
        "spec": {"pools": [pool]},
    }


def gpu(page: Page, node: str, index: int) -> Any:
    return page.locator(f"#racks .gpu[data-node='{node}'][data-gpu='{index}']")


def test_an_empty_cluster_says_so_until_nodes_come(served: Served, open_page: Open) -> None:
    with open_page(served.link()) as page:
        expect(page.locator("#no-nodes")).to_contain_text("No nodes yet")
        expect(page.locator("#events")).to_contain_text("No events yet.")
        page.keyboard.press("q")
        expect(page.locator("#work")).to_be_focused()
        served.put("nodes", *nodes())
        expect(page.locator("#no-nodes")).to_be_hidden()
        expect(page.locator("#racks .node")).to_have_count(12)


def test_names_that_differ_at_the_end_can_be_told_apart(served: Served, open_page: Open) -> None:
    served.put("nodes", *nodes(fleet(LONG, 3)))
    served.put("pods", pod("a" * 200, {GPU: "1"}, waits=("Unschedulable", "no " * 200)))
    for width in (390, 820, 2200):
        with open_page(served.link(), width=width) as page:
            expect(page.locator("#racks .node-name .clip-tail")).to_have_text(["-0", "-1", "-2"])
            expect(page.get_by_role("button", name=f"{LONG}-1, H100 80GB")).to_have_count(1)
            cut = page.evaluate(
                """() => [...document.querySelectorAll('.node-name')].filter((name) => {
                    const tail = name.querySelector('.clip-tail').getBoundingClientRect();
                    return tail.right > name.closest('.node').getBoundingClientRect().right;
                }).length"""
            )
            assert cut == 0
            assert page.evaluate("document.documentElement.scrollWidth") <= width, "nothing sticks out"
            page.evaluate("document.body.dataset.view = 'work'")
            assert page.evaluate("document.documentElement.scrollWidth") <= width, "nor here"


def test_thousands_of_gpus(served: Served, open_page: Open) -> None:
    """Only what is near is made, only what changed is touched, and what is looked for is found."""
    served.put("nodes", *nodes(fleet("h100", 500, nodesPerRack=8)))
    with open_page(served.link(), width=390) as page:
        expect(page.locator("#racks")).to_have_attribute("aria-rowcount", "563")
        expect(page.locator("#totals")).to_contain_text("0 of 4,000 GPUs in use")
        page.wait_for_selector("#racks .gpu")
        assert page.locator("#racks .gpu").count() < 4000
        page.evaluate(
            """() => {
                window.touched = new Set();
                new MutationObserver((all) => all.forEach((one) => touched.add(one.target))).observe(
                    document.getElementById('racks'), { attributes: true, subtree: true });
            }"""
        )
        served.put("pods", pod("train", {GPU: "2"}, "h100-001", "3,5", gpu_utilization="80"))
        expect(gpu(page, "h100-001", 5)).to_have_class("gpu busy u16 taken")
        touched = page.evaluate("[...touched].filter((one) => one.matches('.gpu')).length")
        assert touched == 2

        page.locator("#find").fill("h100-377")
        expect(gpu(page, "h100-377", 0)).to_be_in_viewport()
        expect(page.locator("#racks .gpu.lit")).to_have_count(8)
        page.keyboard.press("Enter")
        expect(page.locator("#details h2")).to_have_text("h100-377")
        page.keyboard.press("Escape")
        expect(page.locator("#details")).to_be_hidden()


def test_what_is_far_away_takes_as_much_room_as_if_it_were_drawn(served: Served, open_page: Open) -> None:
    """So that what is looked for stays in sight while its neighbours are drawn."""
    served.put("nodes", *nodes(fleet("h100", 120, nodesPerRack=8)))
    with open_page(served.link(), width=390) as page:
        page.wait_for_selector("#racks .gpu")
        high = page.evaluate("document.documentElement.scrollHeight")
        page.locator("#find").fill("h100-077")
        expect(page.locator("#racks .rack:has([data-node='h100-087']) .gpu")).to_have_count(64)
        expect(gpu(page, "h100-077", 0)).to_be_in_viewport()
        assert abs(page.evaluate("document.documentElement.scrollHeight") - high) < 0.02 * high


def test_a_server_that_goes_away_and_comes_back(served: Served, open_page: Open) -> None:
    served.put("nodes", *nodes())
    with open_page(served.link(), allow="ERR_") as page:
        expect(page.locator("#notice")).to_have_class("notice unseen")
        served.cut()
        expect(page.locator("#link")).to_have_text("reconnecting")
        expect(page.locator("#notice")).to_contain_text("No connection to windlass up. What is shown is from")
        served.put("pods", pod("meanwhile", {GPU: "1"}, "h100-1", "0"))
        served.mend()
        expect(page.locator("#link")).to_have_text("live")
        expect(page.locator("#notice")).to_have_class("notice unseen")
        expect(gpu(page, "h100-1", 0)).to_have_class("gpu busy u20 taken")


def test_a_server_that_was_started_anew(served: Served, open_page: Open) -> None:
    """It doesn't know this browser. The new link, opened in another tab, brings the old tab back too."""
    served.put("nodes", *nodes())
    with open_page(served.link(), allow="Failed to load resource") as page:
        served.stop()
        served.start_anew()
        expect(page.locator("#link")).to_have_text("session ended")
        expect(page.locator("#notice")).to_contain_text("the one that windlass page prints")
        tab = page.context.new_page()
        tab.goto(served.link())
        expect(page.locator("#link")).to_have_text("live")


def test_what_a_person_is_doing_survives_every_update(served: Served, open_page: Open) -> None:
    served.put("nodes", *nodes())
    with open_page(served.link()) as page:
        gpu(page, "h100-0", 3).click()
        choice = page.get_by_label("Xid of the fault")
        choice.select_option("48")
        choice.focus()
        served.put("pods", pod("busy", {GPU: "1"}, "h100-0", "3", gpu_utilization="10"))
        expect(page.locator("#details")).to_contain_text("10 % busy")
        expect(choice).to_have_value("48")
        expect(choice).to_be_focused()
        page.evaluate("getSelection().selectAllChildren(document.querySelector('#details .command'))")
        served.put("pods", pod("busy", {GPU: "1"}, "h100-0", "3", gpu_utilization="20"))
        expect(page.locator("#details")).to_contain_text("20 % busy")
        assert page.evaluate("String(getSelection())") == "windlass sandbox fail gpu/h100-0:3 --xid 48"
        page.get_by_role("button", name="Fail this GPU").click()
        expect(page.locator("#toast")).to_have_text("failed gpu/h100-0:3 with Xid 48")
        assert served.orders.given == ["fail gpu/h100-0:3 48"]


def test_real_gpus_have_no_buttons_that_break_them(open_page: Open) -> None:
    real = Served(simulated=False)
    try:
        real.put("nodes", *nodes())
        with open_page(real.link()) as page:
            gpu(page, "h100-0", 3).click()
            expect(page.locator("#details h2")).to_have_text("GPU 3")
            expect(page.locator("#details .facts")).to_contain_text("80 GiB")
            expect(page.locator("#details .action")).to_have_count(0)
            expect(page.locator("#details select")).to_have_count(0)
            page.locator("#details").get_by_text("Node h100-0").click()
            expect(page.locator("#details h2")).to_have_text("h100-0")
            expect(page.locator("#details .action")).to_have_count(0)
    finally:
        real.close()


def test_what_the_panel_covers_is_out_of_the_way(served: Served, open_page: Open) -> None:
    """Tab goes from the panel to nothing that is behind it, and q leads back to the lists."""
    served.put("nodes", *nodes())
    served.put("pods", pod("train", {GPU: "1"}, "h100-0", "0"))
    with open_page(served.link()) as page:
        gpu(page, "h100-0", 0).click()
        expect(page.locator("#details")).to_be_focused()
        expect(page.locator("#jobs .job")).to_be_hidden()
        page.keyboard.press("q")
        expect(page.locator("#details")).to_be_hidden()
        expect(page.locator("#jobs .job")).to_be_focused()


def test_the_focus_stays_when_cards_move(served: Served, open_page: Open) -> None:
    served.put("nodes", *nodes())
    with open_page(served.link()) as page:
        page.wait_for_selector("#racks .gpu")
        page.keyboard.press("g")
        page.keyboard.press("ArrowRight")
        expect(gpu(page, "h100-0", 1)).to_be_focused()
        served.put("nodes", *nodes(fleet("a-new-one", 1)))
        expect(page.locator("#racks .node")).to_have_count(13)
        expect(gpu(page, "h100-0", 1)).to_be_focused()


def test_every_node_is_reached_by_keyboard(served: Served, open_page: Open) -> None:
    """Those without GPUs too, which have nothing but a name."""
    served.put("nodes", *nodes())
    with open_page(served.link()) as page:
        page.wait_for_selector("#racks .gpu")
        page.keyboard.press("g")
        expect(gpu(page, "h100-0", 0)).to_be_focused()
        expect(page.locator("#tip")).to_contain_text("h100-0 · GPU 0")
        page.keyboard.press("Home")
        expect(page.locator(".node-name[data-node='h100-0']")).to_be_focused()
        page.keyboard.press("Control+End")
        expect(page.locator(".node-name[data-node='cpu-1']")).to_be_focused()
        page.keyboard.press("Enter")
        expect(page.locator("#details h2")).to_have_text("cpu-1")
        page.keyboard.press("Escape")
        expect(page.locator(".node-name[data-node='cpu-1']")).to_be_focused()
        page.keyboard.press("ArrowLeft")
        expect(page.locator(".node-name[data-node='cpu-0']")).to_be_focused()


def test_letters_can_be_switched_off(served: Served, open_page: Open) -> None:
    served.put("nodes", *nodes())
    with open_page(served.link()) as page:
        page.wait_for_selector("#racks .gpu")
        page.keyboard.press("?")
        page.get_by_label("Single-letter keys are on").uncheck()
        page.keyboard.press("Escape")
        expect(page.locator("#help")).to_be_hidden()
        page.locator("#help-button").blur()
        page.keyboard.press("g")
        page.keyboard.press("?")
        assert page.evaluate("document.activeElement === document.body")
        expect(page.locator("#help")).to_be_hidden()


def test_a_screen_reader_finds_a_grid(served: Served, open_page: Open) -> None:
    served.put("nodes", *nodes())
    with open_page(served.link()) as page:
        page.wait_for_selector("#racks .gpu")
        grid = page.get_by_role("grid", name="GPUs by rack and node")
        expect(grid.get_by_role("rowgroup", name="rack-0")).to_have_count(1)
        row = grid.get_by_role("row", name="node h100-0")
        expect(row.get_by_role("rowheader")).to_have_count(1)
        expect(row.get_by_role("gridcell")).to_have_count(8)
        astray = page.evaluate(
            """() => [...document.querySelectorAll('#racks :is([role=row], [role=gridcell], [role=rowheader])')].filter(
                (one) => {
                    const above = one.parentElement.closest('[role]:not([role=presentation])').role;
                    return above !== (one.role === 'row' ? 'rowgroup' : 'row');
                }
            ).map((one) => one.outerHTML)"""
        )
        assert astray == []


def test_dark_is_the_same_whoever_asks_for_it(served: Served, open_page: Open) -> None:
    served.put("nodes", *nodes())
    seen: dict[tuple[str, str], list[str]] = {}
    look = """() => ['body', '.rack', '.gpu.free', '.gpu.mig', '.node-note', '.totals p'].flatMap((each) => {
        const style = getComputedStyle(document.querySelector(each));
        return [style.backgroundColor, style.color, style.borderTopColor];
    })"""
    for system in ("light", "dark"):
        with open_page(served.link(), color_scheme=system) as page:
            page.wait_for_selector("#racks .gpu.mig")
            for choice in ("auto", "light", "dark"):
                seen[system, choice] = page.evaluate(look)
                page.keyboard.press("t")
    assert seen["light", "auto"] == seen["light", "light"] == seen["dark", "light"]
    assert seen["dark", "auto"] == seen["dark", "dark"] == seen["light", "dark"]
    assert seen["light", "auto"] != seen["dark", "auto"]


def test_nothing_moves_for_those_who_ask_for_that(served: Served, open_page: Open) -> None:
    with open_page(served.link(), reduced_motion="reduce") as page:
        assert page.evaluate("getComputedStyle(document.getElementById('toast')).transitionDuration") == "0s"
