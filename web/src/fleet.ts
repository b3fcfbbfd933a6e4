// The grid: racks, nodes, GPUs. Racks far from the screen are empty shells of the right height, so that tens of
// thousands of GPUs cost no more than those that are seen.

import { paintCell, stateWords } from "./cell";
import { byId, h, say } from "./dom";
import { count, model } from "./format";
import { DOING, doing, taken, type Doing, type Gpu, type Node, type World } from "./model";
import { selection } from "./selection";

const MOST_IN_RACK = 64;
/** So far from what is seen a rack is filled: the page scrolls on a phone, the column on a wider screen. */
const NEAR: IntersectionObserverInit & { scrollMargin: string } = { rootMargin: "600px 0px", scrollMargin: "600px 0px" };
/** Total GPUs up to which cells have this size. */
const DENSITIES: readonly [number, string][] = [
  [200, "roomy"],
  [1600, "compact"],
  [Infinity, "dense"],
];

type Tally = Record<Doing, number>;

interface Rack {
  key: string;
  title: string;
  nodes: string[];
  section: HTMLElement;
  head: HTMLElement;
  body: HTMLElement;
  cards: Map<string, Card>;
  filled: boolean;
}

interface Card {
  element: HTMLElement;
  name: HTMLElement;
  note: HTMLElement;
  cells: HTMLElement[];
  seen: Node | undefined;
}

export class Fleet {
  private racks: Rack[] = [];
  private rackOf = new Map<string, Rack>();
  /** Node → where it stands and how many GPUs it has: a change of these moves cards. */
  private readonly places = new Map<string, string>();
  private readonly tallies = new Map<string, Tally>();
  private readonly sum: Tally = tally();
  private found = "";
  private readonly root = byId("racks");
  private readonly near = new IntersectionObserver((entries) => this.scrolled(entries), NEAR);

  constructor(private readonly world: World) {
    selection.listen(() => this.light());
  }

  /** Only these nodes changed; all of them, if undefined. */
  update(names?: Iterable<string>): void {
    const changed = names === undefined ? [...this.world.nodes.keys()] : [...names];
    const moved = changed.filter((name) => this.hasMoved(name));
    if (moved.length > 0 || this.places.size !== this.world.nodes.size) {
      this.rebuild();
      names = undefined;
    }
    const touched = new Set<Rack>();
    for (const name of names ?? new Set([...this.world.nodes.keys(), ...this.tallies.keys()])) {
      this.count(name);
      const rack = this.rackOf.get(name);
      if (!rack) continue;
      touched.add(rack);
      if (rack.filled) this.paint(rack, name);
    }
    for (const rack of touched) this.paintHead(rack);
    this.paintLegend();
  }

  find(text: string): void {
    this.found = text;
    this.light();
  }

  /** The cell of a GPU, made if it was far from the screen. */
  cell(node: string, index: number): HTMLElement | undefined {
    const rack = this.rackOf.get(node);
    if (!rack) return undefined;
    this.fill(rack);
    return rack.cards.get(node)?.cells[index];
  }

  /** All nodes with GPUs, as they stand on the page. */
  order(): string[] {
    return this.racks.flatMap((rack) => rack.nodes).filter((name) => this.world.nodes.get(name)?.gpus.length);
  }

  private light(): void {
    const lit = selection.litJob;
    this.root.classList.toggle("has-lit", lit !== "" || this.found !== "");
    for (const rack of this.racks) {
      if (!rack.filled) continue;
      for (const [name, card] of rack.cards) {
        const node = this.world.nodes.get(name);
        if (node) card.cells.forEach((cell, at) => paintCell(cell, node.gpus[at]!, node, lit, this.found));
      }
    }
  }

  private hasMoved(name: string): boolean {
    const node = this.world.nodes.get(name);
    return (node && placeOf(node)) !== this.places.get(name);
  }

