// The grid by keyboard: one stop for Tab, arrows between GPUs, Home and End, Enter opens, n opens the node.

import { byId } from "./dom";
import type { Fleet } from "./fleet";
import type { World } from "./model";
import { selection } from "./selection";

export function startGrid(fleet: Fleet, world: World): void {
  const root = byId("racks");
  root.addEventListener("click", (event) => {
    const target = (event.target as Element).closest<HTMLElement>("[data-node]");
    if (!target) return;
    open(target);
    if (target.dataset.gpu !== undefined) hold(target);
  });
  root.addEventListener("keydown", (event) => {
    const from = (event.target as Element).closest<HTMLElement>(".gpu");
    if (!from || event.altKey || event.ctrlKey || event.metaKey) return;
    if (event.key === "n") {
      selection.set({ what: "node", name: from.dataset.node! });
      event.preventDefault();
      return;
    }
    const to = next(from, event.key);
    if (!to) return;
    event.preventDefault();
    hold(to);
    to.focus();
    to.scrollIntoView({ block: "nearest" });
  });

  /** The cell that Tab comes back to. */
  function hold(cell: HTMLElement): void {
    root.querySelector('.gpu[tabindex="0"]')?.setAttribute("tabindex", "-1");
    cell.tabIndex = 0;
  }

  function next(from: HTMLElement, key: string): HTMLElement | undefined {
    const order = fleet.order();
    const at = order.indexOf(from.dataset.node!);
    const index = Number(from.dataset.gpu);
    const size = (name: string): number => world.nodes.get(name)?.gpus.length ?? 0;
    switch (key) {
      case "ArrowRight":
        if (index + 1 < size(order[at]!)) return fleet.cell(order[at]!, index + 1);
        return at + 1 < order.length ? fleet.cell(order[at + 1]!, 0) : undefined;
      case "ArrowLeft":
        if (index > 0) return fleet.cell(order[at]!, index - 1);
        return at > 0 ? fleet.cell(order[at - 1]!, size(order[at - 1]!) - 1) : undefined;
      case "ArrowDown":
        return beside(from, 1) ?? stepNode(order, at + 1, index);
      case "ArrowUp":
        return beside(from, -1) ?? stepNode(order, at - 1, index);
      case "PageDown":
        return stepNode(order, Math.min(order.length - 1, at + 8), index);
      case "PageUp":
        return stepNode(order, Math.max(0, at - 8), index);
      case "Home":
        return fleet.cell(order[at]!, 0);
      case "End":
        return fleet.cell(order[at]!, size(order[at]!) - 1);
      default:
        return undefined;
    }
  }

  function stepNode(order: string[], at: number, index: number): HTMLElement | undefined {
    const name = order[at];
    return name === undefined ? undefined : fleet.cell(name, Math.min(index, world.nodes.get(name)!.gpus.length - 1));
  }
}

function open(target: HTMLElement): void {
  const node = target.dataset.node!;
  const gpu = target.dataset.gpu;
  selection.set(gpu === undefined ? { what: "node", name: node } : { what: "gpu", node, index: Number(gpu) });
}

/** The nearest cell above or below, by where it is on the screen. */
function beside(from: HTMLElement, direction: 1 | -1): HTMLElement | undefined {
  const here = from.getBoundingClientRect();
  const middle = here.left + here.width / 2;
  let best: HTMLElement | undefined;
  let least = Infinity;
  for (const cell of document.querySelectorAll<HTMLElement>("#racks .gpu")) {
    const there = cell.getBoundingClientRect();
    const away = direction * (there.top - here.top);
    if (away <= 2) continue;
    const distance = away * 3 + Math.abs(there.left + there.width / 2 - middle);
    if (distance < least) [best, least] = [cell, distance];
  }
  return best;
}
