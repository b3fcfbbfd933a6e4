// The page: one world, fed by the live stream, shown by a handful of parts. Changes are drawn once a frame at most.

import { byId, say } from "./dom";
import { Details } from "./details";
import { Fleet, tipOf } from "./fleet";
import { startGrid } from "./grid-keys";
import { startHelp } from "./help";
import { Jobs } from "./jobs";
import { follow, type Link } from "./live";
import { World, type Delta, type Job } from "./model";
import { Feed } from "./news";
import { Queues } from "./queues";
import { selection } from "./selection";
import { startTheme } from "./theme";
import { Totals } from "./totals";

const world = new World();
const fleet = new Fleet(world);
const jobs = new Jobs(world);
const parts = { queues: new Queues(world), feed: new Feed(world), totals: new Totals(world), details: new Details(world) };

let everything = false;
const touched = new Set<string>();
let due = false;

function draw(): void {
  due = false;
  fleet.update(everything ? undefined : touched);
  everything = false;
  touched.clear();
  jobs.update();
  for (const part of Object.values(parts)) part.update();
}

function later(): void {
  if (due) return;
  due = true;
  requestAnimationFrame(draw);
}

const LINKS: Record<Link, string> = { connecting: "connecting", live: "live", away: "reconnecting", ended: "session ended" };

function tellLink(link: Link): void {
  const element = byId("link");
  element.dataset.state = link;
  say(element, LINKS[link]);
  element.title = link === "ended" ? "Open the link that `windlass up` printed last." : "";
}

follow(
  (all) => {
    world.reset(all);
    everything = true;
    later();
  },
  (delta) => {
    announce(delta);
    world.apply(delta);
    if (delta.gone?.nodes) everything = true;
    for (const node of delta.nodes ?? []) touched.add(node.name);
    later();
  },
  tellLink,
);

/** Tells a screen reader what changed for jobs, not more than it can say. */
function announce(delta: Delta): void {
  const said = (delta.jobs ?? [])
    .filter((job) => world.jobs.get(job.key)?.state !== job.state)
    .map((job: Job) => `${job.name}: ${job.state}${job.state === "waiting" && job.why ? `, ${job.why}` : ""}`);
  if (said.length) byId("announce").textContent = said.length > 3 ? `${said.length} jobs changed` : said.join(". ");
}

startTheme();
startHelp();
startGrid(fleet, world);

const find = byId<HTMLInputElement>("find");
find.addEventListener("input", () => {
  const text = find.value.trim().toLowerCase();
  fleet.find(text);
  jobs.find(text);
});

function show(view: string): void {
  document.body.dataset.view = view;
  for (const tab of document.querySelectorAll<HTMLElement>(".tabs button")) {
    tab.setAttribute("aria-pressed", String(tab.dataset.view === view));
  }
}

for (const tab of document.querySelectorAll<HTMLElement>(".tabs button")) {
  tab.addEventListener("click", () => show(tab.dataset.view!));
}

const PLACES: Record<string, [string, string]> = {
  g: ["fleet", '#racks .gpu[tabindex="0"]'],
  q: ["work", '#jobs .job[tabindex="0"]'],
  e: ["news", "#events .about"],
};

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const typing = event.target instanceof HTMLInputElement || event.target instanceof HTMLSelectElement;
  if (event.key === "Escape") {
    if (typing && find.value) {
      find.value = "";
      find.dispatchEvent(new Event("input"));
    } else if (selection.now.what !== "none") selection.set({ what: "none" });
    else if (typing) find.blur();
    return;
  }
  if (typing || byId<HTMLDialogElement>("help").open) return;
  const place = PLACES[event.key];
  if (place) {
    show(place[0]);
    document.querySelector<HTMLElement>(place[1])?.focus();
  } else if (event.key === "/") find.focus();
  else if (event.key === "t") byId("theme").click();
  else if (event.key === "?") byId("help-button").click();
  else return;
  event.preventDefault();
});

const tip = byId("tip");
const racks = byId("racks");
racks.addEventListener("pointerover", (event) => {
  const cell = (event.target as Element).closest<HTMLElement>(".gpu");
  const node = cell && world.nodes.get(cell.dataset.node ?? "");
  const gpu = node?.gpus[Number(cell?.dataset.gpu)];
  if (!cell || !node || !gpu || event.pointerType === "touch") {
    hideTip();
    return;
  }
  const [head, words] = tipOf(gpu, node);
  tip.replaceChildren(Object.assign(document.createElement("b"), { textContent: head }), words);
  tip.hidden = false;
  const at = cell.getBoundingClientRect();
  const left = Math.min(Math.max(8, at.left + at.width / 2 - tip.offsetWidth / 2), innerWidth - tip.offsetWidth - 8);
  const above = at.top - tip.offsetHeight - 8;
  tip.style.left = `${left}px`;
  tip.style.top = `${above > 8 ? above : at.bottom + 8}px`;
  selection.hover(gpu.uses.length === 1 ? gpu.uses[0]!.job : "");
});
racks.addEventListener("pointerleave", hideTip);
document.addEventListener("scroll", hideTip, { passive: true, capture: true });

function hideTip(): void {
  tip.hidden = true;
  selection.hover("");
}