  private rebuild(): void {
    const groups = new Map<string, Node[]>();
    this.places.clear();
    for (const node of this.world.nodes.values()) {
      this.places.set(node.name, placeOf(node));
      const key = groupOf(node);
      const list = groups.get(key);
      if (list) list.push(node);
      else groups.set(key, [node]);
    }
    this.near.disconnect();
    this.racks = [];
    this.rackOf.clear();
    for (const [key, nodes] of [...groups].sort(([a], [b]) => a.localeCompare(b, "en", { numeric: true }))) {
      nodes.sort((a, b) => a.name.localeCompare(b.name, "en", { numeric: true }));
      for (let first = 0; first < nodes.length; first += MOST_IN_RACK) {
        this.addRack(key, nodes, first);
      }
    }
    const total = [...this.world.nodes.values()].reduce((sum, node) => sum + node.gpus.length, 0);
    this.root.dataset.density = DENSITIES.find(([most]) => total <= most)![1];
    this.root.replaceChildren(...this.racks.map((rack) => rack.section));
    if (this.racks.length === 0) {
      this.root.append(h("p", { class: "empty" }, "No nodes yet. They appear here as soon as they register."));
    }
    for (const rack of this.racks) this.near.observe(rack.section);
    this.firstFocusable();
  }

  private addRack(key: string, nodes: Node[], first: number): void {
    const mine = nodes.slice(first, first + MOST_IN_RACK);
    const part = nodes.length > MOST_IN_RACK ? ` · ${first + 1}–${first + mine.length}` : "";
    const head = h("span", { class: "rack-use" });
    const title = titleOf(mine[0]!) + part;
    const body = h("div", { class: "nodes", role: "presentation" });
    body.style.setProperty("--cards", String(mine.length));
    const section = h(
      "section",
      { class: `rack${mine.some((node) => node.gpus.length) ? "" : " bare"}`, role: "rowgroup", "aria-label": title },
      h("header", { class: "rack-head" }, h("h3", {}, title), head),
      body,
    );
    const rack: Rack = {
      key,
      title,
      nodes: mine.map((node) => node.name),
      section,
      head,
      body,
      cards: new Map(),
      filled: false,
    };
    for (const name of rack.nodes) this.rackOf.set(name, rack);
    this.racks.push(rack);
    if (this.racks.length <= 12) this.fill(rack);
    else this.empty(rack);
  }

  private scrolled(entries: IntersectionObserverEntry[]): void {
    for (const entry of entries) {
      const rack = this.racks.find((one) => one.section === entry.target);
      if (!rack) continue;
      if (entry.isIntersecting) this.fill(rack);
      else if (this.racks.length > 24 && !rack.section.contains(document.activeElement)) {
        rack.body.style.minHeight = `${rack.body.offsetHeight}px`;
        this.empty(rack);
      }
    }
  }

  private empty(rack: Rack): void {
    rack.filled = false;
    rack.cards.clear();
    rack.body.replaceChildren();
    rack.body.classList.add("shell");
  }

  private fill(rack: Rack): void {
    if (rack.filled) return;
    rack.filled = true;
    rack.body.classList.remove("shell");
    rack.body.style.minHeight = "";
    for (const name of rack.nodes) {
      const node = this.world.nodes.get(name);
      if (node) rack.cards.set(name, makeCard(node));
    }
    rack.body.replaceChildren(...[...rack.cards.values()].map((card) => card.element));
    for (const name of rack.nodes) this.paint(rack, name);
  }

  private paint(rack: Rack, name: string): void {
    const node = this.world.nodes.get(name);
    const card = rack.cards.get(name);
    if (!node || !card || card.seen === node) return;
    card.seen = node;
    const off = !node.ready ? " not-ready" : node.cordoned ? " cordoned" : "";
    const classes = `node${off}${node.gpus.length ? "" : " bare"}`;
    if (card.element.className !== classes) card.element.className = classes;
    say(card.note, noteOf(node));
    card.note.classList.toggle("bad", !node.ready);
    card.cells.forEach((cell, at) => {
      const gpu = node.gpus[at];
      if (gpu) paintCell(cell, gpu, node, selection.litJob, this.found);
    });
  }

  private paintHead(rack: Rack): void {
    const nodes = rack.nodes.map((name) => this.world.nodes.get(name)).filter((node) => node !== undefined);
    const gpus = nodes.flatMap((node) => node.gpus);
    const used = gpus.filter(taken).length;
    const text = gpus.length
      ? `${used} of ${gpus.length} in use`
      : `${count(nodes.length, "node")}, ${count(nodes.reduce((sum, node) => sum + node.pods, 0), "pod")}`;
    say(rack.head, text);
  }

