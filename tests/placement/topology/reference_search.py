"""A reference implementation of the topology search: objects and loops, no numpy, no code shared with the search
except the request. Property tests compare the two.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from windlass.model.workload import TopologyRequest

Vector = tuple[int, ...]


@dataclass
class PodSetSpec:
    """A pod set: what one pod takes, and how many there are."""

    name: str
    count: int
    takes: Vector
    request: TopologyRequest | None = None


@dataclass
class Domain:
    depth: int
    path: tuple[str, ...]
    children: list[Domain] = field(default_factory=list)
    row: int = -1
    pods: int = 0
    pods_with_leader: int = 0
    units: int = 0
    units_with_leader: int = 0
    takes_leader: bool = False
    given: int = 0
    has_leader: bool = False


class ReferenceTree:
    def __init__(self, levels: Sequence[str], paths: Sequence[Sequence[str]], names: Sequence[str]) -> None:
        self.levels = list(levels)
        self.roots: list[Domain] = []
        hosts = len({tuple(path) for path in paths}) == len(paths)
        self.depths = len(levels) + (not hosts)
        for row in sorted(range(len(paths)), key=lambda row: (tuple(paths[row]), names[row])):
            path = (*paths[row],) if hosts else (*paths[row], names[row])
            siblings = self.roots
            for depth in range(self.depths):
                if not siblings or siblings[-1].path != path[: depth + 1]:
                    siblings.append(Domain(depth, path[: depth + 1]))
                last = siblings[-1]
                siblings = last.children
            last.row = row

    def at(self, depth: int) -> list[Domain]:
        found = self.roots
        for _ in range(depth):
            found = [child for domain in found for child in domain.children]
        return found


def times(free: Vector, takes: Vector) -> int:
    return max(0, min((have // amount for have, amount in zip(free, takes, strict=True) if amount), default=10**9))


class SlowSearch:
    def __init__(
        self, tree: ReferenceTree, pod_set: PodSetSpec, leader: PodSetSpec | None, free: Sequence[Vector]
    ) -> None:
        request = pod_set.request or TopologyRequest("unconstrained")
        self.tree, self.leader = tree, leader
        slices = [(request.slice_level, request.slice_size), *request.inner_slices] if request.slice_level else []
        last = len(tree.levels) - 1
        self.slice_level = tree.levels.index(slices[0][0]) if slices else last
        self.size = slices[0][1] if slices else 1
        self.inner = dict.fromkeys(range(tree.depths), 1)
        for (above, _), (label, size) in itertools.pairwise(slices):
            for depth in range(tree.levels.index(above) + 1, tree.levels.index(label) + 1):
                self.inner[depth] = size
        self.anywhere = request.mode == "unconstrained"
        self.required = request.mode == "required"
        self.level = tree.levels.index(request.level) if not self.anywhere else 0 if slices else last
        self.need = pod_set.count // self.size
        for root in tree.roots:
            self._count(root, pod_set, free)

    def unit(self, depth: int) -> int:
        return self.size if depth <= self.slice_level else self.inner[depth]

    def _count(self, domain: Domain, pod_set: PodSetSpec, free: Sequence[Vector]) -> None:
        for child in domain.children:
            self._count(child, pod_set, free)
        able = [child for child in domain.children if child.takes_leader]
        if domain.row >= 0:
            have = free[domain.row]
            domain.pods = domain.pods_with_leader = times(have, pod_set.takes)
            domain.takes_leader = self.leader is not None and times(have, self.leader.takes) > 0
            if domain.takes_leader and self.leader is not None:
                left = tuple(a - b for a, b in zip(have, self.leader.takes, strict=True))
                domain.pods_with_leader = times(left, pod_set.takes)
        else:
            whole = self.inner[domain.depth + 1]
            domain.pods = sum(child.pods // whole * whole for child in domain.children)
            domain.takes_leader = bool(able)
            loss = [child.pods // whole * whole - child.pods_with_leader // whole * whole for child in able]
            domain.pods_with_leader = domain.pods - min(loss, default=domain.pods)
        if domain.depth >= self.slice_level:
            domain.units = domain.pods // self.unit(domain.depth)
            domain.units_with_leader = domain.pods_with_leader // self.unit(domain.depth)
        else:
            domain.units = sum(child.units for child in domain.children)
            cost = [child.units - child.units_with_leader for child in able]
            domain.units_with_leader = domain.units - min(cost, default=domain.units)
        if self.leader is None:
            domain.pods_with_leader, domain.units_with_leader = domain.pods, domain.units

    def run(self) -> list[Domain] | None:
        """The nodes that got something."""
        depth = self.level
        while True:
            here = self.tree.at(depth)
            able = [d for d in here if d.units_with_leader >= self.need and (d.takes_leader or not self.leader)]
            if able:
                chosen = [min(able, key=lambda d: (d.units_with_leader, d.pods_with_leader))]
                chosen[0].given, chosen[0].has_leader = self.need * self.size, self.leader is not None
                break
            if self.required:
                return None
            if self.anywhere or depth == 0:
                options = [d.units - d.units_with_leader for d in here if d.takes_leader]
                loss = 0 if self.leader is None else min(options, default=10**9)
                if sum(d.units for d in here) - loss < self.need:
                    return None
                chosen = self._share(here, self.need, self.leader is not None)
                break
            depth -= 1
        while depth + 1 < self.tree.depths:
            chosen = list(self._below(chosen, depth))
            depth += 1
        return chosen

    def _below(self, chosen: list[Domain], depth: int) -> Iterator[Domain]:
        if depth < self.slice_level:
            children = [child for domain in chosen for child in domain.children]
            yield from self._share(children, self.need, self.leader is not None)
            return
        for domain in chosen:
            yield from self._share(domain.children, domain.given // self.unit(depth + 1), domain.has_leader)

    def _share(self, pool: list[Domain], need: int, with_leader: bool) -> list[Domain]:
        size = self.unit(pool[0].depth)
        direction = 1 if self.anywhere else -1
        queue = sorted(pool, key=lambda d: (direction * d.units, d.pods))
        used = []
        if with_leader:
            leader_domain = self._leader_domain(queue, need)
            leader_domain.has_leader, leader_domain.given = (
                True,
                min(leader_domain.units_with_leader, need) * size,
            )
            need -= min(leader_domain.units_with_leader, need)
            queue.remove(leader_domain)
            used.append(leader_domain)
        while need:
            first = queue[0]
            if first.units >= need and not self.anywhere:
                first = min((d for d in queue if d.units >= need), key=lambda d: d.units)
            queue.remove(first)
            first.given = min(first.units, need) * size
            need -= min(first.units, need)
            if first.given:
                used.append(first)
        return sorted(used, key=lambda d: pool.index(d))

    def _leader_domain(self, queue: list[Domain], need: int) -> Domain:
        able = [domain for domain in queue if domain.takes_leader]
        total = sum(domain.units for domain in queue)
        able = [domain for domain in able if total - domain.units + domain.units_with_leader >= need]
        if self.anywhere:
            return able[0]
        alone = [domain for domain in able if domain.units_with_leader >= need]
        if alone:
            return min(alone, key=lambda d: d.units_with_leader)
        return min(able, key=lambda d: self._others(queue, d, need))

    def _others(self, queue: list[Domain], leader_domain: Domain, need: int) -> int:
        rest, used = need - leader_domain.units_with_leader, 0
        for domain in queue:
            if rest > 0 and domain is not leader_domain:
                rest, used = rest - domain.units, used + 1
        return used


def reference_plan(
    levels: Sequence[str],
    paths: Sequence[Sequence[str]],
    names: Sequence[str],
    free: Sequence[Vector],
    pod_sets: Sequence[PodSetSpec],
) -> dict[str, dict[int, int]] | None:
    """Row → pods of each pod set, or None where one of them doesn't fit."""
    left = list(free)
    placed: dict[str, dict[int, int]] = {}
    for group in _groups(pod_sets):
        workers = max(group, key=lambda pod_set: pod_set.count)
        leader = next((pod_set for pod_set in group if pod_set is not workers), None)
        nodes = SlowSearch(ReferenceTree(levels, paths, names), workers, leader, left).run()
        if nodes is None:
            return None
        placed[workers.name] = {node.row: node.given for node in nodes if node.given}
        if leader is not None:
            placed[leader.name] = {node.row: 1 for node in nodes if node.has_leader}
        for pod_set in group:
            for row, pods in placed[pod_set.name].items():
                left[row] = tuple(a - pods * b for a, b in zip(left[row], pod_set.takes, strict=True))
    return placed


def _groups(pod_sets: Sequence[PodSetSpec]) -> list[list[PodSetSpec]]:
    groups: dict[str, list[PodSetSpec]] = {}
    for pod_set in pod_sets:
        name = pod_set.request.group if pod_set.request else ""
        groups.setdefault(f"group {name}" if name else pod_set.name, []).append(pod_set)
    return list(groups.values())
