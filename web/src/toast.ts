// One line that says what came of a button, and goes by itself.

import { byId } from "./dom";

const SEEN_FOR = 6000;
let fading = 0;

export function toast(words: string): void {
  const element = byId("toast");
  element.textContent = words;
  element.classList.add("seen");
  clearTimeout(fading);
  fading = setTimeout(() => element.classList.remove("seen"), SEEN_FOR);
}
