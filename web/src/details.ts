// The panel with the details of what is selected: a job with its placement, a node, or a GPU with its buttons.

import { stateWords } from "./cell";
import { byId, h } from "./dom";
import { count, gib, model, ranges, since } from "./format";
import { fault } from "./live";
import type { Job, JobPod, Node, World } from "./model";
import { selection, type Selected } from "./selection";

const XIDS: readonly [number, string][] = [
  [79, "79: fallen off the bus"],
  [48, "48: double-bit memory error"],
  [74, "74: NVLink error"],
  [94, "94: contained memory error"],
  [119, "119: GSP timeout"],
];

export class Details {
  private readonly root = byId("details");
  private shown: Selected = { what: "none" };
  private from: Element | null = null;

  constructor(private readonly world: World) {
    selection.listen((selected) => {
      if (selected === this.shown) return;
      const opened = this.shown.what === "none" && selected.what !== "none";
      if (opened) this.from = document.activeElement;
      this.shown = selected;
      this.update();
      if (opened) this.root.focus({ preventScroll: true });
      if (selected.what === "none" && this.from instanceof HTMLElement) this.from.focus({ preventScroll: true });
    });
  }

  update(): void {
    const content = this.content();
    this.root.hidden = content === null;
    document.body.classList.toggle("has-details", content !== null);
    if (content === null) return;
    const focused = this.root.contains(document.activeElement) ? document.activeElement?.getAttribute("data-focus") : null;
    const scroll = this.root.scrollTop;
    const close = h("button", { class: "icon close", type: "button", "aria-label": "Close", title: "Close (Escape)", "data-focus": "close" }, "✕");
    close.addEventListener("click", () => selection.set({ what: "none" }));
    this.root.replaceChildren(close, ...content);
    this.root.scrollTop = scroll;
    if (focused) this.root.querySelector<HTMLElement>(`[data-focus="${focused}"]`)?.focus({ preventScroll: true });
  }

  private content(): HTMLElement[] | null {
    const selected = this.shown;
    switch (selected.what) {
      case "none":
        return null;
      case "job": {
        const job = this.world.jobs.get(selected.key);
        return job ? this.job(job) : [title("Gone", selected.key), h("p", {}, "It has been deleted.")];
      }
      case "node": {
        const node = this.world.nodes.get(selected.name);
        return node ? this.node(node) : [title("Gone", selected.name), h("p", {}, "The node has been deleted.")];
      }
      case "gpu": {
        const node = this.world.nodes.get(selected.node);
        return node?.gpus[selected.index] ? this.gpu(node, selected.index) : [title("Gone", selected.node)];
      }
    }
  }

  private job(job: Job): HTMLElement[] {
    const placed = job.pods.filter((pod) => pod.node && pod.state !== "done" && pod.state !== "failed");
    const command = job.kind === "Group" ? `kubectl -n ${job.ns} get pods` : `kubectl -n ${job.ns} describe ${job.kind.toLowerCase()} ${job.name}`;
    const why = job.why && h("p", { class: `why ${job.state}` }, job.why);
    return [
      title(`${job.kind} in ${job.ns}`, job.name),
      h("p", { class: "state-line" }, h("span", { class: "state", "data-state": job.state }, job.state), job.reason ? h("span", { class: "reason" }, job.reason) : null),
      ...(why ? [why] : []),
      facts([
        ["Asks for", job.wants],
        ["Has", job.holds ? `${count(job.holds, "GPU")} on ${count(job.nodes ?? 0, "node")}` : ""],
        ["Utilisation", job.state === "running" && job.gpus ? `${job.util ?? 0} %` : ""],
        ["Queue", job.queue ?? ""],
        ["Priority", job.class ? `${job.class} (${job.priority ?? 0})` : job.priority ? String(job.priority) : ""],
        ["Running for", job.state === "running" && job.started ? since(job.started) : ""],
        ["Made", job.created ? `${since(job.created)} ago` : ""],
        ["Restarts", job.restarts ? String(job.restarts) : ""],
        ["Succeeded", job.succeeded ? count(job.succeeded, "pod") : ""],
      ]),
      ...(placed.length ? [h("h3", {}, "Placement"), this.placement(placed)] : []),
      ...(job.pods.length ? [h("h3", {}, `Pods (${job.count})`), this.pods(job)] : []),
      h("h3", {}, "More"),
      h("pre", { class: "command", tabindex: 0 }, command),
    ];
  }

