"""Quota in use at a moment, in the quota tree; and what a workload uses."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from tests.placement.offices import choices, make_overlay, make_placer
from tests.queueing.builders import cell, queue, running, system, template, waiting

from windlass.model.workload import Admission, PodSet, PodSetAssignment, Workload
from windlass.placement.timeplan.quota_timeline import (
    QuotaAtMoment,
    QuotaTimeline,
    admitted_usage,
    assignment_usage,
)
from windlass.queueing.placement_interface import PodSetChoice

CPU = ("default", "cpu")
GPU = ("default", "gpu")
QUEUES = system([queue("a", cell(10), cohort="c"), queue("b", cell(10), cohort="c")])
USAGES = st.dictionaries(
    st.sampled_from("ab"), st.dictionaries(st.sampled_from([CPU, GPU]), st.integers(0, 9), min_size=1)
)


def in_tree(quota: QuotaAtMoment) -> dict[str, dict[tuple[str, str], int]]:
    found = {}
    for name in "ab":
        node = quota.active_queue(name)
        assert node is not None
        used = {cell: amount for cell, amount in node.usage.items() if amount}
        if used:
            found[name] = used
    return found


@given(st.lists(st.tuples(USAGES, st.lists(st.tuples(st.sampled_from("ab"), st.just({CPU: 3}))))))
def test_the_tree_has_exactly_the_usage_that_was_set_last(moments: list[tuple[dict, list]]) -> None:  # type: ignore[type-arg]
    quota = QuotaAtMoment(QUEUES)
    for usage, extra in moments:
        quota.set_usage(usage, extra)
        expected: dict[str, dict[tuple[str, str], int]] = {}
        for name, used in [*usage.items(), *extra]:
            for place, amount in used.items():
                if amount:
                    own = expected.setdefault(name, {})
                    own[place] = own.get(place, 0) + amount
        assert in_tree(quota) == expected


def test_usage_that_is_added_for_a_moment_stays_out_of_the_timeline() -> None:
    timeline = QuotaTimeline([(None, ("a", {CPU: 1}))])
    quota = QuotaAtMoment(QUEUES)
    quota.set_usage(timeline.at(0), [("a", {CPU: 5})])
    assert in_tree(quota) == {"a": {CPU: 6}}
    quota.set_usage(timeline.at(0))
    assert in_tree(quota) == {"a": {CPU: 1}}


def test_usage_of_a_queue_that_is_gone_is_not_counted() -> None:
    quota = QuotaAtMoment(QUEUES)
    quota.set_usage({"gone": {CPU: 4}, "a": {CPU: 2}, "b": {CPU: 3}})
    assert in_tree(quota) == {"a": {CPU: 2}, "b": {CPU: 3}}
    assert quota.active_queue("gone") is None


def test_a_queue_that_is_not_active_is_none() -> None:
    quota = QuotaAtMoment(system([queue("a", cell(1)), queue("off", cell(1), inactive_reason="why")]))
    assert quota.active_queue("off") is None
    node = quota.active_queue("a")
    assert node is not None
    assert node.name == "a"


def test_what_a_workload_was_admitted_with() -> None:
    assert admitted_usage(running("w", "a", 2, count=3)) == {CPU: 6000}
    assert admitted_usage(waiting("w", "a", 2)) == {}
    parts = (
        PodSetAssignment("x", 1, {"cpu": "default", "gpu": "default"}, {"cpu": 5}),
        PodSetAssignment("y", 1, {"cpu": "default"}, {"cpu": 7}),
        PodSetAssignment("z", 1, {"cpu": "other"}, {"cpu": 9}),
    )
    split = Workload("team/w", "Job", (), admission=Admission("a", parts))
    assert admitted_usage(split) == {CPU: 12, GPU: 0, ("other", "cpu"): 9}


def test_what_a_workload_would_use() -> None:
    node = QuotaAtMoment(QUEUES).active_queue("a")
    assert node is not None
    sets = (PodSet("x", 3, template(2)), PodSet("y", 2, template(5)), PodSet("z", 2, template(0)))
    workload = Workload("team/w", "Job", sets, queue_name="a")
    placer = make_placer(make_overlay())
    assert assignment_usage(workload, choices(workload, cpu="default"), node, placer) == {CPU: 16_000}
    fewer = (PodSetChoice("y", 1, {"cpu": "other"}), PodSetChoice("x", 2, {"cpu": "default", "memory": "default"}))
    assert assignment_usage(workload, fewer, node, placer) == {("other", "cpu"): 5000, CPU: 4000}
    assert assignment_usage(workload, choices(workload), node, placer) == {}
