// The lists of jobs: those that wait, each with its reason, those that run, and those that ended.

import { clipped } from "./clip";
import { arrange, byId, h, say } from "./dom";
import { jobMatches } from "./find";
import { since } from "./format";
import type { Job, JobState, World } from "./model";
import { roving } from "./roving";
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
  none: HTMLElement;
  empty: string;
  more: HTMLElement;
}

interface Row {
  element: HTMLElement;
  button: HTMLElement;
  state: HTMLElement;
  wants: HTMLElement;
  age: HTMLElement;
  why: HTMLElement;
  job: Job;
}

export class Jobs {
  private readonly lists = LISTS.map(makeList);
  private readonly rows = new Map<string, Row>();
  private readonly stops: () => void;
  private sought = "";

  constructor(private readonly world: World) {
    const root = byId("jobs");
    root.append(...this.lists.map((list) => list.root));
    this.stops = roving(root, ".job");
    selection.listen(() => (this.sought === selection.sought ? this.mark() : this.update()));
  }

  update(): void {
    this.sought = selection.sought;
    const all = [...this.world.jobs.values()];
    const found = this.sought === "" ? all : all.filter((job) => jobMatches(job, this.sought));
    for (const list of this.lists) {
      this.fill(list, found.filter((job) => list.states.includes(job.state)).sort(order));
    }
    this.stops();
    const waiting = all.filter((job) => job.state === "waiting").length;
    byId("tab-waiting").replaceChildren(...(waiting ? [String(waiting), h("span", { class: "unseen" }, " waiting")] : []));
    for (const [key, row] of this.rows) if (!row.element.isConnected) this.rows.delete(key);
    this.mark();
  }

  /** Called every second. */
  age(): void {
    for (const row of this.rows.values()) say(row.age, ageOf(row.job));
  }

  private fill(list: List, jobs: Job[]): void {
    say(list.count, jobs.length.toLocaleString("en"));
    list.root.classList.toggle("is-empty", jobs.length === 0);
    say(list.none, this.sought === "" ? list.empty : "No match.");
    arrange(list.items, jobs.slice(0, MOST).map((job) => this.row(job).element));
    list.more.hidden = jobs.length <= MOST;
    say(list.more, `and ${(jobs.length - MOST).toLocaleString("en")} more; find one by its name`);
  }

  private row(job: Job): Row {
    let row = this.rows.get(job.key);
    if (!row) {
      row = makeRow(job);
      this.rows.set(job.key, row);
    } else if (row.job === job) return row;
    row.job = job;
    paint(row);
    return row;
  }

  private mark(): void {
    const key = selection.now.what === "job" ? selection.now.key : "";
    for (const [name, row] of this.rows) row.button.classList.toggle("selected", name === key);
  }
}

function makeList(list: (typeof LISTS)[number]): List {
  const count = h("span", { class: "number" });
  const items = h("ul", { class: "job-list", "aria-label": `${list.title} jobs` });
  const none = h("p", { class: "empty" });
  const more = h("p", { class: "more", hidden: true });
  const head = h("div", { class: "section-head" }, h("h2", {}, list.title), count);
  const root = h("section", { class: `jobs ${list.key}`, "aria-label": list.title }, head, items, none, more);
  return { states: list.states, root, count, items, none, empty: list.empty, more };
}

function makeRow(job: Job): Row {
  const space = job.ns === "default" ? null : h("small", {}, `${job.ns}/`);
  const name = h("span", { class: "job-name clip", title: job.name }, space, ...clipped(job.name));
  const state = h("span", { class: "unseen" });
  const wants = h("span", { class: "job-wants" });
  const age = h("span", { class: "job-age" });
  const why = h("span", { class: "job-why" });
  const button = h("button", { class: "job", type: "button", tabindex: -1 }, name, state, wants, age, why);
  button.addEventListener("click", () => selection.set({ what: "job", key: job.key }));
  button.addEventListener("pointerenter", () => selection.hover(job.key));
  button.addEventListener("pointerleave", () => selection.hover(""));
  const row = { element: h("li", {}, button), button, state, wants, age, why, job };
  paint(row);
  return row;
}

function paint(row: Row): void {
  const job = row.job;
  row.button.dataset.state = job.state;
  say(row.state, ` ${job.state} `);
  say(row.wants, job.wants);
  say(row.age, ageOf(job));
  say(row.why, summary(job));
}

/** One line about the job: why it waits, or where it is. */
export function summary(job: Job): string {
  if (job.state === "waiting") return job.why || job.reason || "Waiting for the scheduler's decision.";
  if (job.state === "failed") return [job.reason, job.why].filter(Boolean).join(": ") || "Failed.";
  if (job.state === "done") return "Finished.";
  const word = job.state === "starting" ? "Starting" : job.state === "stopping" ? "Stopping" : "";
  const where = job.nodes === 1 ? `on ${job.pods.find((pod) => pod.node)?.node}` : job.nodes ? `on ${job.nodes} nodes` : "";
  const busy = job.state === "running" && job.gpus ? `${job.util ?? 0} % busy` : "";
  const trouble = [job.reason, job.why].filter(Boolean).join(": ");
  return [word, where, busy, trouble].filter(Boolean).join(" · ").replace(/^on /, "On ");
}

function ageOf(job: Job): string {
  return since(job.state === "running" && job.started ? job.started : job.created);
}

const natural = new Intl.Collator("en", { numeric: true });

/** Those that wait as they are served, the others with the newest first. */
export function order(a: Job, b: Job): number {
  const waiting = a.state === "waiting" && b.state === "waiting";
  const served = waiting ? (b.priority ?? 0) - (a.priority ?? 0) || a.created - b.created : b.created - a.created;
  return served || natural.compare(a.key, b.key);
}