  private placement(pods: JobPod[]): HTMLElement {
    const byNode = new Map<string, { devices: number[]; pods: number }>();
    for (const pod of pods) {
      const entry = byNode.get(pod.node!) ?? { devices: [], pods: 0 };
      entry.devices.push(...this.devicesOf(pod));
      entry.pods += 1;
      byNode.set(pod.node!, entry);
    }
    const rows = [...byNode].sort(([a], [b]) => a.localeCompare(b, "en", { numeric: true })).map(([name, entry]) => {
      const node = this.world.nodes.get(name);
      const where = [node?.zone, node?.rack].filter(Boolean).join(" / ");
      return h(
        "tr",
        {},
        h("td", {}, this.link(name, { what: "node", name })),
        h("td", { class: "dim" }, where),
        h("td", { class: "num" }, entry.devices.length ? `GPU ${ranges(entry.devices)}` : count(entry.pods, "pod")),
      );
    });
    return h("table", { class: "placement" }, h("tbody", {}, ...rows));
  }

  /** As the grid shows them: a slice or a share has no index of its own on the pod. */
  private devicesOf(pod: JobPod): number[] {
    const node = this.world.nodes.get(pod.node!);
    return node ? node.gpus.filter((gpu) => gpu.uses.some((use) => use.pod === pod.key)).map((gpu) => gpu.i) : [];
  }

  private pods(job: Job): HTMLElement {
    return h(
      "ul",
      { class: "pods" },
      ...job.pods.slice(0, 64).map((pod) =>
        h(
          "li",
          {},
          h("span", { class: "state", "data-state": pod.state }, pod.state),
          h("span", { class: "pod-name" }, pod.key.split("/")[1] ?? pod.key),
          pod.why && pod.why !== job.why ? h("span", { class: "pod-why" }, pod.why) : null,
        ),
      ),
    );
  }

  private node(node: Node): HTMLElement[] {
    const jobs = [...new Set(node.gpus.flatMap((gpu) => gpu.uses.map((use) => use.job)))].sort();
    const broken = !node.ready;
    return [
      title("Node", node.name),
      h(
        "p",
        { class: "state-line" },
        h("span", { class: "state", "data-state": node.ready ? "running" : "failed" }, node.ready ? "ready" : "not ready"),
        node.cordoned ? h("span", { class: "state", "data-state": "stopping" }, "cordoned") : null,
      ),
      ...(node.why ? [h("p", { class: "why failed" }, node.why)] : []),
      ...(node.problems ?? []).map((problem) => h("p", { class: "why failed" }, problem)),
      facts([
        ["GPUs", node.gpus.length ? `${node.gpus.length} × ${model(node.gpus[0]!.model)}` : "none"],
        ["Rack", [node.zone, node.rack].filter(Boolean).join(" / ")],
        ["Pods", String(node.pods)],
        ["CPUs", `${(node.cpu[0] / 1000).toLocaleString("en")} of ${(node.cpu[1] / 1000).toLocaleString("en")} requested`],
        ["Memory", `${gib(node.memory[0])} of ${gib(node.memory[1])} requested`],
        ["Taints", (node.taints ?? []).join("\n")],
      ]),
      ...(jobs.length ? [h("h3", {}, "Jobs on it"), this.jobLinks(jobs)] : []),
      h("h3", {}, "Break it"),
      h(
        "div",
        { class: "buttons" },
        this.action("fail", `node/${node.name}`, "Fail this node", broken),
        this.action("heal", `node/${node.name}`, "Heal this node", false),
      ),
      h("pre", { class: "command", tabindex: 0 }, `windlass sandbox fail node/${node.name}`),
    ];
  }

