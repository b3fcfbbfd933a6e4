// The Time view: utilisation against allocation, what was waited for, how long, what was preempted, shares and quota.

import { Chart, scaleEnd, type Curve, type Line } from "./chart";
import { h } from "./dom";
import { span } from "./format";

export interface TimeView {
  start: number;
  end: number;
  step: number;
  coveredSeconds: number;
  states: Record<string, Line>;
  gpuHours: Record<string, number>;
  allocation: Line;
  utilisation: Line;
  meanAllocation: number | null;
  meanUtilisation: number | null;
  measuredShare: number | null;
  story: string;
  bottleneck: { cause: string; models: string[]; gpus: number; sentence: string; line: Line }[];
  waits: { queue: string; size: string; starts: number; p50: number; p95: number }[];
  preemptions: { queue: string; reason: string; evictions: number | null; lostGpuHours: number }[];
  shares: { queue: string; held: number; quota: number | null; line: Line }[];
  racks: { rack: string; gpus: number; unhealthyHours: number; inChangeHours: number; inService: number | null; line: Line }[];
  phases: { phase: string; jobs: number; p50: number; p95: number; share: number | null }[];
  notes: string[];
  target: number;
}

export const STATES: readonly [state: string, words: string][] = [
  ["computing", "computing"],
  ["spinning", "spinning: at 100 %, not computing"],
  ["held_idle", "held, idle"],
  ["unmeasured", "held, not measured"],
  ["stranded", "free, but nothing that waits fits"],
  ["free", "free"],
  ["reserved", "kept for planned starts"],
  ["in_change", "cordoned"],
  ["unhealthy", "unhealthy"],
];
const CAUSES = 5;

export function percent(part: number | null): string {
  return part === null ? "not measured" : `${Math.round(part * 100)} %`;
}

const PHASES: Record<string, string> = {
  queue: "in the queue",
  prepare: "image, volumes, start of the container",
  load: "from there to the first GPU work",
};
const RACKS = 5;

/** Half of the jobs are faster than p50 in each phase by itself; the shares are of all seconds together. */
function phases(view: TimeView): Node[] {
  const rows = view.phases.map((row) => [
    PHASES[row.phase] ?? row.phase,
    String(row.jobs),
    span(row.p50),
    span(row.p95),
    row.share === null ? "" : percent(row.share),
  ]);
  const words = table(["Phase", "Jobs", "Half within", "95 % within", "Of all this time"], rows, "No job came to its first GPU work in this time.");
  const known = view.phases.filter((row) => row.share);
  const bar = h("div", { class: "phase-bar", "aria-hidden": "true" });
  for (const row of known) {
    const part = h("i", { class: `phase phase-${row.phase}` });
    part.style.setProperty("width", `${100 * row.share!}%`);
    bar.append(part);
  }
  const names = h("ul", { class: "chart-legend" }, ...known.map((row) => h("li", {}, h("i", { class: `sample phase phase-${row.phase}` }), PHASES[row.phase] ?? row.phase)));
  return known.length ? [bar, names, words] : [words];
}

function racks(view: TimeView): Node[] {
  const rows = view.racks.map((row) => [
    row.rack || "(no rack)",
    gpus(row.gpus),
    row.unhealthyHours.toFixed(1),
    row.inChangeHours.toFixed(1),
    percent(row.inService),
  ]);
  const words = table(["Rack", "GPUs", "Unhealthy GPU-hours", "Cordoned GPU-hours", "In service"], rows, "No rack was recorded in this time.");
  const ill = view.racks.filter((row) => row.unhealthyHours + row.inChangeHours > 0).slice(0, RACKS);
  if (!ill.length) return [words];
  const curves = ill.map((row, place) => ({ name: row.rack || "(no rack)", look: `cause-${place}`, line: row.line }));
  const most = scaleEnd(Math.max(1, ...ill.flatMap((row) => row.line.map((value) => value ?? 0))));
  return [new Chart(view, most, gpus, "GPUs out of service, by rack").lines(curves).root, legend(curves), words];
}

export function gpus(number: number): string {
  return number >= 10 ? Math.round(number).toLocaleString("en") : String(Math.round(number * 10) / 10);
}

export function timePage(view: TimeView): Node[] {
  return [
    h("p", { class: "story" }, view.story),
    ...view.notes.map((note) => h("p", { class: "past-note" }, note)),
    panel("Utilisation against allocation", ...utilisation(view)),
    panel("What every GPU did", ...states(view)),
    panel("Bottleneck: GPUs that were waited for, by cause", ...bottleneck(view)),
    panel("Waiting until the first GPU", waits(view)),
    panel("From submission to the first GPU work", ...phases(view)),
    panel("Preemptions and evictions", preemptions(view)),
    panel("Shares against quota", shares(view)),
    panel("Health by rack", ...racks(view)),
  ];
}

