// The page: one world, fed by the live stream, shown by a handful of parts. Changes are drawn once a frame at most, and
// only by the parts that they are about.

import { Announcer } from "./announce";
import { ChangesPage } from "./changes";
import { Details } from "./details";
import { byId } from "./dom";
import { Filters } from "./filters";
import { startFind } from "./find";
import { Fleet } from "./fleet";
import { startGrid } from "./grid-keys";
import { startHelp } from "./help";
import { Jobs } from "./jobs";
import { startKeys } from "./keys";
import { Legend } from "./legend";
import { Connection } from "./link";
import { follow } from "./live";
import { World, type Delta, type Snapshot } from "./model";
import { Feed } from "./news";
import { Past } from "./past";
import { Plans } from "./plans";
import { Queues } from "./queues";
import { startTheme } from "./theme";
import { startTip } from "./tip";
import { Totals } from "./totals";

const world = new World();
const fleet = new Fleet(world);
const legend = new Legend(world);
const filters = new Filters(world);
const plans = new Plans(world, filters);
const jobs = new Jobs(world, filters);
const changes = new ChangesPage(world);
const queues = new Queues(world);
const feed = new Feed(world);
const totals = new Totals(world);
const details = new Details(world);
const connection = new Connection();

const announce = (words: string): void => {
  byId("announce").textContent = words;
};
const announcer = new Announcer(announce);

type Part = keyof Snapshot;
const PARTS: readonly Part[] = ["nodes", "jobs", "queues", "changes", "repairs", "bringUps", "events"];
const OPERATIONS: readonly Part[] = ["changes", "repairs", "bringUps"];
const changed = new Set<Part>();
const touched = new Set<string>();
let everything = false;
let due = false;

function draw(): void {
  due = false;
  const names = everything ? undefined : [...touched];
  if (changed.has("nodes")) {
    fleet.update(names);
    legend.update(names);
  }
  const isOfOperator = OPERATIONS.some((part) => changed.has(part));
  if (changed.has("jobs")) {
    jobs.update();
    plans.update();
  } else if (changed.has("nodes") || isOfOperator) jobs.updateMatters();
  if (isOfOperator || everything) changes.update();
  if (changed.has("queues")) queues.update();
  if (changed.has("events")) feed.update();
  totals.update();
  details.update();
  changed.clear();
  touched.clear();
  everything = false;
}

function later(): void {
  if (due) return;
  due = true;
  requestAnimationFrame(draw);
}

function note(delta: Delta): void {
  for (const part of PARTS) {
    if (delta[part]?.length || (part !== "events" && delta.gone?.[part]?.length)) changed.add(part);
  }
  if (delta.gone?.nodes) everything = true;
  for (const node of delta.nodes ?? []) touched.add(node.name);
  for (const job of delta.jobs ?? []) announcer.heard(world.jobs.get(job.key)?.state, job);
}

startTheme();
new Past(() => changes.update());
startHelp();
startKeys();
startGrid(fleet);
startTip(world);
startFind(world, fleet, announce);

follow({
  reset(all) {
    world.reset(all);
    everything = true;
    for (const part of PARTS) changed.add(part);
    later();
  },
  apply(delta) {
    note(delta);
    world.apply(delta);
    later();
  },
  link: (link) => connection.tell(link),
  real() {
    world.simulated = false;
  },
});

setInterval(() => {
  jobs.age();
  details.update();
}, 1000);
setInterval(() => {
  plans.update();
  changes.update();
}, 15_000);
