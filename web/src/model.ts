// What the server tells: the JSON of src/windlass/web, as types, and what the page keeps of it.

export interface Use {
  pod: string;
  job: string;
  milli: number;
  util: number;
}

export interface Part {
  profile: string;
  start: number;
  size: number;
  pod?: string;
  job?: string;
  util?: number;
}

export interface Gpu {
  i: number;
  model: string;
  mem: number;
  uses: Use[];
  ill?: boolean;
  mode?: "shared" | "mig";
  slots?: number;
  slices?: number;
  parts?: Part[];
}

export interface Node {
  /** Of its GPUs, where they don't say otherwise themselves. */
  model?: string;
  mem?: number;
  name: string;
  rack: string;
  zone: string;
  ready: boolean;
  gpus: Gpu[];
  cpu: [number, number];
  memory: [number, number];
  pods: number;
  why?: string;
  cordoned?: boolean;
  taints?: string[];
  product?: string;
  problems?: string[];
}

export type JobState = "waiting" | "starting" | "running" | "stopping" | "done" | "failed";

export interface JobPod {
  key: string;
  state: JobState;
  node?: string;
  reason?: string;
  why?: string;
  devices?: number[];
  profile?: string;
  util?: number;
}

export interface Job {
  key: string;
  ns: string;
  kind: string;
  name: string;
  state: JobState;
  wants: string;
  gpus: number;
  created: number;
  pods: JobPod[];
  count: number;
  reason?: string;
  why?: string;
  message?: string;
  queue?: string;
  priority?: number;
  class?: string;
  started?: number;
  util?: number;
  holds?: number;
  nodes?: number;
  restarts?: number;
  succeeded?: number;
  /** The label; else its namespace is its team. */
  team?: string;
  /** The code of what binds it, as the scheduler named it. */
  cause?: string;
  needs?: Needs;
  /** When it is planned to start, and how long it may run at most, in seconds. */
  starts?: number;
  lasts?: number;
}

/** Whether somebody has to do something, or it goes on by itself. */
export type Needs = "person" | "time" | "";

/** What changes, repairs and nodes that come up have in common. */
export interface Operation {
  name: string;
  phase: string;
  reason: string;
  message: string;
  remedy: string;
  since: number;
  deadline: number;
  needs: Needs;
}

export interface Change extends Operation {
  stack: string;
  component: string;
  from: string;
  to: string;
  wave: number;
  waves: number;
  nodes: number;
  changed: number;
  failed: number;
  stragglers: string[];
  gates: { name: string; verdict: string; message: string }[];
  over: boolean;
}

export interface Repair extends Operation {
  node: string;
  /** The index of the GPU; -1: the whole node. */
  device: number;
  fault: string;
  by: string;
  opened: number;
  ended: number;
  attempts: { rung: string; at: number; result: string; message: string }[];
  ticket: string;
  over: boolean;
}

/** A node on its way into service. */
export interface BringUp extends Operation {
  stack: string;
  steps: { name: string; state: string; reason: string; message: string; deadline: number }[];
}

export interface Queue {
  name: string;
  cohort: string;
  quota: { resource: string; nominal: number; used: number; borrowed: number }[];
  pending: number;
  admitted: number;
}

export interface News {
  id: string;
  at: number;
  type: string;
  reason: string;
  message: string;
  kind: string;
  ns: string;
  name: string;
  count: number;
}

export interface Snapshot {
  nodes: Node[];
  jobs: Job[];
  queues: Queue[];
  changes: Change[];
  repairs: Repair[];
  bringUps: BringUp[];
  events: News[];
}

export interface Delta extends Partial<Snapshot> {
  gone?: Partial<Record<Exclude<keyof Snapshot, "events">, string[]>>;
}

/** What a GPU is doing, as one word: its colour. */
export type Doing = "free" | "busy" | "shared" | "mig" | "ill" | "off";

export const DOING: readonly { doing: Doing; label: string; means: string }[] = [
  { doing: "busy", label: "exclusive", means: "one pod uses it; the fill is its utilisation" },
  { doing: "shared", label: "shared", means: "several pods share it; each bar is one share" },
  { doing: "mig", label: "MIG", means: "partitioned by MIG; each block is one instance" },
  { doing: "free", label: "free", means: "no pod uses it" },
  { doing: "ill", label: "unhealthy", means: "the GPU is unhealthy and takes no pods" },
  { doing: "off", label: "unavailable", means: "its node is cordoned or not ready" },
];

export function doing(gpu: Gpu, node: Node): Doing {
  if (gpu.ill) return "ill";
  if (!node.ready || (node.cordoned && gpu.uses.length === 0)) return "off";
  if (gpu.mode === "mig") return "mig";
  if (gpu.mode === "shared" || gpu.uses.some((use) => use.milli < 1000)) return "shared";
  return gpu.uses.length > 0 ? "busy" : "free";
}

/** Whether it works for somebody, at least a part of it. */
export function inUse(gpu: Gpu, node: Node): boolean {
  return gpu.uses.length > 0 && !gpu.ill && node.ready;
}

/** How busy the whole GPU is, in percent: what its pods do, each on the part that it has. */
export function utilisation(gpu: Gpu): number {
  return Math.min(100, gpu.uses.reduce((sum, use) => sum + (use.util * use.milli) / 1000, 0));
}

/** GPUs that are like the node's others come without model and memory. */
function complete(node: Node): Node {
  for (const gpu of node.gpus) {
    gpu.model ??= node.model ?? "";
    gpu.mem ??= node.mem ?? 0;
  }
  return node;
}

/** Everything that is known, by name. */
export class World {
  readonly nodes = new Map<string, Node>();
  readonly jobs = new Map<string, Job>();
  readonly queues = new Map<string, Queue>();
  readonly changes = new Map<string, Change>();
  readonly repairs = new Map<string, Repair>();
  readonly bringUps = new Map<string, BringUp>();
  events: News[] = [];
  /** Whether nodes and GPUs can be failed and healed from here. */
  simulated = true;

  reset(all: Delta): void {
    for (const known of [this.nodes, this.jobs, this.queues, this.changes, this.repairs, this.bringUps]) known.clear();
    this.events = [];
    this.apply(all);
  }

  apply(delta: Delta): void {
    for (const node of delta.nodes ?? []) this.nodes.set(node.name, complete(node));
    for (const job of delta.jobs ?? []) this.jobs.set(job.key, job);
    for (const queue of delta.queues ?? []) this.queues.set(queue.name, queue);
    for (const change of delta.changes ?? []) this.changes.set(change.name, change);
    for (const repair of delta.repairs ?? []) this.repairs.set(repair.name, repair);
    for (const node of delta.bringUps ?? []) this.bringUps.set(node.name, node);
    for (const what of ["nodes", "jobs", "queues", "changes", "repairs", "bringUps"] as const) {
      for (const name of delta.gone?.[what] ?? []) this[what].delete(name);
    }
    if (delta.events?.length) {
      const told = new Set(delta.events.map((one) => one.id));
      this.events = [...this.events.filter((one) => !told.has(one.id)), ...delta.events].slice(-200);
    }
  }

  jobOfPod(key: string): Job | undefined {
    for (const job of this.jobs.values()) if (job.pods.some((pod) => pod.key === key)) return job;
    return undefined;
  }
}
