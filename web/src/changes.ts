// Changes and repairs: what the operator does to nodes, live. What needs a person is told from what only needs time.

import { byId, h, patch } from "./dom";
import { clock, count, since, soon } from "./format";
import type { BringUp, Change, Operation, Repair, World } from "./model";
import { selection } from "./selection";
import { panel } from "./time";

const MOST = 50;
const MOST_OVER = 20;
const NOTHING =
  "Nothing is under way. Changes and repairs are those of the operator (windlass install operator), and are shown to those who may list nodes.";

/** The first that need a person, then the newest. */
export function urgent<T extends Operation>(all: Iterable<T>): T[] {
  const rank = (one: Operation): number => (one.needs === "person" ? 0 : 1);
  return [...all].sort((a, b) => rank(a) - rank(b) || b.since - a.since || (a.name < b.name ? -1 : 1));
}

export class ChangesPage {
  private readonly root = byId("changes");

  constructor(private readonly world: World) {
    this.root.addEventListener("click", (event) => {
      const name = (event.target as Element).closest<HTMLElement>("button")?.dataset.node;
      if (name) selection.set({ what: "node", name });
    });
    this.update();
  }

  /** The number on its tab, and what is on it while it is seen. */
  update(): void {
    const changes = [...this.world.changes.values()];
    const repairs = [...this.world.repairs.values()];
    const open = [...changes, ...repairs].filter((one) => !one.over);
    const nodes = [...this.world.bringUps.values()];
    const waiting = [...open, ...nodes].filter((one) => one.needs === "person").length;
    byId("tab-changes").replaceChildren(...(waiting ? [String(waiting), h("span", { class: "unseen" }, " need a person")] : []));
    if (this.root.hidden) return this.root.replaceChildren();
    const sections = [
      section("Changes under way", urgent(changes.filter((one) => !one.over)).map(changeCard)),
      section("Repairs under way", urgent(repairs.filter((one) => !one.over)).map(repairCard)),
      section("Nodes on their way into service", urgent(nodes).map(nodeCard)),
      section("Over", over(changes, repairs), MOST_OVER),
    ].filter((one) => one !== null);
    const story = sections.length ? summaryOf(open, nodes, waiting) : NOTHING;
    patch(this.root, [h("div", { class: "past-body" }, h("p", { class: "story" }, story), ...sections)]);
  }
}

export function summaryOf(open: readonly Operation[], nodes: readonly BringUp[], waiting: number): string {
  const going = open.length + nodes.length;
  if (!going) return "Nothing is under way.";
  const person = `${waiting} ${waiting === 1 ? "needs" : "need"} a person`;
  return `${going} under way: ${person}, ${going - waiting} only ${going - waiting === 1 ? "needs" : "need"} time.`;
}

function section(title: string, cards: HTMLElement[], most = MOST): HTMLElement | null {
  if (!cards.length) return null;
  const hidden = cards.length - most;
  const more = hidden > 0 ? [h("p", { class: "more" }, `and ${hidden.toLocaleString("en")} more`)] : [];
  const made = panel(`${title} (${cards.length})`, h("ul", { class: "cards" }, ...cards.slice(0, most)), ...more);
  made.dataset.key = title;
  return made;
}

function over(changes: Change[], repairs: Repair[]): HTMLElement[] {
  const ended: [number, HTMLElement][] = [
    ...changes.filter((one) => one.over).map((one): [number, HTMLElement] => [one.since, changeCard(one)]),
    ...repairs.filter((one) => one.over).map((one): [number, HTMLElement] => [one.ended || one.since, repairCard(one)]),
  ];
  return ended.sort(([a], [b]) => b - a).map(([, card]) => card);
}

