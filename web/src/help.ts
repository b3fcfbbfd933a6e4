// Keys and colours, in a dialog.

import { byId, h } from "./dom";
import { DOING } from "./model";

const KEYS: readonly [string, string][] = [
  ["← ↑ → ↓", "from GPU to GPU, or from job to job"],
  ["Enter", "details of what has the focus"],
  ["n", "details of the GPU's node"],
  ["g  q  e", "to the GPUs, the queue, the events"],
  ["/", "find a job, a pod or a node"],
  ["t", "light, dark, or as the system has it"],
  ["Escape", "close"],
];

export function startHelp(): void {
  const dialog = byId<HTMLDialogElement>("help");
  const close = h("button", { class: "icon close", type: "button", "aria-label": "Close" }, "✕");
  close.addEventListener("click", () => dialog.close());
  dialog.append(
    close,
    h("h2", { id: "help-title" }, "Keyboard"),
    h("dl", { class: "facts" }, ...KEYS.flatMap(([key, does]) => [h("dt", {}, ...key.split("  ").map((one) => h("kbd", {}, one))), h("dd", {}, does)])),
    h("h2", {}, "Colours"),
    h(
      "ul",
      { class: "colours" },
      ...DOING.map(({ doing, label, means }) => {
        const swatch = h("span", { class: `gpu ${doing} taken swatch` });
        swatch.style.setProperty("--u", "0.7");
        if (doing === "shared" || doing === "mig") swatch.append(h("i", { class: "used" }), h("i", { class: "used" }), h("i"));
        return h("li", {}, swatch, h("b", {}, label), h("span", {}, means));
      }),
    ),
  );
  dialog.addEventListener("click", (event) => {
    if (event.target === dialog) dialog.close();
  });
  byId("help-button").addEventListener("click", () => dialog.showModal());
}
