"""Small random clusters and requests, for the properties of the topology search."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from tests.placement.topology.reference_search import PodSetSpec, Vector

from windlass.model.workload import TopologyRequest
from windlass.placement.topology import (
    DomainTree,
    MatrixCapacity,
    TopologyFailure,
    TopologyPodSetRequest,
    plan_topology,
)

Nodes = dict[str, int]
"""Node name → pods."""

MANY = max(300, settings().max_examples)
"""Examples for the properties that have found bugs: rare ones, so that the usual number misses them."""

LEVELS = ("block", "rack", "host")


@dataclass
class TopologyCase:
    levels: tuple[str, ...]
    paths: list[tuple[str, ...]]
    names: list[str]
    free: list[Vector]
    pod_sets: list[PodSetSpec]

    def plan(self, rows: Sequence[int] | None = None) -> dict[str, dict[str, int]] | TopologyFailure:
        """Node name → pods of each pod set; the nodes are offered in the order of `rows`."""
        rows = list(range(len(self.names))) if rows is None else rows
        names = [self.names[row] for row in rows]
        tree = DomainTree.build(self.levels, [self.paths[row] for row in rows], names)
        room = MatrixCapacity(
            ["a", "b"],
            np.array([self.free[row] for row in rows], dtype=np.int64).reshape(-1, 2),
            np.array([pod_set.takes for pod_set in self.pod_sets], dtype=np.int64),
        )
        asks = [TopologyPodSetRequest(pod_set.name, pod_set.count, pod_set.request) for pod_set in self.pod_sets]
        answer = plan_topology(tree, asks, room, "test")
        if isinstance(answer, TopologyFailure):
            return answer
        return {placement.name: placement.by_node(names) for placement in answer.placements}

    def domain(self, node: str, depth: int) -> tuple[str, ...]:
        """Of a depth below the levels: the node itself."""
        path = self.paths[self.names.index(node)]
        return path[: depth + 1] if depth < len(self.levels) else (*path, node)

    @property
    def depths(self) -> int:
        return len(self.levels) + (len(set(self.paths)) < len(self.paths))


@st.composite
def paths(draw: st.DrawFn, most: int) -> tuple[tuple[str, ...], list[tuple[str, ...]], list[str]]:
    """Levels, and the place of every node; the lowest level may or may not be the node."""
    levels = LEVELS[draw(st.integers(0, 2)) :]
    if draw(st.booleans()) and len(levels) > 1:
        levels = levels[:-1]
    places = draw(
        st.lists(
            st.tuples(st.sampled_from("AB"), st.sampled_from("xyz"), st.integers(0, 99)),
            min_size=1,
            max_size=most,
            unique=True,
        )
    )
    full = [
        {"block": block, "rack": f"{block}{rack}", "host": f"h{host:02}{rack}{block}"} for block, rack, host in places
    ]
    return (
        levels,
        [tuple(place[level] for level in levels) for place in full],
        [place["host"] for place in full],
    )


@st.composite
def requests(draw: st.DrawFn, levels: Sequence[str], count: int) -> TopologyRequest | None:
    mode = draw(st.sampled_from(["required", "preferred", "unconstrained", "none"]))
    if mode == "none":
        return None
    level = draw(st.integers(0, len(levels) - 1)) if mode != "unconstrained" else 0
    request = TopologyRequest(mode, levels[level] if mode != "unconstrained" else "")
    sizes = [size for size in range(2, count + 1) if count % size == 0]
    if not sizes or draw(st.booleans()):
        return request
    at = draw(st.integers(level, len(levels) - 1))
    size = draw(st.sampled_from(sizes))
    inner: tuple[tuple[str, int], ...] = ()
    if at + 1 < len(levels) and draw(st.booleans()):
        part = draw(st.sampled_from([part for part in range(1, size + 1) if size % part == 0]))
        inner = ((levels[draw(st.integers(at + 1, len(levels) - 1))], part),)
    return TopologyRequest(mode, request.level, levels[at], size, inner)


@st.composite
def cases(draw: st.DrawFn, most_nodes: int = 12, most_pods: int = 12, most_sets: int = 3) -> TopologyCase:
    levels, places, names = draw(paths(most_nodes))
    free = [draw(st.tuples(st.integers(-1, 6), st.integers(0, 6))) for _ in names]
    pod_sets: list[PodSetSpec] = []
    for number in range(draw(st.integers(1, most_sets))):
        count = draw(st.integers(1, most_pods))
        takes = draw(st.tuples(st.integers(0, 2), st.integers(1, 2)))
        request = draw(requests(levels, count))
        leads = draw(st.booleans()) and request is not None
        if leads and request is not None:
            request = TopologyRequest(
                request.mode,
                request.level,
                request.slice_level,
                request.slice_size,
                request.inner_slices,
                f"g{number}",
            )
            leader = PodSetSpec(f"leader{number}", 1, draw(st.tuples(st.integers(0, 3), st.integers(0, 3))), request)
            pod_sets.append(leader)
        workers = PodSetSpec(f"set{number}", count, takes, request)
        # Of two sets of one pod the first are the workers.
        pod_sets.insert(len(pod_sets) - (leads and count == 1), workers)
    return TopologyCase(levels, places, names, free, pod_sets)


@st.composite
def flat_cases(draw: st.DrawFn) -> TopologyCase:
    """Nodes and nothing above them; a leader that costs each node another number of workers."""
    free = draw(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=2, max_size=8))
    names = [f"h{number}" for number in range(len(free))]
    request = TopologyRequest("preferred", "host", group="g")
    leader = PodSetSpec("leader0", 1, draw(st.tuples(st.integers(0, 5), st.integers(0, 5))), request)
    workers = PodSetSpec(
        "set0", draw(st.integers(2, 40)), draw(st.tuples(st.integers(0, 2), st.integers(1, 2))), request
    )
    return TopologyCase(("host",), [(name,) for name in names], names, list(free), [leader, workers])


def keeps(case: TopologyCase, request: TopologyRequest | None, workers: Nodes, leader: Nodes) -> bool:
    """The constraints of a request, read off a placement."""
    if request is None:
        return True
    if request.mode == "required":
        depth = case.levels.index(request.level)
        if len({case.domain(node, depth) for node in (*workers, *leader)}) > 1:
            return False
    slices = [(request.slice_level, request.slice_size), *request.inner_slices] if request.slice_level else []
    return all(
        pods % size == 0
        for level, size in slices
        for pods in per_domain(case, workers, case.levels.index(level)).values()
    )


def per_domain(case: TopologyCase, nodes: Nodes, depth: int) -> Counter[tuple[str, ...]]:
    pods: Counter[tuple[str, ...]] = Counter()
    for node, count in nodes.items():
        pods[case.domain(node, depth)] += count
    return pods
