// The grid: racks, nodes, GPUs. Racks far from the screen are shells, and changes are painted a few each frame, so that
// tens of thousands of GPUs cost no more than those that are seen.

import { byId, say } from "./dom";
import { gpuMatches } from "./find";
import { Frames } from "./frames";
import type { World } from "./model";
import { groups, placeOf } from "./racks";
import { Rack } from "./rack";
import { selection } from "./selection";

/** So far from what is seen a rack is filled: the page scrolls on a phone, the column on a wider screen. */
const NEAR: IntersectionObserverInit & { scrollMargin: string } = { rootMargin: "600px 0px", scrollMargin: "600px 0px" };
/** So many racks may stay filled, wherever they are. */
const FEW_RACKS = 24;
/** Total GPUs up to which cells have this size. */
const DENSITIES: readonly [number, string][] = [
  [200, "roomy"],
  [1600, "compact"],
  [Infinity, "dense"],
];

export class Fleet {
  private racks: Rack[] = [];
  private readonly rackOf = new Map<string, Rack>();
  private readonly rackAt = new Map<Element, Rack>();
  /** Node → where it stands and how many GPUs it has: a change of these moves cards. */
  private readonly places = new Map<string, string>();
  private readonly frames = new Frames();
  private readonly root = byId("racks");
  private readonly near = new IntersectionObserver((entries) => this.scrolled(entries), NEAR);

  constructor(private readonly world: World) {
    selection.listen(() => this.light());
  }

  /** Only these nodes changed; all of them, if undefined. */
  update(names?: Iterable<string>): void {
    const changed = [...(names ?? this.world.nodes.keys())];
    if (this.places.size !== this.world.nodes.size || changed.some((name) => this.hasMoved(name))) this.rebuild();
    else {
      for (const name of changed) this.touch(name);
    }
    byId("no-nodes").hidden = this.racks.length > 0;
    say(byId("no-nodes"), "No nodes yet. They appear here as soon as they register.");
  }

  /** What the arrow keys stop at on this node, made if it was far from the screen. */
  stops(node: string): HTMLElement[] {
    const rack = this.rackOf.get(node);
    rack?.fill(this.isDimmed());
    return rack?.stops(node) ?? [];
  }

  /** All nodes, as they stand on the page. */
  order(): string[] {
    return this.racks.flatMap((rack) => rack.nodes);
  }

  /** Brings the first that is looked for into sight. */
  reveal(text: string): void {
    const name = this.order().find((each) => {
      const node = this.world.nodes.get(each);
      return node && (each.includes(text) || node.gpus.some((gpu) => gpuMatches(gpu, node, text)));
    });
    if (name) this.stops(name)[0]?.closest(".node")?.scrollIntoView({ block: "nearest" });
  }

  /** Whether something is lit, so that the rest steps back; a job that waits has no GPUs to light. */
  private isDimmed(): boolean {
    const job = selection.litJob;
    return job !== "" ? (this.world.jobs.get(job)?.holds ?? 0) > 0 : selection.sought !== "";
  }

  private touch(name: string): void {
    const rack = this.rackOf.get(name);
    if (!rack) return;
    if (rack.filled) this.frames.ask(`node ${name}`, () => rack.paint(name));
    this.frames.ask(`head ${rack.key}`, () => rack.paintHead());
  }

  private light(): void {
    for (const rack of this.racks) {
      if (rack.filled) this.frames.ask(`light ${rack.key}`, () => rack.light(this.isDimmed()));
    }
  }

  private hasMoved(name: string): boolean {
    const node = this.world.nodes.get(name);
    return (node && placeOf(node)) !== this.places.get(name);
  }

  private rebuild(): void {
    const held = this.root.querySelector<HTMLElement>('[tabindex="0"]')?.dataset;
    const hadFocus = this.root.contains(document.activeElement);
    this.forget();
    let row = 1;
    for (const group of groups(this.world.nodes.values())) {
      const rack = new Rack(this.world, group, String(this.racks.length), row);
      row += rack.rows;
      this.racks.push(rack);
      this.rackAt.set(rack.element, rack);
      for (const name of rack.nodes) this.rackOf.set(name, rack);
      rack.paintHead();
    }
    const total = [...this.world.nodes.values()].reduce((sum, node) => sum + node.gpus.length, 0);
    this.root.dataset.density = DENSITIES.find(([most]) => total <= most)![1];
    this.root.setAttribute("aria-rowcount", String(row - 1));
    this.root.replaceChildren(...this.racks.map((rack) => rack.element));
    for (const rack of this.racks) this.near.observe(rack.element);
    this.holdAgain(held, hadFocus);
    this.sizeShells();
  }

  /** What is not drawn yet is taken to be as high as what is: else things jump while one scrolls. */
  private sizeShells(): void {
    const height = this.racks.find((rack) => rack.filled)?.heightPerCard;
    if (height) this.root.style.setProperty("--card-height", `${height}px`);
  }

  private forget(): void {
    this.near.disconnect();
    this.frames.clear();
    this.racks = [];
    this.rackOf.clear();
    this.rackAt.clear();
    this.places.clear();
    for (const node of this.world.nodes.values()) this.places.set(node.name, placeOf(node));
  }

  private scrolled(entries: IntersectionObserverEntry[]): void {
    for (const entry of entries) {
      const rack = this.rackAt.get(entry.target);
      if (!rack) continue;
      if (entry.isIntersecting) this.frames.ask(`fill ${rack.key}`, () => rack.fill(this.isDimmed()));
      else if (this.racks.length > FEW_RACKS) this.frames.ask(`fill ${rack.key}`, () => rack.empty());
    }
  }

  /** One cell takes the Tab key, the same as before if it is still there; arrows move it on. */
  private holdAgain(held: DOMStringMap | undefined, hadFocus: boolean): void {
    const before = held?.node === undefined ? [] : this.stops(held.node);
    const same = before.find((stop) => stop.dataset.gpu === held?.gpu);
    const order = this.order();
    const first = order.find((name) => this.world.nodes.get(name)?.gpus.length) ?? order[0];
    const stop = same ?? (first === undefined ? undefined : this.firstOf(first));
    if (!stop) return;
    stop.tabIndex = 0;
    if (hadFocus) stop.focus({ preventScroll: true });
  }

  private firstOf(name: string): HTMLElement | undefined {
    const stops = this.stops(name);
    return stops.find((stop) => stop.dataset.gpu !== undefined) ?? stops[0];
  }
}
