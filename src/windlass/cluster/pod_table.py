"""One row a pod: where it is, of which shape, in which order it came.

Written by the store alone. Rows are only ever appended. What can change of a row (`marks`, `grants`) is copied before
a write where a snapshot shares it; what can't (`traits`) needs no copy, so a snapshot never sees a later change.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from windlass.cluster.node_state import Ints
from windlass.model.decision import DeviceGrant
from windlass.model.pod import Pod
from windlass.model.times import parse_timestamp

PENDING = -1
UNKNOWN_NODE = -2
"""Bound to a node that is not known (any more)."""
UNREADABLE = -1

_NODE, _ALIVE, _DECIDED = range(3)
_SHAPE, _PLAIN, _PRIORITY, _CREATED = range(4)
_COMPACT_ABOVE = 1024
_WAITING: Ints = np.array([PENDING, 1, 0], dtype=np.int64)
"""The marks of a row that comes in waiting: an array, since rows are written quicker from one."""


class PodTraits(NamedTuple):
    """What a row is born with, beside its age."""

    shape: int
    """Shape number, or UNREADABLE."""
    node_local: int
    """1 if only a node's own state decides where the pod can go."""
    priority: int


class PreviousBinding(NamedTuple):
    """What was known of a bound pod before it changed."""

    node: str
    shape: int
    grants: tuple[DeviceGrant, ...]
    guessed: bool = False


NO_PREVIOUS_BINDING = PreviousBinding("", UNREADABLE, ())


def with_node_name(pod: Pod, node: str) -> Pod:
    """The pod as it is once it is bound."""
    return msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, node_name=node))


class PodRows(NamedTuple):
    """The table at one moment, as a snapshot holds it. List entries past the end of the arrays came later."""

    objects: Sequence[Pod]
    keys: Sequence[str]
    """`namespace/name` of each: quicker to read than to put together."""
    grants: Sequence[tuple[DeviceGrant, ...]]
    marks: Ints
    traits: Ints

    @property
    def node(self) -> Ints:
        """Node row, PENDING or ELSEWHERE."""
        return self.marks[:, _NODE]

    @property
    def alive(self) -> Ints:
        return self.marks[:, _ALIVE]

    @property
    def decided(self) -> Ints:
        """1 once a decision has been made on it: from then on it counts as seen."""
        return self.marks[:, _DECIDED]

    @property
    def shape(self) -> Ints:
        return self.traits[:, _SHAPE]

    @property
    def node_local(self) -> Ints:
        return self.traits[:, _PLAIN]

    @property
    def priority(self) -> Ints:
        return self.traits[:, _PRIORITY]

    @property
    def created(self) -> Ints:
        return self.traits[:, _CREATED]

    def pending(self) -> Ints:
        """Rows that wait, in the order in which they came."""
        return np.flatnonzero((self.node == PENDING) & (self.alive == 1))


class PodTable:
    """The store's own, growing table."""

    def __init__(self) -> None:
        self.row_of: dict[str, int] = {}
        self._objects: list[Pod] = []
        self._keys: list[str] = []
        self._grants: list[tuple[DeviceGrant, ...]] = []
        self._marks: Ints = np.zeros((64, 3), dtype=np.int64)
        self._traits: Ints = np.zeros((64, len(PodTraits._fields) + 1), dtype=np.int64)
        self._shared = self._grants_shared = self._objects_shared = False

    @property
    def rows(self) -> PodRows:
        """The table as it is, writable."""
        count = len(self._objects)
        return PodRows(self._objects, self._keys, self._grants, self._marks[:count], self._traits[:count])

    def snapshot(self) -> PodRows:
        """The table at this moment, frozen: later writes here go to a copy."""
        view = self.rows
        view.marks.setflags(write=False)
        view.traits.setflags(write=False)
        self._shared = self._grants_shared = self._objects_shared = True
        return view

    def object(self, row: int) -> Pod:
        return self._objects[row]

    def grants(self, row: int) -> tuple[DeviceGrant, ...]:
        return self._grants[row]

    def node(self, row: int) -> int:
        return int(self._marks[row, _NODE])

    def shape(self, row: int) -> int:
        return int(self._traits[row, _SHAPE])

    def append(
        self, key: str, pod: Pod, traits: PodTraits, node: int, grants: tuple[DeviceGrant, ...]
    ) -> int:
        row = len(self._objects)
        if row == len(self._marks):
            self._grow()
        self._own()
        self._objects.append(pod)
        self._keys.append(key)
        self._grants.append(grants)
        self.row_of[key] = row
        self._marks[row] = _WAITING if node == PENDING else (node, 1, 0)
        self._traits[row] = (*traits, parse_timestamp(pod.metadata.creation_timestamp))
        return row

    def bind(self, row: int, node: int, grants: tuple[DeviceGrant, ...]) -> None:
        self._own()
        self._marks[row, _NODE] = node
        self._own_grants()
        self._grants[row] = grants

    def bind_many(
        self, rows: Sequence[int], nodes: Sequence[int], grants: Sequence[tuple[DeviceGrant, ...]]
    ) -> None:
        """As `bind`, for rows that are all different."""
        self._own()
        self._marks[rows, _NODE] = nodes
        self._own_grants()
        for row, granted in zip(rows, grants, strict=True):
            self._grants[row] = granted

    def replace(self, row: int, pod: Pod) -> None:
        """The same pod, changed in nothing that its row was born with."""
        if self._objects_shared:
            self._objects = list(self._objects)
            self._objects_shared = False
        self._objects[row] = pod

    def shapes_of(self, rows: Sequence[int]) -> list[int]:
        found: list[int] = self._traits[rows, _SHAPE].tolist()
        return found

    def _own_grants(self) -> None:
        if self._grants_shared:
            self._grants = list(self._grants)
            self._grants_shared = False

    def remove(self, key: str) -> None:
        self._own()
        self._marks[self.row_of.pop(key), _ALIVE] = 0
        dead = len(self._objects) - len(self.row_of)
        if dead > len(self.row_of) + _COMPACT_ABOVE:
            self._compact()

    def mark_decided(self, rows: Ints) -> Ints:
        """Mark the rows; returns those that were not marked before."""
        fresh: Ints = rows[self._marks[rows, _DECIDED] == 0]
        if len(fresh):
            self._own()
            self._marks[fresh, _DECIDED] = 1
        return fresh

    def _own(self) -> None:
        if self._shared:
            self._marks = self._marks.copy()
            self._shared = False

    def _grow(self) -> None:
        self._marks = np.concatenate([self._marks, np.zeros_like(self._marks)])
        self._traits = np.concatenate([self._traits, np.zeros_like(self._traits)])
        self._shared = False

    def _compact(self) -> None:
        """Drop dead rows, in new lists and arrays; the order of the rest stays."""
        rows = np.flatnonzero(self._marks[: len(self._objects), _ALIVE])
        self._keys = [self._keys[row] for row in rows]
        self.row_of = {key: i for i, key in enumerate(self._keys)}
        self._objects = [self._objects[row] for row in rows]
        self._grants = [self._grants[row] for row in rows]
        spare = np.zeros((max(64, len(rows)), 1), dtype=np.int64)
        self._marks = np.concatenate(
            [self._marks[rows], np.broadcast_to(spare, (len(spare), self._marks.shape[1]))]
        )
        self._traits = np.concatenate(
            [self._traits[rows], np.broadcast_to(spare, (len(spare), self._traits.shape[1]))]
        )
        self._shared = self._grants_shared = self._objects_shared = False
