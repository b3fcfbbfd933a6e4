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
 * Makes the content of `parent` look like `made`, in place: what stays the same keeps its focus, what is chosen in it,
 * and the text that somebody has marked. Elements of another `data-key` are other elements.
 */
export function patch(parent: Element, made: readonly Node[]): void {
  made.forEach((next, at) => {
    const there = parent.childNodes[at];
    if (there === undefined) parent.append(next);
    else if (!isSame(there, next)) there.replaceWith(next);
    else if (there instanceof Element && next instanceof Element) {
      patchAttributes(there, next);
      patch(there, [...next.childNodes]);
    } else if (there.nodeValue !== next.nodeValue) there.nodeValue = next.nodeValue;
  });
  while (parent.childNodes.length > made.length) parent.lastChild!.remove();
}

function isSame(there: Node, next: Node): boolean {
  if (there.nodeName !== next.nodeName) return false;
  return !(there instanceof HTMLElement && next instanceof HTMLElement) || there.dataset.key === next.dataset.key;
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
