// The lists of jobs: those that wait, each with its reason, those that run, and those that ended.

import { byId, h, say } from "./dom";
import { since, span } from "./format";
import type { Job, JobState, World } from "./model";
import { selection } from "./selection";

const MOST = 120;
const LISTS: readonly { key: string; title: string; states: JobState[]; empty: string }[] = [
  { key: "waiting", title: "Waiting", states: ["waiting"], empty: "Nothing waits." },
  { key: "running", title: "Running", states: ["starting", "running", "stopping"], empty: "Nothing runs." },
  { key: "ended", title: "Ended", states: ["failed", "done"], empty: "" },
];

interface List {
  states: JobState[];
  root: HTMLElement;
  count: HTMLElement;
  items: HTMLElement;
  more: HTMLElement;
}

interface Row {
  element: HTMLElement;
  button: HTMLElement;
  name: HTMLElement;
  wants: HTMLElement;
  age: HTMLElement;
  why: HTMLElement;
  job: Job;
}

export class Jobs {
  private readonly lists: List[];
  private readonly rows = new Map<string, Row>();
  private found = "";

  constructor(private readonly world: World) {
    this.lists = LISTS.map((list) => {
      const number = h("span", { class: "number" });
      const items = h("ul", { class: "job-list", "aria-label": `${list.title} jobs` });
      const more = h("p", { class: "more", hidden: true });
      const root = h(
        "section",
        { class: `jobs ${list.key}` },
        h("div", { class: "section-head" }, h("h2", {}, list.title), number),
        items,
        h("p", { class: "empty" }, list.empty),
        more,
      );
      return { states: list.states, root, count: number, items, more };
    });
    byId("jobs").append(...this.lists.map((list) => list.root));
    byId("jobs").addEventListener("keydown", (event) => this.move(event));
    selection.listen(() => this.mark());
    setInterval(() => this.age(), 1000);
  }

  update(): void {
    const all = [...this.world.jobs.values()].filter((job) => this.isFound(job));
    for (const list of this.lists) {
      const mine = all.filter((job) => list.states.includes(job.state)).sort(order);
      this.fill(list, mine);
    }
    const waiting = this.lists[0]!.count.textContent ?? "";
    say(byId("tab-waiting"), waiting === "0" ? "" : waiting);
    for (const [key, row] of this.rows) if (!row.element.isConnected) this.rows.delete(key);
    this.mark();
  }

  find(text: string): void {
    this.found = text;
    this.update();
  }

  private isFound(job: Job): boolean {
    const text = this.found;
    return text === "" || job.key.includes(text) || job.pods.some((pod) => pod.key.includes(text) || pod.node?.includes(text));
  }

  private fill(list: List, jobs: Job[]): void {
    say(list.count, String(jobs.length));
    list.root.classList.toggle("is-empty", jobs.length === 0);
    const shown = jobs.slice(0, MOST).map((job) => this.row(job).element);
    // Only what is out of place is moved: an element that is moved loses the focus.
    shown.forEach((element, at) => {
      const there = list.items.children[at];
      if (there !== element) list.items.insertBefore(element, there ?? null);
    });
    while (list.items.children.length > shown.length) list.items.lastElementChild!.remove();
    list.more.hidden = jobs.length <= MOST;
    say(list.more, `and ${jobs.length - MOST} more`);
    if (shown.length && !list.items.querySelector('[tabindex="0"]')) {
      shown[0]!.querySelector("button")!.tabIndex = 0;
    }
  }

  private row(job: Job): Row {
    let row = this.rows.get(job.key);
    if (!row) {
      row = makeRow(job);
      this.rows.set(job.key, row);
    }
    row.job = job;
    paint(row);
    return row;
  }

  private age(): void {
    for (const row of this.rows.values()) say(row.age, ageOf(row.job));
  }

  private mark(): void {
    const key = selection.now.what === "job" ? selection.now.key : "";
    for (const [name, row] of this.rows) row.button.classList.toggle("selected", name === key);
  }

  private move(event: KeyboardEvent): void {
    const from = (event.target as Element).closest<HTMLElement>(".job");
    if (!from || !["ArrowDown", "ArrowUp", "Home", "End"].includes(event.key)) return;
    const all = [...byId("jobs").querySelectorAll<HTMLElement>(".job")];
    const at = all.indexOf(from);
    const to = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: all.length - 1 }[event.key]!;
    const target = all[to];
    if (!target) return;
    event.preventDefault();
    from.tabIndex = -1;
    target.tabIndex = 0;
    target.focus();
  }
}

function makeRow(job: Job): Row {
  const name = h("span", { class: "job-name" });
  const wants = h("span", { class: "job-wants" });
  const age = h("span", { class: "job-age" });
  const why = h("span", { class: "job-why" });
  const button = h("button", { class: "job", type: "button", tabindex: -1 }, name, wants, age, why);
  const element = h("li", {}, button);
  button.addEventListener("click", () => selection.set({ what: "job", key: job.key }));
  button.addEventListener("pointerenter", () => selection.hover(job.key));
  button.addEventListener("pointerleave", () => selection.hover(""));
  return { element, button, name, wants, age, why, job };
}

function paint(row: Row): void {
  const job = row.job;
  row.button.dataset.state = job.state;
  if (row.name.dataset.key !== job.key) {
    row.name.dataset.key = job.key;
    row.name.replaceChildren(job.ns === "default" ? "" : h("small", {}, `${job.ns}/`), job.name);
  }
  say(row.wants, job.wants);
  say(row.age, ageOf(job));
  say(row.why, summary(job));
}

/** One line about the job: why it waits, or where it is. */
export function summary(job: Job): string {
  if (job.state === "waiting") return job.why || job.reason || "Waiting for a decision.";
  if (job.state === "failed") return [job.reason, job.why].filter(Boolean).join(": ") || "Failed.";
  if (job.state === "done") return "Finished.";
  const where = job.nodes === 1 ? `on ${job.pods.find((pod) => pod.node)?.node}` : job.nodes ? `on ${job.nodes} nodes` : "";
  const trouble = job.reason ? `${job.reason}${job.why ? `: ${job.why}` : ""}` : "";
  const word = { starting: "Starting", stopping: "Stopping", running: "" }[job.state as "starting" | "stopping" | "running"];
  const busy = job.state === "running" && job.gpus ? `${job.util ?? 0} % busy` : "";
  return [word, where, busy, trouble].filter(Boolean).join(" · ").replace(/^on /, "On ");
}

function ageOf(job: Job): string {
  if (job.state === "running" && job.started) return since(job.started);
  return job.created ? span(Date.now() / 1000 - job.created) : "";
}

function order(a: Job, b: Job): number {
  if (a.state === "waiting" && b.state === "waiting") {
    return (b.priority ?? 0) - (a.priority ?? 0) || a.created - b.created || (a.key < b.key ? -1 : 1);
  }
  return b.created - a.created || (a.key < b.key ? -1 : 1);
}
