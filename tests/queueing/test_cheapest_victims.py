"""The search for the cheapest victims on plain numbers, against every set of units."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations
from random import Random
from typing import NamedTuple

import pytest

from windlass.queueing import cheapest_victims
from windlass.queueing.cheapest_victims import Attempt, CheapestVictims, Victims, comparable_costs, least_gpus_lost
from windlass.queueing.victim_room import Cap, Lack, NodeRoom, RoomByAmount, RoomBySubset, VictimRoom

Units = tuple[int, ...]


class Place(NamedTuple):
    """A node: what is free of one resource, what a pod asks for, and what each unit frees."""

    free: int
    asked: int
    freed: dict[int, int]

    def pods(self, gone: Iterable[int]) -> int:
        return (self.free + sum(self.freed.get(unit, 0) for unit in gone)) // self.asked

    def by_subset(self) -> RoomBySubset:
        units = tuple(self.freed)
        masks = range(1 << len(units))
        return RoomBySubset(
            units, [self.pods(units[at] for at in range(len(units)) if mask >> at & 1) for mask in masks]
        )

    def by_amount(self) -> RoomByAmount:
        lacking = [max(0, self.asked * pods - self.free) for pods in range(self.pods(self.freed) + 1)]
        return RoomByAmount(tuple(self.freed), tuple(self.freed.values()), tuple(lacking))


def any_place(random: Random, units: int) -> Place:
    here = [unit for unit in range(units) if random.random() < 0.6]
    return Place(random.randint(0, 2), random.randint(1, 3), {unit: random.randint(0, 3) for unit in here})


class Case(NamedTuple):
    costs: list[int]
    domains: list[list[Place]]
    by_amount: bool
    pods: int
    free: list[int]
    lacks: list[Lack]
    caps: list[Cap]
    needed: frozenset[int]
    """A rule that the model lacks: one of these has to go, where there are any."""

    def sets(self) -> Iterator[Units]:
        everyone = range(len(self.costs))
        return (chosen for count in range(len(self.costs) + 1) for chosen in combinations(everyone, count))

    def is_allowed(self, chosen: Units) -> bool:
        return all(cap.is_kept(chosen) for cap in self.caps)

    def fits(self, chosen: Units) -> bool:
        has_room = any(
            free + sum(place.pods(chosen) for place in domain) >= self.pods
            for free, domain in zip(self.free, self.domains, strict=True)
        )
        has_quota = all(sum(lack.freed.get(unit, 0) for unit in chosen) >= lack.amount for lack in self.lacks)
        return has_room and has_quota and (not self.needed or not self.needed.isdisjoint(chosen))

    def cost(self, chosen: Iterable[int]) -> int:
        return sum(self.costs[unit] for unit in chosen)

    def cheapest(self) -> int | None:
        return min(
            (self.cost(chosen) for chosen in self.sets() if self.is_allowed(chosen) and self.fits(chosen)), default=None
        )

    def search(self, known: Units | None = None) -> Victims[Units]:
        rooms: list[list[NodeRoom]] = [
            [place.by_amount() if self.by_amount else place.by_subset() for place in domain] for domain in self.domains
        ]
        room = VictimRoom(self.pods, rooms, self.free)

        def attempt(units: Sequence[int]) -> Attempt[Units]:
            chosen = tuple(units)
            assert list(chosen) == sorted(set(chosen))
            if not self.is_allowed(chosen):
                return Attempt(False)
            return Attempt(True, self.cost(chosen), chosen if self.fits(chosen) else None)

        search = CheapestVictims(self.costs, room, self.lacks, self.caps, attempt)
        return search.search(known, self.cost(known or ()))


def any_case(random: Random) -> Case:
    units = random.randint(1, 6)
    domains = [[any_place(random, units) for _ in range(random.randint(1, 3))] for _ in range(random.choice((1, 1, 2)))]

    def amounts(least: int) -> dict[int, int]:
        return {unit: random.randint(least, 3) for unit in range(units) if random.random() < 0.7}

    caps = [Cap(random.randint(0, 5), amounts(1), random.random() < 0.3) for _ in range(random.choice((0, 1, 1, 2)))]
    return Case(
        costs=[random.randint(1, 9) for _ in range(units)],
        domains=domains,
        by_amount=random.random() < 0.4,
        pods=random.randint(1, 5),
        free=[random.choice((0, 0, 1)) for _ in domains],
        lacks=[Lack(random.randint(1, 5), amounts(0)) for _ in range(random.choice((0, 0, 1, 2)))],
        caps=[cap for cap in caps if cap.amounts],
        needed=frozenset(random.sample(range(units), 1)) if random.random() < 0.3 else frozenset(),
    )


PARTS = pytest.mark.parametrize("cases", [range(first, first + 10) for first in range(0, 300, 10)], ids=str)


@PARTS
def test_no_victims_cost_less_than_those_that_are_found(cases: range) -> None:
    for seed in cases:
        case = any_case(Random(seed))
        least, result = case.cheapest(), case.search()
        assert (None if result.found is None else result.cost) == least, seed
        if result.found is not None:
            assert case.is_allowed(result.found)
            assert case.fits(result.found)
            assert case.cost(result.found) == result.cost == result.bound


@PARTS
def test_a_search_that_ends_early_says_no_more_than_is_true(cases: range, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bound is below the cheapest victims, and what was known is kept unless something cheaper was found."""
    for seed in cases:
        random = Random(seed)
        case = any_case(random)
        monkeypatch.setattr(cheapest_victims, "MAX_STEPS", random.choice((1, 2, 3, 5, 9)))
        least = case.cheapest()
        possible = [chosen for chosen in case.sets() if case.is_allowed(chosen) and case.fits(chosen)]
        known = random.choice(possible) if possible and random.random() < 0.6 else None
        result = case.search(known)
        if least is not None and (result.found is not None or result.bound):
            assert result.bound <= least, seed
        if known is not None:
            assert result.found is not None
            assert least is not None
            assert least <= result.cost <= case.cost(known)
            assert case.fits(result.found)


