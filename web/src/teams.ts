// The Teams view: GPU-hours by team, and the jobs that wasted most.

import { h } from "./dom";
import { panel, table } from "./time";

interface Row {
  name: string;
  allocated_hours: number;
  computing_hours: number;
  spinning_hours: number;
  idle_hours: number;
  unmeasured_hours: number;
  lost_hours: number;
}

export interface TeamView {
  start: number;
  end: number;
  coveredSeconds: number;
  teams: Row[];
  jobs: Row[];
  total: Row;
  notes: string[];
}

const HEADS = ["GPU-hours held", "Busy", "Idle", "Spinning", "Not measured", "Lost by evictions", "Busy, of what is measured"];

function cells(row: Row): string[] {
  const busy = row.computing_hours + row.spinning_hours;
  const measured = busy + row.idle_hours;
  const hours = [row.allocated_hours, busy, row.idle_hours, row.spinning_hours, row.unmeasured_hours, row.lost_hours];
  const share = measured ? `${Math.round((100 * busy) / measured)} %` : "not measured";
  return [row.name, ...hours.map((number) => number.toLocaleString("en", { maximumFractionDigits: 1 })), share];
}

export function teamsPage(view: TeamView): Node[] {
  const teams = [...view.teams, view.total].map(cells);
  const wasted = view.jobs.filter((row) => row.idle_hours + row.spinning_hours > 0.05);
  return [
    ...view.notes.map((note) => h("p", { class: "past-note" }, `${note}.`)),
    panel("Teams", table(["Team", ...HEADS], view.teams.length ? teams : [], "No team held GPUs in this time.")),
    panel("Jobs that held GPUs and did not use them", table(["Job", ...HEADS], wasted.map(cells), "None, of what was measured.", jobLink)),
  ];
}

/** `Job vision/train`, as the ledger names it, leads to the past of `vision/Job/train`. */
function jobLink(name: string): HTMLElement {
  const [kind = "", path = ""] = name.split(" ");
  const [space = "", job = ""] = path.split("/");
  return h("a", { href: `#job=${encodeURIComponent(`${space}/${kind}/${job}`)}` }, name);
}
