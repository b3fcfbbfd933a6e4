"""Which flavor serves which resource: the search over a queue's flavors, with an oracle that is given."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.queueing.builders import cell, group, queue, system, template, waiting

from windlass.model.node import Taint
from windlass.model.pod import (
    Affinity,
    NodeAffinity,
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    Toleration,
)
from windlass.model.queue import (
    ClusterQueue,
    Cohort,
    FlavorQuotas,
    Fungibility,
    PreemptionPolicy,
    QueueSystem,
    ResourceFlavor,
)
from windlass.model.workload import PodSet, TopologyRequest, Workload
from windlass.queueing.config import QueueConfig
from windlass.queueing.flavor_assigner import FlavorAssignmentOptions, assign_flavors, lowest_fitting_height
from windlass.queueing.flavor_assignment import (
    BEST,
    EXCEEDS_MAXIMUM,
    NO_MATCH,
    NOT_COVERED,
    WAITING,
    WORST,
    Assignment,
    FlavorAssignment,
    FlavorAssignmentMode,
    GranularMode,
    PodSetFlavorAssignment,
    PreemptionMode,
    is_preferred,
)
from windlass.queueing.flavor_eligibility import flavor_ineligible_reason
from windlass.queueing.pending_workload import PendingWorkload
from windlass.queueing.placement_interface import PodSetChoice, UnlimitedPlacement
from windlass.queueing.quota_tree import QuotaTree

ONE, TWO = ("one", "cpu"), ("two", "cpu")
FIT, PREEMPT, NO_FIT = FlavorAssignmentMode.FIT, FlavorAssignmentMode.PREEMPT, FlavorAssignmentMode.NO_FIT
Oracle = Callable[[tuple[str, str], int], tuple[PreemptionMode, int]]
MODES = st.builds(GranularMode, st.sampled_from(PreemptionMode), st.integers(0, 2))


def no_victims(at: tuple[str, str], amount: int) -> tuple[PreemptionMode, int]:
    return PreemptionMode.NO_CANDIDATES, 0


def victims(at: tuple[str, str], amount: int) -> tuple[PreemptionMode, int]:
    return PreemptionMode.PREEMPT, 0


class Scene:
    """A tree, some usage, and the assignment that a workload gets there."""

    def __init__(self, queues: QueueSystem, used: dict[str, dict[tuple[str, str], int]] | None = None) -> None:
        self.queues, self.tree = queues, QuotaTree(queues)
        for name, usage in (used or {}).items():
            self.tree.queues[name].add_usage(usage)

    def pending(self, workload: Workload) -> PendingWorkload:
        return PendingWorkload(workload, self.tree.queues[workload.queue_name], UnlimitedPlacement())

    def assign(self, pending: PendingWorkload | Workload, oracle: Oracle = no_victims, **more: object) -> Assignment:
        made = pending if isinstance(pending, PendingWorkload) else self.pending(pending)
        excluded: Any = more.pop("excluded_flavors", ())
        config = QueueConfig(**more)  # type: ignore[arg-type]
        context = FlavorAssignmentOptions(self.queues.flavors, oracle, config, excluded)
        return assign_flavors(made, made.counts, context)


def flavors(assignment: Assignment) -> list[dict[str, str]]:
    return [choice.flavors for choice in assignment.choices]


def two_flavors(one: int, two: int, **more: object) -> ClusterQueue:
    return queue("q", {"one": cell(one), "two": cell(two)}, **more)  # type: ignore[arg-type]


def test_the_first_flavor_that_fits_is_taken_and_the_search_is_told_to_go_on_behind_it() -> None:
    scene = Scene(system([two_flavors(2, 9)]))
    found = scene.assign(waiting("w", "q", 2))
    assert flavors(found) == [{"cpu": "one"}]
    assert (found.mode, found.usage, found.borrowing_level) == (FIT, {ONE: 2000}, 0)
    assert found.tried_flavors == ({"cpu": 0},)
    assert found.has_flavors_left
    assert found.message == ""
    later = scene.pending(waiting("w", "q", 2))
    later.tried_flavors = found.tried_flavors
    second = scene.assign(later)
    assert flavors(second) == [{"cpu": "two"}]
    assert second.tried_flavors == ({"cpu": -1},)
    assert not second.has_flavors_left
    later.tried_flavors = second.tried_flavors
    assert flavors(scene.assign(later)) == [{"cpu": "one"}], "from the first again"


def test_a_flavor_that_is_one_short_is_passed_over() -> None:
    assert flavors(Scene(system([two_flavors(2, 3)])).assign(waiting("w", "q", 3))) == [{"cpu": "two"}]


def test_pods_of_all_sets_add_up() -> None:
    main = waiting("w", "q", 1, count=2)
    both = msgspec.structs.replace(main, pod_sets=(*main.pod_sets, PodSet("more", 3, template(1))))
    found = Scene(system([two_flavors(5, 0)])).assign(both)
    assert (found.mode, found.usage) == (FIT, {ONE: 5000})
    assert found.choices == (PodSetChoice("main", 2, {"cpu": "one"}), PodSetChoice("more", 3, {"cpu": "one"}))
    short = Scene(system([queue("q", {"one": cell(4)})])).assign(both)
    assert short.mode == NO_FIT
    assert short.message == (
        "couldn't assign flavors to pod set more: insufficient quota for cpu in flavor one, previously considered "
        "podsets requests (2) + current podset request (3) > maximum capacity (4)"
    )
    spread = Scene(system([two_flavors(2, 3)])).assign(both)
    assert flavors(spread) == [{"cpu": "one"}, {"cpu": "two"}]
    assert spread.usage == {ONE: 2000, TWO: 3000}


def test_the_search_ends_at_the_first_set_that_nothing_serves() -> None:
    main = waiting("w", "q", 9)
    both = msgspec.structs.replace(main, pod_sets=(*main.pod_sets, PodSet("more", 1, template(1))))
    found = Scene(system([queue("q", {"one": cell(4)})])).assign(both)
    assert [part.name for part in found.pod_sets] == ["main"]
    assert found.mode == NO_FIT


def in_group(name: str, count: int, cpus: int | None, group_name: str) -> PodSet:
    made = template(cpus or 0)
    if cpus is None:
        made = msgspec.structs.replace(made, spec=msgspec.structs.replace(made.spec, containers=()))
    return PodSet(name, count, made, topology=TopologyRequest("required", "rack", group=group_name))


def test_sets_of_one_topology_group_take_one_flavor_and_keep_their_places() -> None:
    sets = (in_group("leader", 1, 1, "g"), in_group("alone", 1, 2, ""), in_group("workers", 2, 1, "g"))
    gang = msgspec.structs.replace(waiting("w", "q", 1), pod_sets=sets)
    found = Scene(system([two_flavors(2, 3)])).assign(gang)
    assert [(choice.name, choice.flavors) for choice in found.choices] == [
        ("leader", {"cpu": "two"}),
        ("alone", {"cpu": "one"}),
        ("workers", {"cpu": "two"}),
    ]
    assert found.usage == {ONE: 2000, TWO: 3000}


def test_a_leader_without_requests_gets_the_flavors_of_its_group() -> None:
    sets = (in_group("leader", 1, None, "g"), in_group("workers", 2, 1, "g"))
    gang = msgspec.structs.replace(waiting("w", "q", 1), pod_sets=sets)
    found = Scene(system([two_flavors(1, 2)])).assign(gang)
    assert flavors(found) == [{"cpu": "two"}, {"cpu": "two"}]
    assert found.usage == {TWO: 2000}
    loose = msgspec.structs.replace(gang, pod_sets=(msgspec.structs.replace(sets[0], topology=None), sets[1]))
    assert flavors(Scene(system([two_flavors(1, 2)])).assign(loose)) == [{}, {"cpu": "two"}]


def with_memory(cpus: int, mib: int) -> Workload:
    made = template(cpus)
    (container,) = made.spec.containers
    requests = {"cpu": str(cpus), "memory": f"{mib}"}
    container = msgspec.structs.replace(
        container, resources=msgspec.structs.replace(container.resources, requests=requests)
    )
    pod = msgspec.structs.replace(made, spec=msgspec.structs.replace(made.spec, containers=(container,)))
    return msgspec.structs.replace(waiting("w", "q", cpus), pod_sets=(PodSet("main", 1, pod),))


def test_a_resource_that_the_queue_does_not_cover_is_refused_or_ignored() -> None:
    scene = Scene(system([queue("q", {"one": cell(4)})]))
    refused = scene.assign(with_memory(1, 5))
    assert (refused.mode, refused.code) == (NO_FIT, "KUEUE_QUOTA_MISCONFIGURED")
    assert refused.message == "couldn't assign flavors to pod set main: resource memory unavailable in ClusterQueue"
    ignored = scene.assign(with_memory(1, 5), ignore_undeclared=True)
    assert (ignored.mode, ignored.usage) == (FIT, {ONE: 1000})
    assert scene.assign(with_memory(1, 0)).mode == FIT, "nothing of it is asked for"


def test_groups_of_resources_choose_their_flavors_apart_and_within_one_the_worst_resource_decides() -> None:
    apart = queue(
        "q", cell(1), resource_groups=(group({"one": cell(1), "two": cell(1)}), group({"three": cell(1)}, "memory"))
    )
    found = Scene(system([apart])).assign(with_memory(1, 7))
    assert flavors(found) == [{"cpu": "one", "memory": "three"}]
    assert found.tried_flavors == ({"cpu": 0, "memory": -1},)
    both = tuple(
        FlavorQuotas(name, {"cpu": cell(1), "memory": cell(memory)}) for name, memory in (("one", 0), ("two", 1))
    )
    made = queue("q", cell(1))
    shared = msgspec.structs.replace(
        made,
        resource_groups=(msgspec.structs.replace(made.resource_groups[0], resources=("cpu", "memory"), flavors=both),),
    )
    found = Scene(system([shared])).assign(with_memory(1, 7))
    assert flavors(found) == [{"cpu": "two", "memory": "two"}]
    assert Scene(system([shared])).assign(with_memory(1, 1001)).mode == NO_FIT


def test_a_flavor_whose_labels_leave_none_for_the_next_resource_is_passed_over() -> None:
    """CPUs have quota in both pools, memory only in the second: both are charged to the second pool."""
    pools = queue(
        "q", cell(1), resource_groups=(group({"one": cell(9), "two": cell(9)}), group({"three": cell(9)}, "memory"))
    )
    made = system([pools])
    labels = {"one": {"pool": "old"}, "two": {"pool": "new"}, "three": {"pool": "new"}}
    labelled = {name: ResourceFlavor(name, labels[name]) for name in labels}
    made = msgspec.structs.replace(made, flavors={**made.flavors, **labelled})
    found = Scene(made).assign(with_memory(1, 7))
    assert (found.mode, flavors(found)) == (FIT, [{"cpu": "two", "memory": "three"}])


def test_the_worst_of_two_groups_says_why() -> None:
    apart = queue("q", cell(1), resource_groups=(group({"one": cell(1)}), group({"three": cell(1)}, "memory")))
    scene = Scene(system([apart]), {"q": {ONE: 1000}})
    found = scene.assign(with_memory(1, 7), victims)
    assert (found.mode, found.needs_preemption) == (PREEMPT, {ONE})
    assert found.pod_sets[0].severity == WAITING
    assert found.message.endswith("insufficient unused quota for cpu in flavor one, 1 more needed")


def test_flavors_that_are_pinned_excluded_inactive_or_missing_are_not_tried() -> None:
    queues = system([two_flavors(2, 2)])
    scene = Scene(queues)
    pinned = scene.pending(waiting("w", "q", 1))
    pinned.pinned_flavors = ({"cpu": "two"},)
    assert flavors(scene.assign(pinned)) == [{"cpu": "two"}]
    assert flavors(scene.assign(waiting("w", "q", 1), excluded_flavors={"one"})) == [{"cpu": "two"}]
    nowhere = scene.assign(waiting("w", "q", 1), excluded_flavors={"one", "two"})
    assert (nowhere.mode, nowhere.code) == (NO_FIT, "KUEUE_FLAVOR_MISMATCH")
    assert (
        "the pods don't fit on the nodes of flavor one, the pods don't fit on the nodes of flavor two"
        in nowhere.message
    )
    known = msgspec.structs.replace(queues, flavors={"two": queues.flavors["two"]})
    assert flavors(Scene(known).assign(waiting("w", "q", 1))) == [{"cpu": "two"}]
    spec = queues.queues["q"]
    (part,) = spec.resource_groups
    off = (msgspec.structs.replace(part.flavors[0], inactive_reason="flavor one is off"), part.flavors[1])
    half = msgspec.structs.replace(spec, resource_groups=(msgspec.structs.replace(part, flavors=off),))
    assert flavors(Scene(system([half])).assign(waiting("w", "q", 1))) == [{"cpu": "two"}]


def test_fungibility_says_whether_the_search_stops_at_a_flavor_that_needs_preemption() -> None:
    used = {"q": {ONE: 2000}}
    for stop, expected in (("MayStopSearch", "one"), ("TryNextFlavor", "two")):
        made = two_flavors(
            2, 2, preemption=PreemptionPolicy("LowerPriority"), fungibility=Fungibility("MayStopSearch", stop)
        )
        assert flavors(Scene(system([made]), used).assign(waiting("w", "q", 1), victims)) == [{"cpu": expected}]
        # Where preemption finds nobody, the next flavor is tried in any case.
        assert flavors(Scene(system([made]), used).assign(waiting("w", "q", 1))) == [{"cpu": "two"}]


def test_fungibility_says_whether_the_search_stops_at_a_flavor_that_is_borrowed() -> None:
    for stop, expected in (("MayStopSearch", "one"), ("TryNextFlavor", "two")):
        made = two_flavors(0, 2, cohort="c", fungibility=Fungibility(stop))
        lender = queue("lender", {"one": cell(2), "two": cell(0)}, cohort="c")
        found = Scene(system([made, lender])).assign(waiting("w", "q", 1))
        assert flavors(found) == [{"cpu": expected}]
        assert found.borrowing_level == (1 if expected == "one" else 0)


def test_of_flavors_that_all_need_something_the_preferred_one_is_taken() -> None:
    """`one` must be preempted, `two` borrowed: which is better is the queue's choice."""
    for preference, expected in (("BorrowingOverPreemption", "two"), ("PreemptionOverBorrowing", "one")):
        fungibility = Fungibility("TryNextFlavor", "TryNextFlavor", preference)
        made = two_flavors(1, 0, cohort="c", preemption=PreemptionPolicy("LowerPriority"), fungibility=fungibility)
        lender = queue("lender", {"one": cell(0), "two": cell(2)}, cohort="c")
        scene = Scene(system([made, lender]), {"q": {ONE: 1000}})
        assert flavors(scene.assign(waiting("w", "q", 1), victims)) == [{"cpu": expected}], preference