@PARTS
def test_room_for_so_many_pods_costs_what_the_cheapest_set_costs(cases: range) -> None:
    for seed in cases:
        random = Random(seed)
        place = any_place(random, random.randint(1, 5))
        units = tuple(place.freed)
        costs = [random.choice((None, 1, 2, 3, 5, 8)) for _ in units]
        price = dict(zip(units, costs, strict=True))
        may_go = [unit for unit in units if price[unit] is not None]
        sets = [chosen for count in range(len(may_go) + 1) for chosen in combinations(may_go, count)]
        for room in (place.by_subset(), place.by_amount()):
            options = room.options(costs)
            assert len(options) == place.pods(units) + 1
            for pods, option in enumerate(options):
                fitting = [sum(price[unit] or 0 for unit in chosen) for chosen in sets if place.pods(chosen) >= pods]
                assert (None if option is None else option[0]) == min(fitting, default=None), (seed, pods)
                if option is not None:
                    assert place.pods(option[1]) >= pods
                    assert sum(price[unit] or 0 for unit in option[1]) == option[0]


# Costs


def lost_by_class(classes: Sequence[int], losses: Sequence[tuple[int, int, int]], chosen: Units) -> list[list[int]]:
    """For each class, the highest first: what is lost, part by part, and how many there are of it."""
    parts = [(gpus, other, pods + 1) for gpus, other, pods in losses]
    return [
        [sum(parts[unit][part] for unit in chosen if classes[unit] == one) for part in range(3)]
        for one in sorted(set(classes), reverse=True)
    ]


