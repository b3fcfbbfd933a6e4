// Keys and colours, in a dialog.

import { byId, h } from "./dom";
import { letters } from "./keys";
import { DOING } from "./model";
import { swatch } from "./swatch";

const KEYS: readonly [string, string][] = [
  ["← ↑ → ↓", "from GPU to GPU, from job to job, from event to event"],
  ["Home  End", "to the first and the last of a node or a list"],
  ["Enter", "details of the focused GPU, job or event"],
  ["Escape", "close"],
  ["g  q  e", "to the GPUs, the jobs, the events"],
  ["n", "details of the GPU's node"],
  ["/", "find a job, a pod or a node; Enter opens the first"],
  ["t", "light theme, dark theme, or the system's"],
  ["?", "this help"],
];

export function startHelp(): void {
  const dialog = byId<HTMLDialogElement>("help");
  const close = h("button", { class: "icon close", type: "button", "aria-label": "Close" }, "✕");
  close.addEventListener("click", () => dialog.close());
  const choice = h("input", { type: "checkbox", checked: letters.on });
  choice.addEventListener("change", () => (letters.on = choice.checked));
  const keys = KEYS.flatMap(([names, does]) => [
    h("dt", {}, ...names.split("  ").map((name) => h("kbd", {}, name))),
    h("dd", {}, does),
  ]);
  dialog.append(
    close,
    h("h2", { id: "help-title" }, "Keyboard"),
    h("dl", { class: "facts" }, ...keys),
    h("label", {}, choice, "Single-letter keys are on"),
    h("h2", {}, "Colours"),
    h(
      "ul",
      { class: "colours" },
      ...DOING.map(({ doing, label, means }) => h("li", {}, swatch(doing), h("b", {}, label), h("span", {}, means))),
    ),
  );
  dialog.addEventListener("click", (event) => {
    if (event.target === dialog) dialog.close();
  });
  byId("help-button").addEventListener("click", () => dialog.showModal());
}
