// Long names: the middle gives way, since `…-0` and `…-1` differ at the end.

import { h } from "./dom";

const SHORT = 8;
const TAIL = 10;

/** The name in two parts, the second of which must stay in sight; it is empty where the name is short. */
export function halves(name: string): [string, string] {
  if (name.length <= SHORT) return [name, ""];
  const dash = name.lastIndexOf("-");
  const at = dash > 0 && name.length - dash <= TAIL ? dash : name.length - TAIL / 2;
  return [name.slice(0, at), name.slice(at)];
}

/** For an element of the class `clip`. */
export function clipped(name: string): HTMLElement[] {
  const [head, tail] = halves(name);
  return [h("span", { class: "clip-head" }, head), ...(tail ? [h("span", { class: "clip-tail" }, tail)] : [])];
}
