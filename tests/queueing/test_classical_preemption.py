"""Victims by nominal quota and priority: who is a candidate, in which order, and that no more go than needed."""

from __future__ import annotations

from random import Random

import msgspec
import pytest
from tests.queueing.builders import NOW, admitted, cell, decide, evicted, group, held, queue, running, system, waiting
from tests.queueing.first_fit_placement import FirstFitPlacement

from windlass.model.queue import ClusterQueue, Cohort, PreemptionPolicy, QueueSystem
from windlass.model.workload import Workload
from windlass.queueing.admitted_workload import EvictionCosts, make_admitted_workload
from windlass.queueing.classical_candidates import Candidates
from windlass.queueing.classical_preemption import find_victims
from windlass.queueing.config import QueueConfig
from windlass.queueing.pending_workload import PendingWorkload
from windlass.queueing.placement_interface import UnlimitedPlacement
from windlass.queueing.preemption_common import PreemptionContext, PreemptionRequest
from windlass.queueing.quota_tree import QuotaTree
from windlass.queueing.victims_by_place import VictimCosts

CPU = ("default", "cpu")
ANY = PreemptionPolicy(reclaim_within_cohort="Any")
LOWER = PreemptionPolicy(within_cluster_queue="LowerPriority")


class Scene:
    """A tree with what runs on it, and the request of one workload."""

    def __init__(
        self, queues: QueueSystem, work: list[Workload], asks: Workload, config: QueueConfig | None = None
    ) -> None:
        config = config or QueueConfig()
        self.tree = QuotaTree(queues)
        costs = EvictionCosts(config, NOW)
        for workload in work:
            assert workload.admission is not None
            node = self.tree.queues[workload.admission.cluster_queue]
            make_admitted_workload(workload, node, costs).add_to_tree()
        node = self.tree.queues[asks.queue_name]
        pending = PendingWorkload(asks, node, UnlimitedPlacement())
        usage = {CPU: pending.requests[0]["cpu"] * asks.pod_sets[0].count}
        self.request = PreemptionRequest(pending, usage, frozenset([CPU]), PreemptionContext(config, NOW))

    def usage(self) -> dict[str, int]:
        return {node.name: node.usage.get(CPU, 0) for node in self.tree.nodes()}

    def victims(self, **more: bool) -> dict[str, str]:
        before = self.usage()
        found = find_victims(self.request, **more)
        assert self.usage() == before, "the tree is left as it was"
        return {target.victim.workload.name: target.reason for target in found}

    def candidates(self) -> list[str]:
        return [one.workload.name for one in Candidates(self.request).ordered]


def busy(workload: Workload, pods: int = 1) -> Workload:
    """With pods, so that its eviction costs something."""
    keys = tuple(f"{workload.key}-{number}" for number in range(pods))
    return msgspec.structs.replace(
        workload, pod_sets=(msgspec.structs.replace(workload.pod_sets[0], pod_keys=keys), *workload.pod_sets[1:])
    )


def tree(own: PreemptionPolicy, quotas: dict[str, int] | None = None) -> QueueSystem:
    """`q` and `near` below `low`, `far` below the root, `side` below a sister of `low`."""
    places = {"q": "low", "near": "low", "far": "top", "side": "wing"}
    nominal = {"q": 2, "near": 2, "far": 2, "side": 2, **(quotas or {})}
    queues: list[ClusterQueue] = [
        queue(name, cell(nominal[name]), cohort=cohort, preemption=own) for name, cohort in places.items()
    ]
    return system(queues, [Cohort("low", "top"), Cohort("wing", "top"), Cohort("top")])


def test_candidates_are_those_of_queues_and_cohorts_that_borrow() -> None:
    """`near` and `far` borrow; `side` does, but its cohort has room for it."""
    queues = system(
        [
            queue("q", cell(4), cohort="low", preemption=ANY),
            queue("near", cell(0), cohort="low"),
            queue("far", cell(0), cohort="top"),
            queue("even", cell(1), cohort="low"),
            queue("side", cell(0), cohort="wing"),
            queue("rich", cell(1), cohort="wing"),
        ],
        [Cohort("low", "top"), Cohort("wing", "top"), Cohort("top")],
    )
    work = [running(name, name, 1) for name in ("near", "far", "even", "side")]
    scene = Scene(queues, work, waiting("w", "q", 4))
    assert sorted(scene.candidates()) == ["far", "near"]
    more = [*work, running("side2", "side", 1)]
    assert sorted(Scene(queues, more, waiting("w", "q", 4)).candidates()) == ["far", "near", "side", "side2"]


