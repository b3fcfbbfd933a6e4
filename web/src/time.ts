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
  preemptions: { queue: string; reason: string; evictions: number; lostGpuHours: number }[];
  shares: { queue: string; held: number; quota: number | null; line: Line }[];
  notes: string[];
  target: number;
}

const STATES: readonly [state: string, words: string][] = [
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
    panel("Preemptions and evictions", preemptions(view)),
    panel("Shares against quota", shares(view)),
  ];
}

export function panel(title: string, ...content: Node[]): HTMLElement {
  return h("section", { class: "panel" }, h("h2", {}, title), ...content);
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
  const rows = view.preemptions.map((row) => [row.queue, row.reason, String(row.evictions), row.lostGpuHours.toFixed(1)]);
  return table(["Queue", "Reason", "Evictions", "Lost GPU-hours"], rows, "Nothing was evicted in this time.");
}

function shares(view: TimeView): HTMLElement {
  const rows = view.shares.map((row) => {
    const part = row.quota ? percent(row.held / row.quota) : "";
    return [row.queue, gpus(row.held), row.quota === null ? "none" : gpus(row.quota), part];
  });
  return table(["Queue", "GPUs held (mean)", "Quota", "Of its quota"], rows, "No queue held GPUs in this time.");
}

export function table(heads: string[], rows: string[][], empty: string): HTMLElement {
  if (!rows.length) return h("p", { class: "empty" }, empty);
  const head = h("tr", {}, ...heads.map((name) => h("th", { scope: "col" }, name)));
  const body = rows.map(([first, ...rest]) =>
    h("tr", {}, h("th", { scope: "row" }, first), ...rest.map((text) => h("td", {}, text))),
  );
  const made = h("table", {}, h("thead", {}, head), h("tbody", {}, ...body));
  return h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Table" }, made);
}

function legend(curves: readonly Curve[]): HTMLElement {
  return h("ul", { class: "chart-legend" }, ...curves.map((curve) => h("li", {}, h("i", { class: `sample ${curve.look}` }), curve.name)));
}
