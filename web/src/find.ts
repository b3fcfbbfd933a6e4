// Finding a job, a pod or a node by a part of its name.

import { byId } from "./dom";
import type { Fleet } from "./fleet";
import type { Gpu, Job, Node, World } from "./model";
import { selection, type Selected } from "./selection";

export function gpuMatches(gpu: Gpu, node: Node, text: string): boolean {
  return node.name.includes(text) || gpu.uses.some((use) => use.job.includes(text) || use.pod.includes(text));
}

export function jobMatches(job: Job, text: string): boolean {
  return text === "" || job.key.includes(text) || job.pods.some((pod) => pod.key.includes(text) || pod.node?.includes(text));
}

/** What Enter opens: the job or node of exactly this name, else the first job, else the first node that has it. */
export function bestMatch(world: World, text: string): Selected {
  const jobs = [...world.jobs.values()];
  const exact = jobs.find((job) => job.name === text);
  if (exact) return { what: "job", key: exact.key };
  if (world.nodes.has(text)) return { what: "node", name: text };
  const named = jobs.find((job) => job.name.includes(text)) ?? jobs.find((job) => job.pods.some((pod) => pod.key.includes(text)));
  if (named) return { what: "job", key: named.key };
  const node = [...world.nodes.keys()].find((name) => name.includes(text));
  return node === undefined ? { what: "none" } : { what: "node", name: node };
}

export function startFind(world: World, fleet: Fleet, announce: (words: string) => void): void {
  const input = byId<HTMLInputElement>("find");
  input.addEventListener("input", () => {
    const text = input.value.trim().toLowerCase();
    selection.seek(text);
    if (!text) return;
    fleet.reveal(text);
    const found = [...world.jobs.values()].filter((job) => jobMatches(job, text)).length;
    announce(`${found} ${found === 1 ? "job matches" : "jobs match"}`);
  });
  input.addEventListener("keydown", (event) => {
    const text = input.value.trim().toLowerCase();
    if (event.key === "Enter" && text) selection.set(bestMatch(world, text));
    if (event.key !== "Escape") return;
    event.stopPropagation();
    event.preventDefault();
    if (!input.value) input.blur();
    input.value = "";
    selection.seek("");
  });
}
