// The grid by keyboard: one stop for Tab, arrows between nodes' names and GPUs, Enter opens, n opens the node.

import { byId } from "./dom";
import type { Fleet } from "./fleet";
import { letters } from "./keys";
import { selection } from "./selection";

const STOPS = ":is(.gpu, .node-name)";
/** Nodes that PageUp and PageDown pass. */
const PAGE = 8;
/** Pixels up and down in which the next row is looked for. */
const REACH = 500;

export function startGrid(fleet: Fleet): void {
  const root = byId("racks");
  root.addEventListener("click", (event) => {
    const target = (event.target as Element).closest<HTMLElement>(STOPS);
    if (!target) return;
    hold(root, target);
    open(target);
  });
  root.addEventListener("keydown", (event) => {
    const from = (event.target as Element).closest<HTMLElement>(STOPS);
    if (!from || event.altKey || event.metaKey) return;
    if (event.key === "n" && letters.on && !event.ctrlKey) {
      selection.set({ what: "node", name: from.dataset.node! });
      event.preventDefault();
      return;
    }
    const to = next(fleet, from, event.ctrlKey ? `Control+${event.key}` : event.key);
    if (!to) return;
    event.preventDefault();
    hold(root, to);
    to.scrollIntoView({ block: "nearest" });
    to.focus({ preventScroll: true });
  });
}

function open(target: HTMLElement): void {
  const node = target.dataset.node!;
  const gpu = target.dataset.gpu;
  selection.set(gpu === undefined ? { what: "node", name: node } : { what: "gpu", node, index: Number(gpu) });
}

/** The stop that Tab comes back to. */
function hold(root: HTMLElement, stop: HTMLElement): void {
  root.querySelector('[tabindex="0"]')?.setAttribute("tabindex", "-1");
  stop.tabIndex = 0;
}

function next(fleet: Fleet, from: HTMLElement, key: string): HTMLElement | undefined {
  const order = fleet.order();
  const at = order.indexOf(from.dataset.node!);
  const here = fleet.stops(order[at] ?? "");
  const index = here.indexOf(from);
  const stops = (node: number): HTMLElement[] => fleet.stops(order[node] ?? "");
  const pages = (node: number): HTMLElement | undefined => {
    const there = stops(Math.min(order.length - 1, Math.max(0, node)));
    return there[Math.min(index, there.length - 1)];
  };
  switch (key) {
    case "ArrowRight":
      return here[index + 1] ?? stops(at + 1)[0];
    case "ArrowLeft":
      return here[index - 1] ?? stops(at - 1).at(-1);
    case "ArrowDown":
      return beside(from, 1) ?? pages(at + 1);
    case "ArrowUp":
      return beside(from, -1) ?? pages(at - 1);
    case "PageDown":
      return pages(at + PAGE);
    case "PageUp":
      return pages(at - PAGE);
    case "Home":
      return here[0];
    case "End":
      return here.at(-1);
    case "Control+Home":
      return stops(0)[0];
    case "Control+End":
      return stops(order.length - 1).at(-1);
    default:
      return undefined;
  }
}

/** The nearest stop above or below, by where it is on the screen. */
function beside(from: HTMLElement, direction: 1 | -1): HTMLElement | undefined {
  const here = from.getBoundingClientRect();
  let best: HTMLElement | undefined;
  let least = Infinity;
  for (const rack of document.querySelectorAll("#racks .rack")) {
    const around = rack.getBoundingClientRect();
    if (around.bottom < here.top - REACH || around.top > here.bottom + REACH) continue;
    for (const stop of rack.querySelectorAll<HTMLElement>(STOPS)) {
      const there = stop.getBoundingClientRect();
      const away = direction * (there.top - here.top);
      if (away <= 2 || there.width === 0) continue;
      const distance = away * 3 + sideways(here, there);
      if (distance < least) [best, least] = [stop, distance];
    }
  }
  return best;
}

/** How far to the side it is; nothing, if one stands over the other. */
function sideways(here: DOMRect, there: DOMRect): number {
  const middle = here.left + here.width / 2;
  return Math.max(0, there.left - middle, middle - there.right);
}
