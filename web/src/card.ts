// One node on the grid: its name, a note, and its GPUs. For a screen reader it is a row.

import { Cell } from "./cell";
import { clipped } from "./clip";
import { h, say } from "./dom";
import { model } from "./format";
import type { Node } from "./model";

export class Card {
  readonly element: HTMLElement;
  private readonly name: HTMLElement;
  private readonly note = h("span", { class: "node-note", role: "presentation" });
  private readonly cells: Cell[];
  private seen: Node | undefined;
  private classes = "";
  private dimmed = false;

  constructor(node: Node, row: number) {
    this.cells = node.gpus.map((gpu) => new Cell(node, gpu));
    const body = h("div", { class: "gpus", role: "presentation" }, ...this.cells.map((cell) => cell.element));
    body.style.setProperty("--columns", String(columnsFor(node.gpus.length)));
    this.name = h(
      "button",
      { class: "node-name clip", type: "button", tabindex: -1, "data-node": node.name, title: node.name },
      ...clipped(node.name),
    );
    const head = h("div", { class: "node-head", role: "presentation" }, h("span", { role: "rowheader" }, this.name), this.note);
    const facts = { role: "row", "aria-rowindex": row, "aria-label": `node ${node.name}` };
    this.element = h("div", facts, head, this.cells.length ? body : null);
  }

  paint(node: Node): void {
    if (this.seen === node) return;
    this.seen = node;
    const note = noteOf(node);
    say(this.note, note);
    this.note.classList.toggle("bad", !node.ready);
    this.name.setAttribute("aria-label", `${node.name}, ${note}`);
    this.cells.forEach((cell, at) => cell.paint(node.gpus[at]!, node));
    this.light(node, this.dimmed);
  }

  /** Lights the GPUs that are meant; where some are meant at all, the others are dimmed. */
  light(node: Node, dimmed: boolean): void {
    this.dimmed = dimmed;
    let lit = 0;
    this.cells.forEach((cell, at) => (lit += Number(cell.light(node.gpus[at]!, node))));
    const off = !node.ready ? " not-ready" : node.cordoned ? " cordoned" : "";
    const dim = !dimmed ? "" : lit === 0 ? " dim" : " part";
    const classes = `node${off}${this.cells.length ? "" : " bare"}${dim}`;
    if (this.classes === classes) return;
    this.classes = classes;
    this.element.className = classes;
  }

  /** What the arrow keys stop at, in order. In a dense fleet names are not shown. */
  stops(): HTMLElement[] {
    const cells = this.cells.map((cell) => cell.element);
    return this.name.offsetParent === null ? cells : [this.name, ...cells];
  }
}

export function columnsFor(gpus: number): number {
  return gpus <= 4 ? Math.max(1, gpus) : gpus <= 8 ? Math.ceil(gpus / 2) : 8;
}

export function noteOf(node: Node): string {
  if (!node.ready) return "not ready";
  if (node.cordoned) return "cordoned";
  if (!node.gpus.length) return `${Math.round(node.cpu[0] / 100) / 10} of ${node.cpu[1] / 1000} CPUs`;
  const models = [...new Set(node.gpus.map((gpu) => gpu.model))];
  return models.length === 1 ? model(models[0]!).split(" ").slice(0, 2).join(" ") : `${models.length} models`;
}
