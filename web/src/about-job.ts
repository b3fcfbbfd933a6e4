// A job in the panel: what it asks for, why it waits or where it is, its pods.

import { h } from "./dom";
import { command, facts, link, title, whereOf } from "./facts";
import { count, ranges, since, soon, span } from "./format";
import type { Job, JobPod, World } from "./model";

const MOST_PODS = 64;

export function jobContent(job: Job, world: World): HTMLElement[] {
  const running = job.state === "running";
  return [
    title(`${job.kind} in ${job.ns}`, job.name),
    h("p", { class: "state-line" }, state(job.state), job.reason ? h("span", { class: "reason" }, job.reason) : null),
    ...(job.why ? [h("p", { class: `why ${job.state}` }, job.why)] : []),
    facts([
      ["Asks for", job.wants],
      ["Has", job.holds ? `${count(job.holds, "GPU")} on ${count(job.nodes ?? 0, "node")}` : ""],
      ["Utilisation", running && job.gpus ? `${job.util ?? 0} %` : ""],
      ["Queue", job.queue ?? ""],
      ["Priority", job.class ? `${job.class} (${job.priority ?? 0})` : job.priority ? String(job.priority) : ""],
      ["Planned start", job.state === "waiting" ? soon(job.starts ?? 0) : ""],
      ["Runs at most", job.lasts ? span(job.lasts) : ""],
      ["Running for", running && job.started ? since(job.started) : ""],
      ["Created", job.created ? `${since(job.created)} ago` : ""],
      ["Restarts", job.restarts ? String(job.restarts) : ""],
      ["Succeeded", job.succeeded ? count(job.succeeded, "pod") : ""],
    ]),
    ...placement(job, world),
    ...pods(job),
    h("h3", {}, "More"),
    h("p", {}, h("a", { href: `#job=${encodeURIComponent(job.key)}` }, "Its past: timeline, GPUs, and how it could use fewer")),
    command(commandOf(job)),
  ];
}

function state(word: string): HTMLElement {
  return h("span", { class: "state", "data-state": word }, word);
}

function commandOf(job: Job): string {
  return `kubectl -n ${job.ns} ${job.kind === "Group" ? "get pods" : `describe ${job.kind.toLowerCase()} ${job.name}`}`;
}

function placement(job: Job, world: World): HTMLElement[] {
  const byNode = new Map<string, JobPod[]>();
  for (const pod of job.pods) {
    if (!pod.node || pod.state === "done" || pod.state === "failed") continue;
    byNode.set(pod.node, [...(byNode.get(pod.node) ?? []), pod]);
  }
  if (byNode.size === 0) return [];
  const rows = [...byNode].sort(([a], [b]) => a.localeCompare(b, "en", { numeric: true })).map(([name, mine]) => {
    const node = world.nodes.get(name);
    const keys = new Set(mine.map((pod) => pod.key));
    // As the grid shows them: a slice or a share has no index of its own on the pod.
    const devices = (node?.gpus ?? []).filter((gpu) => gpu.uses.some((use) => keys.has(use.pod))).map((gpu) => gpu.i);
    return h(
      "li",
      { "data-key": name },
      link(name, { "data-node": name }),
      h("span", {}, devices.length ? `GPU ${ranges(devices)}` : count(mine.length, "pod")),
      h("span", { class: "quiet" }, whereOf(node)),
    );
  });
  return [h("h3", {}, "Placement"), h("ul", { class: "placement" }, ...rows)];
}

function pods(job: Job): HTMLElement[] {
  if (job.pods.length === 0) return [];
  const items = job.pods.slice(0, MOST_PODS).map((pod) =>
    h(
      "li",
      { "data-key": pod.key },
      state(pod.state),
      h("span", { class: "pod-name" }, pod.key.split("/")[1] ?? pod.key),
      pod.why && pod.why !== job.why ? h("span", { class: "pod-why" }, pod.why) : null,
    ),
  );
  const hidden = job.count - items.length;
  return [
    h("h3", {}, `Pods (${job.count})`),
    h("ul", { class: "pods" }, ...items),
    ...(hidden > 0 ? [h("p", { class: "more" }, `and ${hidden} more`)] : []),
  ];
}
