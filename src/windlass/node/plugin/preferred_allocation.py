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

from collections import Counter
from collections.abc import Iterator, Sequence
from heapq import heapify, heappop, heappush
from itertools import combinations

from windlass.sharing.advertised_resources import PluginDevice, PluginResource
from windlass.sharing.inventory import Inventory

SAME_NUMA, OTHER_NUMA, PER_LINK = 20, 10, 100
MOST_SETS = 250
"""More sets than that are not compared one by one: the answer has to be there within 5 ms."""
MOST_KEPT = 256


class DeviceChooser:
    """Choices for one resource, as long as inventory and configuration stay as they are."""

    def __init__(self, resource: PluginResource, inventory: Inventory, policy: str = "distributed") -> None:
        self._devices = {device.id: device for device in resource.devices}
        self._order = {device.id: at for at, device in enumerate(resource.devices)}
        self._shares = Counter(device.uuid for device in resource.devices)
        self._policy = policy
        self._is_whole = (
            all(device.instance is None for device in resource.devices) and not resource.is_shared
        )
        self._wiring = GpuInterconnect(inventory)
        self._kept: dict[tuple[frozenset[str], frozenset[str], int, frozenset[int]], list[str]] = {}

    def choose(
        self, available: Sequence[str], required: Sequence[str], size: int, preferred: Sequence[int] = ()
    ) -> list[str]:
        """`size` of the available IDs, the required ones among them; fewer only where there are no more."""
        key = (frozenset(available), frozenset(required), size, frozenset(preferred))
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
        """One after the other: by how much of the device is taken, then by how little this request has of it.

        Shares of one device are alike, so devices are compared and not shares: there may be thousands of those.
        """
        free: dict[str, list[str]] = {}
        for name in reversed(usable):
            free.setdefault(self._devices[name].uuid, []).append(name)
        taken = {uuid: count - len(free.get(uuid, ())) for uuid, count in self._shares.items()}
        mine = dict.fromkeys(free, 0)
        for name in must:
            mine[self._devices[name].uuid] += 1
            free[self._devices[name].uuid].remove(name)
        beside = self._free_on_parent(usable)
        sign = -1 if self._policy == "packed" else 1

        def rank(uuid: str) -> tuple[int, int, int, int, str]:
            first = free[uuid][-1]
            used = sign * (taken[uuid] + mine[uuid])
            return used, mine[uuid], beside[self._devices[first].gpu.uuid], self._order[first], uuid

        waiting = [rank(uuid) for uuid, names in free.items() if names]
        heapify(waiting)
        chosen = list(must)
        while len(chosen) < size:
            uuid = heappop(waiting)[-1]
            chosen.append(free[uuid].pop())
            mine[uuid] += 1
            if free[uuid]:
                heappush(waiting, rank(uuid))
        return sorted(chosen, key=self._order.__getitem__)

    def _free_on_parent(self, usable: list[str]) -> Counter[str]:
        """For MIG: a GPU with few free instances is filled first, so that others can be cut anew one day."""
        devices: list[PluginDevice] = [self._devices[name] for name in usable]
        return Counter(device.gpu.uuid for device in devices if device.instance is not None)


