"""Quota, usage and shares of a tree, compared with the definitions: every node computed from its leaves alone."""

from __future__ import annotations

from fractions import Fraction

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.queueing.builders import cell, group, queue, running, system

from windlass.model.queue import Cohort, FlavorResourceQuota, QueueSystem, ResourceGroup
from windlass.queueing.config import QueueConfig
from windlass.queueing.dominant_share import LOWEST_RANK, NO_SHARE, dominant_share
from windlass.queueing.quota_cache import QuotaTreeCache
from windlass.queueing.quota_node import AdmittedWorkload, QuotaNode
from windlass.queueing.quota_tree import QuotaTree

CPU, GPU = ("one", "cpu"), ("two", "cpu")
LIMITS = st.one_of(st.none(), st.integers(0, 4))
PARENTS = {"leaf": "middle", "middle": "top", "side": "top", "top": ""}


@st.composite
def groups(draw: st.DrawFn) -> tuple[ResourceGroup, ...]:
    cells = {flavor: cell(draw(st.integers(0, 5)), draw(LIMITS), draw(LIMITS)) for flavor in ("one", "two")}
    return (group(cells),)


@st.composite
def deep_systems(draw: st.DrawFn) -> QueueSystem:
    """Cohorts on three levels, some with quota and limits of their own."""
    queues = [
        queue(
            f"q{index}",
            {flavor: cell(draw(st.integers(0, 5)), draw(LIMITS), draw(LIMITS)) for flavor in ("one", "two")},
            cohort=draw(st.sampled_from(sorted(PARENTS))),
            weight_milli=draw(st.sampled_from([0, 500, 1000, 3000])),
            stop_policy=draw(st.sampled_from(["None", "None", "Hold"])),
        )
        for index in range(draw(st.integers(1, 5)))
    ]
    cohorts = [
        Cohort(name, parent, draw(st.one_of(st.just(()), groups())), draw(st.sampled_from([0, 1000, 2000])))
        for name, parent in PARENTS.items()
    ]
    return system(queues, cohorts)


class Definition:
    """What the numbers of a tree mean, from the objects and the leaves' usage; slow, and nothing is kept."""

    def __init__(self, queues: QueueSystem, used: dict[str, int], at: tuple[str, str]) -> None:
        self.queues, self.used, self.at = queues, used, at

    def quota(self, name: str) -> FlavorResourceQuota:
        owner = self.queues.queues.get(name) or self.queues.cohorts[name]
        for part in owner.resource_groups:
            for quotas in part.flavors:
                if quotas.flavor == self.at[0] and self.at[1] in quotas.quotas:
                    return quotas.quotas[self.at[1]]
        return FlavorResourceQuota(0)

    def parent(self, name: str) -> str:
        if name in self.queues.queues:
            return self.queues.queues[name].cohort
        return self.queues.cohorts[name].parent

    def children(self, name: str) -> list[str]:
        return [other for other in (*self.queues.cohorts, *self.queues.queues) if self.parent(other) == name]

    def subtree(self, name: str) -> int:
        lent = sum(self.subtree(child) - self.kept(child) for child in self.children(name))
        return self.quota(name).nominal + (lent if name in self.queues.cohorts else 0)

    def kept(self, name: str) -> int:
        limit = self.quota(name).lending_limit
        return 0 if limit is None else max(0, self.subtree(name) - limit)

    def usage(self, name: str) -> int:
        if name in self.queues.queues:
            return self.used.get(name, 0)
        return sum(max(0, self.usage(child) - self.kept(child)) for child in self.children(name))

    def fits_more(self, name: str, amount: int) -> bool:
        """Whether a queue may use so much more: no node on the way up lacks quota or breaks its limit."""
        after = Definition(self.queues, {**self.used, name: self.used.get(name, 0) + amount}, self.at)
        node = name
        while node:
            if after.usage(node) == self.usage(node) and node != name:
                return True  # all of it stays below this node
            parent, beyond = self.parent(node), after.usage(node) - after.subtree(node)
            limit = self.quota(node).borrowing_limit if parent else 0
            if limit is not None and beyond > limit and after.usage(node) > self.kept(node):
                return False
            node = parent
        return True

    def height(self, name: str) -> int:
        if name in self.queues.queues:
            return 0
        active = [one for one in self.queues.queues.values() if one.stop_policy == "None" and one.cohort == name]
        below = [self.height(child) + 1 for child in self.children(name) if child in self.queues.cohorts]
        return max([1 if active else 0, *below])


