// What is selected, pointed at and looked for: details are shown, GPUs are lit, lists are shortened. Parts listen here.

export type Selected =
  | { what: "none" }
  | { what: "job"; key: string }
  | { what: "node"; name: string }
  | { what: "gpu"; node: string; index: number };

type Listener = () => void;

class Selection {
  now: Selected = { what: "none" };
  /** What was typed to find something, in lower case. */
  sought = "";
  /** The job that the pointer is over, lit without being selected. */
  private hovered = "";
  private readonly listeners: Listener[] = [];

  listen(listener: Listener): void {
    this.listeners.push(listener);
  }

  set(selected: Selected): void {
    this.now = selected;
    this.tell();
  }

  hover(job: string): void {
    if (job === this.hovered) return;
    this.hovered = job;
    this.tell();
  }

  seek(text: string): void {
    this.sought = text;
    this.tell();
  }

  get litJob(): string {
    return this.now.what === "job" ? this.now.key : this.hovered;
  }

  private tell(): void {
    for (const listener of this.listeners) listener();
  }
}

export const selection = new Selection();
