"""One row per pod: its node, shape, priority and age, in the order in which pods came.

Only the store writes it; rows are only appended. The parts of a row that can change (`marks`, `grants`) are copied
before a write while a snapshot shares them; `traits` never change. So a snapshot never sees a later change.
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
"""Bound to a node that the store doesn't have (any more)."""
UNREADABLE = -1

_NODE, _ALIVE, _DECIDED = range(3)
_SHAPE, _NODE_LOCAL, _PRIORITY, _CREATED = range(4)
_COMPACT_ABOVE = 1024
_PENDING_MARKS: Ints = np.array([PENDING, 1, 0], dtype=np.int64)
"""Marks of a new pending row: an array, since assigning one is faster than assigning a tuple."""


class PodTraits(NamedTuple):
    """The parts of a row that never change, except its creation time."""

    shape: int
    """Shape number, or UNREADABLE."""
    node_local: int
    """1 if only a node's own state decides whether the pod can go there."""
    priority: int


class PreviousBinding(NamedTuple):
    """The binding of a pod before it changed."""

    node: str
    shape: int
    grants: tuple[DeviceGrant, ...]
    guessed: bool = False


NO_PREVIOUS_BINDING = PreviousBinding("", UNREADABLE, ())


def with_node_name(pod: Pod, node: str) -> Pod:
    """The pod, bound to the node."""
    return msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, node_name=node))


