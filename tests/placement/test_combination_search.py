"""The search over combinations places pods of different shapes where one exists, against all combinations."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from random import Random

import numpy as np
import pytest

from reference.overlays import overlay_on, pod_of, snapshot_of, table_row
from reference.park import gpu_node, pod
from windlass.placement import combination_search, pattern_search
from windlass.placement.combination_search import IdenticalPods, try_combinations
from windlass.placement.overlay import Overlay


@pytest.fixture(autouse=True)
def _hashes_wrap_around() -> Iterator[None]:
    with np.errstate(over="ignore"):
        yield


def group(overlay: Overlay, number: int, name: str, pods: int, *domains: list[int]) -> IdenticalPods:
    nodes = overlay.snapshot.nodes.size
    masks = tuple(np.isin(np.arange(nodes), domain) for domain in domains) or (np.ones(nodes, dtype=np.bool_),)
    found = pod_of(overlay, name)
    return IdenticalPods(number, table_row(overlay, name), pods, lambda _: found, masks)


def exists(free: list[int], wanted: list[tuple[int, int, list[list[int]]]]) -> bool:
    """Whether GPUs and domains allow it; `wanted` are (GPUs of each pod, pods, domains)."""
    if not wanted:
        return True
    (gpus, pods, domains), *rest = wanted
    for domain in domains:
        for chosen in product(domain, repeat=pods):
            left = list(free)
            for at in chosen:
                left[at] -= gpus
            if min(left) >= 0 and exists(left, rest):
                return True
    return False


def test_a_placement_is_found_where_one_exists() -> None:
    found_some = refused_some = 0
    for seed in range(60):
        random = Random(seed)
        free = [random.randint(1, 4) for _ in range(3)]
        nodes = [gpu_node(f"n{i}", gpus) for i, gpus in enumerate(free)]
        overlay = overlay_on(snapshot_of(*nodes, *[pod(f"p{gpus}", gpus) for gpus in (1, 2, 3)]))
        wanted = []
        for gpus in random.sample((1, 2, 3), random.randint(2, 3)):
            domains = random.choice(([[0, 1, 2]], [[0, 1], [2]], [[2], [0]], [[1]]))
            wanted.append((gpus, random.randint(1, 2), domains))
        groups = [group(overlay, i, f"p{gpus}", pods, *domains) for i, (gpus, pods, domains) in enumerate(wanted)]
        before = [array.tolist() for array in overlay.state]
        result = try_combinations(overlay, groups)
        assert (result is not None) == exists(free, wanted), (free, wanted)
        if result is None:
            refused_some += 1
            assert [array.tolist() for array in overlay.state] == before
            assert overlay.checkpoint() == 0
            continue
        found_some += 1
        assert overlay.assumed_pods() == [placed.assumed for placed in result]
        left = list(free)
        for number, (gpus, pods, domains) in enumerate(wanted):
            own = [placed for placed in result if placed.pod_set == number]
            assert [placed.member for placed in own] == list(range(pods))
            at = [placed.assumed.node for placed in own]
            assert any(set(at) <= set(domain) for domain in domains)
            for node in at:
                left[node] -= gpus
        assert min(left) >= 0
    assert found_some >= 10
    assert refused_some >= 5


def a_puzzle(pods: int = 1, nodes: int = 2) -> tuple[Overlay, list[IdenticalPods]]:
    """The best node of the small pod is the only one of the large pod."""
    found = [gpu_node("n0", 2, cpu=1), *[gpu_node(f"n{i}", 3) for i in range(1, nodes)]]
    overlay = overlay_on(snapshot_of(*found, pod("s", 1, cpu="1"), pod("l", 2, cpu="1")))
    return overlay, [group(overlay, 0, "s", pods), group(overlay, 1, "l", 1, [0])]


def test_the_group_with_the_fewest_domains_goes_first() -> None:
    overlay = overlay_on(snapshot_of(*[gpu_node(f"n{i}", 2) for i in range(2)], pod("s", 1), pod("l", 2)))
    result = try_combinations(overlay, [group(overlay, 7, "s", 1, [0], [1]), group(overlay, 3, "l", 1, [0])])
    assert result is not None
    assert [(placed.pod_set, placed.assumed.node) for placed in result] == [(3, 0), (7, 1)]


def test_of_as_many_domains_the_first_pod_set_goes_first_and_takes_the_best_node() -> None:
    overlay, groups = a_puzzle()
    result = try_combinations(overlay, groups[::-1])
    assert result is not None
    assert [(placed.pod_set, placed.member, placed.assumed.node) for placed in result] == [(0, 0, 1), (1, 0, 0)]


def test_one_shape_is_no_combination() -> None:
    overlay, groups = a_puzzle()
    assert try_combinations(overlay, groups[:1]) is None
    assert overlay.checkpoint() == 0


@pytest.fixture
def _no_patterns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(combination_search, "find_patterns", lambda overlay, groups: None)


@pytest.mark.usefixtures("_no_patterns")
@pytest.mark.parametrize(("limit", "value"), [("MAX_PODS", 2), ("MAX_NODES", 2), ("MAX_TRIES", 3)])
def test_backtracking_is_bounded(limit: str, value: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(combination_search, limit, value)
    overlay, groups = a_puzzle()
    assert try_combinations(overlay, groups) is not None, "two pods, two nodes, three tries"
    monkeypatch.setattr(combination_search, limit, value - 1)
    overlay, groups = a_puzzle()
    assert try_combinations(overlay, groups) is None
    assert overlay.checkpoint() == 0


@pytest.mark.parametrize("limit", ["MAX_PODS", "MAX_NODES", "MAX_TRIES"])
def test_what_backtracking_does_not_reach_is_placed_by_patterns(limit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(combination_search, limit, 1)
    overlay, groups = a_puzzle()
    result = try_combinations(overlay, groups)
    assert result is not None
    assert {(placed.pod_set, placed.assumed.node) for placed in result} == {(0, 1), (1, 0)}
    assert overlay.assumed_pods() == [placed.assumed for placed in result]


@pytest.mark.parametrize(("limit", "value"), [("MAX_NODES", 1), ("MAX_DOMAIN_CHOICES", 0), ("MAX_TRIAL_PODS", 1)])
def test_the_search_for_patterns_is_bounded(limit: str, value: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(combination_search, "MAX_PODS", 1)
    monkeypatch.setattr(pattern_search, limit, value)
    overlay, groups = a_puzzle()
    before = [array.tolist() for array in overlay.state]
    assert try_combinations(overlay, groups) is None
    assert [array.tolist() for array in overlay.state] == before


def test_a_group_that_fits_in_no_domain_ends_the_search_at_once() -> None:
    overlay, groups = a_puzzle()
    impossible = group(overlay, 2, "l", 2, [0])
    assert try_combinations(overlay, [*groups, impossible]) is None
    exact = group(overlay, 2, "l", 1, [1])
    assert try_combinations(overlay, [groups[0], exact]) is not None


def test_every_member_is_the_pod_that_the_group_names() -> None:
    overlay = overlay_on(snapshot_of(gpu_node("n0", 4), pod("s", 1), pod("t", 1), pod("l", 2)))
    names = ("s", "t")
    twins = group(overlay, 0, "s", 2)._replace(pod_at=lambda i: pod_of(overlay, names[i]))
    result = try_combinations(overlay, [twins, group(overlay, 1, "l", 1)])
    assert result is not None
    assert [placed.assumed.pod.metadata.name for placed in result] == ["s", "t", "l"]
