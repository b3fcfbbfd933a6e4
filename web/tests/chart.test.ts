import { deepEqual, equal } from "node:assert/strict";
import { test } from "node:test";
import { runs, scaleEnd, stack } from "../src/chart";
import { gpus, percent } from "../src/time";

test("a line is broken where nothing was recorded", () => {
  deepEqual(runs([1, 2, null, null, 0, 3]), [
    [
      [0, 1],
      [1, 2],
    ],
    [
      [4, 0],
      [5, 3],
    ],
  ]);
  deepEqual(runs([null, null]), []);
});

test("areas stand on those before them, and gaps have none", () => {
  deepEqual(stack([
    [1, null, 2],
    [3, null, 4],
  ]), [
    [[0, 1], null, [0, 2]],
    [[1, 4], null, [2, 6]],
  ]);
});

test("scales end at a round number that everything fits under", () => {
  deepEqual([0, 0.4, 1, 7, 41, 99, 100, 5000].map(scaleEnd), [1, 0.4, 1, 8, 50, 100, 100, 5000]);
});

test("what was not measured is no number", () => {
  equal(percent(null), "not measured");
  equal(percent(0.745), "75 %");
  deepEqual([9.96, 0.25, 1234.5].map(gpus), ["10", "0.3", "1,235"]);
});
