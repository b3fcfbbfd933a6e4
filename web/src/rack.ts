// One rack on the page. Far from the screen it is an empty shell of about the right height: it has cards only when filled.

import { Card } from "./card";
import { clipped } from "./clip";
import { h, say } from "./dom";
import { count } from "./format";
import { inUse, type Node, type World } from "./model";
import type { Group } from "./racks";

export class Rack {
  readonly element: HTMLElement;
  readonly nodes: string[];
  private readonly use = h("span", { class: "rack-use" });
  private readonly body: HTMLElement;
  private readonly cards = new Map<string, Card>();

  /** `row` is the number of the first of its rows in the whole grid. */
  constructor(
    private readonly world: World,
    group: Group,
    readonly key: string,
    private readonly row: number,
  ) {
    this.nodes = group.nodes.map((node) => node.name);
    const bare = group.nodes.every((node) => node.gpus.length === 0);
    this.body = h("div", { class: "nodes shell", role: "presentation" });
    this.body.style.setProperty("--cards", String(group.nodes.length));
    const title = h("h3", { class: "clip", title: group.title, "aria-label": group.title }, ...clipped(group.title));
    this.element = h(
      "div",
      { class: `rack${bare ? " bare" : ""}`, role: "rowgroup", "aria-label": group.title },
      h("div", { class: "rack-head", role: "row", "aria-rowindex": row }, h("div", { role: "rowheader" }, title, this.use)),
      this.body,
    );
  }

  /** Of a grid: the heading's and one for each node. */
  get rows(): number {
    return 1 + this.nodes.length;
  }

  get filled(): boolean {
    return this.cards.size > 0;
  }

  /** Pixels that a card takes of the rack's height; 0 where that is not known. */
  get heightPerCard(): number {
    return this.filled ? this.body.offsetHeight / this.nodes.length : 0;
  }

  fill(dimmed: boolean): void {
    if (this.filled) return;
    this.nodes.forEach((name, at) => {
      const node = this.world.nodes.get(name);
      if (!node) return;
      const card = new Card(node, this.row + 1 + at);
      this.cards.set(name, card);
      card.paint(node);
      card.light(node, dimmed);
    });
    this.body.classList.remove("shell");
    this.body.style.minHeight = "";
    this.body.replaceChildren(...[...this.cards.values()].map((card) => card.element));
  }

  empty(): void {
    if (!this.filled || this.element.contains(document.activeElement)) return;
    this.body.style.minHeight = `${this.body.offsetHeight}px`;
    this.body.classList.add("shell");
    this.body.replaceChildren();
    this.cards.clear();
  }

  paint(name: string): void {
    const node = this.world.nodes.get(name);
    if (node) this.cards.get(name)?.paint(node);
  }

  light(dimmed: boolean): void {
    for (const [name, card] of this.cards) {
      const node = this.world.nodes.get(name);
      if (node) card.light(node, dimmed);
    }
  }

  paintHead(): void {
    const nodes = this.nodes.map((name) => this.world.nodes.get(name)).filter((node) => node !== undefined);
    say(this.use, useOf(nodes));
  }

  stops(name: string): HTMLElement[] {
    return this.cards.get(name)?.stops() ?? [];
  }
}

export function useOf(nodes: readonly Node[]): string {
  let [all, used, pods] = [0, 0, 0];
  for (const node of nodes) {
    all += node.gpus.length;
    used += node.gpus.filter((gpu) => inUse(gpu, node)).length;
    pods += node.pods;
  }
  return all ? `${used} of ${all} in use` : `${count(nodes.length, "node")}, ${count(pods, "pod")}`;
}
