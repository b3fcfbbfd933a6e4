// The feed of events, the newest first.

import { byId, h } from "./dom";
import { clock } from "./format";
import type { News, World } from "./model";
import { selection } from "./selection";

const SHOWN = 80;

export class Feed {
  private readonly root = byId("events");
  private readonly made = new Map<string, [News, HTMLElement]>();

  constructor(private readonly world: World) {}

  update(): void {
    const newest = this.world.events.slice(-SHOWN).reverse();
    const elements = newest.map((news) => {
      const known = this.made.get(news.id);
      if (known && known[0] === news) return known[1];
      const element = this.item(news);
      this.made.set(news.id, [news, element]);
      return element;
    });
    elements.forEach((element, at) => {
      const there = this.root.children[at];
      if (there !== element) this.root.insertBefore(element, there ?? null);
    });
    while (this.root.children.length > elements.length) this.root.lastElementChild!.remove();
    if (this.made.size > 4 * SHOWN) {
      const kept = new Set(newest.map((news) => news.id));
      for (const id of this.made.keys()) if (!kept.has(id)) this.made.delete(id);
    }
    if (!elements.length) this.root.replaceChildren(h("li", { class: "empty" }, "Nothing has happened yet."));
  }

  private item(news: News): HTMLElement {
    const about = h("button", { class: "about", type: "button" }, `${news.kind.toLowerCase()}/${news.name}`);
    about.addEventListener("click", () => this.open(news));
    return h(
      "li",
      { class: `event ${news.type.toLowerCase()}` },
      h("time", {}, clock(news.at)),
      h("b", {}, news.reason, news.count > 1 ? h("small", {}, ` ×${news.count}`) : null),
      about,
      h("span", { class: "said" }, news.message),
    );
  }

  private open(news: News): void {
    if (news.kind === "Node") selection.set({ what: "node", name: news.name });
    else {
      const key = `${news.ns}/${news.kind}/${news.name}`;
      const job = this.world.jobs.get(key) ?? this.world.jobOfPod(`${news.ns}/${news.name}`);
      if (job) selection.set({ what: "job", key: job.key });
    }
  }
}
