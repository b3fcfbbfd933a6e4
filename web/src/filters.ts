// Which jobs are listed, and in which order: by team, queue and cause.

import { byId, h } from "./dom";
import type { Job, World } from "./model";

type Field = "team" | "queue" | "cause";
type Sort = "queue" | "longest" | "gpus" | "start" | "name";
const FIELDS: readonly [field: Field, label: string][] = [
  ["team", "Team"],
  ["queue", "Queue"],
  ["cause", "Waits for"],
];
const SORTS: readonly [sort: Sort, label: string][] = [
  ["queue", "Queue order"],
  ["longest", "Oldest first"],
  ["gpus", "Most GPUs first"],
  ["start", "Planned start"],
  ["name", "Name"],
];
const natural = new Intl.Collator("en", { numeric: true });

export function fieldOf(job: Job, field: Field): string {
  if (field === "team") return job.team ?? job.ns;
  return (field === "queue" ? job.queue : job.cause) ?? "";
}

/** Those that wait as they are served, the others with the newest first. */
export function order(a: Job, b: Job): number {
  const waiting = a.state === "waiting" && b.state === "waiting";
  const served = waiting ? (b.priority ?? 0) - (a.priority ?? 0) || a.created - b.created : b.created - a.created;
  return served || natural.compare(a.key, b.key);
}

const ORDERS: Record<Sort, (a: Job, b: Job) => number> = {
  queue: order,
  longest: (a, b) => a.created - b.created || natural.compare(a.key, b.key),
  gpus: (a, b) => b.gpus - a.gpus || order(a, b),
  start: (a, b) => (a.starts || Infinity) - (b.starts || Infinity) || order(a, b),
  name: (a, b) => natural.compare(a.name, b.name) || natural.compare(a.key, b.key),
};

export class Filters {
  private readonly chosen: Record<Field, string> = { team: "", queue: "", cause: "" };
  private sort: Sort = "queue";
  private readonly selects: Record<Field, HTMLSelectElement>;
  private readonly offered: Record<Field, string> = { team: "", queue: "", cause: "" };
  private readonly listeners: (() => void)[] = [];

  constructor(private readonly world: World) {
    const made = FIELDS.map(([field, label]) => [field, this.select(`filter-${field}`, label, (value) => (this.chosen[field] = value))] as const);
    this.selects = Object.fromEntries(made) as Record<Field, HTMLSelectElement>;
    const sort = this.select("sort", "Sort", (value) => (this.sort = value as Sort));
    sort.append(...SORTS.map(([value, label]) => h("option", { value }, label)));
    this.update();
  }

  listen(listener: () => void): void {
    this.listeners.push(listener);
  }

  get active(): boolean {
    return Object.values(this.chosen).some(Boolean);
  }

  matches(job: Job): boolean {
    return FIELDS.every(([field]) => !this.chosen[field] || fieldOf(job, field) === this.chosen[field]);
  }

  compare(): (a: Job, b: Job) => number {
    return ORDERS[this.sort];
  }

  /** Offers what there is; what was chosen stays, also when there is none of it any more. */
  update(): void {
    const all = [...this.world.jobs.values()];
    for (const [field, label] of FIELDS) {
      const values = [...new Set(all.map((job) => fieldOf(job, field)).concat(this.chosen[field]))].filter(Boolean).sort(natural.compare);
      const offered = values.join("\n");
      const select = this.selects[field];
      if (offered === this.offered[field] && select.options.length) continue;
      this.offered[field] = offered;
      const every = `Every ${label === "Waits for" ? "cause" : label.toLowerCase()}`;
      select.replaceChildren(h("option", { value: "" }, every), ...values.map((value) => h("option", { value }, value)));
      select.value = this.chosen[field];
    }
  }

  private select(id: string, label: string, choose: (value: string) => void): HTMLSelectElement {
    const made = h("select", { id });
    made.addEventListener("change", () => {
      choose(made.value);
      for (const listener of this.listeners) listener();
    });
    byId("filters").append(h("label", { for: id }, label, made));
    return made;
  }
}
