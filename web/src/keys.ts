// Keys that work everywhere. Those of a single letter can be switched off: speech input and screen readers use letters.

import { byId } from "./dom";
import { selection } from "./selection";
import { recall, remember } from "./storage";

const KEPT = "letters";
const PLACES: Record<string, [view: string, first: string, section: string]> = {
  g: ["fleet", '#racks [tabindex="0"]', "fleet"],
  q: ["work", '#jobs :is(.job, .matter)[tabindex="0"]', "work"],
  e: ["news", '#events .about[tabindex="0"]', "news"],
};

export const letters = {
  get on(): boolean {
    return recall(KEPT) !== "off";
  },
  set on(wanted: boolean) {
    remember(KEPT, wanted ? "on" : "off");
  },
};

/** On a narrow screen one part is seen at a time. */
function show(view: string): void {
  document.body.dataset.view = view;
  for (const tab of document.querySelectorAll<HTMLElement>(".tabs button")) {
    tab.setAttribute("aria-pressed", String(tab.dataset.view === view));
  }
}

function go(key: string): boolean {
  const place = PLACES[key];
  if (!place) return false;
  show(place[0]);
  // The panel covers the lists; the GPUs are beside it.
  if (key !== "g" && selection.now.what !== "none") selection.set({ what: "none" });
  (document.querySelector<HTMLElement>(place[1]) ?? byId(place[2])).focus();
  return true;
}

function letter(key: string): boolean {
  if (key === "/") byId("find").focus();
  else if (key === "t") byId("theme").click();
  else if (key === "?") byId("help-button").click();
  else return go(key);
  return true;
}

export function startKeys(): void {
  for (const tab of document.querySelectorAll<HTMLElement>(".tabs button")) {
    tab.addEventListener("click", () => show(tab.dataset.view!));
  }
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || byId<HTMLDialogElement>("help").open) return;
    if (event.key === "Escape") {
      if (selection.now.what !== "none") selection.set({ what: "none" });
      return;
    }
    const typing = event.target instanceof HTMLInputElement || event.target instanceof HTMLSelectElement;
    if (!typing && letters.on && letter(event.key)) event.preventDefault();
  });
}