@st.composite
def used_trees(
    draw: st.DrawFn, within_quota: bool = False
) -> tuple[QueueSystem, QuotaTree, dict[tuple[str, str], dict[str, int]]]:
    queues = draw(deep_systems())
    tree = QuotaTree(queues)
    used: dict[tuple[str, str], dict[str, int]] = {CPU: {}, GPU: {}}
    steps = st.tuples(st.sampled_from(sorted(tree.queues)), st.sampled_from([CPU, GPU]), st.integers(0, 6))
    for name, at, amount in draw(st.lists(steps, max_size=8)):
        most = tree.queues[name].available(at) if within_quota else amount * 1000
        added = min(amount * 1000, most)
        tree.queues[name].add_usage({at: added})
        used[at][name] = used[at].get(name, 0) + added
    return queues, tree, used


@given(used_trees())
def test_quota_and_usage_of_every_node_follow_from_the_leaves(
    made: tuple[QueueSystem, QuotaTree, dict[tuple[str, str], dict[str, int]]],
) -> None:
    queues, tree, used = made
    assert [node.name for node in tree.nodes()].count("top") == 1
    for at in (CPU, GPU):
        truth = Definition(queues, used[at], at)
        for node in tree.nodes():
            assert node.subtree_quota.get(at, 0) == truth.subtree(node.name)
            assert node.local_quota.get(at, 0) == truth.kept(node.name)
            assert node.usage.get(at, 0) == truth.usage(node.name)
            assert node.local_available(at) == max(0, truth.kept(node.name) - truth.usage(node.name))
            assert node.height == truth.height(node.name)
            assert node.within_nominal(frozenset([at])) == (truth.usage(node.name) <= truth.subtree(node.name))
            for extra in (0, 1000, 2000, 5000):
                borrows = truth.usage(node.name) + extra > truth.subtree(node.name)
                assert node.borrows_with(at, extra) == borrows


@given(used_trees(within_quota=True))
@settings(max_examples=40)
def test_what_is_available_is_the_most_that_breaks_no_limit_on_the_way_up(
    made: tuple[QueueSystem, QuotaTree, dict[tuple[str, str], dict[str, int]]],
) -> None:
    queues, tree, used = made
    for at in (CPU, GPU):
        truth = Definition(queues, used[at], at)
        for name, node in tree.queues.items():
            room = node.available(at)
            if room:
                assert truth.fits_more(name, room)
                assert node.fits({at: room})
            assert not truth.fits_more(name, room + 1000)
            assert not node.fits({at: room + 1})
            largest, empty = node.potential_available(at), Definition(queues, {}, at)
            assert empty.fits_more(name, largest) or not largest
            assert not empty.fits_more(name, largest + 1000)
            assert node.potential_available(at) == largest, "and once more, from memory"


@given(used_trees())
def test_a_share_is_what_is_borrowed_of_all_that_can_be_lent_divided_by_the_weight(
    made: tuple[QueueSystem, QuotaTree, dict[tuple[str, str], dict[str, int]]],
) -> None:
    queues, tree, used = made
    truths = {at: Definition(queues, used[at], at) for at in (CPU, GPU)}
    for node in tree.nodes():
        share = dominant_share(node)
        if node.parent is None:
            assert share == NO_SHARE
            continue
        beyond = {at: truth.usage(node.name) - truth.subtree(node.name) for at, truth in truths.items()}
        borrowed = {at: amount for at, amount in beyond.items() if amount > 0}
        assert set(share.borrowed) == set(borrowed)
        assert share.is_borrowing == bool(borrowed)
        cells = node.root.subtree_quota
        lendable = sum(node.parent.potential_available(at) for at in cells)
        exact = Fraction(1000 * sum(borrowed.values()), lendable) if lendable else Fraction(0)
        weight = Fraction(node.weight_milli, 1000)
        no_weight = bool(exact) and not weight
        assert share.rank[0] == no_weight
        wanted = exact if no_weight or not exact else exact / weight
        got = Fraction(share.rank[1], 1 << 48)
        assert 0 <= got - wanted < Fraction(1, 1 << 40), "rounded up, and hardly"
        assert share.rank > LOWEST_RANK