def test_who_is_close_to_the_quota_goes_after_those_over_whom_there_is_no_advantage() -> None:
    """Leaving ones first; then those that borrow what the preemptor's queue owns; then by priority; then the own."""
    both = PreemptionPolicy("LowerPriority", "Any")
    queues = system(
        [queue("q", cell(4), cohort="c", preemption=both), queue("other", cell(0), cohort="c")], [Cohort("c")]
    )
    work = [
        running("own", "q", 1, priority=-1),
        running("leaving", "q", 1, priority=-1, evicting=True),
        running("lent", "other", 1, priority=5),
        running("lent-low", "other", 1, priority=4),
    ]
    assert Scene(queues, work, waiting("w", "q", 1)).candidates() == ["leaving", "lent-low", "lent", "own"]


@pytest.mark.parametrize(
    ("own", "expected"),
    [
        (PreemptionPolicy(), ""),
        (PreemptionPolicy("LowerPriority"), "o"),
        (PreemptionPolicy("Never", "LowerPriority"), "l"),
        (PreemptionPolicy("Never", "Any"), "lh"),
        (PreemptionPolicy("LowerPriority", "Any"), "lho"),
    ],
)
def test_policies_choose_the_candidates(own: PreemptionPolicy, expected: str) -> None:
    queues = system([queue("q", cell(9), cohort="c", preemption=own), queue("guest", cell(0), cohort="c")])
    work = [running("o", "q", 1), running("l", "guest", 1), running("h", "guest", 1, priority=2)]
    assert "".join(Scene(queues, work, waiting("w", "q", 9, priority=1)).candidates()) == expected


def test_nobody_is_evicted_below_the_nominal_quota_of_its_queue() -> None:
    queues = tree(ANY, {"near": 1, "far": 1})
    work = [running(f"n{number}", "near", 1, reserved_at=NOW - number) for number in range(3)]
    work += [running(f"f{number}", "far", 1, reserved_at=NOW - 50 - number) for number in range(2)]
    work += [running("s", "side", 2)]
    # `near` is back at its quota after two: the third comes from `far`.
    assert Scene(queues, work, waiting("w", "q", 2)).victims() == dict.fromkeys(
        ("n0", "n1", "f0"), "InCohortReclamation"
    )


def test_reclaiming_stops_where_the_lender_is_back_at_its_own_quota() -> None:
    queues = system([queue("q", cell(3), cohort="c", preemption=ANY), queue("g", cell(2), cohort="c")])
    work = [running(f"g{number}", "g", 1, reserved_at=NOW - number) for number in range(4)]
    one_more = Scene(queues, [*work, running("x", "q", 1)], waiting("w", "q", 2))
    assert one_more.victims() == {"g0": "InCohortReclamation", "g1": "InCohortReclamation"}
    assert Scene(queues, [*work, running("x", "q", 1)], waiting("w", "q", 3)).victims() == {}


def test_a_cohort_within_its_quota_shields_its_queues() -> None:
    pool = (group({"default": cell(2)}),)
    queues = system(
        [
            queue("q", cell(2), cohort="top", preemption=ANY),
            queue("g", cell(0), cohort="low"),
            queue("h", cell(0), cohort="low"),
        ],
        [Cohort("low", "top", pool), Cohort("top")],
    )
    shielded = [running("g", "g", 1), running("h", "h", 1), running("x", "q", 2)]
    assert Scene(queues, shielded, waiting("w", "q", 1)).candidates() == []
    beyond = [running("g", "g", 2), running("h", "h", 1, reserved_at=NOW - 1)]
    scene = Scene(queues, beyond, waiting("w", "q", 2))
    assert scene.candidates() == ["h", "g"]
    assert scene.victims() == {"h": "InCohortReclamation"}


@pytest.mark.parametrize(
    ("borrow", "threshold", "victim_priority", "goes"),
    [
        ("Never", None, 0, False),
        ("LowerPriority", None, 0, True),
        ("LowerPriority", None, 1, True),
        ("LowerPriority", None, 2, False),
        ("LowerPriority", 0, 0, True),
        ("LowerPriority", 0, 1, False),
        ("LowerPriority", 1, 1, True),
    ],
)
def test_who_may_be_preempted_for_quota_that_is_borrowed(
    borrow: str, threshold: int | None, victim_priority: int, goes: bool
) -> None:
    policy = PreemptionPolicy("Never", "Any", borrow, threshold)
    queues = system(
        [
            queue("q", cell(1), cohort="c", preemption=policy),
            queue("g", cell(0), cohort="c"),
            queue("l", cell(1), cohort="c"),
        ]
    )
    work = [running("g", "g", 2, priority=victim_priority)]
    found = Scene(queues, work, waiting("w", "q", 2, priority=2)).victims()
    assert found == ({"g": "InCohortReclaimWhileBorrowing"} if goes else {})
    within = Scene(queues, work, waiting("w", "q", 1, priority=2)).victims()
    assert within == {"g": "InCohortReclamation"}, "its own quota it may always take back"