@pytest.mark.parametrize(
    ("policy", "nominal", "fair", "asks"),
    [
        (PreemptionPolicy(), 1, False, False),
        (PreemptionPolicy("LowerPriority"), 1, False, False),
        (PreemptionPolicy("LowerPriority"), 0, False, True),
        (PreemptionPolicy(), 0, False, False),
        (PreemptionPolicy("Never", "Any", "LowerPriority"), 1, False, True),
        (PreemptionPolicy("Never", "Any"), 1, False, False),
        (PreemptionPolicy("Never", "Any"), 1, True, True),
        (PreemptionPolicy("LowerPriority"), 1, True, True),
        (PreemptionPolicy(), 1, True, False),
    ],
)
def test_who_may_ask_for_victims_for_quota_that_it_would_borrow(
    policy: PreemptionPolicy, nominal: int, fair: bool, asks: bool
) -> None:
    """The root has what is asked for, but all of it is used."""
    made = queue("q", {"one": cell(nominal)}, cohort="c", preemption=policy)
    scene = Scene(
        system([made, queue("lender", {"one": cell(2)}, cohort="c")]), {"lender": {ONE: 2000 + nominal * 1000}}
    )
    asked: list[int] = []

    def oracle(at: tuple[str, str], amount: int) -> tuple[PreemptionMode, int]:
        asked.append(amount)
        return PreemptionMode.RECLAIM, 1

    found = scene.assign(waiting("w", "q", 2), oracle, fair_sharing=fair)
    assert asked == ([2000] if asks else [])
    assert found.mode == (PREEMPT if asks else NO_FIT)
    assert found.borrowing_level == (1 if asks else 0)


