// The live stream: a snapshot, then what changed. Says how the connection is.

import type { Delta, Snapshot } from "./model";

export type Link = "connecting" | "live" | "away" | "ended";

export function follow(
  reset: (all: Snapshot) => void,
  apply: (delta: Delta) => void,
  tell: (link: Link) => void,
): void {
  const source = new EventSource("/live");
  source.addEventListener("snapshot", (event) => {
    reset(JSON.parse((event as MessageEvent<string>).data) as Snapshot);
    tell("live");
  });
  source.addEventListener("delta", (event) => {
    apply(JSON.parse((event as MessageEvent<string>).data) as Delta);
  });
  source.addEventListener("error", () => {
    // The browser tries again by itself unless the server said no: then it was started anew, with another token.
    tell(source.readyState === EventSource.CLOSED ? "ended" : "away");
    if (source.readyState === EventSource.CLOSED) setTimeout(() => again(reset, apply, tell), 3000);
  });
}

async function again(
  reset: (all: Snapshot) => void,
  apply: (delta: Delta) => void,
  tell: (link: Link) => void,
): Promise<void> {
  try {
    const answer = await fetch("/", { cache: "no-store" });
    if (answer.ok) follow(reset, apply, tell);
    else tell("ended");
  } catch {
    tell("away");
    setTimeout(() => again(reset, apply, tell), 3000);
  }
}

/** Breaks or mends a node or a GPU; what the server says about it. */
export async function fault(action: "fail" | "heal", target: string, xid?: number): Promise<string> {
  const answer = await fetch("/faults", {
    method: "POST",
    headers: { "Content-Type": "application/json", "X-Windlass-Page": "1" },
    body: JSON.stringify(xid === undefined ? { action, target } : { action, target, xid }),
  });
  if (!answer.ok) throw new Error((await answer.text()).trim());
  return ((await answer.json()) as { message: string }).message;
}
