"""The partition planner: never an overlap, never an instance in use, always a way if there is one, and the shortest."""

from __future__ import annotations

from collections import Counter, deque
from functools import lru_cache

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.sharing.gpus import gpu
from tests.sharing.layouts import legal_layouts

from windlass.model.mig import MigGeometry
from windlass.sharing.inventory import Gpu
from windlass.sharing.mig_plan import Create, Destroy, GpuPlan, SetMode, plan_gpu

Placed = tuple[tuple[str, int], ...]
MODELS = ("A30", "A100-40", "H200")


def geometry_of(model: str) -> MigGeometry:
    found = gpu(model).geometry
    assert found is not None
    return found


@lru_cache
def placements(model: str) -> tuple[Placed, ...]:
    """Every arrangement of instances that don't overlap, found by growing them one by one."""
    geometry = geometry_of(model)
    spots = [(profile.name, start) for profile in geometry.profiles for start in profile.starts]
    seen: set[Placed] = {()}
    frontier = deque(seen)
    while frontier:
        placed = frontier.popleft()
        for spot in spots:
            grown = tuple(sorted((*placed, spot), key=lambda each: (each[1], each[0])))
            if grown not in seen and not overlaps(geometry, grown):
                seen.add(grown)
                frontier.append(grown)
    return tuple(sorted(seen))


def slices(geometry: MigGeometry, profile: str, start: int) -> set[int | str]:
    found = geometry.profile(profile)
    assert found is not None
    assert start in found.starts
    return {*range(start, start + found.memory_slices), *(["media"] if found.media else [])}


def overlaps(geometry: MigGeometry, placed: Placed) -> bool:
    taken: set[int | str] = set()
    for profile, start in placed:
        mine = slices(geometry, profile, start)
        if taken & mine:
            return True
        taken |= mine
    return False


def after(plan: GpuPlan, before: Gpu) -> Placed:
    """Carries the plan out on paper, and fails on the first step that no driver would do."""
    geometry = before.geometry
    assert geometry is not None
    now = {(each.profile, each.start) for each in before.instances}
    enabled = before.mig_enabled
    for step in plan.steps:
        match step:
            case SetMode(on):
                assert not now or on, "the mode can't be left with instances"
                enabled = on
            case Destroy(_, profile, start):
                now.remove((profile, start))
            case Create(profile, start):
                assert enabled
                assert not overlaps(geometry, (*now, (profile, start)))
                now.add((profile, start))
    return tuple(sorted(now, key=lambda each: (each[1], each[0])))


def states(model: str) -> st.SearchStrategy[Placed]:
    return st.sampled_from(placements(model))


@st.composite
def tasks(draw: st.DrawFn) -> tuple[Gpu, dict[str, int], frozenset[str]]:
    model = draw(st.sampled_from(MODELS))
    now = gpu(model, cuts=draw(states(model)))
    wanted = draw(st.sampled_from(legal_layouts(now.name.replace(" ", "-"))))
    busy = draw(st.sets(st.sampled_from([each.uuid for each in now.instances]))) if now.instances else set()
    return now, dict(Counter(wanted)), frozenset(busy)


def fewest_changes(now: Gpu, wanted: dict[str, int], busy: frozenset[str]) -> int | None:
    """By trying every arrangement of the wanted instances: those that agree with a present one stay."""
    model = next(key for key in MODELS if gpu(key).name == now.name)
    fixed = {(each.profile, each.start) for each in now.instances if each.uuid in busy}
    here = {(each.profile, each.start) for each in now.instances}
    costs = [
        len(here - set(goal)) + len(set(goal) - here)
        for goal in placements(model)
        if Counter(profile for profile, _ in goal) == Counter(wanted) and fixed <= set(goal)
    ]
    return min(costs, default=None)


