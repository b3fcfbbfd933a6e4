// The line at the top: how much of the fleet works.

import { byId, h, say } from "./dom";
import { taken, type World } from "./model";

export class Totals {
  private readonly used = h("b");
  private readonly words = h("span");
  private readonly bar = h("span", { class: "meter", role: "img" }, h("i", { class: "busy" }), h("i", { class: "ill" }), h("i", { class: "off" }));

  constructor(private readonly world: World) {
    byId("totals").append(h("p", {}, this.used, this.words), this.bar);
  }

  update(): void {
    let [all, used, ill, off] = [0, 0, 0, 0];
    for (const node of this.world.nodes.values()) {
      for (const gpu of node.gpus) {
        all += 1;
        if (gpu.ill) ill += 1;
        else if (!node.ready) off += 1;
        else if (taken(gpu)) used += 1;
      }
    }
    const waiting = [...this.world.jobs.values()].filter((job) => job.state === "waiting").length;
    say(this.used, `${used.toLocaleString("en")}`);
    const words = ` of ${all.toLocaleString("en")} GPUs in use · ${waiting} ${waiting === 1 ? "job waits" : "jobs wait"}`;
    say(this.words, words + (ill ? ` · ${ill} unhealthy` : ""));
    this.bar.setAttribute("aria-label", `${used}${words}`);
    const shares = [used, ill, off];
    [...this.bar.children].forEach((part, at) => {
      (part as HTMLElement).style.setProperty("width", `${all ? (100 * shares[at]!) / all : 0}%`);
    });
    document.title = waiting ? `(${waiting}) Windlass` : "Windlass";
  }
}
