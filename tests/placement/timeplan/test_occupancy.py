"""Which workloads are where and until when, and placing beside planned starts."""

from __future__ import annotations

import pytest
from tests.placement.offices import CELL, choices, gang, make_occupancy, make_overlay, plan, runs
from tests.queueing.builders import NOW, cell, queue, system

from reference.park import node, pod
from windlass.model.pod import Pod
from windlass.model.workload import Workload
from windlass.placement.timeplan import occupancy as occupancy_module
from windlass.placement.timeplan.occupancy import Occupancy
from windlass.placement.timeplan.planned_start import PlannedStart

QUEUES = system([queue("a", cell(10), cohort="c"), queue("b", cell(6), cohort="c")])
PODS = [pod("p0", cpu="4", on="n0", namespace="team"), pod("p1", cpu="2", on="n1", namespace="team")]
LONG = runs("long", PODS[:1], queue="a", usage={"cpu": 4000}, max_run_seconds=1000, started_at=NOW - 100)
SHORT = runs("short", PODS[1:], queue="b", usage={"cpu": 2000}, max_run_seconds=200, started_at=NOW - 100)


def office(*workloads: Workload, cpu: int = 8) -> Occupancy:
    overlay = make_overlay(node("n0", cpu=cpu), node("n1", cpu=cpu), *PODS)
    return make_occupancy(overlay, workloads, QUEUES)


