// A GPU in the panel: what it does, how it is cut, who is on it, and the buttons that break and mend it.

import { stateWords } from "./cell";
import { h } from "./dom";
import { action, command, facts, jobLinks, jobsOn, link, title, whereOf } from "./facts";
import { model } from "./format";
import type { Gpu, Node, World } from "./model";

const XIDS = [
  [79, "79: fallen off the bus"],
  [48, "48: double-bit memory error"],
  [74, "74: NVLink error"],
  [94, "94: contained memory error"],
  [119, "119: GSP timeout"],
] as const;

export type Xid = (typeof XIDS)[number][0];

export function gpuContent(node: Node, gpu: Gpu, world: World, xid: Xid): HTMLElement[] {
  return [
    title(node.name, `GPU ${gpu.i}`),
    h("p", { class: "state-line" }, state(gpu)),
    h("p", {}, stateWords(gpu, node)),
    ...(gpu.ill ? (node.problems ?? []).map((problem) => h("p", { class: "why failed" }, problem)) : []),
    facts([
      ["Model", model(gpu.model)],
      ["Memory", gpu.mem ? `${Math.round(gpu.mem / 1024)} GiB` : ""],
      ["Rack", whereOf(node)],
      ["MIG instances", (gpu.parts ?? []).map((part) => `${part.profile} ${part.pod ? `→ ${part.pod}` : "free"}`).join("\n")],
    ]),
    ...jobLinks(jobsOn(gpu.uses).filter((key) => world.jobs.has(key))),
    ...(world.simulated ? breaking(node, gpu, xid) : []),
    h("p", { class: "whole" }, link(`Node ${node.name}`, { "data-node": node.name })),
  ];
}

function breaking(node: Node, gpu: Gpu, xid: Xid): HTMLElement[] {
  const target = `gpu/${node.name}:${gpu.i}`;
  const options = XIDS.map(([value, words]) => h("option", { value, selected: value === xid }, words));
  return [
    h("h3", {}, "Inject a fault"),
    h(
      "div",
      { class: "buttons" },
      h("select", { "aria-label": "Xid of the fault" }, ...options),
      action("fail", target, "Fail this GPU", gpu.ill === true, xid),
      action("heal", target, "Heal this GPU", false),
    ),
    command(gpu.ill ? `windlass sandbox heal ${target}` : `windlass sandbox fail ${target} --xid ${xid}`),
  ];
}

function state(gpu: Gpu): HTMLElement {
  const [look, word] = gpu.ill ? ["failed", "unhealthy"] : gpu.uses.length ? ["running", "in use"] : ["done", "free"];
  return h("span", { class: "state", "data-state": look }, word);
}