def test_without_borrowing_more_candidates_are_allowed() -> None:
    """The dear one may go only for quota of the preemptor's own."""
    policy = PreemptionPolicy("LowerPriority", "Any", "LowerPriority", 0)
    queues = system(
        [queue("q", cell(2), cohort="c", preemption=policy), queue("g", cell(0), cohort="c")], [Cohort("c")]
    )
    work = [running("own", "q", 1), running("g", "g", 1, priority=1)]
    assert Scene(queues, work, waiting("w", "q", 1, priority=2)).victims() == {"g": "InCohortReclamation"}
    assert Scene(queues, work, waiting("w", "q", 2, priority=2)).victims() == {
        "g": "InCohortReclamation",
        "own": "InClusterQueue",
    }


def test_the_cheapest_victims_are_searched_unless_nobody_asks_for_them() -> None:
    """Two small ones lose less each, but more together than the large one alone."""
    queues = system([queue("q", cell(4), preemption=LOWER)])
    work = [
        busy(running("small", "q", 1, started_at=NOW - 60)),
        busy(running("small2", "q", 1, started_at=NOW - 60)),
        busy(running("large", "q", 2, started_at=NOW - 50)),
    ]
    scene = Scene(queues, work, waiting("w", "q", 2, priority=1))
    assert set(scene.victims()) == {"large"}
    assert set(scene.victims(cheapest=False)) == {"small", "small2"}
    longer = [*work[:2], busy(running("large", "q", 2, started_at=NOW - 70))]
    assert set(Scene(queues, longer, waiting("w", "q", 2, priority=1)).victims()) == {"small", "small2"}


def test_a_lower_class_goes_whatever_it_costs() -> None:
    queues = system([queue("q", cell(3), preemption=LOWER)])
    work = [
        busy(running("low", "q", 1, started_at=NOW - 9000)),
        busy(running("low2", "q", 1, started_at=NOW - 9000)),
        busy(running("high", "q", 1, started_at=NOW - 1, priority=1)),
    ]
    assert set(Scene(queues, work, waiting("w", "q", 2, priority=2)).victims()) == {"low", "low2"}


def test_costs_compare_the_highest_class_first_then_gpus_then_pods() -> None:
    queues = system([queue("q", cell(9), preemption=LOWER)])
    work = [
        busy(running("a", "q", 1, started_at=NOW - 9), 2),
        busy(running("b", "q", 1, started_at=NOW - 9), 3),
        running("high", "q", 1, priority=1),
    ]
    scene = Scene(queues, work, waiting("w", "q", 1, priority=2))
    candidates = Candidates(scene.request)
    costs = VictimCosts(candidates.ordered, candidates.class_of)
    by_name = {one.workload.name: one for one in candidates.ordered}
    a, b, high = by_name["a"], by_name["b"], by_name["high"]
    assert costs.of([]) == 0
    assert costs.of([a]) < costs.of([b]), "of equal losses the fewer pods"
    assert costs.of([b]) < costs.of([a, b]) == costs.of([a]) + costs.of([b])
    assert costs.of([a, b]) < costs.of([high]), "the higher class, though nothing is lost"
    assert candidates.reason(a) == "InClusterQueue"


def on(node: str, workload: Workload) -> Workload:
    assert workload.admission is not None
    part = msgspec.structs.replace(workload.admission.assignments[0], nodes={node: workload.pod_sets[0].count})
    return msgspec.structs.replace(workload, admission=msgspec.structs.replace(workload.admission, assignments=(part,)))


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    ("nodes", "cpus", "pods"), [(17, 3, 1), (20, 4, 1), (3, 4, 1), (20, 4, 3), (18, 3, 5), (20, 4, 8)]
)
def test_the_cheapest_places_are_cleared(seed: int, nodes: int, cpus: int, pods: int) -> None:
    """Each node has four workloads of one CPU; three or four of one node make room for one pod of the preemptor."""
    random = Random(seed)
    lost = {f"default-{number:02}": sorted(random.sample(range(1, 500), 4)) for number in range(nodes)}
    work = [
        on(name, busy(running(f"r{name[-2:]}-{age}", "q", 1, started_at=NOW - age)))
        for name, ages in lost.items()
        for age in ages
    ]
    queues = system([queue("q", cell(4 * nodes + cpus * pods), preemption=LOWER)])
    room = FirstFitPlacement(dict.fromkeys(lost, 4), work)
    outcomes = decide(queues, [*work, waiting("w", "q", cpus, count=pods, priority=1)], placement=room)
    cheapest = sorted(lost, key=lambda name: sum(lost[name][:cpus]))[:pods]
    assert evicted(outcomes).keys() == {f"r{name[-2:]}-{age}" for name in cheapest for age in lost[name][:cpus]}
    assert admitted(outcomes)["w"].nodes == (dict.fromkeys(sorted(cheapest), 1),)


