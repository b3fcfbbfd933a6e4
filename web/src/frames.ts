// Work in small pieces, as much of it in each frame as leaves the page quick. What is asked for twice is done once.

/** Milliseconds of a frame's 16; styles and paint of what was changed need the rest. */
const BUDGET = 5;

export class Frames {
  private readonly pieces = new Map<string, () => void>();
  private due = false;

  ask(key: string, piece: () => void): void {
    this.pieces.set(key, piece);
    this.wake();
  }

  clear(): void {
    this.pieces.clear();
  }

  private wake(): void {
    if (this.due) return;
    this.due = true;
    requestAnimationFrame(() => this.run());
  }

  private run(): void {
    this.due = false;
    const end = performance.now() + BUDGET;
    for (const [key, piece] of this.pieces) {
      this.pieces.delete(key);
      piece();
      if (performance.now() >= end) break;
    }
    if (this.pieces.size > 0) this.wake();
  }
}