@given(tasks())
def test_a_plan_is_legal_complete_and_the_shortest(task: tuple[Gpu, dict[str, int], frozenset[str]]) -> None:
    now, wanted, busy = task
    plan = plan_gpu(now, wanted, enabled=True, in_use=busy)
    best = fewest_changes(now, wanted, busy)
    if best is None:
        assert plan.refusal
        assert not plan.steps
        return
    assert not plan.refusal
    done = after(plan, now)
    assert Counter(profile for profile, _ in done) == Counter(wanted)
    assert plan.changes == best
    kept = {(each.profile, each.start) for each in now.instances if each.uuid in busy}
    assert not kept & {(step.profile, step.start) for step in plan.steps if isinstance(step, Destroy)}


@given(tasks())
def test_a_layout_that_is_there_needs_nothing(task: tuple[Gpu, dict[str, int], frozenset[str]]) -> None:
    now, _, busy = task
    same = dict(Counter(each.profile for each in now.instances))
    assert plan_gpu(now, same, enabled=True, in_use=busy).steps == ()


@given(states("H200"), st.booleans())
def test_off_takes_every_instance_away_unless_one_is_in_use(placed: Placed, is_busy: bool) -> None:
    now = gpu("H200", cuts=placed)
    busy = frozenset([now.instances[0].uuid]) if is_busy and now.instances else frozenset()
    plan = plan_gpu(now, {}, enabled=False, in_use=busy)
    if busy:
        assert "in use" in plan.refusal
        assert now.instances[0].uuid in plan.refusal
    else:
        assert after(plan, now) == ()
        assert plan.steps[-1] == SetMode(False)


class TestKnownCases:
    def test_from_nothing_to_seven(self) -> None:
        plan = plan_gpu(gpu("H200"), {"1g.18gb": 7}, enabled=True)
        assert plan.steps[0] == SetMode(True)
        assert [step.start for step in plan.steps if isinstance(step, Create)] == list(range(7))

    def test_the_h200_rounds_half_up(self) -> None:
        assert not plan_gpu(gpu("H200"), {"3g.71gb": 2}, enabled=True).refusal
        assert "no profile 3g.70gb" in plan_gpu(gpu("H200"), {"3g.70gb": 1}, enabled=True).refusal

    def test_only_what_must_go_goes(self) -> None:
        now = gpu("H200", cuts=[("1g.18gb", at) for at in range(7)])
        plan = plan_gpu(now, {"1g.18gb": 1, "2g.35gb": 1, "3g.71gb": 1}, enabled=True)
        assert len(plan.kept) == 1
        assert plan.changes == 6 + 2

    def test_an_instance_in_use_decides_where_the_others_go(self) -> None:
        now = gpu("H200", cuts=[("1g.18gb", 0)])
        plan = plan_gpu(now, {"1g.18gb": 1, "3g.71gb": 1}, enabled=True, in_use=frozenset([now.instances[0].uuid]))
        assert plan.steps == (Create("3g.71gb", 4),)

    def test_no_room_beside_what_is_in_use_names_it(self) -> None:
        now = gpu("H200", cuts=[("1g.18gb", 0), ("1g.18gb", 4)])
        busy = frozenset(each.uuid for each in now.instances)
        plan = plan_gpu(now, {"1g.18gb": 2, "3g.71gb": 1}, enabled=True, in_use=busy)
        assert "drain them first" in plan.refusal
        assert "slice 4" in plan.refusal

    @pytest.mark.parametrize(
        ("now", "wanted", "why"),
        [
            (gpu("T4"), {"1g.5gb": 1}, "no MIG"),
            (gpu("H200", is_lost=True), {"1g.18gb": 1}, "lost"),
            (gpu("H200"), {"4g.71gb": 2}, "does not fit on one"),
            (gpu("A30"), {"4g.24gb": 1, "1g.6gb": 1}, "does not fit on one"),
        ],
    )
    def test_what_can_not_be_says_why(self, now: Gpu, wanted: dict[str, int], why: str) -> None:
        assert why in plan_gpu(now, wanted, enabled=True).refusal

    def test_a_process_on_the_whole_gpu_forbids_the_change_of_mode(self) -> None:
        now = gpu("H200")
        assert "whole GPU" in plan_gpu(now, {"1g.18gb": 1}, enabled=True, in_use=frozenset([now.uuid])).refusal
