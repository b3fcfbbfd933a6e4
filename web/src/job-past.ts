// A job's past: what happened to it, what its GPUs did, and what to change so that it needs fewer of them.

import { Chart, scaleEnd, type Line } from "./chart";
import { h } from "./dom";
import { gpus, legend, panel, percent, STATES } from "./time";

export interface JobPast {
  start: number;
  end: number;
  step: number;
  job: string;
  states: Record<string, Line>;
  gpuHours: Record<string, number>;
  utilisation: number | null;
  lostGpuHours: number;
  story: string;
  timeline: { at: number; what: string; detail: string }[];
  advice: { text: string; change: string }[];
  curves: { metric: string; unit: string; most: number; gpus: { name: string; line: Line }[] }[];
  notes: string[];
}

export function jobPage(view: JobPast): Node[] {
  return [
    h("p", { class: "story" }, view.story),
    ...view.notes.map((note) => h("p", { class: "past-note" }, note)),
    panel("What to change", advice(view)),
    panel("Timeline", timeline(view)),
    panel("What its GPUs did", ...states(view)),
    ...view.curves.map((curves) => panel(`${curves.metric} of each GPU`, ...each(view, curves))),
  ];
}

function advice(view: JobPast): HTMLElement {
  if (!view.advice.length) return h("p", { class: "empty" }, "Nothing: of what was measured, it used what it held.");
  const items = view.advice.map(({ text, change }) => h("li", {}, text, change ? h("pre", { class: "command" }, change) : null));
  return h("ul", { class: "sentences" }, ...items);
}

function timeline(view: JobPast): HTMLElement {
  if (!view.timeline.length) return h("p", { class: "empty" }, "Nothing of it was recorded in this time.");
  const items = view.timeline.map(({ at, what, detail }) =>
    h("li", {}, h("time", { datetime: new Date(at * 1000).toISOString() }, fullTime(at)), h("b", {}, what), h("span", {}, detail)),
  );
  return h("ol", { class: "timeline" }, ...items);
}

function states(view: JobPast): Node[] {
  const curves = STATES.filter(([state]) => view.states[state]).map(([state, words]) => ({
    name: `${words}, ${gpus(view.gpuHours[state] ?? 0)} GPU-hours`,
    look: state,
    line: view.states[state]!,
  }));
  if (!curves.length) return [h("p", { class: "empty" }, "It held no GPU in this time.")];
  const places = curves[0]!.line.map((_, place) => curves.reduce((sum, curve) => sum + (curve.line[place] ?? 0), 0));
  const words = `Busy for ${percent(view.utilisation)} of the GPU time that was measured.`;
  const chart = new Chart(view, scaleEnd(Math.max(1, ...places)), gpus, "GPUs of the job by state");
  return [h("p", {}, words), chart.areas(curves).root, legend(curves)];
}

function each(view: JobPast, curves: JobPast["curves"][number]): Node[] {
  const lines = curves.gpus.map((gpu, place) => ({ name: gpu.name, look: `cause-${place % 5}`, line: gpu.line }));
  const highest = Math.max(1, ...lines.flatMap((curve) => curve.line.map((value) => value ?? 0)));
  const label = (value: number): string => `${Math.round(value).toLocaleString("en")} ${curves.unit}`;
  const chart = new Chart(view, curves.most || scaleEnd(highest), label, `${curves.metric} of each GPU`);
  return [chart.lines(lines).root, legend(lines)];
}

function fullTime(at: number): string {
  return new Date(at * 1000).toLocaleString("en-GB", { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit" });
}
