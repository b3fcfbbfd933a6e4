// A list is one stop for the Tab key; arrows, Home and End go from item to item.

/** Of all `selector` in `root`, one has the stop. Call the answer after every change of the list. */
export function roving(root: HTMLElement, selector: string): () => void {
  const items = (): HTMLElement[] => [...root.querySelectorAll<HTMLElement>(selector)].filter((item) => item.offsetParent !== null);

  function stopAt(item: HTMLElement): void {
    for (const other of root.querySelectorAll<HTMLElement>(`${selector}[tabindex="0"]`)) other.tabIndex = -1;
    item.tabIndex = 0;
  }

  root.addEventListener("focusin", (event) => {
    const item = (event.target as Element).closest<HTMLElement>(selector);
    if (item) stopAt(item);
  });
  root.addEventListener("keydown", (event) => {
    const from = (event.target as Element).closest<HTMLElement>(selector);
    if (!from || event.altKey || event.ctrlKey || event.metaKey) return;
    const all = items();
    const at = all.indexOf(from);
    const steps: Record<string, number> = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: all.length - 1 };
    const target = all[steps[event.key] ?? -1];
    if (!target) return;
    event.preventDefault();
    target.focus();
  });
  return () => {
    const there = root.querySelectorAll<HTMLElement>(`${selector}[tabindex="0"]`);
    if (there.length === 1) return;
    const keep = [...there].find((item) => item === document.activeElement) ?? root.querySelector<HTMLElement>(selector);
    if (keep) stopAt(keep);
  };
}
