"""Which devices a container should get of those that are free.

Asked by `resource_server` with the kubelet's lists; knows the inventory's NVLink and NUMA. Whole GPUs: the best-wired
set first, then the choice that leaves the most pairs together, so that a one-GPU pod goes where it breaks least and
islands stay whole for later. Shares and MIG devices: spread over GPUs, or packed, as the configuration says. A device
that is lost or unknown is passed over as long as others suffice.

The number of sets to compare is kept small by counting instead of enumerating: GPUs with the same island and NUMA node
are interchangeable. Where wiring tells too many of them apart, a greedy set is improved step by step instead. Answers
are kept until the inventory changes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations

from windlass.sharing.inventory import Inventory
from windlass.sharing.resources import PluginDevice, Resource

SAME_NUMA, OTHER_NUMA, PER_LINK = 20, 10, 100
MOST_SETS = 250
"""More sets than that are not compared one by one: the answer has to be there within 5 ms."""
MOST_KEPT = 256


class Chooser:
    """Choices for one resource, as long as inventory and configuration stay as they are."""

    def __init__(self, resource: Resource, inventory: Inventory, policy: str = "distributed") -> None:
        self._devices = {device.id: device for device in resource.devices}
        self._order = {device.id: at for at, device in enumerate(resource.devices)}
        self._policy = policy
        self._is_whole = (
            all(device.instance is None for device in resource.devices) and not resource.is_shared
        )
        self._wiring = Wiring(inventory)
        self._kept: dict[tuple[frozenset[str], frozenset[str], int, frozenset[int]], list[str]] = {}

    def choose(
        self, available: Sequence[str], required: Sequence[str], size: int, wish: Sequence[int] = ()
    ) -> list[str]:
        """`size` of the available IDs, the required ones among them; fewer only where there are no more."""
        key = (frozenset(available), frozenset(required), size, frozenset(wish))
        found = self._kept.get(key)
        if found is None:
            if len(self._kept) >= MOST_KEPT:
                self._kept.clear()
            found = self._kept[key] = self._choose(key[0], key[1], size, key[3])
        return found

    def _choose(
        self, available: frozenset[str], required: frozenset[str], size: int, wish: frozenset[int]
    ) -> list[str]:
        usable = [name for name in available if name in self._devices and not self._devices[name].gpu.is_lost]
        usable = sorted({*usable, *(required & self._devices.keys())}, key=self._order.__getitem__)
        must = [name for name in usable if name in required]
        wished = self._wished(usable, must, size, wish)
        if wished is not None:
            return wished
        if len(usable) <= size:
            spare = sorted(available - set(usable))
            return [*usable, *spare][:size]
        if self._is_whole:
            return self._whole(usable, must, size)
        return self._parts(usable, must, size)

    def _wished(
        self, usable: list[str], must: list[str], size: int, wish: frozenset[int]
    ) -> list[str] | None:
        """The engine's choice, where all of it is free and fits the request."""
        if not wish or len(wish) != size:
            return None
        found = [name for name in usable if self._devices[name].gpu.index in wish]
        covers = {self._devices[name].gpu.index for name in found} == wish
        return found if covers and len(found) == size and set(must) <= set(found) else None

    def _whole(self, usable: list[str], must: list[str], size: int) -> list[str]:
        by_index = {self._devices[name].gpu.index: name for name in usable}
        chosen = self._wiring.best(
            sorted(by_index), sorted(self._devices[name].gpu.index for name in must), size
        )
        return sorted((by_index[index] for index in chosen), key=self._order.__getitem__)

    def _parts(self, usable: list[str], must: list[str], size: int) -> list[str]:
        """One after the other: by how much of the device is taken, then by how little this request has of it."""
        taken = dict.fromkeys((device.uuid for device in self._devices.values()), 0)
        for device in self._devices.values():
            taken[device.uuid] += 1
        for name in usable:
            taken[self._devices[name].uuid] -= 1
        chosen = list(must)
        sign = -1 if self._policy == "packed" else 1
        mine: dict[str, int] = {}
        for name in chosen:
            mine[self._devices[name].uuid] = mine.get(self._devices[name].uuid, 0) + 1
        left = [name for name in usable if name not in must]
        free_beside = self._free_on_parent(usable)

        def rank(name: str) -> tuple[int, int, int, int]:
            device = self._devices[name]
            used = taken[device.uuid] + mine.get(device.uuid, 0)
            return sign * used, mine.get(device.uuid, 0), free_beside[device.gpu.uuid], self._order[name]

        while len(chosen) < size:
            best = min(left, key=rank)
            left.remove(best)
            chosen.append(best)
            mine[self._devices[best].uuid] = mine.get(self._devices[best].uuid, 0) + 1
        return sorted(chosen, key=self._order.__getitem__)

    def _free_on_parent(self, usable: list[str]) -> dict[str, int]:
        """For MIG: a GPU with few free instances is filled first, so that others can be cut anew one day."""
        devices: list[PluginDevice] = [self._devices[name] for name in usable]
        return {
            device.gpu.uuid: sum(
                each.gpu.uuid == device.gpu.uuid for each in devices if each.instance is not None
            )
            for device in self._devices.values()
        }


