"""Takes the pictures of the page that the documentation shows: `python -m tests.embedded.page.screenshots docs/images`.

Starts `windlass up`, gives it work that shows what GPUs can be, and looks at it with Chromium; then at the views that
need an operator and a past, on made objects (`scene`).
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page, expect, sync_playwright
from tests.embedded.cluster_up import Up, up
from tests.embedded.page import scene
from tests.embedded.page.conftest import PATIENCE
from tests.embedded.page.served import Served
from tests.real_cluster.api import until

from windlass.demo.api import ApiClient
from windlass.demo.fixtures import FLAVOR_MANIFEST, TOLERATION, job_manifest, queue_manifest, running_pods
from windlass.demo.kubectl import BuiltInKubectl

POD = """\
apiVersion: v1
kind: Pod
metadata: {{name: {name}, annotations: {{sandbox.windlass.dev/gpu-utilization: "{use}"}}}}
spec:
  {tolerate}
  containers: [{{name: main, image: pytorch, resources: {{limits: {{{asks}}}}}}}]
"""
PICTURES = (
    ("page-light", 1280, 860, "light"),
    ("page-phone", 390, 844, "light"),
    ("page-wide", 2200, 1100, "dark"),
)
SCENES = {"page-changes": "#changes", "page-time": "#time", "page-job-past": "#job=vision%2FJob%2Ftrain"}
WAITING = {"forgot-the-toleration", "moe-train", "finetune"}


def work(cluster: Up) -> None:
    api = ApiClient(cluster.kubeconfig)
    kubectl = BuiltInKubectl(api)

    def apply(*manifests: str) -> None:
        code, said = kubectl.run(["apply", "-f", "-"], "---\n".join(manifests))
        assert code == 0, said

    apply(
        FLAVOR_MANIFEST,
        queue_manifest("research", 16, "lab", "reclaimWithinCohort: Any"),
        queue_manifest("product", 16, "lab"),
    )
    apply(
        job_manifest("llama-pretrain", 2, 8, queue="research"),
        job_manifest("ablation", 1, 2, queue="product"),
    )
    until(lambda: len(running_pods(api)) == 3, 60, "the jobs run")
    asks = {
        "notebook": ("nvidia.com/gpu: 1", "12"),
        "eval": ("nvidia.com/gpu: 4", "76"),
        "serve-small": ("nvidia.com/mig-1g.10gb: 1", "55"),
        "serve-large": ("nvidia.com/mig-3g.40gb: 1", "80"),
        **{f"chat-{n}": ("nvidia.com/gpu.shared: 1", str(35 + 12 * n)) for n in range(4)},
    }
    apply(*(POD.format(name=name, asks=ask, use=use, tolerate=TOLERATION) for name, (ask, use) in asks.items()))
    until(lambda: len(running_pods(api)) == 3 + len(asks), 60, "the pods run")
    apply(
        POD.format(name="forgot-the-toleration", asks="nvidia.com/gpu: 1", use="0", tolerate="restartPolicy: Never"),
        job_manifest("moe-train", 4, 8, queue="research"),
        job_manifest("finetune", 2, 8, queue="product"),
    )
    assert cluster.api.request("POST", "/windlass/sandbox", {"action": "fail", "target": "gpu/h100-3:6", "xid": 79})


def settled(page: Page) -> None:
    """Until what waits has been told why, the fault is seen, and everything is drawn."""
    page.wait_for_selector("#racks .gpu.busy")
    page.wait_for_selector("#racks .gpu.ill")
    for name in WAITING:
        row = page.locator(".jobs.waiting .job", has_text=name)
        expect(row.locator(".job-why")).not_to_contain_text("Waiting for the scheduler's decision", timeout=PATIENCE)
    page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")


def take_scenes(browser: Browser, folder: Path) -> None:
    with tempfile.TemporaryDirectory() as past:
        scene.record(Path(past))
        served = Served(simulated=False, history=Path(past))
        scene.fill(served)
        for name, place in SCENES.items():
            page = browser.new_context(viewport={"width": 1280, "height": 860}, color_scheme="light").new_page()
            page.goto(served.link())
            page.wait_for_selector("#link[data-state=live]")
            page.evaluate("(place) => { location.hash = place; }", place)
            if place != "#changes":
                page.get_by_role("button", name="6 hours").click()
            expect(page.locator(".panel:visible").first).to_be_visible()
            expect(page.locator("[aria-busy]")).to_have_count(0)
            take(page, folder, name)
        served.close()


def take(page: Page, folder: Path, name: str) -> None:
    page.screenshot(path=folder / f"{name}.png", animations="disabled")


def main(folder: Path) -> None:
    program = shutil.which("chromium")
    with (
        tempfile.TemporaryDirectory() as scratch,
        up(Path(scratch)) as cluster,
        sync_playwright() as playwright,
    ):
        work(cluster)
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        for name, width, height, colours in PICTURES:
            scheme: Any = colours
            size: Any = {"width": width, "height": height}
            page = browser.new_context(viewport=size, color_scheme=scheme).new_page()
            page.set_default_timeout(PATIENCE)
            page.goto(cluster.page)
            settled(page)
            take(page, folder, name)
            if name == "page-light":
                page.locator("#jobs .job", has_text="llama-pretrain").click()
                page.mouse.move(600, 800)
                expect(page.locator("#racks .gpu.lit")).to_have_count(16, timeout=PATIENCE)
                take(page, folder, "page-job")
        take_scenes(browser, folder)
        browser.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
