import { deepEqual, equal } from "node:assert/strict";
import { test } from "node:test";
import { bestMatch, gpuMatches, jobMatches } from "../src/find";
import { matters } from "../src/attention";
import { order } from "../src/filters";
import { listOf, summary } from "../src/jobs";
import { noticeOf } from "../src/link";
import { World, type Repair } from "../src/model";
import { aboutWhat, canOpen } from "../src/news";
import { bars } from "../src/plans";
import { quotaWords } from "../src/queues";
import { groups, placeOf } from "../src/racks";
import { useOf } from "../src/rack";
import { gpuWords } from "../src/about-node";
import { gpu, job, news, node, pod, use } from "./made";

test("a job's line says why it waits, or where it is", () => {
  equal(summary(job({ state: "waiting", why: "No GPU is free." })), "No GPU is free.");
  equal(summary(job({ state: "waiting" })), "Waiting for the scheduler's decision.");
  equal(summary(job({ state: "failed", reason: "Error", why: "exit code 1" })), "Error: exit code 1");
  equal(summary(job({ state: "failed" })), "Failed.");
  equal(summary(job({ state: "done" })), "Finished.");
  equal(summary(job({ nodes: 1, util: 60, pods: [pod(), pod({ node: "h100-3" })] })), "On h100-3 · 60 % busy");
  equal(summary(job({ state: "starting", nodes: 3 })), "Starting · on 3 nodes");
  equal(summary(job({ gpus: 0, nodes: 1, reason: "BackOff", pods: [pod({ node: "cpu-0" })] })), "On cpu-0 · BackOff");
});

test("who waits stands as it is served, others with the newest first, equals by number", () => {
  const names = (...all: ReturnType<typeof job>[]): string[] => all.sort(order).map((one) => one.name);
  const waiting = (name: string, created: number, priority = 0): ReturnType<typeof job> => job({ name, created, priority, state: "waiting" });
  deepEqual(names(waiting("late", 9), waiting("early", 1), waiting("high", 5, 10)), ["high", "early", "late"]);
  deepEqual(names(job({ name: "old", created: 1 }), job({ name: "new", created: 2 })), ["new", "old"]);
  deepEqual(names(waiting("w-10", 1), waiting("w-9", 1), waiting("w-1", 1)), ["w-1", "w-9", "w-10"]);
});

test("things are found by a part of their name", () => {
  const world = new World();
  const train = job({ name: "train", pods: [pod({ key: "default/train-x7", node: "h100-3" })] });
  const waits = job({ name: "train-2", state: "waiting" });
  world.reset({ nodes: [node({ name: "h100-3" }), node({ name: "train" }), node({ name: "h100-30" })], jobs: [waits, train], queues: [], events: [] });
  deepEqual([jobMatches(train, "x7"), jobMatches(train, "h100-3"), jobMatches(waits, "h100"), jobMatches(waits, "")], [true, true, false, true]);
  equal(gpuMatches(gpu({ uses: [use({ pod: "default/train-x7" })] }), node(), "x7"), true);
  equal(gpuMatches(gpu(), node(), "x7"), false);
  deepEqual(bestMatch(world, "train"), { what: "job", key: "default/Job/train" });
  deepEqual(bestMatch(world, "h100-3"), { what: "node", name: "h100-3" });
  deepEqual(bestMatch(world, "x7"), { what: "job", key: "default/Job/train" });
  deepEqual(bestMatch(world, "00-30"), { what: "node", name: "h100-30" });
  deepEqual(bestMatch(world, "nothing"), { what: "none" });
});

test("nodes stand by rack, in the order of numbers, those without GPUs last", () => {
  const bare = node({ name: "cpu-0", gpus: [], rack: "" });
  const loose = node({ name: "t4-0", rack: "", zone: "zone-b" });
  const all = [bare, loose, ...[10, 9, 1].map((number) => node({ name: `h-${number}`, rack: `rack-${number}` }))];
  deepEqual(groups(all).map((group) => group.title), ["rack-1", "rack-9", "rack-10", "zone-b, no rack", "CPU nodes"]);
  const many = Array.from({ length: 130 }, (_, at) => node({ name: `n-${at}` }));
  deepEqual(groups(many).map((group) => [group.title, group.nodes.length]), [["rack-0 · 1–64", 64], ["rack-0 · 65–128", 64], ["rack-0 · 129–130", 2]]);
  equal(placeOf(node()) === placeOf(node({ gpus: [gpu(), gpu()] })), false, "another number of GPUs is another card");
});

