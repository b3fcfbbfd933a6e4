// ClusterQueues: what each may use, what it uses, what it has borrowed.

import { clipped } from "./clip";
import { byId, h, patch } from "./dom";
import type { Queue, World } from "./model";

type Quota = Queue["quota"][number];

export class Queues {
  private readonly root = byId("queues");

  constructor(private readonly world: World) {}

  update(): void {
    const all = [...this.world.queues.values()].filter((queue) => queue.quota.length).sort((a, b) => (a.name < b.name ? -1 : 1));
    this.root.hidden = all.length === 0;
    const bars = all.flatMap((queue) => queue.quota.map((quota) => bar(queue, quota)));
    patch(this.root, [h("div", { class: "section-head" }, h("h2", {}, "Quotas")), ...bars]);
  }
}

export function quotaWords(queue: Queue, quota: Quota): string {
  const resource = quota.resource.replace("nvidia.com/", "");
  const words = [`${quota.used} of ${quota.nominal} ${resource === "gpu" ? "GPUs" : resource}`];
  if (quota.borrowed) words.push(`${quota.borrowed} borrowed`);
  if (queue.pending) words.push(`${queue.pending} waiting`);
  return words.join(" · ");
}

function bar(queue: Queue, quota: Quota): HTMLElement {
  const scale = Math.max(quota.nominal, quota.used, 1);
  const piece = (look: string, name: "width" | "left", amount: number): HTMLElement => {
    const made = h("i", { class: look });
    made.style.setProperty(name, `${(100 * amount) / scale}%`);
    return made;
  };
  return h(
    "div",
    { class: "queue", title: queue.cohort ? `cohort ${queue.cohort}` : null, "data-key": `${queue.name} ${quota.resource}` },
    h("span", { class: "queue-name clip", title: queue.name }, ...clipped(queue.name)),
    h("span", { class: "queue-words" }, quotaWords(queue, quota)),
    h(
      "span",
      { class: "queue-bar", "aria-hidden": "true" },
      piece("own", "width", quota.used - quota.borrowed),
      piece("borrowed", "width", quota.borrowed),
      quota.used > quota.nominal ? piece("nominal", "left", quota.nominal) : null,
    ),
  );
}
