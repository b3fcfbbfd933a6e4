// The panel with the details of what is selected. Its content is made anew on every change and patched in, so that the
// focus, an open choice and marked text stay; clicks are therefore handled here, by what the content says of itself.

import { gpuContent, type Xid } from "./about-gpu";
import { jobContent } from "./about-job";
import { nodeContent } from "./about-node";
import { byId, h, patch } from "./dom";
import { title } from "./facts";
import { fault } from "./live";
import type { World } from "./model";
import { selection, type Selected } from "./selection";
import { toast } from "./toast";

export class Details {
  private readonly root = byId("details");
  private shown: Selected = { what: "none" };
  private from: Element | null = null;
  private xid: Xid = 79;

  constructor(private readonly world: World) {
    selection.listen(() => {
      if (selection.now !== this.shown) this.show(selection.now);
    });
    this.root.addEventListener("click", (event) => this.clicked(event));
    this.root.addEventListener("change", (event) => {
      if (event.target instanceof HTMLSelectElement) this.xid = Number(event.target.value) as Xid;
      this.update();
    });
  }

  update(): void {
    const content = this.content();
    this.root.hidden = content === null;
    document.body.classList.toggle("has-details", content !== null);
    if (content !== null) patch(this.root, [closeButton(), ...content]);
  }

  private show(selected: Selected): void {
    const opened = this.shown.what === "none";
    if (opened) this.from = document.activeElement;
    this.shown = selected;
    const inside = this.root.contains(document.activeElement);
    this.root.replaceChildren();
    this.update();
    this.root.scrollTop = 0;
    if (selected.what === "none") this.goBack();
    else if (opened || inside) this.root.focus({ preventScroll: true });
  }

  /** To where the focus was; to the grid, if that is gone. */
  private goBack(): void {
    const there = this.from instanceof HTMLElement && this.from.isConnected && this.from !== document.body;
    const target = there ? (this.from as HTMLElement) : document.querySelector<HTMLElement>('#racks [tabindex="0"]');
    target?.focus({ preventScroll: true });
  }

  private content(): Node[] | null {
    const selected = this.shown;
    switch (selected.what) {
      case "none":
        return null;
      case "job": {
        const job = this.world.jobs.get(selected.key);
        return job ? jobContent(job, this.world) : gone(selected.key);
      }
      case "node": {
        const node = this.world.nodes.get(selected.name);
        return node ? nodeContent(node, this.world) : gone(selected.name);
      }
      case "gpu": {
        const node = this.world.nodes.get(selected.node);
        const gpu = node?.gpus[selected.index];
        return node && gpu ? gpuContent(node, gpu, this.world, this.xid) : gone(`GPU ${selected.index} of ${selected.node}`);
      }
    }
  }

  private clicked(event: Event): void {
    const button = (event.target as Element).closest<HTMLElement>("button");
    if (!button || button.ariaDisabled === "true") return;
    const { job, node, gpu, act, target, xid } = button.dataset;
    if (act === "close") selection.set({ what: "none" });
    else if (act === "fail" || act === "heal") void fault(act, target!, xid ? Number(xid) : undefined).then(toast);
    else if (job !== undefined) selection.set({ what: "job", key: job });
    else if (node !== undefined && gpu !== undefined) selection.set({ what: "gpu", node, index: Number(gpu) });
    else if (node !== undefined) selection.set({ what: "node", name: node });
  }
}

function closeButton(): HTMLElement {
  return h("button", { class: "icon close", type: "button", "aria-label": "Close", title: "Close (Escape)", "data-act": "close" }, "✕");
}

function gone(name: string): HTMLElement[] {
  return [title("Gone", name), h("p", {}, "It has been deleted.")];
}
