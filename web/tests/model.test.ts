import { deepEqual, equal } from "node:assert/strict";
import { test } from "node:test";
import { blocksOf, stateWords } from "../src/cell";
import { columnsFor, noteOf } from "../src/card";
import { doing, inUse, utilisation, World } from "../src/model";
import { gpu, job, news, node, use } from "./made";

const MIG = gpu({ mode: "mig", slices: 8, parts: [{ profile: "3g.40gb", start: 4, size: 4 }, { profile: "1g.10gb", start: 0, size: 1, pod: "default/m", util: 40 }] });

test("what a GPU does: illness before all, then its node, then who has it", () => {
  const at = node();
  equal(doing(gpu(), at), "free");
  equal(doing(gpu({ uses: [use()] }), at), "busy");
  equal(doing(gpu({ uses: [use({ milli: 250 })] }), at), "shared");
  equal(doing(gpu({ mode: "shared", slots: 4 }), at), "shared");
  equal(doing(MIG, at), "mig");
  equal(doing(gpu({ ill: true, uses: [use()] }), node({ ready: false })), "ill");
  equal(doing(gpu({ uses: [use()] }), node({ ready: false })), "off");
  equal(doing(gpu(), node({ cordoned: true })), "off");
  equal(doing(gpu({ uses: [use()] }), node({ cordoned: true })), "busy", "its pods stay");
});

test("only what works for somebody is in use", () => {
  const busy = gpu({ uses: [use()] });
  equal(inUse(busy, node()), true);
  equal(inUse(gpu(), node()), false);
  equal(inUse({ ...busy, ill: true }, node()), false);
  equal(inUse(busy, node({ ready: false })), false);
});

test("utilisation is each pod's on the part that it has, and never more than all", () => {
  equal(utilisation(gpu({ uses: [use({ milli: 250, util: 80 }), use({ milli: 500, util: 10 })] })), 25);
  equal(utilisation(gpu({ uses: [use({ util: 90 }), use({ util: 90 })] })), 100);
});

test("a shared GPU has a block for each share, a sliced one for each slice from the left", () => {
  const shared = gpu({ mode: "shared", slots: 4, uses: [use({ milli: 250, util: 7 })] });
  deepEqual(blocksOf(shared, "shared").map((block) => block.util), [7, undefined, undefined, undefined]);
  deepEqual(blocksOf(gpu({ uses: [use({ milli: 300, util: 5 })] }), "shared"), [{ size: 300, util: 5 }, { size: 700, util: undefined }]);
  deepEqual(blocksOf(MIG, "mig"), [{ size: 1, util: 40 }, { size: 4, util: undefined }]);
  deepEqual(blocksOf(gpu({ mode: "mig", slices: 8, parts: [] }), "mig"), [{ size: 8, util: undefined }]);
  deepEqual(blocksOf(gpu({ uses: [use()] }), "busy"), []);
});

test("every state is told in words", () => {
  const at = node();
  equal(stateWords(gpu(), at), "free");
  equal(stateWords(gpu({ uses: [use({ util: 79.6 })] }), at), "default/train-0, 80 % busy");
  equal(stateWords(gpu({ ill: true, uses: [use()] }), at), "unhealthy, still used by default/train-0");
  equal(stateWords(gpu(), node({ cordoned: true })), "cordoned");
  equal(stateWords(gpu(), node({ ready: false })), "node not ready");
  equal(stateWords(gpu({ mode: "shared", slots: 4, uses: [use({ milli: 250 })] }), at), "shared, 1 of 4 shares in use by default/train-0");
  equal(stateWords(MIG, at), "MIG 3g.40gb + 1g.10gb; 1 of 2 instances in use");
});

test("a node's note and columns", () => {
  equal(noteOf(node()), "H100 80GB");
  equal(noteOf(node({ gpus: [gpu(), gpu({ model: "T4" })] })), "2 models");
  equal(noteOf(node({ gpus: [], cpu: [1500, 64000] })), "1.5 of 64 CPUs");
  equal(noteOf(node({ cordoned: true, ready: false })), "not ready");
  deepEqual([0, 1, 4, 5, 8, 16].map(columnsFor), [1, 1, 4, 3, 4, 8]);
});

test("the world follows what it is told, and forgets what is gone", () => {
  const world = new World();
  world.reset({ nodes: [node({ model: "T4", mem: 16, gpus: [{ i: 0, uses: [] } as never] })], jobs: [job()], queues: [], events: [] });
  equal(world.nodes.get("h100-0")!.gpus[0]!.model, "T4", "what the node says holds for its GPUs");
  world.apply({ jobs: [job({ state: "done" })], events: [news({ count: 1 })] });
  equal(world.jobs.get("default/Job/train")!.state, "done");
  world.apply({ events: [news({ id: "2" }), news({ count: 2 })] });
  deepEqual(world.events.map((one) => [one.id, one.count]), [["2", 1], ["1", 2]], "the same event told again is one event");
  world.apply({ gone: { nodes: ["h100-0"], jobs: ["default/Job/train"] } });
  deepEqual([world.nodes.size, world.jobs.size], [0, 0]);
  for (let id = 0; id < 500; id += 1) world.apply({ events: [news({ id: String(id) })] });
  equal(world.events.length, 200);
});
