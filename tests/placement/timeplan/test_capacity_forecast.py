"""What nodes will have free: matrices of free capacity, what workloads hold, and how pod sets fit into them."""

from __future__ import annotations

import numpy as np
import pytest
from tests.placement.offices import choices, gang, make_occupancy, make_overlay, make_placer, runs

from reference.park import GPU, gpu_node, node, pod
from windlass.cluster.shape import make_shape
from windlass.model.names.windlass import RACK_LABEL
from windlass.model.pod import Pod
from windlass.model.workload import TopologyRequest, Workload
from windlass.placement.blocked_capacity import PlannedPod
from windlass.placement.gang import PendingPodSet
from windlass.placement.overlay import Overlay
from windlass.placement.timeplan import capacity_forecast
from windlass.placement.timeplan.capacity_forecast import CapacityForecast, FreeCapacityTimeline
from windlass.placement.timeplan.planned_start import PlannedStart
from windlass.placement.timeplan.pod_set_fitter import PodSetFitter
from windlass.placement.topology import DomainTree

PODS = [
    pod("a0", 2, cpu="1", on="g0", namespace="team"),
    pod("a1", 1, cpu="2", on="g1", namespace="team"),
    pod("a2", 1, cpu="2", on="g0", namespace="team"),
    pod("b0", cpu="3", on="g0", namespace="team", share="0.5"),
]
A, B = runs("a", PODS[:3]), runs("b", PODS[3:])


@pytest.fixture
def overlay() -> Overlay:
    return make_overlay(gpu_node("g0", 4), gpu_node("g1", 4), *PODS)


def forecast_of(overlay: Overlay, *workloads: Workload) -> CapacityForecast:
    return CapacityForecast(overlay, make_placer(overlay, workloads))


def cpu_and_gpu(overlay: Overlay, matrix: np.ndarray) -> list[list[int]]:
    column = overlay.snapshot.resources.column("cpu")
    return [[int(row[column]), int(row[-1])] for row in matrix]


def free(overlay: Overlay, forecast: CapacityForecast, moment: int, *args: object) -> list[list[int]]:
    return cpu_and_gpu(overlay, forecast.free(moment, *args))  # type: ignore[arg-type]


NOW = [[10_000, 500], [14_000, 3000]]
WITHOUT_A = [[13_000, 3500], [16_000, 4000]]
WITHOUT_B = [[13_000, 1000], [14_000, 3000]]
EMPTY = [[16_000, 4000], [16_000, 4000]]


def test_what_is_free_grows_as_workloads_end(overlay: Overlay) -> None:
    forecast = forecast_of(overlay, A, B)
    ends = {"team/a": 10, "team/b": 20}
    found = [free(overlay, forecast, moment, ends) for moment in (20, 0, 9, 10, 19)]
    assert found == [EMPTY, NOW, NOW, WITHOUT_A, WITHOUT_A]
    assert free(overlay, forecast_of(overlay, A, B), 99, {"team/a": 10, "team/b": None}) == WITHOUT_A


def test_what_is_taken_away_counts_as_ended(overlay: Overlay) -> None:
    forecast = forecast_of(overlay, A, B)
    ends = {"team/a": 10, "team/b": None}
    assert free(overlay, forecast, 1, ends, ["team/b"]) == WITHOUT_B
    assert free(overlay, forecast, 1, ends, ["team/a"]) == WITHOUT_A
    assert free(overlay, forecast, 10, ends, ["team/a"]) == WITHOUT_A, "and is not given back twice"
    assert free(overlay, forecast, 1, ends, ["team/a", "team/b", "team/unknown"]) == EMPTY
    assert free(overlay, forecast, 1, ends) == NOW


def test_changed_workloads_need_a_new_timeline(overlay: Overlay) -> None:
    forecast = forecast_of(overlay, A, B)
    assert free(overlay, forecast, 15, {"team/a": 10, "team/b": 20}) == WITHOUT_A
    forecast.invalidate()
    assert free(overlay, forecast, 15, {"team/b": 20}) == NOW, "the end of `a` is not known any more"
    assert free(overlay, forecast, 20, {"team/b": 20}) == WITHOUT_B