class Wiring:
    """How well the node's GPUs are connected, pair by pair."""

    def __init__(self, inventory: Inventory) -> None:
        gpus = inventory.gpus
        islands = inventory.islands()
        self._at = {gpu.index: position for position, gpu in enumerate(gpus)}
        wired = [bool(gpu.switch_links or sum(gpu.peers)) for gpu in gpus]
        # GPUs without NVLink are all alike: one class per NUMA node.
        self._island = [island if wired[at] else -1 for at, island in enumerate(islands)]
        self._numa = [gpu.numa for gpu in gpus]
        self.pairs = [[self._pair(inventory, a, b) for b in range(len(gpus))] for a in range(len(gpus))]
        self._class = self._classes()

    def _pair(self, inventory: Inventory, a: int, b: int) -> int:
        first, second = inventory.gpus[a], inventory.gpus[b]
        links = first.peers[b] if b < len(first.peers) else 0
        links = max(links, min(first.switch_links, second.switch_links))
        near = first.numa == second.numa
        return PER_LINK * links + (SAME_NUMA if near else OTHER_NUMA)

    def _classes(self) -> list[int]:
        """Interchangeable GPUs have one number; where wiring is uneven, every GPU has its own."""
        names = [(self._island[at], self._numa[at]) for at in range(len(self._numa))]
        numbers = {name: number for number, name in enumerate(dict.fromkeys(names))}
        classes = [numbers[name] for name in names]
        seen: dict[tuple[int, int], int] = {}
        for a, b in combinations(range(len(classes)), 2):
            score = seen.setdefault((classes[a], classes[b]), self.pairs[a][b])
            if score != self.pairs[a][b] or seen.setdefault((classes[b], classes[a]), score) != score:
                return list(range(len(classes)))
        return classes

    def best(self, available: Sequence[int], required: Sequence[int], size: int) -> list[int]:
        """Indices of the best set of GPUs; the caller has made sure that there are enough."""
        free = [self._at[index] for index in available]
        must = [self._at[index] for index in required]
        back = {position: index for index, position in self._at.items()}
        chosen = max(self._candidates(free, must, size), key=lambda each: self._worth(each, free))
        return sorted(back[position] for position in chosen)

    def _candidates(self, free: list[int], must: list[int], size: int) -> Iterator[tuple[int, ...]]:
        groups: dict[int, list[int]] = {}
        for position in free:
            groups.setdefault(self._class[position], []).append(position)
        for members in groups.values():
            members.sort(key=lambda position: (position not in must, position))
        if _ways([len(members) for members in groups.values()], size) > MOST_SETS:
            yield self._improved(free, must, size)
            return
        least = {name: sum(position in must for position in members) for name, members in groups.items()}
        yield from _compositions(list(groups.items()), least, size)

    def _improved(self, free: list[int], must: list[int], size: int) -> tuple[int, ...]:
        """Greedy, then single swaps as long as one helps."""
        chosen = list(must)
        while len(chosen) < size:
            rest = [position for position in free if position not in chosen]
            chosen.append(
                max(rest, key=lambda each: (sum(self.pairs[each][other] for other in chosen), -each))
            )
        for _ in range(size):
            worth = self._worth(tuple(chosen), free)
            swaps = (
                tuple(sorted({*chosen, new} - {old}))
                for old in chosen
                if old not in must
                for new in free
                if new not in chosen
            )
            best = max(swaps, key=lambda each: self._worth(each, free), default=tuple(chosen))
            if self._worth(best, free) <= worth:
                break
            chosen = list(best)
        return tuple(sorted(chosen))

    def _worth(self, chosen: tuple[int, ...], free: list[int]) -> tuple[int, int, int, tuple[int, ...]]:
        """Connection inside the set, then pairs that stay together in islands and on NUMA nodes, then low numbers."""
        inside = sum(self.pairs[a][b] for a, b in combinations(chosen, 2))
        taken = set(chosen)
        left = [position for position in free if position not in taken]
        return (
            inside,
            _squares([self._island[position] for position in left]),
            _squares([self._numa[position] for position in left]),
            tuple(-position for position in chosen),
        )


def _ways(sizes: list[int], total: int) -> int:
    """In how many ways so many can be taken out of groups of these sizes, if members are alike."""
    ways = [1] + [0] * total
    for size in sizes:
        ways = [sum(ways[left] for left in range(max(0, at - size), at + 1)) for at in range(total + 1)]
    return ways[total]


def _squares(groups: list[int]) -> int:
    return sum(groups.count(group) ** 2 for group in set(groups))


def _compositions(
    groups: list[tuple[int, list[int]]], least: dict[int, int], size: int
) -> Iterator[tuple[int, ...]]:
    """Every way to take so many GPUs out of groups of equals."""
    if not groups:
        if size == 0:
            yield ()
        return
    (name, members), rest = groups[0], groups[1:]
    room = sum(len(others) for _, others in rest)
    for count in range(max(least[name], size - room), min(len(members), size) + 1):
        for tail in _compositions(rest, least, size - count):
            yield tuple(sorted((*members[:count], *tail)))
