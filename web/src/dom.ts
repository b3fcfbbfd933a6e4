// Elements in one line. Text is always set as text, never as markup.

type Child = Node | string | null | undefined | false;
type Attributes = Record<string, string | number | boolean | null | undefined>;

export function h<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  attributes: Attributes = {},
  ...children: Child[]
): HTMLElementTagNameMap[K] {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === true) made.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) made.setAttribute(name, String(value));
  }
  made.append(...children.filter((child): child is Node | string => child !== null && child !== undefined && child !== false));
  return made;
}

export function byId<T extends HTMLElement = HTMLElement>(id: string): T {
  const found = document.getElementById(id);
  if (!found) throw new Error(`no element #${id}`);
  return found as T;
}

/** Sets text only where it differs: a write that changes nothing still costs a layout. */
export function say(element: HTMLElement, text: string): void {
  if (element.textContent !== text) element.textContent = text;
}

/** Puts these elements into the list. Only what is out of place is moved: an element that is moved loses the focus. */
export function arrange(list: HTMLElement, elements: readonly HTMLElement[]): void {
  elements.forEach((element, at) => {
    const there = list.children[at];
    if (there !== element) list.insertBefore(element, there ?? null);
  });
  while (list.children.length > elements.length) list.lastElementChild!.remove();
}

/**
 * Makes the content of `parent` look like `made`, in place: what stays keeps its focus, what is chosen in it, and the
 * text that somebody has marked. What stays is known by its tag, its first class and its `data-key`.
 */
export function patch(parent: Element, made: readonly Node[]): void {
  let there = parent.firstChild;
  for (const next of made) {
    const same = firstLike(next, there);
    if (!same) {
      parent.insertBefore(next, there);
      continue;
    }
    while (there !== same) there = removed(there!);
    if (same instanceof Element && next instanceof Element) {
      patchAttributes(same, next);
      patch(same, [...next.childNodes]);
    } else if (same.nodeValue !== next.nodeValue) same.nodeValue = next.nodeValue;
    there = same.nextSibling;
  }
  while (there) there = removed(there);
}

function firstLike(next: Node, from: ChildNode | null): ChildNode | null {
  for (let there = from; there; there = there.nextSibling) if (identity(there) === identity(next)) return there;
  return null;
}

function identity(node: Node): string {
  return node instanceof HTMLElement ? `${node.nodeName} ${node.classList[0] ?? ""} ${node.dataset.key ?? ""}` : node.nodeName;
}

/** Takes it away; what came after it. */
function removed(node: ChildNode): ChildNode | null {
  const next = node.nextSibling;
  node.remove();
  return next;
}

function patchAttributes(there: Element, next: Element): void {
  for (const name of there.getAttributeNames()) if (!next.hasAttribute(name)) there.removeAttribute(name);
  for (const { name, value } of next.attributes) {
    if (there.getAttribute(name) === value) continue;
    // The page's policy forbids styles in attributes; the same by the object model is allowed.
    if (name === "style" && there instanceof HTMLElement) there.style.cssText = value;
    else there.setAttribute(name, value);
  }
}
