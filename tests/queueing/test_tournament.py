"""The order of heads under fair sharing, compared with a tournament that is played anew for every winner."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st
from tests.queueing.builders import cell, queue, system, waiting
from tests.queueing.test_quota_node import deep_systems

from windlass.model.queue import Cohort, QueueSystem
from windlass.queueing.dominant_share import dominant_share
from windlass.queueing.flavor_assignment import Assignment
from windlass.queueing.pending_workload import PendingWorkload
from windlass.queueing.placement_interface import UnlimitedPlacement
from windlass.queueing.quota_node import QuotaNode
from windlass.queueing.quota_tree import QuotaTree
from windlass.queueing.tournament import fair_sharing_order, tournament_key

ONE = ("one", "cpu")


@dataclass(eq=False)
class Head:
    pending: PendingWorkload
    assignment: Assignment


def head(tree: QuotaTree, name: str, workload: str, cpus: int, **more: object) -> Head:
    made = waiting(workload, name, cpus, **more)  # type: ignore[arg-type]
    assignment = Assignment()
    assignment.usage = {ONE: cpus * 1000}
    return Head(PendingWorkload(made, tree.queues[name], UnlimitedPlacement()), assignment)


def winner(cohort: QuotaNode, heads: list[Head]) -> Head | None:
    """Among the children of a cohort, each with its best head; from the definition."""
    best = [(child, one) for child in cohort.queues for one in heads if one.pending.node is child]
    best += [(child, one) for child in cohort.cohorts if (one := winner(child, heads)) is not None]

    def key(pair: tuple[QuotaNode, Head]) -> tuple[object, ...]:
        child, one = pair
        work, usage = one.pending.workload, one.assignment.usage
        one.pending.node.add_usage(usage)
        share = dominant_share(child)
        one.pending.node.remove_usage(usage)
        return (
            0 if work.nominated else 1,
            1 if ONE in share.borrowed and usage[ONE] > 0 else 0,
            share.rank,
            -work.priority,
            0 if work.gang_running else 1,
            work.created,
            work.uid,
        )

    return min(best, key=key)[1] if best else None


@given(deep_systems(), st.data())
def test_every_winner_is_that_of_a_tournament_on_the_tree_as_it_is_then(
    queues: QueueSystem, data: st.DataObject
) -> None:
    tree = QuotaTree(queues)
    active = [name for name in sorted(tree.queues) if name not in tree.inactive_reasons]
    heads = [
        head(
            tree,
            name,
            f"w{name}",
            data.draw(st.integers(0, 4)),
            priority=data.draw(st.integers(0, 1)),
            created=data.draw(st.integers(1, 2)),
            nominated=data.draw(st.integers(0, 4)) == 0,
            gang_running=data.draw(st.booleans()),
        )
        for name in active
    ]
    for name in active:
        tree.queues[name].add_usage({ONE: data.draw(st.integers(0, 4)) * 1000})
    left = list(heads)
    for one in fair_sharing_order(heads):
        assert one is winner(one.pending.node.root, left)
        left.remove(one)
        one.pending.node.add_usage(one.assignment.usage)
    assert left == []


def test_queues_without_a_cohort_come_first_as_they_are_given() -> None:
    tree = QuotaTree(
        system(
            [queue("a", cell(1), cohort="c"), queue("x", cell(1)), queue("b", cell(1)), queue("z", cell(1), cohort="d")]
        )
    )
    heads = [head(tree, name, f"w{name}", 1) for name in ("z", "a", "x", "b")]
    assert [one.pending.node.name for one in fair_sharing_order(heads)] == ["x", "b", "z", "a"]


def test_the_key_has_the_share_with_the_request_and_leaves_the_tree_alone() -> None:
    tree = QuotaTree(
        system(
            [queue("a", {"one": cell(1)}, cohort="low"), queue("b", {"one": cell(4)}, cohort="top")],
            [Cohort("low", "top"), Cohort("top")],
        )
    )
    one = head(tree, "a", "w", 2, priority=3, created=7)
    key = tournament_key(one, tree.queues["a"])
    assert key == (True, True, (False, 200 << 48), -3, True, 7, "w")
    assert tree.queues["a"].usage == {ONE: 0}
    small = head(tree, "a", "w", 1, nominated=True, gang_running=True)
    assert tournament_key(small, tree.queues["a"])[:3] == (False, False, (False, 0))
    assert tournament_key(small, tree.queues["a"])[4] is False
