// One GPU on the grid: a small button whose look says what it does, and whose label says it in words.

import { h } from "./dom";
import { count, model } from "./format";
import { doing, utilisation, type Gpu, type Node } from "./model";
import { selection } from "./selection";

/** Makes the cell show this GPU. Called for every change of its node, so it touches only what differs. */
export function paintCell(cell: HTMLElement, gpu: Gpu, node: Node, lit: string, found: string): void {
  const state = doing(gpu, node);
  const isLit = lit !== "" && gpu.uses.some((use) => use.job === lit);
  const isFound = found !== "" && matches(gpu, node, found);
  const classes = `gpu ${state}${isLit || isFound ? " lit" : ""}${gpu.uses.length ? " taken" : ""}${isPicked(gpu, node) ? " picked" : ""}`;
  if (cell.className !== classes) cell.className = classes;
  const label = describe(gpu, node);
  if (cell.getAttribute("aria-label") !== label) cell.setAttribute("aria-label", label);
  const level = (utilisation(gpu) / 100).toFixed(2);
  if (cell.style.getPropertyValue("--u") !== level) cell.style.setProperty("--u", level);
  paintParts(cell, gpu, state);
}

function isPicked(gpu: Gpu, node: Node): boolean {
  const picked = selection.now;
  return picked.what === "gpu" && picked.node === node.name && picked.index === gpu.i;
}

function matches(gpu: Gpu, node: Node, text: string): boolean {
  return node.name.includes(text) || gpu.uses.some((use) => use.job.includes(text) || use.pod.includes(text));
}

/** Shares and slices: one block each. */
function paintParts(cell: HTMLElement, gpu: Gpu, state: string): void {
  const blocks: [number, boolean, number][] = [];
  if (state === "mig") {
    const parts = [...(gpu.parts ?? [])].sort((a, b) => a.start - b.start);
    for (const part of parts) blocks.push([part.size, part.pod !== undefined, part.util ?? 0]);
    const left = (gpu.slices ?? 8) - parts.reduce((sum, part) => sum + part.size, 0);
    if (left > 0 && parts.length === 0) blocks.push([left, false, 0]);
  } else if (state === "shared") {
    for (const use of gpu.uses) blocks.push([use.milli, true, use.util]);
    const slots = gpu.slots ?? 0;
    for (let free = gpu.uses.length; free < slots; free += 1) blocks.push([1000 / slots, false, 0]);
    const used = gpu.uses.reduce((sum, use) => sum + use.milli, 0);
    if (!slots && used < 1000) blocks.push([1000 - used, false, 0]);
  }
  const signature = blocks.map(([size, used, util]) => `${size}${used ? "x" : "o"}${util}`).join();
  if (cell.dataset.parts === signature) return;
  cell.dataset.parts = signature;
  cell.replaceChildren(
    ...blocks.map(([size, used, util]) => {
      const block = h("i", { class: used ? "used" : "" });
      block.style.setProperty("flex-grow", String(size));
      block.style.setProperty("--u", (util / 100).toFixed(2));
      return block;
    }),
  );
}

/** The same in words, for the label and the tip. */
export function describe(gpu: Gpu, node: Node): string {
  return `${node.name} GPU ${gpu.i}, ${model(gpu.model)}: ${stateWords(gpu, node)}`;
}

export function stateWords(gpu: Gpu, node: Node): string {
  const users = [...new Set(gpu.uses.map((use) => use.pod))];
  switch (doing(gpu, node)) {
    case "ill":
      return users.length ? `unhealthy, ${users.join(", ")} still on it` : "unhealthy";
    case "off":
      return node.ready ? "cordoned" : "node not ready";
    case "mig": {
      const parts = gpu.parts ?? [];
      const used = parts.filter((part) => part.pod !== undefined);
      const cut = parts.length ? parts.map((part) => part.profile).join(" + ") : "not cut yet";
      return `MIG ${cut}; ${used.length} of ${count(parts.length, "slice")} in use${users.length ? ` by ${users.join(", ")}` : ""}`;
    }
    case "shared": {
      const of = gpu.slots ? ` of ${gpu.slots} shares` : "";
      return `shared, ${gpu.uses.length}${of} in use${users.length ? ` by ${users.join(", ")}` : ""}`;
    }
    case "busy":
      return `${users.join(", ")}, ${Math.round(utilisation(gpu))} % busy`;
    default:
      return "free";
  }
}
