import { deepEqual, equal } from "node:assert/strict";
import { test } from "node:test";
import { halves } from "../src/clip";
import { count, gib, model, ranges, soon, span } from "../src/format";

test("spans are told in the unit that fits", () => {
  deepEqual([0, 59.9, 60, 3599, 3600, 7800, 86399, 86400, 200000].map(span), [
    "0 s",
    "59 s",
    "1 min",
    "59 min",
    "1 h",
    "2 h 10 min",
    "23 h 59 min",
    "1 d",
    "2 d",
  ]);
  equal(span(-5), "0 s", "clocks differ");
});

test("runs of numbers become ranges, pairs don't", () => {
  deepEqual([[], [3], [1, 0], [2, 0, 1], [0, 1, 2, 5, 7, 8], [1, 1, 1]].map(ranges), ["", "3", "0, 1", "0–2", "0–2, 5, 7, 8", "1"]);
});

test("counts have a plural", () => {
  deepEqual([count(0, "GPU"), count(1, "GPU"), count(4000, "GPU")], ["0 GPUs", "1 GPU", "4,000 GPUs"]);
});

test("products and bytes are short", () => {
  equal(model("NVIDIA-H100-80GB-HBM3"), "H100 80GB HBM3");
  equal(gib(512 * 2 ** 30), "512 GiB");
});

test("a long name keeps its end, and is whole when put together", () => {
  deepEqual(halves("h100-0"), ["h100-0", ""]);
  deepEqual(halves("gke-prod-eu-west4-nodepool-12"), ["gke-prod-eu-west4-nodepool", "-12"]);
  deepEqual(halves("ip-10-0-112-204.eu-central-1.compute.internal"), ["ip-10-0-112-204.eu-central-1.compute.int", "ernal"]);
  for (const name of ["a".repeat(253), `${"a".repeat(40)}-`, `-${"a".repeat(40)}`]) equal(halves(name).join(""), name);
});

test("a time to come is told as people say it", () => {
  const now = new Date(2026, 0, 1, 12, 0).getTime() / 1000;
  equal(soon(now + 1800, now), "in 30 min, 12:30");
  equal(soon(now + 86400, now), "in 1 d, Fri, 2 Jan 12:00".replace("Fri,", "Fri"));
  equal(soon(now - 60, now), "due since 11:59");
  equal(soon(0, now), "");
});
