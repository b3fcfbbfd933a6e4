"""Relief: whose end lets a held workload start, and when that is."""

from __future__ import annotations

import pytest
from tests.engine.plain_objects import TWO_NODES, node, pod
from tests.placement.explain.held_objects import (
    GPU,
    RACK,
    REQUIRED,
    asking,
    flavor,
    gang,
    in_queue,
    member,
    queue,
    racks,
    tainted,
    verdict,
)

from windlass.model.unstructured import Unstructured
from windlass.model.verdict import Relief

START = 1767225600
"""When every pod of these tests has started."""
LATER = "2026-01-01T01:00:00Z"
ONE_UNKNOWN = "end time unknown: no run-time limit"


def relief(*objects: Unstructured, of: str = "w") -> Relief | None:
    return verdict(*objects, of=of).relief


def names(*objects: Unstructured) -> list[str]:
    found = relief(*objects)
    return [] if found is None else [name.removeprefix("default/") for name in found.names]


def runs(name: str, gpus: int, on: str, limit: int = 0) -> Unstructured:
    return pod(name, gpus, on=on, **({"activeDeadlineSeconds": limit} if limit else {}))


# Capacity


def test_on_the_node_where_fewest_have_to_end() -> None:
    objects = [
        *TWO_NODES,
        runs("a0", 4, "n1"),
        runs("a1", 4, "n1"),
        runs("b", 8, "n2"),
    ]
    assert relief(*objects, pod("w", 8)) == Relief(1, {"default/": 1}, ("default/b",), None, ONE_UNKNOWN)


def test_those_that_hold_most_of_what_lacks_until_it_fits() -> None:
    objects = [node("n1"), runs("a", 1, "n1"), runs("b", 4, "n1"), runs("c", 2, "n1")]
    assert names(*objects, pod("w", 5)) == ["b"], "one GPU is free and four are freed"
    assert names(*objects, pod("w", 6)) == ["b", "c"]
    assert names(*objects, pod("w", 8)) == ["b", "c", "a"]


def test_of_equal_holders_the_last_by_name_and_of_equal_nodes_the_first() -> None:
    assert names(node("n1"), runs("a", 4, "n1"), runs("b", 4, "n1"), pod("w", 4)) == ["b"]
    assert names(*TWO_NODES, runs("a", 8, "n1"), runs("b", 8, "n2"), pod("w", 8)) == ["a"]


def test_who_holds_nothing_that_lacks_may_stay() -> None:
    """The large holder of CPU is not asked: GPUs lack."""
    objects = [node("n1"), asking(runs("cpu", 0, "n1"), cpu=32), runs("gpu", 8, "n1")]
    assert names(*objects, asking(pod("w", 4), cpu=16)) == ["gpu"]
    assert names(*objects[:2], asking(pod("w", 4), cpu=40)) == ["cpu"]
    assert names(*objects, asking(pod("w", 4), cpu=40)) == ["cpu", "gpu"], "by the sum of what lacks"


def test_nodes_that_a_rule_excludes_dont_help() -> None:
    objects = [tainted("n0", ("t", "", "NoSchedule")), node("n1"), runs("a", 8, "n0"), runs("b", 4, "n1")]
    assert names(*objects, runs("c", 4, "n1"), pod("w", 8)) == ["c", "b"]


def test_every_further_pod_of_a_gang_gets_a_node() -> None:
    objects = [node("n1"), node("n2"), node("n3"), runs("a", 8, "n1"), runs("b", 8, "n2"), runs("c", 8, "n3")]
    assert names(*objects, *gang(2, 8)) == ["a", "b"]
    assert names(*objects[:5], *gang(2, 8)) == ["a"]
    assert names(*objects[:4], *gang(3, 8)) == ["a"]


def test_pod_sets_share_what_ends() -> None:
    """Both sets fit on the node of `a`, once it has ended."""
    members = [member("w0", 2, 4), member("w1", 2, 3)]
    assert names(node("n1"), runs("a", 8, "n1"), *members) == ["a"]
    two = [*TWO_NODES, runs("a", 8, "n1"), runs("b", 4, "n2"), runs("c", 4, "n2")]
    assert names(*two, *members) == ["a"]


def test_a_required_level_looks_for_the_domain_where_fewest_end() -> None:
    notes = {"annotations": {REQUIRED: RACK}}
    full = [runs("a0", 4, "n0"), runs("a1", 4, "n0"), runs("b", 8, "n1"), runs("c", 8, "n2"), runs("d", 8, "n3")]
    assert names(*racks(8, 8, 8, 8), *full, *gang(2, 8, **notes)) == ["c", "d"]
    assert names(*racks(8, 8, 8, 8), *full[:2], *full[3:], *gang(2, 8, **notes)) == ["a1", "a0"]


def test_what_starts_in_this_decision_counts_like_what_runs() -> None:
    objects = [node("n1"), pod("first", 8), pod("w", 8, at=LATER)]
    assert names(*objects) == ["first"]


def test_what_is_leaving_is_not_waited_for_by_name() -> None:
    leaving = runs("going", 4, "n1")
    leaving["metadata"]["deletionTimestamp"] = "2026-01-01T11:59:59Z"
    assert names(node("n1"), leaving, runs("stays", 4, "n1"), pod("w", 8)) != ["going"]


