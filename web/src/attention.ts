// What needs a person and is no job: nodes that are not ready, changes and repairs that wait for somebody.

import { byId, h, patch } from "./dom";
import { since } from "./format";
import type { Operation, World } from "./model";
import { selection } from "./selection";

const MOST = 20;

export interface Matter {
  key: string;
  title: string;
  why: string;
  since: number;
  /** Where it leads. */
  node: string | undefined;
}

export function matters(world: World): Matter[] {
  const found: Matter[] = [];
  const told = new Set<string>();
  const add = (kind: string, all: Iterable<Operation>, node: (one: never) => string | undefined): void => {
    for (const one of all) {
      const where = node(one as never);
      if (where) told.add(where);
      if (one.needs !== "person") continue;
      const why = [one.message || one.reason, one.remedy].filter(Boolean).join("; ");
      found.push({ key: `${kind}/${one.name}`, title: `${kind} ${one.name}`, why: why || one.phase, since: one.since, node: where });
    }
  };
  add("change", world.changes.values(), () => undefined);
  add("repair", world.repairs.values(), (one: { node: string; over: boolean }) => (one.over ? undefined : one.node));
  add("node", world.bringUps.values(), (one: { name: string }) => one.name);
  for (const node of world.nodes.values()) {
    if (node.ready || told.has(node.name)) continue;
    found.push({ key: `node/${node.name}`, title: `node ${node.name}`, why: `not ready${node.why ? `: ${node.why}` : ""}`, since: 0, node: node.name });
  }
  return found;
}

export class Attention {
  constructor(private readonly world: World) {}

  /** How many there are. */
  update(): number {
    const found = matters(this.world);
    const items = found.slice(0, MOST).map(item);
    const hidden = found.length - items.length;
    if (hidden > 0) items.push(h("li", { class: "more" }, `and ${hidden.toLocaleString("en")} more`));
    patch(byId("attention"), items);
    return found.length;
  }
}

export function openMatter(event: Event): void {
  const { node, place } = (event.target as Element).closest<HTMLElement>("button")?.dataset ?? {};
  if (node) selection.set({ what: "node", name: node });
  else if (place) location.hash = place;
}

function item(matter: Matter): HTMLElement {
  const leads = matter.node ? { "data-node": matter.node } : { "data-place": "changes" };
  return h(
    "li",
    { "data-key": matter.key },
    h(
      "button",
      { class: "matter", type: "button", tabindex: -1, ...leads },
      h("span", { class: "job-name" }, matter.title),
      h("span", { class: "job-age" }, since(matter.since)),
      h("span", { class: "job-why" }, matter.why),
    ),
  );
}