def test_a_change_of_the_overlay_is_noticed(overlay: Overlay) -> None:
    placer = make_placer(overlay, [A, B])
    forecast = CapacityForecast(overlay, placer)
    ends = {"team/a": 10, "team/b": 20}
    assert free(overlay, forecast, 0, ends) == NOW
    new = gang("new", pod("t", 1, cpu="4"))
    assert placer.place(new, choices(new)).ok
    (on,) = placer.placed_workloads["team/new"].placed
    expected = [list(row) for row in NOW]
    expected[on.assumed.node] = [expected[on.assumed.node][0] - 4000, expected[on.assumed.node][1] - 1000]
    assert free(overlay, forecast, 0, {**ends, "team/new": 15}) == expected
    assert free(overlay, forecast, 20, {**ends, "team/new": 15}) == EMPTY
    placer.remove(A)
    assert free(overlay, forecast, 20, {"team/b": 20, "team/new": 15}) == EMPTY


def test_what_a_workload_holds_by_node(overlay: Overlay) -> None:
    placer = make_placer(overlay, [A, B])
    forecast = CapacityForecast(overlay, placer)
    rows, held = forecast.held_by_workload("team/a")
    assert rows.tolist() == [0, 1]
    assert cpu_and_gpu(overlay, held) == [[3000, 3000], [2000, 1000]]
    assert forecast.held_by_workload("team/a")[1] is held, "computed once"
    rows, held = forecast.held_by_workload("team/b")
    assert (rows.tolist(), cpu_and_gpu(overlay, held)) == ([0], [[3000, 500]])


@pytest.mark.parametrize(
    ("template", "amounts"),
    [
        (pod("t", 3, cpu="2"), [2000, 3000]),
        (pod("t", share="0.3", cpu="1"), [1000, 300]),
        (pod("t", memory_mib=100, cpu="1"), [1000, 1000]),
        (pod("t", share="0.5", devices=2, cpu="1"), [1000, 1000]),
        (pod("t", cpu="5"), [5000, 0]),
    ],
    ids=["whole", "share", "by memory", "shares", "no GPU"],
)
def test_what_one_pod_takes(overlay: Overlay, template: Pod, amounts: list[int]) -> None:
    forecast, shape = forecast_of(overlay), make_shape(template)
    row = overlay.table.row(shape, overlay.snapshot)
    assert cpu_and_gpu(overlay, np.array([forecast.shape_request(shape), forecast.row_request(row)])) == [amounts] * 2
    pods = overlay.snapshot.resources.column("pods")
    assert forecast.row_request(row)[pods] == forecast.shape_request(shape)[pods] == 1
    planned = [PlannedPod(template, row, 1), PlannedPod(template, row, 0), PlannedPod(template, row, 1)]
    rows, held = forecast.held_by_planned_pods(planned)
    assert rows.tolist() == [0, 1]
    assert cpu_and_gpu(overlay, held) == [amounts, [2 * amount for amount in amounts]]
    start = PlannedStart("team/x", 0, 1, tuple(planned[:1]))
    assert forecast.held_by_planned_start(start)[0].tolist() == [1]
    assert forecast.held_by_planned_start(start)[1] is forecast.held_by_planned_start(start)[1]


def test_a_timeline_that_keeps_too_much_begins_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capacity_forecast, "MAX_CACHED_ROWS", 2)
    now = np.array([[5]], dtype=np.int64)
    timeline = FreeCapacityTimeline(now, np.array([3, 1, 2]), np.array([0, 0, 0]), np.array([[100], [1], [10]]))
    assert [int(timeline.at(moment)[0, 0]) for moment in (2, 3, 1, 0, 3, 2)] == [16, 116, 6, 5, 116, 16]


# How pod sets fit