export function panel(title: string, ...content: Node[]): HTMLElement {
  const made = h("section", { class: "panel" }, h("h2", {}, title), ...content);
  // A table that scrolls is a landmark, and landmarks need names of their own.
  for (const scroll of made.querySelectorAll(".scroll")) scroll.setAttribute("aria-label", title);
  return made;
}

function utilisation(view: TimeView): Node[] {
  const busy = view.meanUtilisation === null ? "what these did was not measured" : `these were busy for ${percent(view.meanUtilisation)} of the time`;
  const words = `${percent(view.meanAllocation)} of all GPUs were held; ${busy}.`;
  const curves: Curve[] = [
    { name: "held, of all GPUs", look: "held", line: view.allocation },
    { name: "busy, of held GPUs that are measured", look: "busy", line: view.utilisation },
  ];
  const chart = new Chart(view, 1, (value) => `${Math.round(value * 100)} %`, words);
  return [h("p", {}, words), chart.mark(view.target, "70 %").lines(curves).root, legend(curves)];
}

function states(view: TimeView): Node[] {
  const curves = STATES.filter(([state]) => view.states[state]).map(([state, words]) => ({
    name: `${words}, ${gpus(view.gpuHours[state] ?? 0)} GPU-hours`,
    look: state,
    line: view.states[state]!,
  }));
  const totals = view.allocation.map((_, place) => curves.reduce((sum, curve) => sum + (curve.line[place] ?? 0), 0));
  const most = scaleEnd(Math.max(1, ...totals));
  return [new Chart(view, most, gpus, "GPUs by state").areas(curves).root, legend(curves)];
}

function bottleneck(view: TimeView): Node[] {
  if (!view.bottleneck.length) return [h("p", { class: "empty" }, "Nothing waited for GPUs.")];
  const shown = view.bottleneck.slice(0, CAUSES);
  const curves = shown.map((cause, place) => ({
    name: [cause.cause, ...cause.models].join(" "),
    look: `cause-${place}`,
    line: cause.line,
  }));
  const most = scaleEnd(Math.max(1, ...shown.flatMap((cause) => cause.line.map((value) => value ?? 0))));
  const sentences = h("ul", { class: "sentences" }, ...view.bottleneck.map((cause) => h("li", {}, cause.sentence)));
  return [sentences, new Chart(view, most, gpus, "GPUs that were waited for, by cause").lines(curves).root, legend(curves)];
}

function waits(view: TimeView): HTMLElement {
  const rows = view.waits.map((row) => [row.queue, row.size, String(row.starts), span(row.p50), span(row.p95)]);
  return table(["Queue", "Size", "Starts", "Half within", "95 % within"], rows, "No job started in this time.");
}

function preemptions(view: TimeView): HTMLElement {
  const rows = view.preemptions.map((row) => [row.queue, row.reason, row.evictions === null ? "not known" : String(row.evictions), row.lostGpuHours.toFixed(1)]);
  return table(["Queue", "Reason", "Evictions", "Lost GPU-hours"], rows, "Nothing was evicted in this time.");
}

function shares(view: TimeView): HTMLElement {
  const rows = view.shares.map((row) => {
    const part = row.quota ? percent(row.held / row.quota) : "";
    return [row.queue, gpus(row.held), row.quota === null ? "none" : gpus(row.quota), part];
  });
  return table(["Queue", "GPUs held (mean)", "Quota", "Of its quota"], rows, "No queue held GPUs in this time.");
}

/** `first` makes the content of a row's first cell, where that is more than text. */
export function table(heads: string[], rows: string[][], empty: string, first = (text: string): Node | string => text): HTMLElement {
  if (!rows.length) return h("p", { class: "empty" }, empty);
  const head = h("tr", {}, ...heads.map((name) => h("th", { scope: "col" }, name)));
  const body = rows.map(([name = "", ...rest]) =>
    h("tr", {}, h("th", { scope: "row" }, first(name)), ...rest.map((text) => h("td", {}, text))),
  );
  const made = h("table", {}, h("thead", {}, head), h("tbody", {}, ...body));
  return h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Table" }, made);
}

export function legend(curves: readonly Curve[]): HTMLElement {
  return h("ul", { class: "chart-legend" }, ...curves.map((curve) => h("li", {}, h("i", { class: `sample ${curve.look}` }), curve.name)));
}
