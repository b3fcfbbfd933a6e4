// The line at the top: how much of the fleet works.

import { byId, h, say } from "./dom";
import { doing, inUse, type World } from "./model";

export class Totals {
  private readonly used = h("b");
  private readonly words = h("span");
  private readonly shares = { busy: h("i", { class: "busy" }), ill: h("i", { class: "ill" }), off: h("i", { class: "off" }) };

  constructor(private readonly world: World) {
    const bar = h("span", { class: "meter", "aria-hidden": "true" }, ...Object.values(this.shares));
    byId("totals").append(h("p", {}, this.used, this.words), bar);
  }

  update(): void {
    const now = { all: 0, busy: 0, ill: 0, off: 0 };
    for (const node of this.world.nodes.values()) {
      for (const gpu of node.gpus) {
        now.all += 1;
        if (inUse(gpu, node)) now.busy += 1;
        const state = doing(gpu, node);
        if (state === "ill" || state === "off") now[state] += 1;
      }
    }
    let waiting = 0;
    for (const job of this.world.jobs.values()) waiting += Number(job.state === "waiting");
    say(this.used, now.busy.toLocaleString("en"));
    const lost = `${now.ill ? ` · ${now.ill} unhealthy` : ""}${now.off ? ` · ${now.off} unavailable` : ""}`;
    const waits = `${waiting.toLocaleString("en")} ${waiting === 1 ? "job waits" : "jobs wait"}`;
    say(this.words, ` of ${now.all.toLocaleString("en")} GPUs in use · ${waits}${lost}`);
    for (const name of ["busy", "ill", "off"] as const) {
      this.shares[name].style.setProperty("width", `${now.all ? (100 * now[name]) / now.all : 0}%`);
    }
    document.title = waiting ? `(${waiting}) Windlass` : "Windlass";
  }
}
