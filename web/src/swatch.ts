// A small picture of what a GPU can be doing, for the legend and the help.

import { h } from "./dom";
import type { Doing } from "./model";

export function swatch(doing: Doing): HTMLElement {
  const blocks = doing === "shared" || doing === "mig" ? ["used u14", "used u14", ""] : [];
  return h("span", { class: `gpu ${doing} u14 swatch`, "aria-hidden": "true" }, ...blocks.map((look) => h("i", { class: look })));
}
