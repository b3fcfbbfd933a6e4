"""What counts as an eviction loop: evictions of one workload for others, not limits that end it again and again."""

from __future__ import annotations

from tests.worlds.judges.evictions import EvictionJudge
from tests.worlds.judges.world_state import WorldState

from windlass.model.decision import Evict
from windlass.model.plan import Plan


def judged(times: int, preemptor: str, reason: str) -> list[str]:
    wrong: list[str] = []
    judge = EvictionJudge(WorldState(lambda: 1000.0, 15.0), wrong.append, 90.0)
    judge.on_happening()
    for _ in range(times):
        judge.on_plan(Plan(evicts=(Evict("team/a", (), preemptor, reason),)))
        judge.on_evicted("team/a", "gone")
    judge.check_at_rest()
    return wrong


def test_a_third_eviction_for_others_is_a_loop() -> None:
    assert judged(2, "team/b", "Priority") == []
    assert judged(3, "team/b", "Priority") == ["team/a was evicted 3 times while nothing happened: gone"]


def test_a_limit_may_end_a_run_as_often_as_it_begins() -> None:
    assert judged(9, "", "PodsReadyTimeout") == []
