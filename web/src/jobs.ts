// The lists of jobs: those that need a person, those that only need time, those that run, and those that ended.

import { Attention, openMatter } from "./attention";
import { clipped } from "./clip";
import { arrange, byId, h, say } from "./dom";
import type { Filters } from "./filters";
import { jobMatches } from "./find";
import { since, soon } from "./format";
import type { Job, World } from "./model";
import { roving } from "./roving";
import { selection } from "./selection";

const MOST = 120;
/** As the scheduler writes it: in UTC, for programs. */
const PLANNED = /;? ?planned to start at \S+Z/i;
type Which = "person" | "time" | "running" | "ended";
const LISTS: readonly { which: Which; look: string; title: string; empty: string }[] = [
  { which: "person", look: "waiting person", title: "Needs a person", empty: "Nothing needs a person." },
  { which: "time", look: "waiting time", title: "Waiting", empty: "Nothing waits." },
  { which: "running", look: "running", title: "Running", empty: "Nothing runs." },
  { which: "ended", look: "ended", title: "Ended", empty: "" },
];

/** The list that a job is in: what fails again and again needs a person, even where it counts as running. */
export function listOf(job: Job): Which {
  if (job.state === "failed" || job.state === "done") return "ended";
  if (job.needs === "person") return "person";
  return job.state === "waiting" ? "time" : "running";
}

interface List {
  which: Which;
  jobs: number;
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
  private readonly attention: Attention;

  constructor(
    private readonly world: World,
    private readonly filters: Filters,
  ) {
    const root = byId("jobs");
    root.append(...this.lists.map((list) => list.root));
    const attention = h("ul", { id: "attention", class: "job-list", "aria-label": "Nodes, changes and repairs that need a person" });
    attention.addEventListener("click", openMatter);
    this.lists[0]!.items.before(attention);
    this.lists[0]!.root.after(byId("plans"));
    this.attention = new Attention(world);
    this.stops = roving(root, ":is(.job, .matter)");
    filters.listen(() => this.update());
    selection.listen(() => (this.sought === selection.sought ? this.mark() : this.update()));
  }

  update(): void {
    this.sought = selection.sought;
    this.filters.update();
    const all = [...this.world.jobs.values()];
    const found = all.filter((job) => this.filters.matches(job) && (this.sought === "" || jobMatches(job, this.sought)));
    const compare = this.filters.compare();
    for (const list of this.lists) this.fill(list, found.filter((job) => listOf(job) === list.which).sort(compare));
    this.updateMatters();
    const waiting = all.filter((job) => job.state === "waiting").length;
    byId("tab-waiting").replaceChildren(...(waiting ? [String(waiting), h("span", { class: "unseen" }, " waiting")] : []));
    for (const [key, row] of this.rows) if (!row.element.isConnected) this.rows.delete(key);
    this.mark();
  }

  /** What needs a person and is no job: of thousands of jobs, none has to be sorted for it. */
  updateMatters(): void {
    const others = this.attention.update();
    this.count(this.lists[0]!, others);
    this.stops();
  }

  /** Called every second. */
  age(): void {
    for (const row of this.rows.values()) say(row.age, ageOf(row.job));
  }

  private fill(list: List, jobs: Job[]): void {
    list.jobs = jobs.length;
    this.count(list, 0);
    say(list.none, this.sought === "" && !this.filters.active ? list.empty : "No match.");
    arrange(list.items, jobs.slice(0, MOST).map((job) => this.row(job).element));
    list.more.hidden = jobs.length <= MOST;
    say(list.more, `and ${(jobs.length - MOST).toLocaleString("en")} more; find one by its name`);
  }

  /** `others`: what is in the list and is no job. */
  private count(list: List, others: number): void {
    say(list.count, (list.jobs + others).toLocaleString("en"));
    list.root.classList.toggle("is-empty", list.jobs + others === 0);
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
  const root = h("section", { class: `jobs ${list.look}`, "aria-label": list.title }, head, items, none, more);
  return { which: list.which, jobs: 0, root, count, items, none, empty: list.empty, more };
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
  if (job.state === "waiting") {
    const why = job.why || job.reason || "Waiting for the scheduler's decision.";
    return job.starts ? `Starts ${soon(job.starts)}. ${why.replace(PLANNED, "")}` : why;
  }
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
