"""Adding and removing usage are inverses, and shares follow from usage."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from tests.queueing.builders import cell, queue, system
from tests.queueing.random_systems import systems

from windlass.model.queue import Cohort, QueueSystem
from windlass.queueing.dominant_share import dominant_share
from windlass.queueing.quota_tree import QuotaTree

CELL = ("default", "cpu")


def everything(tree: QuotaTree) -> dict[str, dict[tuple[str, str], int]]:
    nodes = {node.name: node for queue in tree.queues.values() for node in (queue, *queue.ancestors())}
    return {name: {at: amount for at, amount in node.usage.items() if amount} for name, node in nodes.items()}


@given(systems(), st.data())
def test_usage_can_be_taken_off_in_any_order(queues: QueueSystem, data: st.DataObject) -> None:
    tree = QuotaTree(queues)
    names = st.sampled_from(sorted(tree.queues))
    steps = data.draw(st.lists(st.tuples(names, st.sampled_from(["one", "two"]), st.integers(0, 5000)), max_size=8))
    for name, flavor, amount in steps:
        tree.queues[name].add_usage({(flavor, "cpu"): amount})
    for name, flavor, amount in data.draw(st.permutations(steps)):
        tree.queues[name].remove_usage({(flavor, "cpu"): amount})
    assert all(not usage for usage in everything(tree).values())


@given(systems(), st.data())
def test_what_is_available_can_be_added_and_no_more(queues: QueueSystem, data: st.DataObject) -> None:
    tree = QuotaTree(queues)
    for _ in range(data.draw(st.integers(0, 6))):
        node = tree.queues[data.draw(st.sampled_from(sorted(tree.queues)))]
        at = ("one", "cpu")
        room = node.available(at)
        assert room <= node.potential_available(at)
        node.add_usage({at: data.draw(st.integers(0, room))})
        assert node.headroom(at) >= 0
        assert all(above.headroom(at) >= 0 for above in node.ancestors() if above.parent is None)


def test_share_is_what_is_borrowed_of_what_can_be_lent_by_weight() -> None:
    tree = QuotaTree(
        system(
            [
                queue("a", cell(2), cohort="c"),
                queue("b", cell(2), cohort="c", weight_milli=2000),
                queue("z", cell(0), cohort="c", weight_milli=0),
                queue("lone", cell(1)),
            ],
            [Cohort("c")],
        )
    )
    for name in ("a", "b"):
        tree.queues[name].add_usage({CELL: 3000})
    shares = {name: dominant_share(node) for name, node in tree.queues.items()}
    assert shares["a"].rank[1] == 2 * shares["b"].rank[1] > 0
    assert shares["a"].borrowed == (CELL,)
    assert shares["z"].rank == (False, 0)
    assert not shares["z"].is_borrowing
    tree.queues["z"].add_usage({CELL: 1})
    assert dominant_share(tree.queues["z"]).rank > shares["a"].rank
    tree.queues["lone"].add_usage({CELL: 5000})
    assert dominant_share(tree.queues["lone"]).rank == (False, 0)


@given(systems(), st.data())
def test_several_fit_one_after_the_other_exactly_if_all_have_headroom_in_the_end(
    queues: QueueSystem, data: st.DataObject
) -> None:
    """What time plans rest on: they add everything at once and look at headroom once."""
    tree = QuotaTree(queues)
    steps = st.tuples(st.sampled_from(sorted(tree.queues)), st.sampled_from(["one", "two"]), st.integers(0, 4000))
    for name, flavor, amount in data.draw(st.lists(steps, max_size=5)):
        tree.queues[name].add_usage({(flavor, "cpu"): amount})  # what runs may be more than quota by now
    asked = data.draw(st.lists(steps, min_size=1, max_size=5))
    one_by_one = True
    for count, (name, flavor, amount) in enumerate(asked):
        usage = {(flavor, "cpu"): amount}
        if not tree.queues[name].fits(usage):
            one_by_one = False
            for name, flavor, amount in asked[:count]:
                tree.queues[name].remove_usage({(flavor, "cpu"): amount})
            break
        tree.queues[name].add_usage(usage)
    if not one_by_one:
        for name, flavor, amount in asked:
            tree.queues[name].add_usage({(flavor, "cpu"): amount})
    at_once = all(tree.queues[name].headroom((flavor, "cpu")) >= 0 for name, flavor, amount in asked if amount)
    assert at_once == one_by_one
