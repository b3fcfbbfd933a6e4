"""Which of the free devices a container should get.

`resource_server` asks with the kubelet's lists; the inventory gives NVLink and NUMA. Whole GPUs: the best-connected
set first, then the choice that leaves the most pairs connected, so that a one-GPU pod breaks as little as possible
and islands stay whole. Shares and MIG devices: distributed over GPUs or packed, as configured. Lost and unknown
devices are used only if the others don't suffice.

GPUs with the same island and NUMA node are interchangeable, so sets are compared by counts per class instead of
being enumerated. If uneven wiring leaves too many classes, a greedy set is improved by swaps instead. Answers are
cached until the inventory changes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from heapq import heapify, heappop, heappush
from itertools import combinations

from windlass.sharing.advertised_resources import PluginDevice, PluginResource
from windlass.sharing.inventory import Inventory

SAME_NUMA, OTHER_NUMA, PER_LINK = 20, 10, 100
MAX_SETS = 250
"""With more sets, the greedy search is used: an answer has to take less than 5 ms."""
MAX_CACHED = 256


class DeviceChooser:
    """Choices for one resource, valid while inventory and configuration stay the same."""

    def __init__(self, resource: PluginResource, inventory: Inventory, policy: str = "distributed") -> None:
        self._devices = {device.id: device for device in resource.devices}
        self._order = {device.id: at for at, device in enumerate(resource.devices)}
        self._shares = Counter(device.uuid for device in resource.devices)
        self._policy = policy
        has_instances = any(device.instance is not None for device in resource.devices)
        self._is_whole = not (has_instances or resource.is_shared)
        self._interconnect = GpuInterconnect(inventory)
        self._cache: dict[tuple[frozenset[str], frozenset[str], int, frozenset[int]], list[str]] = {}

    def choose(
        self, available: Sequence[str], required: Sequence[str], size: int, preferred: Sequence[int] = ()
    ) -> list[str]:
        """`size` of the available IDs, including the required ones; fewer only if there are no more."""
        key = (frozenset(available), frozenset(required), size, frozenset(preferred))
        found = self._cache.get(key)
        if found is None:
            if len(self._cache) >= MAX_CACHED:
                self._cache.clear()
            found = self._cache[key] = self._choose(key[0], key[1], size, key[3])
        return found

    def _choose(
        self, available: frozenset[str], required: frozenset[str], size: int, preferred: frozenset[int]
    ) -> list[str]:
        usable = [name for name in available if name in self._devices and not self._devices[name].gpu.is_lost]
        usable = sorted({*usable, *(required & self._devices.keys())}, key=self._order.__getitem__)
        required_names = [name for name in usable if name in required]
        engine_choice = self._preferred_set(usable, required_names, size, preferred)
        if engine_choice is not None:
            return engine_choice
        if len(usable) <= size:
            unusable = sorted(available - set(usable))
            return [*usable, *unusable][:size]
        if self._is_whole:
            return self._choose_gpus(usable, required_names, size)
        return self._choose_shares(usable, required_names, size)

    def _preferred_set(
        self, usable: list[str], required: list[str], size: int, preferred: frozenset[int]
    ) -> list[str] | None:
        """The GPUs that the scheduler chose, if all of them are free and fit the request."""
        if not preferred or len(preferred) != size:
            return None
        found = [name for name in usable if self._devices[name].gpu.index in preferred]
        covers = {self._devices[name].gpu.index for name in found} == preferred
        return found if covers and len(found) == size and set(required) <= set(found) else None

    def _choose_gpus(self, usable: list[str], must: list[str], size: int) -> list[str]:
        by_index = {self._devices[name].gpu.index: name for name in usable}
        required = sorted(self._devices[name].gpu.index for name in must)
        chosen = self._interconnect.best(sorted(by_index), required, size)
        return sorted((by_index[index] for index in chosen), key=self._order.__getitem__)

    def _choose_shares(self, usable: list[str], required: list[str], size: int) -> list[str]:
        """Picks shares one by one: by how much of the device is allocated, then by how little of it this request
        has.

        Shares of one device are interchangeable, so devices are ranked instead of shares, of which there may be
        thousands.
        """
        free: dict[str, list[str]] = {}
        for name in reversed(usable):
            free.setdefault(self._devices[name].uuid, []).append(name)
        allocated = {uuid: count - len(free.get(uuid, ())) for uuid, count in self._shares.items()}
        in_request = dict.fromkeys(free, 0)
        for name in required:
            in_request[self._devices[name].uuid] += 1
            free[self._devices[name].uuid].remove(name)
        free_on_parent = self._free_on_parent(usable)
        sign = -1 if self._policy == "packed" else 1

        def rank(uuid: str) -> tuple[int, int, int, int, str]:
            first = free[uuid][-1]
            used = sign * (allocated[uuid] + in_request[uuid])
            on_parent = free_on_parent[self._devices[first].gpu.uuid]
            return used, in_request[uuid], on_parent, self._order[first], uuid

        heap = [rank(uuid) for uuid, names in free.items() if names]
        heapify(heap)
        chosen = list(required)
        while len(chosen) < size:
            uuid = heappop(heap)[-1]
            chosen.append(free[uuid].pop())
            in_request[uuid] += 1
            if free[uuid]:
                heappush(heap, rank(uuid))
        return sorted(chosen, key=self._order.__getitem__)

    def _free_on_parent(self, usable: list[str]) -> Counter[str]:
        """For MIG: fill GPUs with few free instances first, so that others become empty and can be repartitioned."""
        devices: list[PluginDevice] = [self._devices[name] for name in usable]
        return Counter(device.gpu.uuid for device in devices if device.instance is not None)


class GpuInterconnect:
    """How well the node's GPUs are connected, pair by pair."""

    def __init__(self, inventory: Inventory) -> None:
        gpus = inventory.gpus
        islands = inventory.islands()
        self._position = {gpu.index: position for position, gpu in enumerate(gpus)}
        wired = [bool(gpu.switch_links or sum(gpu.peers)) for gpu in gpus]
        # GPUs without NVLink form one class per NUMA node.
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
        """Interchangeable GPUs have the same number; if wiring within classes is uneven, every GPU has its own."""
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
        """Indices of the best set of GPUs. There must be enough of them."""
        free = [self._position[index] for index in available]
        must = [self._position[index] for index in required]
        back = {position: index for index, position in self._position.items()}
        groups: dict[int, list[int]] = {}
        for position in sorted(free, key=lambda at: (at not in must, at)):
            groups.setdefault(self._class[position], []).append(position)
        if _count_ways([len(members) for members in groups.values()], size) > MAX_SETS:
            chosen = self._greedy_with_swaps(free, must, size)
        else:
            chosen = self._best_by_counts(list(groups.values()), must, size)
        return sorted(back[position] for position in chosen)

    def _best_by_counts(self, groups: list[list[int]], required: list[int], size: int) -> tuple[int, ...]:
        """Compares every way to take `size` GPUs out of classes of equals."""
        least = [sum(position in required for position in members) for members in groups]
        scores = [[self.pairs[members[-1]][others[0]] for others in groups] for members in groups]
        best: tuple[tuple[int, int, int], tuple[int, ...]] | None = None
        for counts in _compositions([len(members) for members in groups], least, size):
            inner = _inner_score(counts, scores)
            if best is not None and inner < best[0][0]:
                continue
            rank = (inner, *self._pairs_left(groups, counts))
            if best is None or rank >= best[0]:
                picked = [members[:count] for members, count in zip(groups, counts, strict=True)]
                chosen = tuple(sorted(position for members in picked for position in members))
                if best is None or rank > best[0] or chosen < best[1]:
                    best = rank, chosen
        assert best is not None, "the caller checks that there are enough GPUs"
        return best[1]

    def _pairs_left(self, groups: list[list[int]], counts: tuple[int, ...]) -> tuple[int, int]:
        """Sums of squares of the free GPUs per island and per NUMA node: larger if they stay together."""
        islands: Counter[int] = Counter()
        nodes: Counter[int] = Counter()
        for members, count in zip(groups, counts, strict=True):
            first, left = members[0], len(members) - count
            islands[self._island[first]] += left
            nodes[self._numa[first]] += left
        return sum(left**2 for left in islands.values()), sum(left**2 for left in nodes.values())

    def _greedy_with_swaps(self, free: list[int], required: list[int], size: int) -> tuple[int, ...]:
        """Greedy choice, then single swaps while one improves the set."""
        near = [0] * len(self.pairs)
        """Sum of each GPU's pair scores with the chosen ones; kept up to date by `add`."""
        chosen: list[int] = []

        def add(new: int, instead_of: int | None = None) -> None:
            for position_ in free:
                near[position_] += self.pairs[position_][new] if position_ != new else 0
                if instead_of is not None and position_ != instead_of:
                    near[position_] -= self.pairs[position_][instead_of]
            if instead_of is not None:
                chosen.remove(instead_of)
            chosen.append(new)

        for position in required:
            add(position)
        while len(chosen) < size:
            add(max((at for at in free if at not in chosen), key=lambda at: (near[at], -at)))
        for _ in range(size):
            swap = self._best_swap(chosen, free, required, near)
            if swap is None:
                break
            add(swap[1], instead_of=swap[0])
        return tuple(sorted(chosen))

    def _best_swap(
        self, chosen: list[int], free: list[int], required: list[int], near: list[int]
    ) -> tuple[int, int] | None:
        """The GPU to drop and the one to take instead; None if no single swap helps."""
        unchosen = [position for position in free if position not in chosen]
        islands = Counter(self._island[position] for position in unchosen)
        nodes = Counter(self._numa[position] for position in unchosen)
        best, best_gain, best_set = None, (0, 0, 0), sorted(chosen)
        for old in chosen:
            if old in required:
                continue
            island, node = self._island[old], self._numa[old]
            for new in unchosen:
                # Change of `_pairs_left`: one island (or NUMA node) gains a free GPU, another loses one.
                other, far = self._island[new], self._numa[new]
                gain = (
                    near[new] - self.pairs[new][old] - near[old],
                    2 * (islands[island] - islands[other] + 1) if other != island else 0,
                    2 * (nodes[node] - nodes[far] + 1) if far != node else 0,
                )
                if gain < best_gain:
                    continue
                swapped = sorted({*chosen, new} - {old})
                if gain > best_gain or swapped < best_set:
                    best, best_gain, best_set = (old, new), gain, swapped
        return best


def _inner_score(counts: tuple[int, ...], scores: list[list[int]]) -> int:
    """Sum of the pair scores within a set that has `counts` GPUs of each class."""
    score = 0
    picked = [(index, count) for index, count in enumerate(counts) if count]
    for number, (index, count) in enumerate(picked):
        row = scores[index]
        score += row[index] * count * (count - 1) // 2
        for other_class, other_count in picked[:number]:
            score += row[other_class] * count * other_count
    return score


def _count_ways(sizes: list[int], total: int) -> int:
    """In how many ways `total` can be taken out of classes of these sizes."""
    ways = [1] + [0] * total
    for size in sizes:
        ways = [sum(ways[max(0, count - size) : count + 1]) for count in range(total + 1)]
    return ways[total]


def _compositions(sizes: list[int], least: list[int], total: int) -> Iterator[tuple[int, ...]]:
    """Every tuple of counts per class, each at least `least`, that adds up to `total`."""
    if not sizes:
        if total == 0:
            yield ()
        return
    rest = sum(sizes[1:])
    for count in range(max(least[0], total - rest), min(sizes[0], total) + 1):
        for tail in _compositions(sizes[1:], least[1:], total - count):
            yield count, *tail
