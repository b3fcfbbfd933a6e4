// What is selected: its details are shown, and a job's GPUs are lit on the grid. Parts of the page listen here.

export type Selected =
  | { what: "none" }
  | { what: "job"; key: string }
  | { what: "node"; name: string }
  | { what: "gpu"; node: string; index: number };

type Listener = (selected: Selected) => void;

class Selection {
  now: Selected = { what: "none" };
  /** The job that the pointer is over, lit without being selected. */
  hovered = "";
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

  get litJob(): string {
    return this.now.what === "job" ? this.now.key : this.hovered;
  }

  private tell(): void {
    for (const listener of this.listeners) listener(this.now);
  }
}

export const selection = new Selection();
