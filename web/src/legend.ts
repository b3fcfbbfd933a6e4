// What GPUs do and how many do it: a sum that is kept right node by node.

import { byId, h, say } from "./dom";
import { DOING, doing, type Doing, type Node, type World } from "./model";
import { swatch } from "./swatch";

type Tally = Record<Doing, number>;

export class Legend {
  private readonly tallies = new Map<string, Tally>();
  private readonly sum = tally();
  private readonly items = new Map<Doing, [HTMLElement, HTMLElement]>();

  constructor(private readonly world: World) {
    for (const { doing: state, label, means } of DOING) {
      const number = h("b");
      const item = h("li", { title: means }, swatch(state), number, h("span", { class: "label" }, ` ${label}`));
      this.items.set(state, [item, number]);
      byId("legend").append(item);
    }
    this.show();
  }

  /** Only these nodes changed; all of them, if undefined. */
  update(names?: Iterable<string>): void {
    for (const name of names ?? new Set([...this.world.nodes.keys(), ...this.tallies.keys()])) this.count(name);
    this.show();
  }

  private count(name: string): void {
    const before = this.tallies.get(name);
    const node = this.world.nodes.get(name);
    const now = tallyOf(node);
    for (const { doing: state } of DOING) this.sum[state] += now[state] - (before?.[state] ?? 0);
    if (node) this.tallies.set(name, now);
    else this.tallies.delete(name);
  }

  private show(): void {
    for (const [state, [item, number]] of this.items) {
      say(number, this.sum[state].toLocaleString("en"));
      item.classList.toggle("none", this.sum[state] === 0);
    }
  }
}

function tally(): Tally {
  return { free: 0, busy: 0, shared: 0, mig: 0, ill: 0, off: 0 };
}

function tallyOf(node: Node | undefined): Tally {
  const made = tally();
  for (const gpu of node?.gpus ?? []) made[doing(gpu, node!)] += 1;
  return made;
}
