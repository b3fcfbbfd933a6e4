import { deepEqual, equal } from "node:assert/strict";
import { test } from "node:test";
import { Announcer, sentence } from "../src/announce";
import { job } from "./made";

test("few jobs are named, many are counted", () => {
  equal(sentence([]), "");
  equal(sentence([job({ name: "a" }), job({ name: "b", state: "waiting", why: "No GPU is free." })]), "a runs. b waits: No GPU is free.");
  equal(sentence([job({ name: "a", state: "starting" })]), "", "on its way");
  const many = ["a", "b", "c", "d"].map((name) => job({ name }));
  equal(sentence([...many, job({ name: "e", state: "failed" })]), "4 jobs run, 1 job has failed.");
});

test("what happens within a pause is one sentence, and coming back is nothing", () => {
  const said: string[] = [];
  const pauses: (() => void)[] = [];
  const announcer = new Announcer((words) => said.push(words), (act) => pauses.push(act));
  announcer.heard(undefined, job({ name: "a", state: "waiting" }));
  announcer.heard("waiting", job({ name: "a", state: "starting" }));
  announcer.heard("starting", job({ name: "a" }));
  announcer.heard("running", job({ name: "b", state: "stopping" }));
  announcer.heard("stopping", job({ name: "b", state: "running" }));
  announcer.heard("running", job({ name: "c" }));
  equal(pauses.length, 1);
  pauses.pop()!();
  deepEqual(said, ["a runs."]);
  announcer.heard("running", job({ name: "a", state: "done" }));
  pauses.pop()!();
  deepEqual(said, ["a runs.", "a has ended."]);
});