def test_what_is_within_nominal_quota_may_always_ask_for_victims() -> None:
    scene = Scene(system([queue("q", {"one": cell(2)})]), {"q": {ONE: 1000}})
    assert scene.assign(waiting("w", "q", 2), victims).mode == PREEMPT
    assert scene.assign(waiting("w", "q", 3), victims).mode == NO_FIT, "more than there is"


def test_the_height_of_the_quota_that_covers_a_request() -> None:
    pool = lambda cpus: (group({"one": cell(cpus)}),)  # noqa: E731
    queues = system(
        [queue("q", {"one": cell(1)}, cohort="low"), queue("lone", {"one": cell(1)})],
        [Cohort("low", "mid", pool(1)), Cohort("mid", "top", pool(1)), Cohort("top", "", pool(1))],
    )
    node = QuotaTree(queues).queues["q"]
    heights = [lowest_fitting_height(node, ONE, cpus * 1000) for cpus in range(1, 6)]
    assert heights == [(0, True), (1, True), (2, True), (3, False), (3, False)]
    lone = QuotaTree(queues).queues["lone"]
    assert [lowest_fitting_height(lone, ONE, amount) for amount in (1000, 2000)] == [(0, False), (0, False)]


def test_what_a_queue_keeps_for_itself_is_not_asked_from_above() -> None:
    queues = system(
        [queue("q", {"one": cell(3, None, 1)}, cohort="low"), queue("other", {"one": cell(2)}, cohort="top")],
        [Cohort("low", "top", (group({"one": cell(1, None, 1)}),)), Cohort("top")],
    )
    node = QuotaTree(queues).queues["q"]
    # Two of the queue's three CPUs stay there; the cohort has one of its own and one that the queue lends.
    heights = [lowest_fitting_height(node, ONE, cpus * 1000) for cpus in (3, 4, 5)]
    assert heights == [(0, True), (1, True), (2, False)]