def test_a_matrix_is_asked_for_pods_of_each_set(overlay: Overlay) -> None:
    occupancy = make_occupancy(overlay, [A, B])
    two = gang("two", pod("t", 2, cpu="5"), 2)
    pod_sets, _, _ = occupancy.placer.pending_pod_sets(two, choices(two))
    fitter = PodSetFitter(overlay, occupancy.forecast, pod_sets)
    spare = occupancy.free(0)
    assert fitter.pods_per_node(0, spare).tolist() == [0, 1]
    assert not fitter.can_fit(spare)
    assert fitter.plan_all_pods(spare) is None
    empty = occupancy.free(0, ["team/a", "team/b"])
    assert fitter.pods_per_node(0, empty).tolist() == [2, 2]
    assert fitter.pods_per_node(0, empty, np.array([False, True])).tolist() == [0, 2]
    assert fitter.can_fit(empty)
    assert fitter.pods_per_node(0, -empty).tolist() == [0, 0]
    overlay.block_node(0)
    blocked = PodSetFitter(overlay, occupancy.forecast, pod_sets)
    assert blocked.pods_per_node(0, empty).tolist() == [0, 2]


def test_mig_instances_take_no_share_of_a_gpu() -> None:
    running = pod("i0", mig=("1g.10gb", 1), on="cut", namespace="team")
    overlay = make_overlay(node("cut", **{"nvidia.com/mig-1g.10gb": 3}), gpu_node("g", 1), running)
    forecast = forecast_of(overlay, runs("i", [running]))
    column = overlay.snapshot.resources.column("nvidia.com/mig-1g.10gb")
    found = [forecast.free(moment, {"team/i": 10})[0, [column, -1]].tolist() for moment in (0, 10)]
    assert found == [[2, 0], [3, 0]]
    fitter = fitter_of(overlay, (pod("p", mig=("1g.10gb", 1)), 2))
    assert fitter.pods_per_node(0, forecast.free(0, {"team/i": 10})).tolist() == [2, 0]


def fitter_of(overlay: Overlay, *sets: tuple[Pod, int], topology: TopologyRequest | None = None) -> PodSetFitter:
    pending = [
        PendingPodSet(f"s{number}", count, template, make_shape(template), topology)
        for number, (template, count) in enumerate(sets)
    ]
    return PodSetFitter(overlay, forecast_of(overlay), pending)


def matrix(overlay: Overlay, *cpus: int) -> np.ndarray:
    """Whole CPUs by node, 9 pods and no GPU."""
    found = np.zeros((len(cpus), overlay.state.free.shape[1] + 1), dtype=np.int64)
    found[:, overlay.snapshot.resources.column("cpu")] = np.array(cpus) * 1000
    found[:, overlay.snapshot.resources.column("pods")] = 9
    return found


def nodes_of(planned: list[PlannedPod] | None) -> list[int] | None:
    return None if planned is None else [entry.node for entry in planned]


ONE = pod("t", cpu="1")


@pytest.fixture
def four() -> Overlay:
    return make_overlay(*(node(f"n{i}", labels={RACK_LABEL: f"r{i // 2}"}) for i in range(4)))


def test_small_rests_are_filled_first(four: Overlay) -> None:
    fitter = fitter_of(four, (ONE, 5))
    left = matrix(four, 4, 0, 3, 1)
    assert nodes_of(fitter.plan_as_many_as_fit(0, left)) == [3, 2, 2, 2, 0]
    assert left[:, four.snapshot.resources.column("cpu")].tolist() == [3000, 0, 0, 0]
    assert nodes_of(fitter.plan_as_many_as_fit(0, matrix(four, 1, 0, 1, 1))) == [0, 2, 3], "as many as there are"
    assert nodes_of(fitter.plan_all_pods(matrix(four, 1, 0, 1, 1))) is None
    assert (
        nodes_of(fitter.plan_all_pods(matrix(four, 9, 9, 9, 9), among=np.array([False, False, True, False]))) == [2] * 5
    )


