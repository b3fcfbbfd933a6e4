"""Lent quota comes back within one decision when its owner asks, may reclaim, and some legal set of victims makes room.

Whether there is such a set is worked out here by trying them all.
"""

from __future__ import annotations

from itertools import chain, combinations

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.queueing.builders import admitted, cell, decide, evicted, held, queue, running, system, waiting
from tests.queueing.first_fit_placement import FirstFitPlacement
from tests.queueing.test_placement_and_quota import on

from windlass.model.queue import PreemptionPolicy
from windlass.model.workload import Workload
from windlass.queueing.config import QueueConfig

RECLAIMS = PreemptionPolicy(reclaim_within_cohort="Any")
Nodes = dict[str, int]


def cpus(workload: Workload) -> int:
    return int(workload.pod_sets[0].template.spec.containers[0].resources.requests["cpu"])


def size(workload: Workload) -> int:
    return workload.pod_sets[0].count * cpus(workload)


class Scene:
    """A queue that reclaims what it lends, and the workloads that have borrowed it."""

    def __init__(self, nodes: Nodes, nominal: dict[str, int], crowd: list[Workload], asks: Workload) -> None:
        self.nodes, self.nominal, self.crowd, self.asks = nodes, nominal, crowd, asks

    def used(self, name: str, gone: tuple[Workload, ...] = ()) -> int:
        return sum(size(workload) for workload in self.crowd if workload.queue_name == name and workload not in gone)

    @property
    def is_owners(self) -> bool:
        """Whether the request is within the owner's nominal quota."""
        return self.used("owner") + size(self.asks) <= self.nominal["owner"]

    def is_legal(self, gone: tuple[Workload, ...]) -> bool:
        """Every victim's queue still borrows when it is evicted, if its largest victim goes last."""
        for name in {workload.queue_name for workload in gone}:
            taken = sorted(size(one) for one in gone if one.queue_name == name)
            if self.used(name) - sum(taken[:-1]) <= self.nominal[name]:
                return False
        return all(workload.queue_name != "owner" for workload in gone)

    def fits_without(self, gone: tuple[Workload, ...]) -> bool:
        total = sum(self.nominal.values())
        if sum(self.used(name, gone) for name in self.nominal) + size(self.asks) > total:
            return False
        free = dict(self.nodes)
        for workload in self.crowd:
            if workload not in gone:
                assert workload.admission is not None
                for node, pods in workload.admission.assignments[0].nodes.items():
                    free[node] -= pods * cpus(workload)
        return sum(room // cpus(self.asks) for room in free.values()) >= self.asks.pod_sets[0].count

    def ways(self) -> list[tuple[Workload, ...]]:
        subsets = chain.from_iterable(combinations(self.crowd, number) for number in range(len(self.crowd) + 1))
        return [gone for gone in subsets if self.is_legal(gone) and self.fits_without(gone)]


@st.composite
def scenes(draw: st.DrawFn) -> Scene:
    nodes = {f"default-{number}": draw(st.integers(2, 6)) for number in range(draw(st.integers(2, 4)))}
    borrowers = [f"b{number}" for number in range(draw(st.integers(1, 2)))]
    left = sum(nodes.values())
    nominal = {}
    for name in borrowers:
        nominal[name] = draw(st.integers(0, min(4, left - 1)))
        left -= nominal[name]
    nominal["owner"] = left
    free, crowd = dict(nodes), []
    for number in range(draw(st.integers(1, 8))):
        node, amount = draw(st.sampled_from(sorted(nodes))), draw(st.integers(1, 3))
        name = draw(st.sampled_from([*borrowers, *borrowers, "owner"]))
        if free[node] < amount:
            continue
        free[node] -= amount
        run = running(f"r{number}", name, amount, reserved_at=draw(st.integers(1, 9)), priority=draw(st.integers(0, 1)))
        crowd.append(on(node, run))
    asks = waiting("asks", "owner", draw(st.integers(1, 4)), count=draw(st.integers(1, 3)), created=50)
    return Scene(nodes, nominal, crowd, asks)


@given(scenes(), st.booleans())
@settings(max_examples=1000)
def test_what_is_lent_comes_back_if_there_is_a_way(scene: Scene, fair: bool) -> None:
    if not scene.is_owners or scene.used("owner") > scene.nominal["owner"]:
        return
    queues = system(
        [queue(name, cell(nominal), cohort="all", preemption=RECLAIMS) for name, nominal in scene.nominal.items()]
    )
    placement = FirstFitPlacement(scene.nodes, scene.crowd)
    outcomes = decide(queues, [*scene.crowd, scene.asks], QueueConfig(fair_sharing=fair), placement=placement)
    ways = scene.ways()
    if not ways:
        assert "asks" in held(outcomes)
        return
    assert "asks" in admitted(outcomes), (
        held(outcomes),
        [[workload.key for workload in way] for way in ways],
    )
    gone = tuple(workload for workload in scene.crowd if workload.key.partition("/")[2] in evicted(outcomes))
    assert gone in ways
    assert not any(
        scene.fits_without(tuple(workload for workload in gone if workload is not spared)) for spared in gone
    )