def test_only_what_is_borrowed_and_asked_for_counts_as_borrowing() -> None:
    tree = QuotaTree(
        system([queue("a", {"one": cell(1), "two": cell(1)}, cohort="c"), queue("b", cell(5), cohort="c")])
    )
    tree.queues["a"].add_usage({CPU: 2000, GPU: 1000})
    share = dominant_share(tree.queues["a"])
    assert share.borrowed == (CPU,)
    assert share.borrows_any({CPU: 1})
    assert not share.borrows_any({CPU: 0, GPU: 1})
    assert not share.borrows_any({GPU: 1})
    assert not NO_SHARE.borrows_any({CPU: 1})


def test_the_resource_with_the_largest_share_is_the_dominant_one() -> None:
    groups = (group({"one": cell(0)}), group({"one": cell(0)}, "memory"))
    pool = (group({"one": cell(8)}), group({"one": cell(4)}, "memory"))
    tree = QuotaTree(system([queue("a", cell(0), cohort="c", resource_groups=groups)], [Cohort("c", "", pool)]))
    node = tree.queues["a"]
    node.add_usage({("one", "cpu"): 2000, ("one", "memory"): 2000})
    assert dominant_share(node).rank == (False, 500 << 48)
    node.remove_usage({("one", "memory"): 1500})
    assert dominant_share(node).rank == (False, 250 << 48)


def test_a_path_names_the_cohorts_from_the_root_down() -> None:
    tree = QuotaTree(system([queue("q", cell(1), cohort="leaf")], [Cohort(*pair) for pair in PARENTS.items()]))
    node = tree.queues["q"]
    assert node.path == "/top/middle/leaf/q"
    assert [above.name for above in node.ancestors()] == ["leaf", "middle", "top"]
    assert node.root.name == "top"
    assert [one.name for one in node.root.subtree_queues()] == ["q"]


def test_a_cohort_that_only_a_queue_names_exists_with_weight_one() -> None:
    tree = QuotaTree(system([queue("a", cell(1), cohort="c"), queue("b", cell(1), cohort="c"), queue("lone", cell(1))]))
    above = tree.queues["a"].parent
    assert above is not None
    assert above is tree.queues["b"].parent
    assert (above.name, above.weight_milli, above.height) == ("c", 1000, 1)
    assert above.subtree_quota == {("default", "cpu"): 2000}
    assert tree.queues["lone"].parent is None
    assert tree.queues["lone"].subtree_quota == {("default", "cpu"): 1000}
    assert sorted(node.name for node in tree.nodes()) == ["a", "b", "c", "lone"]


def test_a_stopped_queue_lends_but_is_nobodys_candidate() -> None:
    tree = QuotaTree(system([queue("a", cell(1), cohort="c"), queue("off", cell(2), cohort="c", stop_policy="Hold")]))
    above = tree.queues["a"].root
    assert [node.name for node in above.queues] == ["a"]
    assert [node.name for node in above.inactive_queues] == ["off"]
    assert tree.queues["a"].available(("default", "cpu")) == 3000
    assert tree.inactive_reasons == {"off": "is stopped"}


def test_why_queues_are_inactive() -> None:
    names = ("lost", "below", "looped", "fine")
    cohorts = dict(zip(names, ("", "entry", "x", "ok"), strict=True))
    queues = system(
        [queue(name, cell(1), cohort=cohort) for name, cohort in cohorts.items()],
        [Cohort("x", "y"), Cohort("y", "x"), Cohort("entry", "x"), Cohort("ok", "unnamed")],
    )
    assert QuotaTree(queues).inactive_reasons == {
        "below": "is inactive: the parents of cohort entry form a cycle",
        "looped": "is inactive: the parents of cohort x form a cycle",
    }
    bare = system([queue("lost", {"here": cell(1), "gone": cell(1)})], flavors={"here": queues.flavors["default"]})
    assert QuotaTree(bare).inactive_reasons == {"lost": "is inactive: references missing ResourceFlavor gone"}