# Times


def test_the_last_of_the_ends_where_all_are_known() -> None:
    objects = [node("n1"), runs("a", 5, "n1", 50_000), runs("b", 3, "n1", 60_000), pod("w", 8)]
    found = relief(*objects)
    assert found == Relief(2, {"default/": 2}, ("default/a", "default/b"), START + 60_000, "by run-time limits")


@pytest.mark.parametrize(
    ("limits", "basis"),
    [
        ((50_000, 0), "end times unknown: not all have run-time limits"),
        ((0, 0), "end times unknown: no run-time limits"),
    ],
)
def test_one_without_a_limit_makes_the_time_unknown(limits: tuple[int, int], basis: str) -> None:
    found = relief(node("n1"), runs("a", 5, "n1", limits[0]), runs("b", 3, "n1", limits[1]), pod("w", 8))
    assert found is not None
    assert (found.at, found.basis, found.workloads) == (None, basis, 2)


def test_who_waits_behind_others_is_promised_no_time() -> None:
    objects = [node("n1"), runs("runs", 8, "n1", 50_000), pod("first", 8), pod("w", 2, at=LATER)]
    found = relief(*objects)
    assert found is not None
    assert (found.names, found.at) == (("default/runs",), None)
    assert found.basis == "start time unknown: other workloads wait ahead of it for the same capacity"


# Quota


def cohort(**quotas: int) -> list[Unstructured]:
    """ClusterQueues of one cohort `c`, and `y` outside of it."""
    found = [flavor()]
    for name, gpus in quotas.items():
        found += queue({"f": {GPU: gpus}}, name, **({} if name == "y" else {"cohortName": "c"}))
    return found


def queued(name: str, gpus: int, on: str, queue_name: str, limit: int = 0) -> Unstructured:
    made = runs(name, gpus, on, limit)
    made["metadata"] |= in_queue(queue_name)
    return made


def test_the_largest_user_of_the_queue_first_until_quota_suffices() -> None:
    objects = [*TWO_NODES, *cohort(q=8), queued("r1", 2, "n1", "q"), queued("r2", 3, "n1", "q")]
    found = relief(*objects, pod("w", 6, metadata=in_queue()))
    assert found == Relief(1, {"q": 1}, ("default/r2",), None, ONE_UNKNOWN)
    assert names(*objects, pod("w", 7, metadata=in_queue())) == ["r2", "r1"]


def test_of_equal_users_the_one_that_ends_first_then_by_name() -> None:
    base = [*TWO_NODES, *cohort(q=8)]
    waits = pod("w", 6, metadata=in_queue())
    ends = [queued("a", 3, "n1", "q"), queued("b", 3, "n1", "q", 60_000), queued("c", 2, "n1", "q", 50_000)]
    assert names(*base, *ends, waits) == ["b", "a"]
    early = [queued("a", 4, "n1", "q", 60_000), queued("b", 4, "n1", "q", 50_000)]
    assert names(*base, *early, pod("w", 4, metadata=in_queue())) == ["b"]
    same = [queued("b", 4, "n1", "q"), queued("a", 4, "n1", "q")]
    assert names(*base, *same, pod("w", 4, metadata=in_queue())) == ["a"]


def test_work_of_its_own_queue_is_not_named_where_its_end_would_not_help_and_no_other_queue_counts() -> None:
    objects = [
        *TWO_NODES,
        *cohort(q=4, z=4, y=8),
        queued("z1", 3, "n1", "z"),
        queued("z2", 3, "n1", "z"),
        queued("q1", 1, "n1", "q"),
        queued("y1", 6, "n2", "y"),
    ]
    found = relief(*objects, pod("w", 4, metadata=in_queue()))
    assert found is not None
    assert (found.names, found.of) == (("default/z1",), {"z": 1})


def test_users_of_two_queues_are_counted_by_queue() -> None:
    objects = [
        *TWO_NODES,
        *cohort(q=4, z=4),
        queued("z1", 2, "n1", "z"),
        queued("z2", 2, "n1", "z"),
        queued("z3", 2, "n1", "z"),
        queued("q1", 2, "n2", "q"),
    ]
    found = relief(*objects, pod("w", 6, metadata=in_queue()))
    assert found is not None
    assert (found.workloads, found.of) == (3, {"q": 1, "z": 2})


def test_no_relief_where_the_queue_never_suffices() -> None:
    objects = [*TWO_NODES, *cohort(q=4), queued("r", 2, "n1", "q")]
    assert relief(*objects, pod("w", 5, metadata=in_queue())) is None


# Rules between pods


def test_the_one_neighbour_whose_rule_excludes_it() -> None:
    labels = {"labels": {"app": "x"}}
    term = {"labelSelector": {"matchLabels": {"app": "x"}}, "topologyKey": "kubernetes.io/hostname"}
    apart = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    others = [pod(f"o{at}", 1, on="n1") for at in range(3)]
    waits = pod("w", 1, metadata=labels, affinity=apart)
    assert names(node("n1"), *others, pod("z", 1, on="n1", metadata=labels), waits) == ["z"]