@given(MODES, MODES, MODES, st.sampled_from(["BorrowingOverPreemption", "PreemptionOverBorrowing"]))
def test_preference_between_flavors_is_an_order(
    first: GranularMode, second: GranularMode, third: GranularMode, preference: str
) -> None:
    policy = Fungibility(preference=preference)

    def rank(mode: GranularMode) -> tuple[int, ...]:
        kind, level = mode
        if kind <= PreemptionMode.NO_CANDIDATES:
            coarse = 0 if kind == PreemptionMode.NO_FIT else 1
            return (coarse, -level if coarse else 0, 0)
        pair = (-level, kind) if preference == "PreemptionOverBorrowing" else (kind, -level)
        return (2, *pair)

    if PreemptionMode.NO_FIT not in (first.preemption_mode, second.preemption_mode):
        assert is_preferred(first, second, policy) == (rank(first) > rank(second))
    if second.preemption_mode == PreemptionMode.NO_FIT:
        assert is_preferred(first, second, policy) == (first.preemption_mode != PreemptionMode.NO_FIT)
    assert not is_preferred(WORST, first, policy)
    assert not is_preferred(first, BEST, policy)


def test_the_mode_of_a_pod_set_is_that_of_its_worst_resource() -> None:
    part = PodSetFlavorAssignment("main", 1)
    assert part.mode == FIT
    part.reasons = ["why"]
    assert part.mode == NO_FIT
    for mode, expected in (
        (PreemptionMode.FIT, FIT),
        (PreemptionMode.RECLAIM, PREEMPT),
        (PreemptionMode.PREEMPT, PREEMPT),
        (PreemptionMode.NO_CANDIDATES, PREEMPT),
        (PreemptionMode.NO_FIT, NO_FIT),
    ):
        part.flavors = {
            "cpu": FlavorAssignment("one", PreemptionMode.FIT, 0, -1),
            "memory": FlavorAssignment("one", mode, 0, -1),
        }
        assert part.mode == expected