  /** Keeps the sum of all nodes right when one of them has changed. */
  private count(name: string): void {
    const before = this.tallies.get(name);
    const node = this.world.nodes.get(name);
    const now = tally();
    for (const gpu of node?.gpus ?? []) now[doing(gpu, node!)] += 1;
    for (const { doing: state } of DOING) this.sum[state] += now[state] - (before?.[state] ?? 0);
    if (node) this.tallies.set(name, now);
    else this.tallies.delete(name);
  }

  private paintLegend(): void {
    const legend = byId("legend");
    if (!legend.firstElementChild) {
      legend.append(
        ...DOING.map(({ doing: state, label, means }) =>
          h("li", { title: means }, h("span", { class: `gpu ${state} swatch taken` }), h("b", {}), ` ${label}`),
        ),
      );
      for (const swatch of legend.querySelectorAll<HTMLElement>(".swatch")) {
        swatch.style.setProperty("--u", "0.7");
        if (swatch.classList.contains("shared") || swatch.classList.contains("mig")) {
          swatch.append(h("i", { class: "used" }), h("i", { class: "used" }), h("i"));
        }
      }
    }
    DOING.forEach(({ doing: state }, at) => {
      const item = legend.children[at] as HTMLElement;
      say(item.querySelector("b")!, String(this.sum[state]));
      item.classList.toggle("none", this.sum[state] === 0);
    });
  }

  /** One cell takes the Tab key; arrows move it on. */
  private firstFocusable(): void {
    if (this.root.querySelector('.gpu[tabindex="0"]')) return;
    const first = this.order()[0];
    const cell = first && this.cell(first, 0);
    if (cell) cell.tabIndex = 0;
  }
}

function makeCard(node: Node): Card {
  const name = h(
    "button",
    { class: "node-name", type: "button", tabindex: -1, "data-node": node.name, title: node.name, role: "rowheader" },
    node.name,
  );
  const note = h("span", { class: "node-note" });
  const cells = node.gpus.map((gpu) =>
    h("button", { class: "gpu", type: "button", role: "gridcell", tabindex: -1, "data-node": node.name, "data-gpu": gpu.i }),
  );
  const body = h("div", { class: "gpus", role: "presentation" }, ...cells);
  body.style.setProperty("--columns", String(columnsFor(node.gpus.length)));
  const element = h(
    "div",
    { class: "node", role: "row", "aria-label": `node ${node.name}` },
    h("div", { class: "node-head", role: "presentation" }, name, note),
    node.gpus.length ? body : null,
  );
  return { element, name, note, cells, seen: undefined };
}

export function columnsFor(gpus: number): number {
  return gpus <= 4 ? Math.max(1, gpus) : gpus <= 8 ? Math.ceil(gpus / 2) : 8;
}

function tally(): Tally {
  return { free: 0, busy: 0, shared: 0, mig: 0, ill: 0, off: 0 };
}

function placeOf(node: Node): string {
  return `${groupOf(node)}|${node.gpus.length}`;
}

function groupOf(node: Node): string {
  if (!node.gpus.length) return "9";
  return node.rack ? `0/${node.zone}/${node.rack}` : `1/${node.zone}/${node.product ?? ""}`;
}

function titleOf(node: Node): string {
  if (!node.gpus.length) return "CPU nodes";
  return node.rack || (node.zone ? `${node.zone}, no rack` : "No rack");
}

function noteOf(node: Node): string {
  if (!node.ready) return "not ready";
  if (node.cordoned) return "cordoned";
  if (!node.gpus.length) return `${Math.round(node.cpu[0] / 100) / 10} of ${node.cpu[1] / 1000} CPUs`;
  const models = [...new Set(node.gpus.map((gpu: Gpu) => gpu.model))];
  return models.length === 1 ? model(models[0]!).split(" ").slice(0, 2).join(" ") : `${models.length} models`;
}

/** The tip that follows the pointer. */
export function tipOf(gpu: Gpu, node: Node): [string, string] {
  return [`${node.name} · GPU ${gpu.i}`, stateWords(gpu, node)];
}