@pytest.mark.parametrize("seed", range(20))
def test_sums_of_costs_compare_sets_of_victims_by_class_and_loss(seed: int) -> None:
    random = Random(seed)
    classes = [random.choice((0, 5, 7)) for _ in range(4)]
    losses = [(random.choice((0, 1, 1 << 50)), random.choice((0, 3)), random.choice((0, 1, 4))) for _ in range(4)]
    costs = comparable_costs(classes, losses)
    sets = [chosen for count in range(5) for chosen in combinations(range(4), count)]
    by_cost = sorted(sets, key=lambda chosen: (sum(costs[unit] for unit in chosen), chosen))
    assert by_cost == sorted(sets, key=lambda chosen: (lost_by_class(classes, losses, chosen), chosen))
    for chosen in sets:
        total = sum(costs[unit] for unit in chosen)
        assert least_gpus_lost(total, total) == sum(losses[unit][0] for unit in chosen)
        assert least_gpus_lost(total, 0) == 0


def test_where_cheaper_victims_are_possible_only_the_highest_class_is_sure_to_lose() -> None:
    low, high = comparable_costs([0, 1], [(70, 0, 1), (30, 0, 1)])
    assert least_gpus_lost(low + high, low + high) == 100
    assert least_gpus_lost(low + high, low + high - 1) == 30
    assert least_gpus_lost(low + high, high) == 30
    assert least_gpus_lost(low + high, low) == 0


# Many units


def many(limit: int, amount: int, spares_largest: bool = False) -> Case:
    """Twelve cheap units, of which the cap lets few go, and twelve dear ones; each makes room for one of eight pods."""
    costs = [*(50 + unit for unit in range(12)), *(100 + unit for unit in range(12))]
    places = [Place(0, 1, {unit: 1}) for unit in range(24)]
    cap = Cap(limit, dict.fromkeys(range(12), amount), spares_largest)
    return Case(costs, [places], False, 8, [0], [], [cap], frozenset())


@pytest.mark.parametrize(
    ("limit", "amount", "spares_largest", "cheap"),
    [(2, 1, False, 2), (2, 1, True, 3), (6, 3, True, 3), (0, 5, False, 0)],
)
def test_many_units_under_a_cap_are_searched_to_the_end(
    limit: int, amount: int, spares_largest: bool, cheap: int
) -> None:
    """There are thousands of sets that cost less and break the cap; prices on what it counts leave them out."""
    case = many(limit, amount, spares_largest)
    result = case.search()
    assert result.found == (*range(cheap), *range(12, 20 - cheap))
    assert result.bound == result.cost


def test_victims_are_known_after_a_few_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cheapest_victims, "MAX_STEPS", 12)
    case = many(2, 1)
    result = case.search()
    assert result.found is not None
    assert case.is_allowed(result.found)
    assert result.bound <= case.cost((0, 1, *range(12, 18))) <= result.cost


@pytest.mark.parametrize("most", [1, 3, 8])
def test_no_more_attempts_are_made_than_allowed(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing that is proposed fits by all rules; where attempts cost more work, there are fewer of them."""
    places = [Place(0, 1, {unit: 1}) for unit in range(6)]
    made: list[tuple[int, ...]] = []

    def attempt(units: list[int]) -> Attempt[Units]:
        made.append(tuple(units))
        return Attempt(True)

    def search() -> int:
        made.clear()
        room = VictimRoom(2, [[place.by_subset() for place in places]], [0])
        CheapestVictims([1, 2, 3, 4, 5, 6], room, [], [], attempt).search()
        assert len(set(made)) == len(made), "each set once"
        return len(made)

    assert search() > 8
    monkeypatch.setattr(cheapest_victims, "MAX_ATTEMPTS", most)
    assert search() == most
    monkeypatch.setattr(cheapest_victims, "MAX_ATTEMPTS", 99)
    monkeypatch.setattr(cheapest_victims, "WORK_OF_ATTEMPT", 1000)
    monkeypatch.setattr(cheapest_victims, "MAX_WORK", 6000 * most)
    assert search() == most