def test_the_matrix_of_the_caller_stays_as_it_is(four: Overlay) -> None:
    left = matrix(four, 4, 4, 4, 4)
    before = left.copy()
    assert fitter_of(four, (ONE, 5)).plan_all_pods(left) is not None
    assert (left == before).all()


def test_sets_share_what_there_is(four: Overlay) -> None:
    fitter = fitter_of(four, (pod("t", cpu="2"), 2), (ONE, 2))
    assert fitter.can_fit(matrix(four, 4, 0, 0, 0)), "each alone"
    assert fitter.plan_all_pods(matrix(four, 4, 0, 0, 0)) is None
    assert nodes_of(fitter.plan_all_pods(matrix(four, 4, 0, 2, 0))) == [2, 0, 0, 0]
    assert fitter_of(four, (ONE, 0), (ONE, 1)).can_fit(matrix(four, 1, 0, 0, 0))
    assert not fitter_of(four, (ONE, 1), (pod("t", cpu="2"), 1)).can_fit(matrix(four, 1, 0, 0, 0))


def test_the_largest_in_gpus_goes_first() -> None:
    overlay = make_overlay(gpu_node("a", 4), gpu_node("b", 2))
    fitter = fitter_of(overlay, (pod("t", 1), 4), (pod("t", 2), 1))
    forecast = forecast_of(overlay)
    found = fitter.plan_all_pods(forecast.free(0, {}))
    assert found is not None
    assert [(entry.node, entry.pod.spec.containers[0].resources.limits[GPU]) for entry in found] == [
        (1, "2"),
        *[(0, "1")] * 4,
    ]


def test_nodes_that_plans_take_whole_are_lost(four: Overlay) -> None:
    fitter = fitter_of(four, (ONE, 1), (pod("t", cpu="2"), 1))
    assert fitter.nodes_lost_to_plans(matrix(four, 4, 1, 0, 4), matrix(four, 0, 0, 0, 1)) == {0, 1}
    assert fitter.nodes_lost_to_plans(matrix(four, 4, 1, 0, 4), matrix(four, 4, 1, 9, 2)) == set()


def test_with_a_topology_the_pods_share_a_domain(four: Overlay) -> None:
    tree = DomainTree.build((RACK_LABEL,), [("r0",), ("r0",), ("r1",), ("r1",)])
    fitter = fitter_of(four, (ONE, 3), topology=TopologyRequest("required", RACK_LABEL))
    assert nodes_of(fitter.plan_all_pods(matrix(four, 4, 0, 2, 1), tree)) == [2, 2, 3]
    assert fitter.plan_all_pods(matrix(four, 2, 0, 1, 1), tree) is None
    assert nodes_of(fitter.plan_all_pods(matrix(four, 2, 0, 1, 0))) == [2, 0, 0], "without a tree, anywhere"
    both = fitter_of(four, (ONE, 2), (ONE, 2), topology=TopologyRequest("required", RACK_LABEL))
    assert nodes_of(both.plan_all_pods(matrix(four, 3, 0, 2, 0), tree)) == [2, 2, 0, 0]
    assert both.plan_all_pods(matrix(four, 3, 0, 1, 0), tree) is None


def test_sets_without_a_topology_get_what_those_with_one_leave(four: Overlay) -> None:
    tree = DomainTree.build((RACK_LABEL,), [("r0",), ("r0",), ("r1",), ("r1",)])
    two = pod("t", cpu="2")
    with_topology = PendingPodSet("a", 2, two, make_shape(two), TopologyRequest("required", RACK_LABEL), tree)
    fitter = PodSetFitter(four, forecast_of(four), [with_topology, PendingPodSet("b", 3, ONE, make_shape(ONE))])
    assert nodes_of(fitter.plan_all_pods(matrix(four, 0, 0, 5, 2), tree)) == [2, 2, 2, 3, 3]
    assert fitter.plan_all_pods(matrix(four, 0, 0, 4, 2), tree) is None
