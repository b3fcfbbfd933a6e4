// Nodes, GPUs, jobs and events to test with; each says only what it is about.

import type { Gpu, Job, JobPod, News, Node, Use } from "../src/model";

export function gpu(over: Partial<Gpu> = {}): Gpu {
  return { i: 0, model: "NVIDIA-H100-80GB-HBM3", mem: 81559, uses: [], ...over };
}

export function use(over: Partial<Use> = {}): Use {
  return { pod: "default/train-0", job: "default/Job/train", milli: 1000, util: 80, ...over };
}

export function node(over: Partial<Node> = {}): Node {
  return { name: "h100-0", rack: "rack-0", zone: "zone-a", ready: true, gpus: [gpu()], cpu: [0, 64000], memory: [0, 0], pods: 0, ...over };
}

export function job(over: Partial<Job> = {}): Job {
  const name = over.name ?? "train";
  return { key: `default/Job/${name}`, ns: "default", kind: "Job", name, state: "running", wants: "8 GPUs", gpus: 8, created: 100, pods: [], count: 0, ...over };
}

export function pod(over: Partial<JobPod> = {}): JobPod {
  return { key: "default/train-0", state: "running", ...over };
}

export function news(over: Partial<News> = {}): News {
  return { id: "1", at: 0, type: "Normal", reason: "Scheduled", message: "", kind: "Pod", ns: "default", name: "train-0", count: 1, ...over };
}