test("a rack's line counts what works", () => {
  equal(useOf([node({ gpus: [gpu({ uses: [use()] }), gpu()] }), node({ ready: false, gpus: [gpu({ uses: [use()] })] })]), "1 of 3 in use");
  equal(useOf([node({ gpus: [], pods: 2 })]), "1 node, 2 pods");
  equal(gpuWords(node({ gpus: [gpu(), gpu(), gpu({ model: "T4" })] })), "2 × H100 80GB HBM3\n1 × T4");
});

test("an event leads to its node, its job, or the pod's job", () => {
  const world = new World();
  world.reset({ nodes: [], jobs: [job({ pods: [pod({ key: "default/train-0" })] })], queues: [], events: [] });
  deepEqual(aboutWhat(news(), world), { what: "job", key: "default/Job/train" });
  deepEqual(aboutWhat(news({ name: "gone" }), world), { what: "job", key: "default/Pod/gone" });
  deepEqual(aboutWhat(news({ kind: "Node", name: "n" }), world), { what: "node", name: "n" });
  deepEqual([canOpen(news(), world), canOpen(news({ kind: "Job", name: "train" }), world), canOpen(news({ kind: "Lease" }), world)], [true, true, false]);
});

test("quotas and a lost connection are told in words", () => {
  const queue = { name: "a", cohort: "", pending: 2, admitted: 1, quota: [] };
  equal(quotaWords(queue, { resource: "nvidia.com/gpu", nominal: 16, used: 24, borrowed: 8 }), "24 of 16 GPUs · 8 borrowed · 2 waiting");
  equal(quotaWords({ ...queue, pending: 0 }, { resource: "cpu", nominal: 4, used: 0, borrowed: 0 }), "0 of 4 cpu");
  equal(noticeOf("live", ""), "");
  equal(noticeOf("ended", "12:00:01"), "windlass up has restarted. What is shown is from 12:00:01. Open its new link, or the one that windlass page prints.");
});

test("what needs a person has a list of its own, and what has ended another", () => {
  const lists = [
    job({ state: "waiting", needs: "person" }),
    job({ state: "waiting", needs: "time" }),
    job({ state: "running", needs: "person" }),
    job({ state: "starting" }),
    job({ state: "failed", needs: "person" }),
  ].map(listOf);
  deepEqual(lists, ["person", "time", "person", "running", "ended"]);
});

test("planned starts are bars from their start on, as long as they may run", () => {
  const planned = (name: string, starts: number, lasts?: number): ReturnType<typeof job> =>
    job({ name, state: "waiting", starts, ...(lasts ? { lasts } : {}) });
  const found = bars([planned("late", 3000), planned("early", 1600, 1000), job()], 1000);
  deepEqual(found.bars.map((bar) => [bar.job.name, bar.open]), [["early", false], ["late", true]]);
  equal(found.wide, 2000 * 1.05);
  deepEqual(found.bars.map((bar) => Math.round(bar.left)), [29, 95]);
  equal(Math.round(found.bars[0]!.left + found.bars[0]!.width), 76);
  equal(Math.round(found.bars[1]!.left + found.bars[1]!.width), 100);
  equal(bars([planned("overdue", 10, 60)], 1000).bars[0]!.left, 0);
  equal(bars(Array.from({ length: 40 }, (_, at) => planned(`j-${at}`, 2000 + at)), 1000).hidden, 10);
});

test("a node that is not ready is told once, by what the operator says of it where it does", () => {
  const world = new World();
  const operation = { reason: "", remedy: "", since: 1, deadline: 0 };
  const repair = { ...operation, name: "r", phase: "Ticket", message: "hands", needs: "person", node: "n-1", device: 1 } as Repair;
  world.reset({ nodes: [node({ name: "n-1", ready: false }), node({ name: "n-2", ready: false, why: "NodeLost" }), node()], repairs: [repair] });
  deepEqual(matters(world).map((matter) => [matter.title, matter.why, matter.node]), [
    ["repair r", "hands", "n-1"],
    ["node n-2", "not ready: NodeLost", "n-2"],
  ]);
});
