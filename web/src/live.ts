// The live stream: a snapshot, then what changed. Says how the connection is, and comes back by itself.

import type { Delta, Snapshot } from "./model";

/** `away`: the server can't be reached. `ended`: it is there and doesn't know us, so it was started anew. */
export type Link = "connecting" | "live" | "away" | "ended";

export interface Told {
  reset(all: Snapshot): void;
  apply(delta: Delta): void;
  link(link: Link): void;
  /** Nothing is simulated: there is nothing to break. */
  real(): void;
}

const PAUSE = 3000;

export function follow(told: Told): void {
  const source = new EventSource("/live");
  source.addEventListener("snapshot", (event) => {
    told.reset(JSON.parse((event as MessageEvent<string>).data) as Snapshot);
    told.link("live");
  });
  source.addEventListener("delta", (event) => {
    told.apply(JSON.parse((event as MessageEvent<string>).data) as Delta);
  });
  source.addEventListener("real", () => told.real());
  source.addEventListener("error", () => {
    // The browser tries again by itself unless it got an answer that is no stream.
    if (source.readyState === EventSource.CLOSED) void again(told);
    else told.link("away");
  });
}

/** Until the server knows us again: the new link may be opened in another tab, which gives this one its cookie. */
async function again(told: Told): Promise<void> {
  for (;;) {
    const status = await fetch("/", { cache: "no-store" }).then(
      (answer) => answer.status,
      () => 0,
    );
    if (status !== 200) told.link(status === 401 ? "ended" : "away");
    await new Promise((resolve) => setTimeout(resolve, PAUSE));
    if (status === 200) break;
  }
  follow(told);
}

/** Breaks or mends a node or a GPU; what the server says about it. */
export async function fault(action: "fail" | "heal", target: string, xid?: number): Promise<string> {
  const order = xid === undefined ? { action, target } : { action, target, xid };
  const headers = { "Content-Type": "application/json", "X-Windlass-Page": "1" };
  let answer: Response;
  try {
    answer = await fetch("/faults", { method: "POST", headers, body: JSON.stringify(order) });
  } catch {
    return `${target} was not changed: the server can't be reached.`;
  }
  if (!answer.ok) return (await answer.text()).trim() || `${target} was not changed: ${answer.status}.`;
  return ((await answer.json()) as { message: string }).message;
}
