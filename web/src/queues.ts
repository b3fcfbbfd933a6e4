// ClusterQueues: what each may use, what it uses, what it has borrowed.

import { byId, h } from "./dom";
import type { Queue, World } from "./model";

export class Queues {
  private readonly root = byId("queues");

  constructor(private readonly world: World) {}

  update(): void {
    const all = [...this.world.queues.values()].filter((queue) => queue.quota.length).sort((a, b) => (a.name < b.name ? -1 : 1));
    this.root.hidden = all.length === 0;
    this.root.replaceChildren(
      h("div", { class: "section-head" }, h("h2", {}, "Quotas")),
      ...all.flatMap((queue) => queue.quota.map((quota) => bar(queue, quota))),
    );
  }
}

function bar(queue: Queue, quota: Queue["quota"][number]): HTMLElement {
  const scale = Math.max(quota.nominal, quota.used, 1);
  const own = h("i", { class: "own" });
  own.style.setProperty("width", `${(100 * (quota.used - quota.borrowed)) / scale}%`);
  const lent = h("i", { class: "borrowed" });
  lent.style.setProperty("width", `${(100 * quota.borrowed) / scale}%`);
  const mark = h("i", { class: "nominal" });
  mark.style.setProperty("left", `${(100 * quota.nominal) / scale}%`);
  const resource = quota.resource.replace("nvidia.com/", "");
  const words = `${quota.used} of ${quota.nominal} ${resource === "gpu" ? "GPUs" : resource}`;
  const more = [
    quota.borrowed ? `${quota.borrowed} borrowed` : "",
    queue.pending ? `${queue.pending} waiting` : "",
  ].filter(Boolean);
  return h(
    "div",
    { class: "queue", title: queue.cohort ? `cohort ${queue.cohort}` : "" },
    h("span", { class: "queue-name" }, queue.name),
    h("span", { class: "queue-words" }, [words, ...more].join(" · ")),
    h("span", { class: "queue-bar", role: "img", "aria-label": `${queue.name}: ${[words, ...more].join(", ")}` }, own, lent, quota.used > quota.nominal ? mark : null),
  );
}