def test_a_workload_on_two_nodes_frees_half_of_its_usage_on_each() -> None:
    """The pair counts with both its nodes, so that a single one that loses a little more is cheaper than it."""
    queues = system([queue("q", cell(200), preemption=LOWER)])
    many = [on(f"default-{n:02}", busy(running(f"r{n:02}", "q", 2, started_at=NOW - 400))) for n in range(70)]
    pair = busy(running("pair", "q", 2, count=2, started_at=NOW - 100))
    assert pair.admission is not None
    (part,) = pair.admission.assignments
    part = msgspec.structs.replace(part, nodes={"default-x": 1, "default-y": 1})
    pair = msgspec.structs.replace(pair, admission=msgspec.structs.replace(pair.admission, assignments=(part,)))
    capacity = {**{f"default-{n:02}": 2 for n in range(70)}, "default-x": 2, "default-y": 2, "default-z": 2}
    for age, gone in ((150, "one"), (250, "pair")):
        one = on("default-z", busy(running("one", "q", 2, started_at=NOW - age)))
        room = FirstFitPlacement(capacity, [*many, pair, one])
        outcomes = decide(queues, [*many, pair, one, waiting("w", "q", 2, priority=1)], placement=room)
        assert evicted(outcomes).keys() == {gone}


def test_lent_quota_comes_back_on_one_node_though_its_borrowers_are_spread() -> None:
    """In order, the newest of each node would go, until the lender is at its quota and no node is free."""
    queues = system([queue("q", cell(2), cohort="c", preemption=ANY), queue("g", cell(2), cohort="c")])
    work = [on(f"default-{n % 2}", busy(running(f"g{n}", "g", 1, started_at=NOW - 10 - n))) for n in range(4)]
    room = FirstFitPlacement({"default-0": 2, "default-1": 2}, work)
    outcomes = decide(queues, [*work, waiting("w", "q", 2)], placement=room)
    assert evicted(outcomes).keys() == {"g0", "g2"}
    assert admitted(outcomes)["w"].nodes == ({"default-0": 1},)


def test_where_no_place_helps_nobody_goes() -> None:
    """Two of the lender's five may go, but the preemptor needs the room of three."""
    queues = system([queue("q", cell(3), cohort="c", preemption=ANY), queue("g", cell(3), cohort="c")])
    work = [on(f"default-{n % 2}", running(f"g{n}", "g", 1)) for n in (0, 1, 2, 3, 5)]
    room = FirstFitPlacement({"default-0": 2, "default-1": 3}, work)
    outcomes = decide(queues, [*work, waiting("w", "q", 3)], placement=room)
    assert evicted(outcomes) == {}
    assert held(outcomes)["w"].code == "GPU_FRAGMENTED"
    assert room.free == {"default-0": 0, "default-1": 0}


def test_among_places_of_equal_cost_the_first_by_name_is_cleared() -> None:
    queues = system([queue("q", cell(2), cohort="c", preemption=ANY), queue("g", cell(4), cohort="c")])
    work = [on(f"default-{n % 3}", busy(running(f"g{n}", "g", 1, started_at=NOW - 10))) for n in range(6)]
    room = FirstFitPlacement({f"default-{n}": 2 for n in range(3)}, work)
    outcomes = decide(queues, [*work, waiting("w", "q", 2)], placement=room)
    assert evicted(outcomes).keys() == {"g0", "g3"}
    assert admitted(outcomes)["w"].nodes == ({"default-0": 1},)


def test_a_queue_that_has_reached_its_nominal_quota_reclaims_nothing() -> None:
    """Quota was reduced below usage: for its own quota alone both would have to go."""
    policy = PreemptionPolicy("LowerPriority", "Any")
    work = [running("own", "q", 1), running("g", "g", 1)]
    for nominal, gone in ((1, set()), (2, {"g"})):
        queues = system([queue("q", cell(nominal), cohort="c", preemption=policy), queue("g", cell(0), cohort="c")])
        assert Scene(queues, work, waiting("w", "q", 1, priority=1)).victims().keys() == gone
