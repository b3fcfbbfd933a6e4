// A node in the panel: whether it may be used, what it has, who is on it, and the buttons that break and mend it.

import { stateWords } from "./cell";
import { h } from "./dom";
import { action, command, facts, jobLinks, jobsOn, link, title, whereOf } from "./facts";
import { gib, model } from "./format";
import type { Node, World } from "./model";

export function nodeContent(node: Node, world: World): HTMLElement[] {
  const problems = [...(node.why ? [node.why] : []), ...(node.problems ?? [])];
  return [
    title("Node", node.name),
    h(
      "p",
      { class: "state-line" },
      h("span", { class: "state", "data-state": node.ready ? "running" : "failed" }, node.ready ? "ready" : "not ready"),
      node.cordoned ? h("span", { class: "state", "data-state": "stopping" }, "cordoned") : null,
    ),
    ...problems.map((problem) => h("p", { class: "why failed" }, problem)),
    facts([
      ["GPUs", gpuWords(node)],
      ["Rack", whereOf(node)],
      ["Pods", String(node.pods)],
      ["CPUs", `${(node.cpu[0] / 1000).toLocaleString("en")} of ${(node.cpu[1] / 1000).toLocaleString("en")} requested`],
      ["Memory", `${gib(node.memory[0])} of ${gib(node.memory[1])} requested`],
      ["Taints", (node.taints ?? []).join("\n")],
    ]),
    ...gpuList(node),
    ...jobLinks(jobsOn(node.gpus.flatMap((gpu) => gpu.uses)).filter((key) => world.jobs.has(key))),
    ...(world.simulated ? breaking(node) : []),
  ];
}

function breaking(node: Node): HTMLElement[] {
  const target = `node/${node.name}`;
  const fail = action("fail", target, "Fail this node", !node.ready);
  return [
    h("h3", {}, "Inject a fault"),
    h("div", { class: "buttons" }, fail, action("heal", target, "Heal this node", false)),
    command(`windlass sandbox ${node.ready ? "fail" : "heal"} ${target}`),
  ];
}

/** `8 × H100 80GB HBM3`, a line for each model. */
export function gpuWords(node: Node): string {
  const models = new Map<string, number>();
  for (const gpu of node.gpus) models.set(gpu.model, (models.get(gpu.model) ?? 0) + 1);
  return [...models].map(([name, number]) => `${number} × ${model(name)}`).join("\n") || "none";
}

/** The same as the grid's cells, large enough for a finger. */
function gpuList(node: Node): HTMLElement[] {
  if (node.gpus.length === 0) return [];
  const items = node.gpus.map((gpu) =>
    h("li", {}, link(`GPU ${gpu.i}`, { "data-node": node.name, "data-gpu": gpu.i }), h("span", { class: "quiet" }, stateWords(gpu, node))),
  );
  return [h("h3", {}, "GPUs"), h("ul", { class: "gpu-list" }, ...items)];
}
