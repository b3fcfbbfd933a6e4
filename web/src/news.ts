// The feed of events, the newest first.

import { clipped } from "./clip";
import { arrange, byId, h } from "./dom";
import { clock } from "./format";
import type { News, World } from "./model";
import { roving } from "./roving";
import { selection, type Selected } from "./selection";

const SHOWN = 80;

export class Feed {
  private readonly root = byId("events");
  private readonly made = new Map<string, [News, HTMLElement]>();
  private readonly stops = roving(this.root, "button.about");
  private readonly nothing = h("li", { class: "empty" }, "No events yet.");

  constructor(private readonly world: World) {}

  update(): void {
    const newest = this.world.events.slice(-SHOWN).reverse();
    const elements = newest.map((news) => this.element(news));
    arrange(this.root, elements.length ? elements : [this.nothing]);
    this.stops();
    const kept = new Set(newest.map((news) => news.id));
    for (const id of this.made.keys()) if (!kept.has(id)) this.made.delete(id);
  }

  private element(news: News): HTMLElement {
    const known = this.made.get(news.id);
    if (known && known[0] === news) return known[1];
    const element = this.item(news);
    this.made.set(news.id, [news, element]);
    return element;
  }

  private item(news: News): HTMLElement {
    const warns = news.type === "Warning";
    const times = news.count > 1 ? h("small", {}, ` ×${news.count}`) : null;
    return h(
      "li",
      { class: `event${warns ? " warning" : ""}` },
      h("time", {}, clock(news.at)),
      h("b", {}, warns ? h("span", { class: "unseen" }, "Warning: ") : null, news.reason, times),
      this.about(news),
      h("span", { class: "said" }, news.message),
    );
  }

  /** What it is about: a button, if the page has something to show of it. */
  private about(news: News): HTMLElement {
    const words = `${news.kind.toLowerCase()}/${news.name}`;
    if (!canOpen(news, this.world)) return h("span", { class: "about clip", title: words }, ...clipped(words));
    const button = h("button", { class: "about clip", type: "button", tabindex: -1, title: words, "aria-label": words }, ...clipped(words));
    button.addEventListener("click", () => selection.set(aboutWhat(news, this.world)));
    return button;
  }
}

export function canOpen(news: News, world: World): boolean {
  return news.kind === "Node" || news.kind === "Pod" || world.jobs.has(keyOf(news));
}

/** A pod is shown as its job; what is gone, as gone. */
export function aboutWhat(news: News, world: World): Selected {
  if (news.kind === "Node") return { what: "node", name: news.name };
  const key = keyOf(news);
  if (world.jobs.has(key) || news.kind !== "Pod") return { what: "job", key };
  return { what: "job", key: world.jobOfPod(`${news.ns}/${news.name}`)?.key ?? key };
}

function keyOf(news: News): string {
  return `${news.ns}/${news.kind}/${news.name}`;
}
