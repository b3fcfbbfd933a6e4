// The tip that names a GPU: beside the pointer, and beside the keyboard's focus.

import { stateWords } from "./cell";
import { byId, h } from "./dom";
import type { World } from "./model";
import { selection } from "./selection";

export function startTip(world: World): void {
  const tip = byId("tip");
  const racks = byId("racks");

  function show(target: EventTarget | null, lit: boolean): void {
    const cell = target instanceof Element ? target.closest<HTMLElement>(".gpu") : null;
    const node = cell && world.nodes.get(cell.dataset.node ?? "");
    const gpu = node?.gpus[Number(cell?.dataset.gpu)];
    if (!cell || !node || !gpu) {
      hide();
      return;
    }
    tip.replaceChildren(h("b", {}, `${node.name} · GPU ${gpu.i}`), stateWords(gpu, node));
    tip.hidden = false;
    place(tip, cell.getBoundingClientRect());
    // Only for the pointer: the focus is hard to see among many that are lit.
    if (lit) selection.hover(gpu.uses.length === 1 ? gpu.uses[0]!.job : "");
  }

  function hide(): void {
    tip.hidden = true;
    selection.hover("");
  }

  racks.addEventListener("pointerover", (event) => {
    if (event.pointerType !== "touch") show(event.target, true);
  });
  racks.addEventListener("pointerleave", hide);
  racks.addEventListener("focusin", (event) => {
    if (event.target instanceof Element && event.target.matches(":focus-visible")) show(event.target, false);
  });
  racks.addEventListener("focusout", hide);
  document.addEventListener("wheel", hide, { passive: true });
  document.addEventListener("touchmove", hide, { passive: true });
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") hide();
  });
}

/** Above, or below where there is no room; never out of the window. */
function place(tip: HTMLElement, at: DOMRect): void {
  const left = Math.min(Math.max(8, at.left + at.width / 2 - tip.offsetWidth / 2), innerWidth - tip.offsetWidth - 8);
  const above = at.top - tip.offsetHeight - 8;
  tip.style.left = `${left}px`;
  tip.style.top = `${above > 8 ? above : at.bottom + 8}px`;
}
