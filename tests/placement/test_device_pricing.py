"""Device prices: the exact duals of packing the expected demand on as few devices as possible."""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations

from hypothesis import given, settings
from hypothesis import strategies as st

from windlass.placement.device_pricing import DEVICE_MILLI, device_prices, device_values

demands = st.dictionaries(
    st.sampled_from((100, 190, 200, 250, 300, 333, 400, 470, 500, 600, 700, 810, 1000)),
    st.integers(1, 1000),
    min_size=1,
    max_size=3,
)


def patterns(sizes, capacity=DEVICE_MILLI):
    """Every way to fill one device with pods of these sizes, the empty one included."""
    if not sizes:
        return [()]
    found = []
    for count in range(capacity // sizes[0] + 1):
        found += [(count, *rest) for rest in patterns(sizes[1:], capacity - count * sizes[0])]
    return found


def total(prices, pattern):
    return sum(count * price for count, price in zip(pattern, prices, strict=True))


@given(demands)
def test_no_pattern_is_worth_more_than_a_device_and_the_best_is_worth_one(demand):
    prices = device_prices(demand)
    assert sorted(prices) == sorted(demand)
    assert all(price >= 0 for price in prices.values())
    sizes = sorted(demand)
    worth = [total([prices[size] for size in sizes], pattern) for pattern in patterns(sizes)]
    assert max(worth) == 1


@settings(max_examples=30)
@given(demands)
def test_no_other_prices_count_the_demand_higher(demand):
    """Linear programming duality: the most that prices without an over-priced pattern can ask of the demand is the
    number of devices that it needs. All corners of such prices are tried."""
    sizes = sorted(demand)
    full = [pattern for pattern in patterns(sizes) if is_full(pattern, sizes)]
    best = Fraction(0)
    axes = [tuple(int(i == j) for j in range(len(sizes))) for i in range(len(sizes))]
    for chosen in combinations([(row, 1) for row in full] + [(axis, 0) for axis in axes], len(sizes)):
        corner = solve([row for row, _ in chosen], [Fraction(value) for _, value in chosen])
        if corner and min(corner) >= 0 and all(total(corner, row) <= 1 for row in full):
            best = max(best, total(corner, [demand[size] for size in sizes]))
    prices = device_prices(demand)
    assert total([prices[size] for size in sizes], [demand[size] for size in sizes]) == best


def is_full(pattern, sizes):
    return DEVICE_MILLI - sum(count * size for count, size in zip(pattern, sizes, strict=True)) < min(sizes)


def solve(rows, values):
    """Gauss–Jordan in fractions; None where the rows don't determine a point."""
    matrix = [[*map(Fraction, row), value] for row, value in zip(rows, values, strict=True)]
    for column in range(len(rows)):
        pivot = next((i for i in range(column, len(rows)) if matrix[i][column]), None)
        if pivot is None:
            return None
        matrix[column], matrix[pivot] = matrix[pivot], matrix[column]
        head = matrix[column][column]
        matrix[column] = [value / head for value in matrix[column]]
        for i, row in enumerate(matrix):
            if i != column and row[column]:
                factor = row[column]
                matrix[i] = [a - factor * b for a, b in zip(row, matrix[column], strict=True)]
    return [row[-1] for row in matrix]


def test_sizes_that_fill_a_device_cost_what_they_take():
    assert device_prices({250: 7}) == {250: Fraction(1, 4)}
    assert device_prices({500: 3, 250: 4, 1000: 2}) == {
        500: Fraction(1, 2),
        250: Fraction(1, 4),
        1000: Fraction(1),
    }


def test_a_size_that_leaves_a_hole_pays_for_the_hole():
    """Two 470s leave 60 that nothing fills: each costs half a device."""
    assert device_prices({470: 10}) == {470: Fraction(1, 2)}
    # 810 + 190 fill a device; with too few 190s to go round, an 810 costs a whole one and a 190 comes free.
    assert device_prices({810: 10, 190: 1}) == {810: Fraction(1), 190: Fraction(0)}


def test_values_of_what_is_left_of_a_device():
    """By free milli-GPU: nothing below the smallest size, a step at each filling, a whole device at 1000."""
    values = device_values(((250, 4), (500, 1)), 5040)
    assert len(values) == DEVICE_MILLI + 1
    assert values[:250] == (0,) * 250
    assert (values[250], values[499], values[500], values[749], values[1000]) == (
        1260,
        1260,
        2520,
        2520,
        5040,
    )


@given(demands)
def test_more_room_is_never_worth_less(demand):
    values = device_values(tuple(sorted(demand.items())), 5040)
    assert list(values) == sorted(values)
    assert values[DEVICE_MILLI] == 5040


def test_without_demand_there_are_no_prices():
    assert device_prices({}) == {}
