// One GPU on the grid: a small button whose look says what it does, and whose label says it in words.

import { h } from "./dom";
import { gpuMatches } from "./find";
import { count, model } from "./format";
import { doing, utilisation, type Gpu, type Node } from "./model";
import { selection } from "./selection";

/** A share or a slice: its part of the GPU, and how busy it is; undefined if it is free. */
export interface Block {
  size: number;
  util: number | undefined;
}

export class Cell {
  readonly element: HTMLElement;
  private look = "";
  private classes = "";
  private label = "";
  private cut = "";

  constructor(node: Node, gpu: Gpu) {
    this.element = h("button", {
      class: "gpu",
      type: "button",
      role: "gridcell",
      tabindex: -1,
      "data-node": node.name,
      "data-gpu": gpu.i,
    });
  }

  /** Shows this GPU. Called for every change of its node, so it touches only what differs. */
  paint(gpu: Gpu, node: Node): void {
    const state = doing(gpu, node);
    this.look = `gpu ${state} u${level(utilisation(gpu))}${gpu.uses.length ? " taken" : ""}`;
    const label = describe(gpu, node);
    if (this.label !== label) {
      this.label = label;
      this.element.setAttribute("aria-label", label);
    }
    this.paintBlocks(blocksOf(gpu, state));
    this.light(gpu, node);
  }

  /** Whether it is one of those that are lit. */
  light(gpu: Gpu, node: Node): boolean {
    const lit = isLit(gpu, node);
    const picked = isPicked(gpu, node);
    const classes = `${this.look}${lit ? " lit" : ""}${picked ? " picked" : ""}`;
    if (this.classes !== classes) {
      this.classes = classes;
      this.element.className = classes;
      this.element.ariaSelected = picked ? "true" : null;
    }
    return lit;
  }

  private paintBlocks(blocks: Block[]): void {
    const cut = blocks.map(({ size, util }) => `${size}:${util ?? "-"}`).join();
    if (this.cut === cut) return;
    this.cut = cut;
    this.element.replaceChildren(
      ...blocks.map(({ size, util }) => {
        const block = h("i", { class: util === undefined ? "" : `used u${level(util)}` });
        block.style.setProperty("flex-grow", String(size));
        return block;
      }),
    );
  }
}

/** Percent as one of the classes u0 to u20. */
function level(percent: number): number {
  return Math.round(Math.min(100, Math.max(0, percent)) / 5);
}

function isPicked(gpu: Gpu, node: Node): boolean {
  const picked = selection.now;
  return picked.what === "gpu" && picked.node === node.name && picked.index === gpu.i;
}

function isLit(gpu: Gpu, node: Node): boolean {
  const job = selection.litJob;
  if (job !== "") return gpu.uses.some((use) => use.job === job);
  return selection.sought !== "" && gpuMatches(gpu, node, selection.sought);
}

/** Shares and slices, those in use and those that are free. */
export function blocksOf(gpu: Gpu, state: string): Block[] {
  if (state === "mig") {
    const parts = [...(gpu.parts ?? [])].sort((a, b) => a.start - b.start);
    if (parts.length === 0) return [{ size: gpu.slices ?? 1, util: undefined }];
    return parts.map((part) => ({ size: part.size, util: part.pod === undefined ? undefined : (part.util ?? 0) }));
  }
  if (state !== "shared") return [];
  const used: Block[] = gpu.uses.map((use) => ({ size: use.milli, util: use.util }));
  if (gpu.slots) {
    const free = Math.max(0, gpu.slots - used.length);
    return [...used, ...Array.from({ length: free }, () => ({ size: 1000 / gpu.slots!, util: undefined }))];
  }
  const left = 1000 - gpu.uses.reduce((sum, use) => sum + use.milli, 0);
  return left > 0 ? [...used, { size: left, util: undefined }] : used;
}

/** The same in words, for the label and the tip. */
export function describe(gpu: Gpu, node: Node): string {
  return `${node.name} GPU ${gpu.i}, ${model(gpu.model)}: ${stateWords(gpu, node)}`;
}

export function stateWords(gpu: Gpu, node: Node): string {
  const users = [...new Set(gpu.uses.map((use) => use.pod))];
  const by = users.length ? ` by ${users.join(", ")}` : "";
  switch (doing(gpu, node)) {
    case "ill":
      return users.length ? `unhealthy, still used by ${users.join(", ")}` : "unhealthy";
    case "off":
      return node.ready ? "cordoned" : "node not ready";
    case "mig": {
      const parts = gpu.parts ?? [];
      const used = parts.filter((part) => part.pod !== undefined);
      const cut = parts.length ? parts.map((part) => part.profile).join(" + ") : "without instances";
      return `MIG ${cut}; ${used.length} of ${count(parts.length, "instance")} in use${by}`;
    }
    case "shared":
      return `shared, ${gpu.uses.length}${gpu.slots ? ` of ${gpu.slots} shares` : ""} in use${by}`;
    case "busy":
      return `${users.join(", ")}, ${Math.round(utilisation(gpu))} % busy`;
    default:
      return "free";
  }
}
