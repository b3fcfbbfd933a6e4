"""A driver change with failing nodes and repairs at the same time: never more than the budget is out of service."""

from __future__ import annotations

from tests.operator.fleet_play import play_fleet


def test_sixty_nodes_with_a_failing_one_and_three_repairs() -> None:
    found = play_fleet(60, seed=3, repairs=3)
    assert found.phase == "Succeeded"
    assert found.most_unavailable <= found.limit == 3
    assert (found.changed, found.failed) == (59, 1)
    assert set(found.repairs.values()) == {"Returned"}
