"""`CandidateFinder` and `Preemption` on an overlay: which nodes could take a pod, which victims are chosen there, and
that the overlay is left as it was where nothing is found."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import numpy as np
import pytest
from tests.placement.staged_overlay import overlay_on, shape_and_row

from reference.park import gpu_node, pod
from windlass.model.decision import Admit, Evict
from windlass.model.disruption import BudgetMeta, BudgetSpec, PodDisruptionBudget
from windlass.model.meta import LabelSelector
from windlass.model.pod import Container, ContainerPort, Pod, PodStatus, ResourceRequirements
from windlass.model.times import format_timestamp
from windlass.model.workload import PodSet, Workload
from windlass.placement.preemption.candidates import (
    MAX_COMPARED_NODES,
    Candidate,
    Preemptor,
)
from windlass.placement.preemption.context import Preemption, merge_evictions
from windlass.placement.preemption.victim_units import VictimUnit
from windlass.queueing.config import QueueConfig

NOW = 1_800_000_000


@pytest.fixture(autouse=True)
def _overflow() -> Iterator[None]:
    with np.errstate(over="ignore"):  # the hash function of the kernels overflows on purpose
        yield


def runs(name: str, gpus: int, on: str, *, age: int = 100, **more: Any) -> Pod:
    made: Pod = pod(name, gpus, on=on, created=format_timestamp(NOW - age), **more)
    return msgspec.structs.replace(made, status=PodStatus(phase="Running", start_time=format_timestamp(NOW - age)))


def with_port(name: str, gpus: int, port: int, **more: Any) -> Pod:
    limits = {"cpu": "1", "nvidia.com/gpu": str(gpus)}
    ports = (ContainerPort(container_port=port, host_port=port),)
    container = Container(resources=ResourceRequirements(limits=limits), ports=ports)
    made: Pod = pod(name, containers=(container,), **more)
    return made


def budget(name: str, allowed: int, app: str) -> PodDisruptionBudget:
    return PodDisruptionBudget(
        metadata=BudgetMeta(name=name, namespace="default"),
        spec=BudgetSpec(max_unavailable=allowed, selector=LabelSelector(match_labels={"app": app})),
    )


class Stage:
    """Some objects, a pod that waits, and the preemption of one decision."""

    def __init__(self, *objects: Any, waits: Pod, settings: QueueConfig | None = None, **changes: Any) -> None:
        self.overlay = overlay_on(*objects, waits, now=NOW, **changes)
        self.preemption = Preemption(self.overlay, settings or QueueConfig(), NOW)
        self.finder = self.preemption.candidate_finder
        self.waits = waits

    def preemptor(self, left: int = 1, allowed: Sequence[bool] | None = None) -> Preemptor:
        shape, row = shape_and_row(self.overlay, self.waits)
        mask = None if allowed is None else np.array(allowed, dtype=np.bool_)
        return Preemptor(self.waits, shape, row, self.waits.spec.priority, left, mask)

    def potential(self, left: int = 1, allowed: Sequence[bool] | None = None) -> tuple[list[bool], list[int]]:
        found = self.finder.potential_nodes(self.preemptor(left, allowed))
        return found.feasible.tolist(), found.fits.tolist()

    def found(self, left: int = 1) -> tuple[str, list[str], int] | None:
        """Node, victims and pods of the candidate."""
        candidate = self.finder.find_candidate(self.preemptor(left))
        if candidate is None:
            return None
        node = self.overlay.snapshot.nodes.names[candidate.node]
        return node, sorted(unit.key.removeprefix("default/") for unit in candidate.victims), candidate.pods

    def removed(self) -> list[str]:
        return sorted(one.metadata.name for one in self.overlay.removed_pods())


def test_a_node_takes_as_many_as_would_fit_without_all_that_may_go() -> None:
    objects = [
        gpu_node("a", 8),
        gpu_node("b", 8, cpu=5),
        gpu_node("c", 2),
        gpu_node("d", 8),
        runs("low", 5, "a"),
        runs("same", 8, "d", priority=5),
    ]
    stage = Stage(*objects, waits=pod("w", 2, cpu="2", priority=5))
    assert stage.potential(left=9) == ([True, True, True, False], [4, 2, 1, 0])
    assert stage.potential(left=3) == ([True, True, True, False], [3, 2, 1, 0])
    assert stage.potential(left=9, allowed=[False, True, False, True])[0] == [False, True, False, False]
    assert stage.finder.may_help(stage.preemptor())
    assert not stage.finder.may_help(stage.preemptor(allowed=[False, False, False, True]))


def test_exactly_enough_is_enough_and_one_less_is_not() -> None:
    full = [gpu_node("a", 4), runs("low", 3, "a"), runs("kept", 1, "a", priority=9)]
    assert Stage(*full, waits=pod("w", 3, priority=5)).potential() == ([True], [1])
    assert Stage(*full, waits=pod("w", 4, priority=5)).potential() == ([False], [0])


def test_a_node_that_a_rule_excludes_or_that_is_blocked_is_never_feasible() -> None:
    objects = [gpu_node("a", 4, cordoned=True), gpu_node("b", 4), runs("x", 4, "a"), runs("y", 4, "b")]
    stage = Stage(*objects, waits=pod("w", 4, priority=5))
    assert stage.potential()[0] == [False, True]
    stage.overlay.block_node(1)
    assert stage.potential()[0] == [False, False]
    assert stage.found() is None
    assert stage.removed() == []


def test_the_cheapest_node_wins_and_its_victims_are_gone_from_the_overlay() -> None:
    objects = [
        gpu_node("a", 4),
        gpu_node("b", 4),
        gpu_node("c", 4),
        runs("old", 4, "a", age=900),
        runs("b0", 2, "b", age=300),
        runs("b1", 2, "b", age=200),
        runs("dear", 4, "c", age=10, priority=3),
    ]
    stage = Stage(*objects, waits=pod("w", 4, priority=5))
    assert stage.found() == ("b", ["b0", "b1"], 1)
    assert stage.removed() == ["b0", "b1"]
    assert Stage(*objects, waits=pod("w", 2, priority=5)).found() == ("b", ["b1"], 1)


def test_of_equal_costs_the_victims_that_started_last_go_then_those_on_the_first_node() -> None:
    """One second of ten GPUs or ten seconds of one: the same loss."""
    pair = [gpu_node("a", 1), gpu_node("b", 1)]
    saved = {"windlass.dev/last-checkpoint": format_timestamp(NOW - 50)}
    old = [runs("a", 1, "a", age=900, annotations=saved), runs("b", 1, "b", age=500, annotations=saved)]
    assert Stage(*pair, *old, waits=pod("w", 1, priority=5)).found() == ("b", ["b"], 1)
    same = [runs("a", 1, "a", age=500, annotations=saved), runs("b", 1, "b", age=500, annotations=saved)]
    assert Stage(*pair, *same, waits=pod("w", 1, priority=5)).found() == ("a", ["a"], 1)


def test_a_large_victim_is_cheap_where_it_makes_room_for_several() -> None:
    """For one pod the small victim is cheaper; for three the large one costs less per pod."""
    objects = [gpu_node("a", 1), gpu_node("b", 3), runs("small", 1, "a", age=200), runs("large", 3, "b", age=100)]
    assert Stage(*objects, waits=pod("w", 1, priority=5)).found(left=1) == ("a", ["small"], 1)
    assert Stage(*objects, waits=pod("w", 1, priority=5)).found(left=3) == ("b", ["large"], 3)
    assert Stage(*objects, waits=pod("w", 1, priority=5)).found(left=2) == ("b", ["large"], 2)


def test_the_cost_of_a_candidate_is_per_pod() -> None:
    def unit(name: str, started: int) -> VictimUnit:
        return VictimUnit(0, name, (0,), (name,), 2, (600, 0), started, name)

    candidate = Candidate(7, (unit("x", 3), unit("y", 9)), 4)
    assert candidate.cost_per_pod == ([(2, (300.0, 0.0, 0.5))], [(-9, "y"), (-3, "x")], 7)


def test_a_port_that_a_victim_holds_is_freed_with_it() -> None:
    """Vectors see nothing lacking: units are tried in order, and only the one with the port has to go."""
    holder = with_port("holder", 1, 80, on="a", created=format_timestamp(NOW - 900))
    others = [runs(f"o{at}", 1, "a", age=10 + at) for at in range(4)]
    objects = [gpu_node("a", 8), *others, holder, runs("last", 1, "a", age=9000)]
    stage = Stage(*objects, waits=with_port("w", 1, 80, priority=5))
    assert stage.found() == ("a", ["holder"], 1)
    assert stage.removed() == ["holder"]


def test_where_vectors_are_too_hopeful_other_victims_are_tried_and_compared() -> None:
    """On `a` one cheap pod would do for the GPUs, but the port is held by a dear one; `b` is in between."""
    dear = with_port("dear", 1, 80, on="a", created=format_timestamp(NOW - 5000))
    objects = [gpu_node("a", 2), runs("cheap", 1, "a", age=10), dear, gpu_node("b", 1), runs("mid", 1, "b", age=500)]
    assert Stage(*objects, waits=with_port("w", 1, 80, priority=5)).found() == ("b", ["mid"], 1)
    assert Stage(*objects[:3], waits=with_port("w", 1, 80, priority=5)).found() == ("a", ["dear"], 1)


def test_a_candidate_that_was_tried_costs_what_one_by_vectors_costs() -> None:
    """The dear one loses 600 GPU-seconds, the one on the other node 500."""
    dear = with_port("dear", 1, 80, on="a", created=format_timestamp(NOW - 600))
    objects = [gpu_node("a", 2), runs("cheap", 1, "a", age=10), dear, gpu_node("b", 1), runs("mid", 1, "b", age=500)]
    assert Stage(*objects, waits=with_port("w", 1, 80, priority=5)).found() == ("b", ["mid"], 1)


def test_one_large_victim_goes_where_it_loses_less_than_two_small_ones_before_it() -> None:
    """Two times two GPUs lose 110 GPU-seconds, four GPUs 104."""
    small = [runs("a", 2, "n", age=25), runs("b", 2, "n", age=30)]
    objects = [gpu_node("n", 8), *small, runs("c", 4, "n", age=26)]
    assert Stage(*objects, waits=pod("w", 4, priority=5)).found() == ("n", ["c"], 1)


def test_nodes_behind_the_cheapest_are_tried_where_none_of_these_works() -> None:
    """On the first dozen a pod that may not go holds the port."""
    objects: list[Any] = []
    for at in range(MAX_COMPARED_NODES + 3):
        objects += [gpu_node(f"n{at:02}", 2), runs(f"r{at:02}", 1, f"n{at:02}", age=10 + at)]
        if at <= MAX_COMPARED_NODES:
            objects.append(with_port(f"k{at:02}", 1, 80, on=f"n{at:02}", priority=9))
    stage = Stage(*objects, waits=with_port("w", 2, 80, priority=5))
    assert stage.found() == (f"n{MAX_COMPARED_NODES + 1}", [f"r{MAX_COMPARED_NODES + 1}"], 1)
    none = Stage(*objects[: 3 * (MAX_COMPARED_NODES + 1)], waits=with_port("w", 1, 80, priority=5))
    assert none.found() is None
    assert none.removed() == []


def test_budgets_that_forbid_a_unit_alone_rule_its_node_out() -> None:
    kept = runs("kept", 4, "a", labels={"app": "x"}, age=1)
    objects = [gpu_node("a", 4), gpu_node("b", 4), kept, runs("other", 4, "b", age=900), budget("b", 0, "x")]
    stage = Stage(*objects, waits=pod("w", 4, priority=5))
    assert stage.potential()[0] == [False, True]
    assert stage.found() == ("b", ["other"], 1)


def test_budgets_that_forbid_a_set_leave_other_sets() -> None:
    """One of the two young ones may go, and with it the old one that no budget covers."""
    young = [runs(f"y{at}", 1, "a", labels={"app": "x"}, age=1 + at) for at in range(2)]
    objects = [gpu_node("a", 3), *young, runs("old", 1, "a", age=900), budget("b", 1, "x")]
    stage = Stage(*objects, waits=pod("w", 2, priority=5))
    assert stage.found() == ("a", ["old", "y0"], 1)
    assert Stage(*objects[:3], budget("b", 1, "x"), waits=pod("w", 3, priority=5)).found() is None


def test_a_pod_is_placed_where_there_is_room_before_anybody_goes() -> None:
    objects = [gpu_node("a", 2), gpu_node("b", 2), runs("low", 2, "a"), runs("half", 1, "b")]
    stage = Stage(*objects, waits=pod("w", 1, priority=5))
    victims: list[VictimUnit] = []
    assumed = stage.preemption.place_with_victims(stage.preemptor(), 0, victims)
    assert assumed is not None
    assert (assumed.node, victims) == (1, [])
    assumed = stage.preemption.place_with_victims(stage.preemptor(allowed=[True, False]), 0, victims)
    assert assumed is not None
    assert (assumed.node, [unit.key for unit in victims]) == (0, ["default/low"])
    assert stage.preemption.place_with_victims(stage.preemptor(allowed=[False, False]), 0, victims) is None
    assert stage.finder.select_free_node(stage.preemptor(allowed=[False, False]), 0) == -1
    assert stage.finder.select_free_node(stage.preemptor(allowed=[True, False]), 0) == 0


# Preemption: what is evicted already


def test_committed_victims_are_named_once_by_node_and_not_evicted_again() -> None:
    objects = [gpu_node("a", 2), gpu_node("b", 2), runs("x", 2, "a", age=5), runs("y", 2, "b", age=50)]
    stage = Stage(*objects, waits=pod("w", 2, priority=5))
    first = stage.finder.find_candidate(stage.preemptor())
    assert first is not None
    stage.preemption.commit_victims(first.victims, "default/first")
    assert stage.preemption.victims_by_node == {0: ("default/x",)}
    assert stage.preemption.victim_nodes() == {"default/x": {0}}
    (evict,) = stage.preemption.evicts()
    assert (evict.workload, evict.pods, evict.for_workload, evict.reason) == (
        "default/x",
        ("default/x",),
        "default/first",
        "Priority",
    )
    assert stage.preemption.freed_resources.present.tolist() == [False, True]
    assert stage.preemption.victims.keys() == {"default/x"}


def test_what_is_leaving_is_a_victim_without_a_decision() -> None:
    going = runs("x", 2, "a")
    meta = msgspec.structs.replace(going.metadata, deletion_timestamp=format_timestamp(NOW - 1))
    stage = Stage(gpu_node("a", 2), msgspec.structs.replace(going, metadata=meta), waits=pod("w", 2, priority=5))
    candidate = stage.finder.find_candidate(stage.preemptor())
    assert candidate is not None
    stage.preemption.commit_victims(candidate.victims, "default/w")
    assert stage.preemption.evicts() == []
    assert stage.preemption.victims_by_node == {0: ("default/x",)}


def test_what_others_evicted_or_admitted_is_not_there_any_more() -> None:
    names = ["evicted", "admitted", "rest"]
    nodes = [gpu_node(name, 1) for name in names]
    stage = Stage(*nodes, *(runs(name, 1, name) for name in names), waits=pod("w", 1, priority=5))
    keys = [unit.key for unit in stage.preemption.freed_resources.units]
    evicts = [Evict("default/evicted", ("default/evicted",), "default/w", "Reclaim")]
    stage.preemption.record_decisions(evicts, [Admit("default/admitted", "Pod", "", (), ())])
    present = stage.preemption.freed_resources.present.tolist()
    assert dict(zip(keys, present, strict=True)) == {
        "default/evicted": False,
        "default/admitted": False,
        "default/rest": True,
    }
    later = Stage(*nodes, *(runs(name, 1, name) for name in names), waits=pod("w", 1, priority=5))
    later.overlay.remove_running(2)
    fresh = Preemption(later.overlay, QueueConfig(), NOW)
    fresh.record_decisions(evicts, [])
    units = fresh.freed_resources.units
    assert {unit.key for unit in units if fresh.freed_resources.present[unit.number]} == {"default/admitted"}


def test_a_search_marks_what_it_removed_and_restores_it() -> None:
    stage = Stage(gpu_node("a", 2), runs("x", 1, "a"), runs("y", 1, "a"), waits=pod("w", 1, priority=5))
    preemption = stage.preemption
    units = preemption.freed_resources.units
    assert preemption.mark_removed(units[:1]) == units[:1]
    assert preemption.freed_resources.present.tolist() == [False, True]
    assert preemption.mark_removed(units[:1]) == [], "it is not there any more"
    preemption.mark_restored(units)
    assert preemption.freed_resources.present.tolist() == [True, True]
    preemption.begin_search([False, True])
    assert preemption.freed_resources.present.tolist() == [False, True]
    preemption.begin_search()
    assert preemption.freed_resources.present.tolist() == [False, True]


def test_who_may_preempt_at_all() -> None:
    objects = [gpu_node("a", 2), runs("x", 1, "a", priority=3), runs("y", 1, "a", priority=7)]
    preemption = Stage(*objects, waits=pod("w", 1, priority=5)).preemption
    assert preemption.may_preempt(4, "PreemptLowerPriority")
    assert not preemption.may_preempt(3, "PreemptLowerPriority")
    assert not preemption.may_preempt(99, "Never")
    assert not Stage(gpu_node("a", 2), waits=pod("w", 1, priority=5)).preemption.may_preempt(99, "")


def test_units_are_those_below_the_highest_that_waits_even_where_its_priority_is_below_zero() -> None:
    low = runs("x", 1, "a", priority=-9)
    stage = Stage(gpu_node("a", 1), low, waits=pod("w", 1, priority=-5))
    assert [unit.key for unit in stage.preemption.freed_resources.units] == ["default/x"]
    assert stage.found() == ("a", ["x"], 1)


def test_a_queued_workload_preempts_with_the_lowest_priority_of_its_pods() -> None:
    stage = Stage(gpu_node("a", 1), waits=pod("w", 1))
    pod_sets = (PodSet("a", 1, pod("p", priority=7)), PodSet("b", 1, pod("q", priority=4)))
    workload = Workload("default/g", "Job", pod_sets, priority=99)
    assert stage.preemption.priority_of(workload) == 99
    assert stage.preemption.priority_of(msgspec.structs.replace(workload, queue_name="q")) == 4


def test_budgets_are_tried_before_they_are_broken_and_only_where_the_policy_allows_it() -> None:
    kept = runs("kept", 1, "a", labels={"app": "x"})
    objects = [gpu_node("a", 1), kept, budget("b", 0, "x")]
    waits = pod("w", 1, priority=5)
    for yields, tries in ((("priority",), [False, True]), ((), [False]), (("reclaim",), [False])):
        stage = Stage(*objects, waits=waits, settings=QueueConfig(budgets_yield_to=yields))
        found = [stage.finder.may_help(stage.preemptor()) for _ in stage.preemption.budget_attempts()]
        assert found == tries
        assert not stage.finder.may_help(stage.preemptor()), "afterwards they hold again"
    free = Stage(*objects[:2], waits=waits, settings=QueueConfig(budgets_yield_to=("priority",)))
    assert len(list(free.preemption.budget_attempts())) == 1


def test_disruptions_of_a_pass_are_counted_from_those_committed() -> None:
    pods = [runs(f"x{at}", 1, f"n{at}", labels={"app": "x"}, age=at) for at in range(3)]
    nodes = [gpu_node(f"n{at}", 1) for at in range(3)]
    stage = Stage(*nodes, *pods, budget("b", 2, "x"), waits=pod("w", 1, priority=5))
    preemption = stage.preemption
    for count in range(2):
        victims: list[VictimUnit] = []
        assert preemption.place_with_victims(stage.preemptor(), count, victims) is not None
        preemption.commit_victims(victims, "default/w")
    assert not stage.finder.may_help(stage.preemptor())
    assert preemption.begin_pass({}) is preemption.disruptions
    assert not stage.finder.may_help(stage.preemptor()), "committed victims count in the next pass too"
    assert Stage(*nodes, *pods, waits=pod("w", 1, priority=5)).preemption.begin_pass({}) is None


def test_evictions_of_one_workload_are_one_decision() -> None:
    first = Evict("d/a", ("d/a0", "d/a1"), "d/x", "Priority")
    second = Evict("d/a", ("d/a1", "d/a2"), "d/y", "Reclaim")
    other = Evict("d/b", ("d/b",), "d/y", "Priority")
    assert merge_evictions([first, other, second]) == [
        Evict("d/a", ("d/a0", "d/a1", "d/a2"), "d/x", "Priority"),
        other,
    ]
