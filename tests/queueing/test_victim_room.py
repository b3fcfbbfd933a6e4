"""The model of room on plain numbers: the cheapest way to make room for so many pods, and what may go together."""

from __future__ import annotations

from windlass.queueing.victim_room import Cap, RoomBySubset


def test_of_several_sets_that_make_the_same_room_the_cheapest_is_taken() -> None:
    # Units 4 and 7: one pod fits without either of them, two without both.
    room = RoomBySubset((4, 7), (0, 1, 1, 2))
    assert room.options([9, 3]) == [(0, ()), (3, (7,)), (12, (4, 7))]
    assert room.options([3, 9]) == [(0, ()), (3, (4,)), (12, (4, 7))]
    assert room.options([3, 3])[1] == (3, (4,)), "the first of equals"
    assert room.options([3, None]) == [(0, ()), (3, (4,)), None], "the second stays"


def test_a_cap_counts_all_units_unless_it_spares_the_largest() -> None:
    amounts = {0: 2, 1: 3}
    assert not Cap(4, amounts).is_kept([0, 1])
    assert Cap(5, amounts).is_kept([0, 1])
    assert Cap(2, amounts, spares_largest=True).is_kept([0, 1])
    assert not Cap(1, amounts, spares_largest=True).is_kept([0, 1])
    assert Cap(0, amounts).is_kept([9]), "units of which nothing counts"