class GpuInterconnect:
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
        groups: dict[int, list[int]] = {}
        for position in sorted(free, key=lambda each: (each not in must, each)):
            groups.setdefault(self._class[position], []).append(position)
        if _ways([len(members) for members in groups.values()], size) > MOST_SETS:
            chosen = self._improved(free, must, size)
        else:
            chosen = self._best_of_all(list(groups.values()), must, size)
        return sorted(back[position] for position in chosen)

    def _best_of_all(self, groups: list[list[int]], must: list[int], size: int) -> tuple[int, ...]:
        """Compares every way to take so many GPUs out of groups of equals, by counts."""
        least = [sum(position in must for position in members) for members in groups]
        scores = [[self.pairs[members[-1]][others[0]] for others in groups] for members in groups]
        best: tuple[tuple[int, int, int], tuple[int, ...]] | None = None
        for counts in _compositions([len(members) for members in groups], least, size):
            inside = _inside(counts, scores)
            if best is not None and inside < best[0][0]:
                continue
            worth = (inside, *self._left_together(groups, counts))
            if best is None or worth >= best[0]:
                taken = [members[:count] for members, count in zip(groups, counts, strict=True)]
                chosen = tuple(sorted(position for members in taken for position in members))
                if best is None or worth > best[0] or chosen < best[1]:
                    best = worth, chosen
        assert best is not None, "there are enough"
        return best[1]

    def _left_together(self, groups: list[list[int]], counts: tuple[int, ...]) -> tuple[int, int]:
        """Pairs that stay together in islands, and on NUMA nodes."""
        islands: dict[int, int] = {}
        nodes: dict[int, int] = {}
        for members, count in zip(groups, counts, strict=True):
            first, left = members[0], len(members) - count
            islands[self._island[first]] = islands.get(self._island[first], 0) + left
            nodes[self._numa[first]] = nodes.get(self._numa[first], 0) + left
        return sum(each * each for each in islands.values()), sum(each * each for each in nodes.values())

    def _improved(self, free: list[int], must: list[int], size: int) -> tuple[int, ...]:
        """Greedy, then single swaps as long as one helps."""
        near = [0] * len(self.pairs)
        """How well each GPU is connected to the chosen ones."""
        chosen: list[int] = []

        def take(new: int, instead_of: int | None = None) -> None:
            for other in free:
                near[other] += self.pairs[other][new] if other != new else 0
                if instead_of is not None and other != instead_of:
                    near[other] -= self.pairs[other][instead_of]
            if instead_of is not None:
                chosen.remove(instead_of)
            chosen.append(new)

        for position in must:
            take(position)
        while len(chosen) < size:
            take(max((each for each in free if each not in chosen), key=lambda each: (near[each], -each)))
        for _ in range(size):
            swap = self._best_swap(chosen, free, must, near)
            if swap is None:
                break
            take(swap[1], instead_of=swap[0])
        return tuple(sorted(chosen))

    def _best_swap(
        self, chosen: list[int], free: list[int], must: list[int], near: list[int]
    ) -> tuple[int, int] | None:
        """The GPU to give up and the one to take instead; None where no exchange of two helps."""
        left = [position for position in free if position not in chosen]
        islands = Counter(self._island[position] for position in left)
        nodes = Counter(self._numa[position] for position in left)
        best, best_worth, best_set = None, (0, 0, 0), sorted(chosen)
        for old in chosen:
            if old in must:
                continue
            island, node = self._island[old], self._numa[old]
            for new in left:
                # A group that gains the one and a group that loses the other: the change of the sum of squares.
                worth = (
                    near[new] - self.pairs[new][old] - near[old],
                    2 * (islands[island] - islands[self._island[new]] + 1)
                    if self._island[new] != island
                    else 0,
                    2 * (nodes[node] - nodes[self._numa[new]] + 1) if self._numa[new] != node else 0,
                )
                if worth < best_worth:
                    continue
                swapped = sorted({*chosen, new} - {old})
                if worth > best_worth or swapped < best_set:
                    best, best_worth, best_set = (old, new), worth, swapped
        return best


def _inside(counts: tuple[int, ...], scores: list[list[int]]) -> int:
    """The connection inside a set that has so many of each group."""
    found = 0
    taken = [(at, count) for at, count in enumerate(counts) if count]
    for number, (at, count) in enumerate(taken):
        row = scores[at]
        found += row[at] * count * (count - 1) // 2
        for other, others in taken[:number]:
            found += row[other] * count * others
    return found


def _ways(sizes: list[int], total: int) -> int:
    """In how many ways so many can be taken out of groups of these sizes, if members are alike."""
    ways = [1] + [0] * total
    for size in sizes:
        ways = [sum(ways[left] for left in range(max(0, at - size), at + 1)) for at in range(total + 1)]
    return ways[total]


def _compositions(sizes: list[int], least: list[int], total: int) -> Iterator[tuple[int, ...]]:
    """How many of each group, in every way that comes to the total."""
    if not sizes:
        if total == 0:
            yield ()
        return
    room = sum(sizes[1:])
    for count in range(max(least[0], total - room), min(sizes[0], total) + 1):
        for tail in _compositions(sizes[1:], least[1:], total - count):
            yield count, *tail