  private gpu(node: Node, index: number): HTMLElement[] {
    const gpu = node.gpus[index]!;
    const jobs = [...new Set(gpu.uses.map((use) => use.job))].sort();
    const target = `gpu/${node.name}:${gpu.i}`;
    const choice = h("select", { "aria-label": "Xid of the fault", "data-focus": "xid" }, ...XIDS.map(([xid, words]) => h("option", { value: xid }, words)));
    const parts = gpu.parts ?? [];
    return [
      title(`GPU ${gpu.i} of`, node.name),
      h("p", { class: "state-line" }, h("span", { class: "state", "data-state": gpu.ill ? "failed" : gpu.uses.length ? "running" : "done" }, gpu.ill ? "unhealthy" : gpu.uses.length ? "in use" : "free")),
      h("p", { class: "gpu-words" }, stateWords(gpu, node)),
      ...(gpu.ill ? (node.problems ?? []).map((problem) => h("p", { class: "why failed" }, problem)) : []),
      facts([
        ["Model", model(gpu.model)],
        ["Memory", gpu.mem ? `${Math.round(gpu.mem / 1024)} GiB` : ""],
        ["Node", node.name],
        ["Rack", [node.zone, node.rack].filter(Boolean).join(" / ")],
        ["Slices", parts.map((part) => `${part.profile} ${part.pod ? `→ ${part.pod}` : "free"}`).join("\n")],
      ]),
      ...(jobs.length ? [h("h3", {}, "Jobs on it"), this.jobLinks(jobs)] : []),
      h("h3", {}, "Break it"),
      h(
        "div",
        { class: "buttons" },
        choice,
        this.action("fail", target, "Fail this GPU", gpu.ill === true, () => Number(choice.value)),
        this.action("heal", target, "Heal this GPU", false),
      ),
      h("pre", { class: "command", tabindex: 0 }, `windlass sandbox fail ${target} --xid 79`),
      h("p", {}, this.link(`All of ${node.name}`, { what: "node", name: node.name })),
    ];
  }

  private jobLinks(keys: string[]): HTMLElement {
    return h(
      "ul",
      { class: "links" },
      ...keys.map((key) => h("li", {}, this.link(this.world.jobs.get(key)?.name ?? key, { what: "job", key }))),
    );
  }

  private link(words: string, to: Selected): HTMLElement {
    const focus = to.what === "job" ? to.key : to.what === "node" ? to.name : "";
    const button = h("button", { class: "link-button", type: "button", "data-focus": `to-${focus}` }, words);
    button.addEventListener("click", () => selection.set(to));
    return button;
  }

  private action(what: "fail" | "heal", target: string, words: string, disabled: boolean, xid?: () => number): HTMLElement {
    const button = h("button", { class: `action ${what}`, type: "button", disabled, "data-focus": what }, words);
    button.addEventListener("click", () => {
      fault(what, target, xid?.()).then(toast, (problem: Error) => toast(problem.message));
    });
    return button;
  }
}

function title(over: string, name: string): HTMLElement {
  return h("header", {}, h("p", { class: "over" }, over), h("h2", { id: "details-title" }, name));
}

function facts(all: [string, string][]): HTMLElement {
  const known = all.filter(([, value]) => value !== "");
  return h("dl", { class: "facts" }, ...known.flatMap(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]));
}

let fading = 0;

export function toast(words: string): void {
  const element = byId("toast");
  element.textContent = words;
  element.classList.add("seen");
  clearTimeout(fading);
  fading = setTimeout(() => element.classList.remove("seen"), 5000);
}