function changeCard(change: Change): HTMLElement {
  const way = [change.from, change.to].filter(Boolean).join(" → ");
  const nodes = `${change.changed} of ${count(change.nodes, "node")}${change.failed ? `, ${change.failed} failed` : ""}`;
  const waves = change.waves && !change.over ? `wave ${Math.min(change.wave + 1, change.waves)} of ${change.waves}` : "";
  const gates = change.gates.map((gate) =>
    h("li", { "data-key": gate.name }, h("b", { class: `gate ${gate.verdict.toLowerCase()}` }, gate.verdict), ` ${gate.name}`, gate.message && `: ${gate.message}`),
  );
  return card(
    change,
    `Change ${change.name}`,
    `${change.component} of ${change.stack}: ${way}`,
    meter(change),
    h("p", { class: "card-line" }, [nodes, waves].filter(Boolean).join(" · ")),
    gates.length ? h("ul", { class: "gates-of-change", "aria-label": "Gates" }, ...gates) : null,
    change.stragglers.length && !change.over ? h("p", { class: "card-line" }, "Not changed yet: ", ...nodeLinks(change.stragglers)) : null,
  );
}

function meter(change: Change): HTMLElement {
  const part = (look: string, nodes: number): HTMLElement => {
    const made = h("i", { class: look });
    made.style.setProperty("width", `${change.nodes ? (100 * nodes) / change.nodes : 0}%`);
    return made;
  };
  return h("span", { class: "meter", "aria-hidden": "true" }, part("busy", change.changed), part("ill", change.failed));
}

function repairCard(repair: Repair): HTMLElement {
  const what = repair.device < 0 ? "the whole node" : `GPU ${repair.device}`;
  const attempts = repair.attempts.map((attempt) =>
    h("li", { "data-key": `${attempt.rung} ${attempt.at}` }, h("time", {}, clock(attempt.at)), ` ${attempt.rung} ${attempt.result}`, attempt.message && `: ${attempt.message}`),
  );
  return card(
    repair,
    `Repair ${repair.name}`,
    `${what} of ${repair.node}: ${repair.fault || "no fault is named"}${repair.by ? `, asked for by ${repair.by}` : ""}`,
    attempts.length ? h("ol", { class: "attempts", "aria-label": "Attempts" }, ...attempts) : null,
    repair.ticket ? h("p", { class: "card-line" }, `Ticket ${repair.ticket}`) : null,
    h("p", { class: "card-line" }, ...nodeLinks([repair.node])),
  );
}

function nodeCard(node: BringUp): HTMLElement {
  const steps = node.steps.map((step) =>
    h("li", { "data-key": step.name }, h("b", {}, step.name), ` ${step.state}${step.reason ? `, ${step.reason}` : ""}`, step.message && `: ${step.message}`),
  );
  return card(
    node,
    `Node ${node.name}`,
    `of stack ${node.stack}`,
    steps.length ? h("ul", { class: "steps", "aria-label": "Steps" }, ...steps) : null,
    h("p", { class: "card-line" }, ...nodeLinks([node.name])),
  );
}

function card(one: Operation, title: string, what: string, ...more: (HTMLElement | null)[]): HTMLElement {
  const until = one.deadline && one.needs === "time" ? `goes on by itself ${soon(one.deadline)}` : "";
  const needs = one.needs === "person" ? "needs a person" : one.needs === "time" ? "only needs time" : "";
  const facts = [`${one.phase}${one.reason ? ` (${one.reason})` : ""}`, one.since ? `for ${since(one.since)}` : "", until].filter(Boolean).join(" · ");
  return h(
    "li",
    { class: `card ${one.needs}`, "data-key": title },
    h("h3", {}, title, needs && h("span", { class: `needs ${one.needs}` }, needs)),
    h("p", {}, what),
    h("p", { class: "card-line" }, facts),
    one.message ? h("p", {}, one.message) : null,
    one.remedy && one.needs === "person" ? h("p", { class: "remedy" }, `What to do: ${one.remedy}`) : null,
    ...more,
  );
}

function nodeLinks(names: readonly string[]): HTMLElement[] {
  return names.map((name) => h("button", { class: "link-button", type: "button", "data-node": name, "data-key": name }, name));
}