def test_an_assignment_sums_up_its_pod_sets() -> None:
    assert (Assignment().finish().mode, Assignment().code) == (NO_FIT, "KUEUE_QUOTA_INSUFFICIENT")
    made = Assignment()
    for name, mode, level, index in (("a", PreemptionMode.FIT, 2, -1), ("b", PreemptionMode.RECLAIM, 1, 0)):
        part = PodSetFlavorAssignment(name, 1)
        part.flavors = {"cpu": FlavorAssignment("one", mode, level, index)}
        part.reasons = [] if name == "a" else ["y", "x"]
        part.severity = 0 if name == "a" else WAITING
        made.append(part, {"cpu": 500, "memory": 7})
    made.finish()
    assert (made.mode, made.borrowing_level, made.usage) == (PREEMPT, 2, {ONE: 1000})
    assert made.needs_preemption == {ONE}
    assert made.tried_flavors == ({"cpu": -1}, {"cpu": 0})
    assert made.message == "couldn't assign flavors to pod set b: x, y"
    nothing = Assignment()
    nothing.append(made.pod_sets[0], {"cpu": 0})
    assert (nothing.usage, nothing.needs_preemption) == ({}, frozenset())
    nothing.usage = {TWO: 1}
    nothing.placement_failed = True
    assert nothing.needs_preemption == {TWO}