class PodRows(NamedTuple):
    """The table at one moment, as a snapshot holds it. Entries of the lists past the end of the arrays came later."""

    objects: Sequence[Pod]
    keys: Sequence[str]
    """`namespace/name` of each pod, kept since joining them takes time."""
    grants: Sequence[tuple[DeviceGrant, ...]]
    marks: Ints
    traits: Ints

    @property
    def node(self) -> Ints:
        """Node row, PENDING or UNKNOWN_NODE."""
        return self.marks[:, _NODE]

    @property
    def alive(self) -> Ints:
        return self.marks[:, _ALIVE]

    @property
    def decided(self) -> Ints:
        """1 once a decision has been made on the pod (`Store.mark_decided`)."""
        return self.marks[:, _DECIDED]

    @property
    def shape(self) -> Ints:
        return self.traits[:, _SHAPE]

    @property
    def node_local(self) -> Ints:
        return self.traits[:, _NODE_LOCAL]

    @property
    def priority(self) -> Ints:
        return self.traits[:, _PRIORITY]

    @property
    def created(self) -> Ints:
        return self.traits[:, _CREATED]

    def pending(self) -> Ints:
        """Rows of pending pods, in the order in which they came."""
        return np.flatnonzero((self.node == PENDING) & (self.alive == 1))

    def without(self, gone: Sequence[int], unreadable: Sequence[int]) -> PodRows:
        """A copy in which the rows `gone` don't exist, and those of `unreadable` are pods that can't be read."""
        marks, traits, objects = self.marks.copy(), self.traits.copy(), list(self.objects[: len(self.marks)])
        marks[gone, _ALIVE] = 0
        traits[unreadable, _SHAPE] = UNREADABLE
        for row in unreadable:
            spec = msgspec.structs.replace(objects[row].spec, affinity=None)
            objects[row] = msgspec.structs.replace(objects[row], spec=spec)
        return self._replace(objects=objects, marks=marks, traits=traits)


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
        """The current table, writable."""
        count = len(self._objects)
        return PodRows(self._objects, self._keys, self._grants, self._marks[:count], self._traits[:count])

    def snapshot(self) -> PodRows:
        """The table at this moment, frozen: later writes here go to a copy."""
        rows = self.rows
        rows.marks.setflags(write=False)
        rows.traits.setflags(write=False)
        self._shared = self._grants_shared = self._objects_shared = True
        return rows

    def object(self, row: int) -> Pod:
        return self._objects[row]

    def grants(self, row: int) -> tuple[DeviceGrant, ...]:
        return self._grants[row]

    def node(self, row: int) -> int:
        return int(self._marks[row, _NODE])

    def shape(self, row: int) -> int:
        return int(self._traits[row, _SHAPE])

    def append(self, key: str, pod: Pod, traits: PodTraits, node: int, grants: tuple[DeviceGrant, ...]) -> int:
        row = len(self._objects)
        if row == len(self._marks):
            self._grow()
        self._own_marks()
        self._objects.append(pod)
        self._keys.append(key)
        self._grants.append(grants)
        self.row_of[key] = row
        self._marks[row] = _PENDING_MARKS if node == PENDING else (node, 1, 0)
        self._traits[row] = (*traits, parse_timestamp(pod.metadata.creation_timestamp))
        return row

    def bind(self, row: int, node: int, grants: tuple[DeviceGrant, ...]) -> None:
        self._own_marks()
        self._marks[row, _NODE] = node
        self._own_grants()
        self._grants[row] = grants

    def bind_many(self, rows: Sequence[int], nodes: Sequence[int], grants: Sequence[tuple[DeviceGrant, ...]]) -> None:
        """As `bind`, for rows that are all different."""
        self._own_marks()
        self._marks[rows, _NODE] = nodes
        self._own_grants()
        for row, granted in zip(rows, grants, strict=True):
            self._grants[row] = granted

    def replace(self, row: int, pod: Pod) -> None:
        """Replaces the pod object; its traits have to be the same."""
        if self._objects_shared:
            self._objects = list(self._objects)
            self._objects_shared = False
        self._objects[row] = pod

    def shapes_of(self, rows: Sequence[int]) -> list[int]:
        shapes: list[int] = self._traits[rows, _SHAPE].tolist()
        return shapes

    def shapes_in_use(self) -> Ints:
        """Numbers of the shapes of all pods, in order."""
        alive = self._marks[: len(self._objects), _ALIVE] == 1
        numbers: Ints = np.unique(self._traits[: len(self._objects), _SHAPE][alive])
        readable: Ints = numbers[numbers != UNREADABLE]
        return readable

    def renumber_shapes(self, number_of: Ints) -> None:
        """`number_of`: by old number, the new one; UNREADABLE for shapes that no pod has."""
        self._traits = self._traits.copy()
        shapes = self._traits[: len(self._objects), _SHAPE]
        shapes[:] = np.where(shapes == UNREADABLE, UNREADABLE, number_of[shapes])

    def _own_grants(self) -> None:
        if self._grants_shared:
            self._grants = list(self._grants)
            self._grants_shared = False

    def remove(self, key: str) -> None:
        self._own_marks()
        self._marks[self.row_of.pop(key), _ALIVE] = 0
        dead = len(self._objects) - len(self.row_of)
        if dead > len(self.row_of) + _COMPACT_ABOVE:
            self._compact()

    def mark_decided(self, rows: Ints) -> Ints:
        """Marks the rows; returns those that were not marked before."""
        unmarked: Ints = rows[self._marks[rows, _DECIDED] == 0]
        if len(unmarked):
            self._own_marks()
            self._marks[unmarked, _DECIDED] = 1
        return unmarked

    def _own_marks(self) -> None:
        if self._shared:
            self._marks = self._marks.copy()
            self._shared = False

    def _grow(self) -> None:
        self._marks = np.concatenate([self._marks, np.zeros_like(self._marks)])
        self._traits = np.concatenate([self._traits, np.zeros_like(self._traits)])
        self._shared = False

    def _compact(self) -> None:
        """Drops the rows of removed pods, in new lists and arrays; the others keep their order."""
        rows = np.flatnonzero(self._marks[: len(self._objects), _ALIVE])
        self._keys = [self._keys[row] for row in rows]
        self.row_of = {key: index for index, key in enumerate(self._keys)}
        self._objects = [self._objects[row] for row in rows]
        self._grants = [self._grants[row] for row in rows]
        unused = np.zeros((max(64, len(rows)), 1), dtype=np.int64)
        self._marks = np.concatenate([self._marks[rows], np.broadcast_to(unused, (len(unused), self._marks.shape[1]))])
        self._traits = np.concatenate(
            [self._traits[rows], np.broadcast_to(unused, (len(unused), self._traits.shape[1]))]
        )
        self._shared = self._grants_shared = self._objects_shared = False