def on_tree(**more: object) -> tuple[QuotaNode, AdmittedWorkload]:
    tree = QuotaTree(system([queue("q", cell(4), cohort="c")]))
    node = tree.queues["q"]
    return node, AdmittedWorkload(running("r", "q", 2, **more), node, {("default", "cpu"): 2000}, 7)


def test_an_admitted_workload_is_on_the_tree_with_its_usage_or_not_at_all() -> None:
    node, one = on_tree()
    one.add_to_tree()
    assert node.admitted == {"team/r": one}
    assert node.root.usage == {("default", "cpu"): 2000}
    one.remove_from_tree()
    assert node.admitted == {}
    assert node.root.usage == {("default", "cpu"): 0}


def test_what_an_admitted_workload_says_of_itself() -> None:
    _, one = on_tree(created=5, queued_at=0)
    assert (one.queued_at, one.uid, one.local_queue, one.pod_count) == (5, "r", "team/q", 0)
    assert one.eviction_cost == (0, 0)
    assert one.nodes == frozenset()
    _, later = on_tree(created=5, queued_at=9, uid="")
    assert (later.queued_at, later.uid) == (9, "team/r")
    later.assumed_nodes = frozenset({"n"})
    assert later.nodes == {"n"}


STEPS = st.lists(
    st.lists(st.tuples(st.integers(0, 4), st.integers(0, 3), st.integers(0, 2)), max_size=5, unique_by=lambda t: t[0]),
    min_size=1,
    max_size=5,
)


@given(deep_systems(), STEPS)
def test_a_kept_tree_is_the_same_as_a_new_one(queues: QueueSystem, steps: list[list[tuple[int, int, int]]]) -> None:
    """Workloads come, change and end from one decision to the next, which each leave the tree changed."""
    kept, names = QuotaTreeCache(), sorted(queues.queues)
    config = QueueConfig()
    made = {}
    for now, step in enumerate(steps):
        work = []
        for number, cpus, which in step:
            name = names[which] if which < len(names) else "nowhere"
            key = (number, cpus, name)
            if key not in made:
                made[key] = running(f"r{number}", name, cpus, flavor="one")
            work.append(made[key])
        tree = kept.tree_with_usage(queues, config, now, work)
        fresh = QuotaTreeCache().tree_with_usage(queues, config, now, list(reversed(work)))
        for node, other in zip(tree.nodes(), fresh.nodes(), strict=True):
            assert node.name == other.name
            assert {at: n for at, n in node.usage.items() if n} == {at: n for at, n in other.usage.items() if n}
            assert list(node.admitted) == sorted(other.admitted)
            assert [one.workload for one in node.admitted.values()] == [
                other.admitted[k].workload for k in node.admitted
            ]
        for node in tree.queues.values():
            node.add_usage({CPU: 500})
            node.admitted.clear()


def test_another_system_is_another_tree() -> None:
    kept = QuotaTreeCache()
    one, two = (system([queue("q", cell(nominal))]) for nominal in (1, 2))
    work = [running("r", "q", 1)]
    tree = kept.tree_with_usage(one, QueueConfig(), 0, work)
    assert kept.tree_with_usage(one, QueueConfig(), 1, work) is tree
    kept.pending_by_id[1] = None  # type: ignore[assignment]
    other = kept.tree_with_usage(two, QueueConfig(), 2, work)
    assert other.queues["q"].subtree_quota == {("default", "cpu"): 2000}
    assert other.queues["q"].usage == {("default", "cpu"): 1000}
    assert kept.pending_by_id == {}


def test_what_waits_no_more_is_forgotten_once_it_is_most() -> None:
    kept = QuotaTreeCache()
    kept.pending_by_id = dict.fromkeys(range(1028))  # type: ignore[arg-type]
    kept.prune(2)
    assert len(kept.pending_by_id) == 1028
    kept.prune(1)
    assert kept.pending_by_id == {}
