// Which nodes stand together: by rack where they say so, then by zone, and those without GPUs last.

import type { Node } from "./model";

const MOST_IN_RACK = 64;

export interface Group {
  title: string;
  nodes: Node[];
}

/** A change of this moves a node's card, or makes it another. */
export function placeOf(node: Node): string {
  return `${groupOf(node)}|${node.gpus.length}`;
}

/** As they stand on the page; a large group is cut into several. */
export function groups(nodes: Iterable<Node>): Group[] {
  const all = new Map<string, Node[]>();
  for (const node of nodes) {
    const key = groupOf(node);
    const list = all.get(key);
    if (list) list.push(node);
    else all.set(key, [node]);
  }
  return [...all].sort(([a], [b]) => natural.compare(a, b)).flatMap(([, members]) => cut(members));
}

const natural = new Intl.Collator("en", { numeric: true });

function cut(members: Node[]): Group[] {
  members.sort((a, b) => natural.compare(a.name, b.name));
  const title = titleOf(members[0]!);
  if (members.length <= MOST_IN_RACK) return [{ title, nodes: members }];
  const made: Group[] = [];
  for (let first = 0; first < members.length; first += MOST_IN_RACK) {
    const nodes = members.slice(first, first + MOST_IN_RACK);
    made.push({ title: `${title} · ${first + 1}–${first + nodes.length}`, nodes });
  }
  return made;
}

function groupOf(node: Node): string {
  if (!node.gpus.length) return "9";
  return node.rack ? `0/${node.zone}/${node.rack}` : `1/${node.zone}/${node.product ?? ""}`;
}

function titleOf(node: Node): string {
  if (!node.gpus.length) return "CPU nodes";
  return node.rack || (node.zone ? `${node.zone}, no rack` : "No rack");
}
