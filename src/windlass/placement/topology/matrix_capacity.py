"""`NodeCapacity` as a matrix: what each node has free of each resource, and what one pod of each set requests.

`timeplan.pod_set_fitter` makes one from a forecast. Where devices matter (GPU shares, MIG), the caller limits the
result of the division with `caps`, or implements `NodeCapacity` itself, as `placement.gang` does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from windlass.placement.topology.types import Bools, Ints

UNLIMITED = (1 << 31) - 1
"""Pods that a node takes of a set that requests nothing."""


class MatrixCapacity:
    """As many pods fit on a node as the scarcest resource allows: the minimum of floor(free / request)."""

    def __init__(
        self,
        resources: Sequence[str],
        free: Ints,
        requests: Ints,
        caps: Sequence[Ints | None] | None = None,
        excluded: Sequence[Mapping[str, int]] | None = None,
    ) -> None:
        """`free` is nodes × resources, `requests` is pod sets × resources, both in base units.

        `caps[i]` limits the pods of set i on each node, 0 where it may not go; `excluded[i]` counts those nodes by the
        caller's reasons.
        """
        self._resources = tuple(resources)
        # Copied: `reserve` writes, and the matrix belongs to the caller.
        self._free = np.array(free, dtype=np.int64)
        self._requests = np.asarray(requests, dtype=np.int64)
        self._caps: list[Ints | None] = [
            None if cap is None else np.array(cap, dtype=np.int64) for cap in caps or [None] * len(requests)
        ]
        self._excluded = list(excluded or [{}] * len(requests))

    def pods_per_node(self, request: int) -> Ints:
        return self._count(request, self._free)

    def pods_beside_leader(self, request: int, leader: int) -> tuple[Bools, Ints]:
        takes_leader = self._count(leader, self._free) > 0
        left = self._free - np.outer(takes_leader, self._requests[leader])
        return takes_leader, self._count(request, left)

    def reserve(self, request: int, rows: Ints, pods: Ints) -> None:
        self._free[rows] -= np.outer(pods, self._requests[request])
        cap = self._caps[request]
        if cap is not None:
            cap[rows] -= pods

    def excluded_nodes(self, request: int) -> Mapping[str, int]:
        counts = dict(self._excluded[request])
        cap = self._caps[request]
        allowed = np.ones(len(self._free), dtype=np.bool_) if cap is None else cap > 0
        # As Kueue does, a node that lacks several resources is counted for the first of them by name.
        requested = np.flatnonzero(self._requests[request] > 0)
        for column in sorted(requested, key=lambda column: self._resources[column]):
            lacking = allowed & (self._free[:, column] < self._requests[request, column])
            if lacking.any():
                counts[f'resource "{self._resources[column]}"'] = int(lacking.sum())
                allowed &= ~lacking
        return counts

    def _count(self, request: int, free: Ints) -> Ints:
        cap = self._caps[request]
        count: Ints = np.full(len(free), UNLIMITED, dtype=np.int64) if cap is None else np.minimum(cap, UNLIMITED)
        for column in np.flatnonzero(self._requests[request]):
            np.minimum(count, free[:, column] // self._requests[request, column], out=count)
        return np.maximum(count, 0, out=count)
