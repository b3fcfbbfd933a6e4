// Planned starts as a Gantt chart: one row a job, from now to the end of the last one. The words say the same.

import { byId, h, patch } from "./dom";
import type { Filters } from "./filters";
import { clock, count, soon, span } from "./format";
import type { Job, World } from "./model";
import { selection } from "./selection";

const MOST = 30;
const SHORTEST = 600;
const TICKS = 4;

export interface Bar {
  job: Job;
  /** In percent of the chart. */
  left: number;
  width: number;
  /** How long it will run was not declared: it has no end. */
  open: boolean;
}

/** The bars of those that have a planned start, the first first; and the seconds that the chart is wide. */
export function bars(jobs: Iterable<Job>, now: number): { bars: Bar[]; wide: number; hidden: number } {
  const planned = [...jobs].filter((job) => job.starts).sort((a, b) => a.starts! - b.starts! || (a.key < b.key ? -1 : 1));
  const shown = planned.slice(0, MOST);
  const ends = shown.map((job) => job.starts! - now + (job.lasts ?? 0));
  const wide = Math.max(SHORTEST, ...ends) * 1.05;
  const made = shown.map((job) => {
    const left = (100 * Math.max(0, job.starts! - now)) / wide;
    const width = job.lasts ? (100 * job.lasts) / wide : 100 - left;
    return { job, left, width: Math.min(width, 100 - left), open: !job.lasts };
  });
  return { bars: made, wide, hidden: planned.length - shown.length };
}

export class Plans {
  private readonly root = byId("plans");

  constructor(
    private readonly world: World,
    private readonly filters: Filters,
  ) {
    filters.listen(() => this.update());
    this.root.addEventListener("click", (event) => {
      const key = (event.target as Element).closest<HTMLElement>("button")?.dataset.key;
      if (key) selection.set({ what: "job", key });
    });
  }

  update(): void {
    const now = Date.now() / 1000;
    const found = bars([...this.world.jobs.values()].filter((job) => this.filters.matches(job)), now);
    this.root.hidden = found.bars.length === 0;
    if (this.root.hidden) return;
    const more = found.hidden ? [h("p", { class: "more" }, `and ${count(found.hidden, "later start")}`)] : [];
    const rows = h("ul", { class: "plan-rows", "aria-label": "Planned starts" }, ...found.bars.map(row));
    patch(this.root, [h("div", { class: "section-head" }, h("h2", {}, "Planned starts")), axis(now, found.wide), rows, ...more]);
  }
}

function axis(now: number, wide: number): HTMLElement {
  const ticks = [...Array(TICKS).keys()].map((tick) => {
    const label = h("span", {}, tick ? clock(now + (wide * tick) / TICKS).slice(0, 5) : "now");
    label.style.setProperty("left", `${(100 * tick) / TICKS}%`);
    return label;
  });
  return h("div", { class: "plan-axis", "aria-hidden": "true" }, ...ticks);
}

function row(bar: Bar): HTMLElement {
  const line = h("i", { class: bar.open ? "open" : "" });
  line.style.setProperty("left", `${bar.left.toFixed(2)}%`);
  line.style.setProperty("width", `${bar.width.toFixed(2)}%`);
  const { job } = bar;
  const long = job.lasts ? `for ${span(job.lasts)} at most` : "for an unknown time";
  return h(
    "li",
    { "data-key": job.key },
    h(
      "button",
      { class: "plan", type: "button", "data-key": job.key },
      h("span", { class: "plan-name" }, job.name),
      h("span", { class: "plan-words" }, `${soon(job.starts!)} · ${job.wants} · ${long}`),
      h("span", { class: "plan-track", "aria-hidden": "true" }, line),
    ),
  );
}
