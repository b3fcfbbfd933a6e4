// Pieces that the panel's contents share: a title, facts, links, buttons.

import { h } from "./dom";
import type { Node } from "./model";

export function title(over: string, name: string): HTMLElement {
  return h("div", { id: "details-title" }, h("p", { class: "over" }, over, " "), h("h2", {}, name));
}

/** Only those that there is something to say of. */
export function facts(all: readonly [string, string][]): HTMLElement {
  const known = all.filter(([, value]) => value !== "");
  return h("dl", { class: "facts" }, ...known.flatMap(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]));
}

export function jobLinks(keys: readonly string[]): HTMLElement[] {
  if (keys.length === 0) return [];
  const links = keys.map((key) => h("li", {}, link(nameOf(key), { "data-job": key })));
  return [h("h3", {}, "Jobs on it"), h("ul", { class: "links" }, ...links)];
}

/** `data` says where it leads: to `data-job`, to `data-node`, to its `data-gpu`. */
export function link(words: string, data: Record<string, string | number>): HTMLElement {
  return h("button", { class: "link-button", type: "button", "data-key": Object.values(data).join(), ...data }, words);
}

export function action(act: "fail" | "heal", target: string, words: string, off: boolean, xid?: number): HTMLElement {
  const data = { "data-act": act, "data-target": target, "data-xid": xid };
  // Not `disabled`: a button that has the focus would lose it.
  return h("button", { class: `action ${act}`, type: "button", ...data, "aria-disabled": off ? "true" : null }, words);
}

export function command(words: string): HTMLElement {
  return h("pre", { class: "command" }, words);
}

export function whereOf(node: Node | undefined): string {
  return [node?.zone, node?.rack].filter(Boolean).join(" / ");
}

export function jobsOn(uses: readonly { job: string }[]): string[] {
  return [...new Set(uses.map((use) => use.job))].sort();
}

/** `namespace/Kind/name` → `name`, with the namespace where it is not the default. */
function nameOf(key: string): string {
  const [space = "", , name = key] = key.split("/");
  return space === "default" ? name : `${space}/${name}`;
}