def cpus(occupancy: Occupancy, matrix: object) -> list[int]:
    column = occupancy.overlay.snapshot.resources.column("cpu")
    return [int(row[column]) // 1000 for row in matrix]  # type: ignore[attr-defined]


def test_occupants_are_what_runs_and_what_was_placed() -> None:
    found = office(LONG, SHORT)
    waits = gang("w", pod("t", cpu="1"), 2, queue_name="a", max_run_seconds=50)
    found.add_running([waits])
    assert [(one.workload.key, one.end, one.queue_usage) for one in found.occupants()] == [
        ("team/long", NOW + 900, ("a", {CELL: 4000})),
        ("team/short", NOW + 100, ("b", {CELL: 2000})),
    ]
    assert found.placer.place(waits, choices(waits)).ok
    found.add_placed(waits, choices(waits, cpu="default"))
    assert found.occupants()[2] == (waits, NOW + 50, ("a", {CELL: 2000}))
    found.placer.remove(LONG)
    assert [one.workload.key for one in found.occupants()] == ["team/short", "team/w"]
    assert found.workload("team/long") is LONG


def test_a_workload_in_no_queue_uses_no_quota_and_without_a_limit_has_no_end() -> None:
    found = office(runs("free", PODS[:1]))
    waits = gang("w", pod("t", cpu="1"))
    assert found.placer.place(waits, choices(waits)).ok
    found.add_placed(waits, choices(waits))
    assert [(one.end, one.queue_usage) for one in found.occupants()] == [(None, None), (None, None)]


def test_what_is_added_later_counts_from_then_on() -> None:
    found = office(LONG)
    planned = plan(found.overlay, NOW + 100, None, (1, 5))
    assert cpus(found, found.spare(NOW + 100, None, [planned])) == [4, 1]
    found.set_quota_at(NOW, ())
    assert used(found) == {"a": 4, "b": 0}
    found.add_running([SHORT])
    assert cpus(found, found.free(NOW + 100)) == [4, 8]
    assert cpus(found, found.spare(NOW + 100, None, [planned])) == [4, 3]
    found.set_quota_at(NOW, ())
    assert used(found) == {"a": 4, "b": 2}


def test_a_running_workload_is_known_before_occupants_are_asked_for() -> None:
    assert office(LONG).workload("team/long") is LONG


def test_the_queue_of_a_workload() -> None:
    found = office()
    node_of_queue = found.cluster_queue_of(LONG)
    assert node_of_queue is not None
    assert node_of_queue.name == "a"
    assert found.cluster_queue_of(gang("w", Pod())) is None
    assert found.cluster_queue_of(gang("w", Pod(), queue_name="unknown")) is None


def test_nodes_and_pods_of_a_workload() -> None:
    found = office(LONG, SHORT)
    assert found.nodes_of("team/short") == {1}
    waits = gang("w", pod("t", cpu="4"), 2)
    assert found.placer.place(waits, choices(waits)).ok
    assert found.nodes_of("team/w") == {entry.node for entry in found.planned_pods_of("team/w")} == {0, 1}
    assert found.planned_pods_of("team/short") == ()


def test_a_rollback_undoes_placements() -> None:
    found = office(LONG, SHORT)
    before = found.checkpoint()
    waits = gang("w", pod("t", cpu="4"), 2)
    assert found.placer.place(waits, choices(waits)).ok
    found.rollback(before)
    assert "team/w" not in found.placer.placed_workloads
    assert cpus(found, found.free(NOW)) == [4, 6]


def test_what_is_free_at_a_moment() -> None:
    found = office(LONG, SHORT)
    assert [cpus(found, found.free(moment)) for moment in (NOW, NOW + 99, NOW + 100, NOW + 900)] == [
        [4, 6],
        [4, 6],
        [4, 8],
        [8, 8],
    ]
    assert cpus(found, found.free(NOW, ["team/long"])) == [8, 6]


def test_plans_take_from_what_is_spare() -> None:
    found = office(LONG, SHORT)
    plans = [plan(found.overlay, NOW + 100, NOW + 300, (0, 3)), plan(found.overlay, NOW + 200, None, (0, 1), (1, 5))]
    assert cpus(found, found.spare(NOW, NOW + 100, plans)) == [4, 6]
    assert cpus(found, found.spare(NOW, NOW + 101, plans)) == [1, 6]
    assert cpus(found, found.spare(NOW, None, plans)) == [0, 3]
    assert cpus(found, found.spare(NOW + 300, NOW + 301, plans)) == [3, 3]
    assert cpus(found, found.spare(NOW + 300, None, plans, ["team/long"])) == [7, 3]
    assert cpus(found, found.spare(NOW, NOW + 101, plans[:1])) == [1, 6]
    spare = found.spare(NOW, None, ())
    spare[:] = 0
    assert cpus(found, found.free(NOW)) == [4, 6], "a copy"


def used(occupancy: Occupancy) -> dict[str, int]:
    found = {}
    for name in "ab":
        queue_node = occupancy.quota.active_queue(name)
        assert queue_node is not None
        found[name] = queue_node.usage.get(CELL, 0) // 1000
    return found


def test_quota_at_a_moment_is_that_of_what_still_runs_and_of_plans() -> None:
    found = office(LONG, SHORT)
    plans = [plan(found.overlay, NOW, None, queue="b", usage=3000), plan(found.overlay, NOW, None, (0, 1))]
    seen = []
    for moment, starts, without in [
        (NOW, (), ()),
        (NOW, plans, ()),
        (NOW + 99, (), ()),
        (NOW + 100, plans, ()),
        (NOW + 900, (), ()),
        (NOW, (), ["team/long"]),
        (NOW, (), ()),
    ]:
        found.set_quota_at(moment, starts, without)
        seen.append(used(found))
    assert seen == [
        {"a": 4, "b": 2},
        {"a": 4, "b": 5},
        {"a": 4, "b": 2},
        {"a": 4, "b": 3},
        {"a": 0, "b": 0},
        {"a": 0, "b": 2},
        {"a": 4, "b": 2},
    ]


def test_what_was_placed_uses_quota_while_it_is_placed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(occupancy_module, "MAX_CACHED_VERSIONS", 1)
    found = office(LONG, SHORT)
    found.set_quota_at(NOW, ())
    waits = gang("w", pod("t", cpu="1"), 2, queue_name="a", max_run_seconds=50)
    before = found.checkpoint()
    assert found.placer.place(waits, choices(waits)).ok
    found.add_placed(waits, choices(waits, cpu="default"))
    found.set_quota_at(NOW, ())
    assert used(found) == {"a": 6, "b": 2}
    found.set_quota_at(NOW + 50, ())
    assert used(found) == {"a": 4, "b": 2}
    found.set_quota_at(NOW, (), ["team/w"])
    assert used(found) == {"a": 4, "b": 2}
    found.rollback(before)
    found.set_quota_at(NOW, ())
    assert used(found) == {"a": 4, "b": 2}


@pytest.mark.parametrize(
    ("usage", "planned", "fits"),
    [(6000, 4000, True), (7000, 4000, True), (10_000, 4000, True), (10_001, 4000, False), (10_000, 4001, False)],
)
def test_quota_has_to_suffice_for_the_plans_too(usage: int, planned: int, fits: bool) -> None:
    """16 CPUs in the cohort, of which 2 are used until after the plan's start."""
    found = office(SHORT)
    queue_node = found.quota.active_queue("a")
    assert queue_node is not None
    start = plan(found.overlay, NOW + 50, None, queue="b", usage=planned)
    assert found.quota_suffices(queue_node, {CELL: usage}, [NOW + 50], [start]) is fits
    assert found.quota_suffices(queue_node, {CELL: usage}, [], [start])
    assert found.quota_suffices(queue_node, {CELL: usage}, [NOW + 50], [plan(found.overlay, NOW + 50, None, (0, 1))])
    assert used(found)["a"] == 0, "nothing stays"


def test_what_has_ended_by_then_gives_its_quota_back() -> None:
    found = office(SHORT)
    queue_node = found.quota.active_queue("a")
    assert queue_node is not None
    start = plan(found.overlay, NOW + 100, None, queue="b", usage=6000)
    assert found.quota_suffices(queue_node, {CELL: 10_000}, [NOW + 100], [start])
    assert not found.quota_suffices(queue_node, {CELL: 10_001}, [NOW + 100], [start])
    earlier = plan(found.overlay, NOW + 99, NOW + 100, queue="b", usage=6000)
    assert not found.quota_suffices(queue_node, {CELL: 10_000}, [NOW + 99], [earlier])
    assert found.quota_suffices(queue_node, {CELL: 10_000}, [NOW + 99], [earlier], ["team/short"])
    both = [NOW + 99, NOW + 100]
    assert not found.quota_suffices(queue_node, {CELL: 10_000}, both, [earlier, start])


def test_a_plan_that_has_too_little_quota_by_itself_binds_nobody() -> None:
    found = office(SHORT)
    queue_node = found.quota.active_queue("a")
    assert queue_node is not None
    start = plan(found.overlay, NOW + 50, None, queue="b", usage=20_000)
    assert found.quota_suffices(queue_node, {CELL: 1000}, [NOW + 50], [start])


# Placing now


def placed_on(occupancy: Occupancy, workload: Workload, *plans: PlannedStart, flavor: str = "") -> list[int] | None:
    found = occupancy.place_without_conflict(workload, choices(workload, **({"cpu": flavor} if flavor else {})), plans)
    if not found.ok:
        assert workload.key not in occupancy.placer.placed_workloads
        return None
    return sorted(entry.node for entry in occupancy.planned_pods_of(workload.key))


def test_a_workload_goes_beside_the_plan() -> None:
    for size, nodes in [(4, [1]), (6, [1]), (7, None)]:
        found = office(LONG, SHORT)
        start = plan(found.overlay, NOW + 50, None, (0, 4))
        assert placed_on(found, gang("w", pod("t", cpu=str(size))), start) == nodes


def test_a_workload_that_ends_before_the_plan_goes_anywhere() -> None:
    found = office(LONG, SHORT)
    starts = [plan(found.overlay, NOW + 50, None, (0, 4), (1, 6))]
    assert placed_on(found, gang("w", pod("t", cpu="4"), 2, max_run_seconds=51), *starts) is None
    assert placed_on(found, gang("w", pod("t", cpu="4"), 2, max_run_seconds=50), *starts) == [0, 1]


def test_a_plan_that_has_begun_takes_its_place() -> None:
    found = office(LONG, SHORT)
    start = plan(found.overlay, NOW, NOW + 5, (0, 4), (1, 4))
    assert placed_on(found, gang("w", pod("t", cpu="3"), max_run_seconds=1), start) is None
    assert placed_on(found, gang("v", pod("t", cpu="2"), max_run_seconds=1), start) == [1]


def test_a_node_on_which_pods_conflict_is_closed_and_the_next_one_is_tried() -> None:
    """The first node, with the least room, takes one of the two pods beside the plan, but not both."""
    found = office(LONG, SHORT)
    start = plan(found.overlay, NOW + 50, None, (0, 2))
    assert placed_on(found, gang("w", pod("t", cpu="2"), 2), start) == [1, 1]
    assert placed_on(found, gang("v", pod("t", cpu="2")), start) == [0]


def test_after_so_many_tries_it_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """As above, where the second try would have found a place."""
    monkeypatch.setattr(occupancy_module, "MAX_PLACEMENT_TRIES", 1)
    found = office(LONG, SHORT)
    assert placed_on(found, gang("w", pod("t", cpu="2"), 2), plan(found.overlay, NOW + 50, None, (0, 2))) is None


def test_a_plan_that_will_lack_room_itself_leaves_nothing() -> None:
    found = office(LONG, SHORT)
    start = plan(found.overlay, NOW + 50, None, (0, 7), (1, 6))
    assert placed_on(found, gang("w", pod("t", cpu="1")), start) is None


def test_the_plans_quota_is_kept() -> None:
    found = office(SHORT, cpu=16)
    start = plan(found.overlay, NOW + 50, None, queue="b", usage=4000)
    too_much = gang("w", pod("t", cpu="5500m"), 2, queue_name="a")
    assert placed_on(found, too_much, start, flavor="default") is None
    enough = gang("w", pod("t", cpu="5"), 2, queue_name="a")
    assert placed_on(found, enough, start, flavor="default") is not None
    other = office(SHORT, cpu=16)
    assert placed_on(other, gang("w", pod("t", cpu="5500m"), 2), start) is not None, "in no queue"