def test_the_hardest_refusal_decides_the_code() -> None:
    codes = []
    for severity in (0, WAITING, EXCEEDS_MAXIMUM, NO_MATCH, NOT_COVERED):
        made = Assignment()
        for each in (0, severity):
            part = PodSetFlavorAssignment("main", 1)
            part.severity = each
            made.append(part, {})
        codes.append(made.code)
    assert codes == ["KUEUE_QUOTA_INSUFFICIENT"] * 3 + ["KUEUE_FLAVOR_MISMATCH", "KUEUE_QUOTA_MISCONFIGURED"]


def test_of_several_flavors_the_one_where_waiting_helps_most_decides() -> None:
    tainted = ResourceFlavor("one", node_taints=(Taint(key="gpu", effect="NoSchedule"),))
    queues = system([two_flavors(2, 2)], flavors={"one": tainted, "two": ResourceFlavor("two")})
    found = Scene(queues, {"q": {TWO: 2000}}).assign(waiting("w", "q", 1))
    assert found.pod_sets[0].severity == WAITING
    assert found.code == "KUEUE_QUOTA_INSUFFICIENT"
    assert Scene(queues).assign(waiting("w", "q", 9)).pod_sets[0].severity == EXCEEDS_MAXIMUM


def eligible(flavor: ResourceFlavor, **spec: object) -> str:
    return flavor_ineligible_reason(template(1, **spec).spec, flavor)


def affine(*terms: tuple[NodeSelectorRequirement, ...]) -> Affinity:
    selector = NodeSelector(tuple(NodeSelectorTerm(match_expressions=term) for term in terms))
    return Affinity(node_affinity=NodeAffinity(required_during_scheduling_ignored_during_execution=selector))


def test_taints_of_a_flavor_are_tolerated_by_the_pod_or_by_the_flavor() -> None:
    taint = Taint(key="gpu", effect="NoSchedule")
    tolerates = Toleration(key="gpu", operator="Exists")
    assert eligible(ResourceFlavor("f", node_taints=(taint,))) == "untolerated taint gpu:NoSchedule in flavor f"
    assert eligible(ResourceFlavor("f", node_taints=(taint,)), tolerations=(tolerates,)) == ""
    assert eligible(ResourceFlavor("f", node_taints=(taint,), tolerations=(tolerates,))) == ""


def test_only_labels_that_the_flavor_defines_are_compared() -> None:
    flavor = ResourceFlavor("f", node_labels={"zone": "a", "kind": "x"})
    wrong = "flavor f doesn't match node affinity"
    assert eligible(flavor, node_selector={"zone": "a", "disk": "ssd"}) == ""
    assert eligible(flavor, node_selector={"zone": "a", "kind": "y"}) == wrong
    zone_a, zone_b, disk = (
        NodeSelectorRequirement(key=key, operator="In", values=(value,))
        for key, value in (("zone", "a"), ("zone", "b"), ("disk", "ssd"))
    )
    assert eligible(flavor, affinity=affine((zone_a, disk))) == ""
    assert eligible(flavor, affinity=affine((zone_b, disk))) == wrong
    assert eligible(flavor, affinity=affine((zone_a, zone_b))) == wrong
    assert eligible(flavor, affinity=affine((zone_b,), (zone_a,))) == ""
    assert eligible(flavor, affinity=affine((disk,), (zone_b,))) == "", "a term without its keys matches every flavor"
    assert eligible(flavor, affinity=affine()) == ""
    assert eligible(flavor, affinity=Affinity(node_affinity=NodeAffinity())) == ""
    assert eligible(flavor, affinity=Affinity()) == ""
