"""The topology search once more, as plainly as it can be said: objects and loops, no numpy, nothing shared with the
program but the request. The properties compare the two.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from windlass.model.workload import TopologyRequest

Vector = tuple[int, ...]


@dataclass
class Wish:
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
    pods_beside: int = 0
    units: int = 0
    units_beside: int = 0
    takes_leader: bool = False
    given: int = 0
    seats_leader: bool = False


class SlowTree:
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
    return max(0, min((have // one for have, one in zip(free, takes, strict=True) if one), default=10**9))


class SlowSearch:
    def __init__(self, tree: SlowTree, wish: Wish, leader: Wish | None, free: Sequence[Vector]) -> None:
        request = wish.request or TopologyRequest("unconstrained")
        self.tree, self.leader = tree, leader
        slices = (
            [(request.slice_level, request.slice_size), *request.inner_slices] if request.slice_level else []
        )
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
        self.need = wish.count // self.size
        for root in tree.roots:
            self._count(root, wish, free)

    def unit(self, depth: int) -> int:
        return self.size if depth <= self.slice_level else self.inner[depth]

    def _count(self, domain: Domain, wish: Wish, free: Sequence[Vector]) -> None:
        for child in domain.children:
            self._count(child, wish, free)
        able = [child for child in domain.children if child.takes_leader]
        if domain.row >= 0:
            have = free[domain.row]
            domain.pods = domain.pods_beside = times(have, wish.takes)
            domain.takes_leader = self.leader is not None and times(have, self.leader.takes) > 0
            if domain.takes_leader and self.leader is not None:
                left = tuple(a - b for a, b in zip(have, self.leader.takes, strict=True))
                domain.pods_beside = times(left, wish.takes)
        else:
            whole = self.inner[domain.depth + 1]
            domain.pods = sum(child.pods // whole * whole for child in domain.children)
            domain.takes_leader = bool(able)
            loss = [child.pods // whole * whole - child.pods_beside // whole * whole for child in able]
            domain.pods_beside = domain.pods - min(loss, default=domain.pods)
        if domain.depth >= self.slice_level:
            domain.units = domain.pods // self.unit(domain.depth)
            domain.units_beside = domain.pods_beside // self.unit(domain.depth)
        else:
            domain.units = sum(child.units for child in domain.children)
            cost = [child.units - child.units_beside for child in able]
            domain.units_beside = domain.units - min(cost, default=domain.units)
        if self.leader is None:
            domain.pods_beside, domain.units_beside = domain.pods, domain.units

    def run(self) -> list[Domain] | None:
        """The nodes that got something."""
        depth = self.level
        while True:
            here = self.tree.at(depth)
            able = [d for d in here if d.units_beside >= self.need and (d.takes_leader or not self.leader)]
            if able:
                chosen = [min(able, key=lambda d: (d.units_beside, d.pods_beside))]
                chosen[0].given, chosen[0].seats_leader = self.need * self.size, self.leader is not None
                break
            if self.required:
                return None
            if self.anywhere or depth == 0:
                options = [d.units - d.units_beside for d in here if d.takes_leader]
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
            yield from self._share(domain.children, domain.given // self.unit(depth + 1), domain.seats_leader)

    def _share(self, pool: list[Domain], need: int, seat_leader: bool) -> list[Domain]:
        size = self.unit(pool[0].depth)
        direction = 1 if self.anywhere else -1
        queue = sorted(pool, key=lambda d: (direction * d.units, d.pods))
        used = []
        if seat_leader:
            seat = self._seat(queue, need)
            seat.seats_leader, seat.given = True, min(seat.units_beside, need) * size
            need -= min(seat.units_beside, need)
            queue.remove(seat)
            used.append(seat)
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

    def _seat(self, queue: list[Domain], need: int) -> Domain:
        able = [domain for domain in queue if domain.takes_leader]
        total = sum(domain.units for domain in queue)
        able = [domain for domain in able if total - domain.units + domain.units_beside >= need]
        if self.anywhere:
            return able[0]
        alone = [domain for domain in able if domain.units_beside >= need]
        if alone:
            return min(alone, key=lambda d: d.units_beside)
        return min(able, key=lambda d: self._others(queue, d, need))

    def _others(self, queue: list[Domain], seat: Domain, need: int) -> int:
        rest, used = need - seat.units_beside, 0
        for domain in queue:
            if rest > 0 and domain is not seat:
                rest, used = rest - domain.units, used + 1
        return used


def slow_plan(
    levels: Sequence[str],
    paths: Sequence[Sequence[str]],
    names: Sequence[str],
    free: Sequence[Vector],
    wishes: Sequence[Wish],
) -> dict[str, dict[int, int]] | None:
    """Row → pods of each pod set, or None where one of them doesn't fit."""
    left = list(free)
    placed: dict[str, dict[int, int]] = {}
    for group in _groups(wishes):
        workers = max(group, key=lambda wish: wish.count)
        leader = next((wish for wish in group if wish is not workers), None)
        nodes = SlowSearch(SlowTree(levels, paths, names), workers, leader, left).run()
        if nodes is None:
            return None
        placed[workers.name] = {node.row: node.given for node in nodes if node.given}
        if leader is not None:
            placed[leader.name] = {node.row: 1 for node in nodes if node.seats_leader}
        for wish in group:
            for row, pods in placed[wish.name].items():
                left[row] = tuple(a - pods * b for a, b in zip(left[row], wish.takes, strict=True))
    return placed


def _groups(wishes: Sequence[Wish]) -> list[list[Wish]]:
    groups: dict[str, list[Wish]] = {}
    for wish in wishes:
        name = wish.request.group if wish.request else ""
        groups.setdefault(f"group {name}" if name else wish.name, []).append(wish)
    return list(groups.values())
