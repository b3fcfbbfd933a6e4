"""Node objects as columns: labels and taints as integer codes, so that a rule is evaluated once per distinct value.

`node_table` builds them with nodes in rank order; filters, inter-pod affinity and scores read them. They are immutable:
a changed node makes new columns. A label's column is built when it is first read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from windlass.model.affinity import NAME_FIELD
from windlass.model.device import has_unknown_gpus
from windlass.model.errors import InputError
from windlass.model.node import Node, Taint
from windlass.model.notices import Notice, node_notice
from windlass.model.pod import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm
from windlass.model.taints import parse_integer

Bools = npt.NDArray[np.bool_]
Codes = npt.NDArray[np.int32]

ABSENT = -1
_Scalar = TypeVar("_Scalar", bound=np.generic)


class LabelColumn:
    """One label over all nodes: `codes[row]` is an index into `values`, or ABSENT where the node lacks it."""

    def __init__(self, by_row: Iterable[str | None]) -> None:
        code_of: dict[str, int] = {}
        codes = [ABSENT if value is None else code_of.setdefault(value, len(code_of)) for value in by_row]
        self.codes: Codes = _frozen(np.array(codes, dtype=np.int32))
        self.values: tuple[str, ...] = tuple(code_of)
        self._code_of = code_of

    @cached_property
    def present(self) -> Bools:
        return _frozen(self.codes != ABSENT)

    @cached_property
    def _numbers(self) -> tuple[Bools, npt.NDArray[np.int64]]:
        parsed = [parse_integer(value) for value in self.values]
        known = np.array([number is not None for number in parsed], dtype=np.bool_)
        return known, np.array([number or 0 for number in parsed], dtype=np.int64)

    def satisfying(self, operator: str, values: Sequence[str]) -> Bools:
        """Nodes whose label satisfies a requirement that `is_valid_requirement` accepts; callers check that."""
        # One entry more than there are values: ABSENT, being -1, picks the last.
        table = np.zeros(len(self.values) + 1, dtype=np.bool_)
        match operator:
            case "In":
                table[self._codes_of(values)] = True
            case "NotIn":
                table[:] = True
                table[self._codes_of(values)] = False
            case "Exists":
                table[:-1] = True
            case "DoesNotExist":
                table[-1] = True
            case "Gt" | "Lt":
                known, numbers = self._numbers
                bound = parse_integer(values[0])
                assert bound is not None, values
                table[:-1] = known & (numbers > bound if operator == "Gt" else numbers < bound)
        return table[self.codes]

    def _codes_of(self, values: Sequence[str]) -> list[int]:
        return [self._code_of[value] for value in values if value in self._code_of]


class NodeColumns:
    """All nodes as columns. Row numbers are positions in the sequence that it was built from."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self.objects: tuple[Node, ...] = tuple(nodes)
        self.names: tuple[str, ...] = tuple(node.name for node in self.objects)
        self.index: dict[str, int] = {name: row for row, name in enumerate(self.names)}
        self.size = len(self.objects)
        self.unschedulable: Bools = _frozen(
            np.array([node.spec.unschedulable for node in self.objects], dtype=np.bool_)
        )
        code_of: dict[tuple[Taint, ...], int] = {}
        codes = [code_of.setdefault(node.spec.taints, len(code_of)) for node in self.objects]
        self.taint_sets: tuple[tuple[Taint, ...], ...] = tuple(code_of)
        self.taint_set_codes: Codes = _frozen(np.array(codes, dtype=np.int32))
        self._columns: dict[str, LabelColumn] = {}

    @cached_property
    def gpus_unknown(self) -> Bools:
        """Nodes of which only the number of GPU replicas is known; a node that can't be read is refused elsewhere."""
        return _frozen(np.array([_has_unknown_gpus(node) for node in self.objects], dtype=np.bool_))

    @cached_property
    def notices(self) -> dict[int, Notice]:
        """The rows of nodes that are about to go."""
        found = ((row, node_notice(node)) for row, node in enumerate(self.objects))
        return {row: notice for row, notice in found if notice is not None}

    def label(self, key: str) -> LabelColumn:
        column = self._columns.get(key)
        if column is None:
            column = self._columns[key] = LabelColumn(node.labels.get(key) for node in self.objects)
        return column

    def mask_of_names(self, names: Iterable[str]) -> Bools:
        mask = np.zeros(self.size, dtype=np.bool_)
        mask[[self.index[name] for name in names if name in self.index]] = True
        return mask

    def matching_labels(self, wanted: Mapping[str, str]) -> Bools:
        """Nodes that have all of these labels (a pod's `nodeSelector`)."""
        mask = np.ones(self.size, dtype=np.bool_)
        for key, value in wanted.items():
            mask &= self.label(key).satisfying("In", (value,))
        return mask

    def matching(self, selector: NodeSelector) -> Bools:
        """Nodes that match any of the selector's terms; a selector without terms matches none."""
        mask = np.zeros(self.size, dtype=np.bool_)
        for term in selector.node_selector_terms:
            mask |= self.matching_term(term)
        return mask

    def matching_term(self, term: NodeSelectorTerm) -> Bools:
        """Nodes that satisfy every requirement of the term. As in kube-scheduler, an empty term matches no node, nor
        does one with an invalid requirement."""
        mask = np.ones(self.size, dtype=np.bool_)
        if not term.match_expressions and not term.match_fields:
            mask[:] = False
        for requirement in term.match_expressions:
            if is_valid_requirement(requirement):
                mask &= self.label(requirement.key).satisfying(requirement.operator, requirement.values)
            else:
                mask[:] = False
        for requirement in term.match_fields:
            mask &= self._matching_field(requirement)
        return mask

    def _matching_field(self, requirement: NodeSelectorRequirement) -> Bools:
        is_valid = requirement.operator in ("In", "NotIn") and len(requirement.values) == 1
        if not is_valid or requirement.key != NAME_FIELD:
            return np.zeros(self.size, dtype=np.bool_)
        mask = self.mask_of_names(requirement.values)
        return mask if requirement.operator == "In" else ~mask


def is_valid_requirement(requirement: NodeSelectorRequirement) -> bool:
    """Whether a node selector requirement has a known operator and as many values as that takes."""
    values = requirement.values
    match requirement.operator:
        case "In" | "NotIn":
            return bool(values)
        case "Exists" | "DoesNotExist":
            return not values
        case "Gt" | "Lt":
            return len(values) == 1 and parse_integer(values[0]) is not None
    return False


def _frozen(array: npt.NDArray[_Scalar]) -> npt.NDArray[_Scalar]:
    array.setflags(write=False)
    return array


def _has_unknown_gpus(node: Node) -> bool:
    try:
        return has_unknown_gpus(node)
    except InputError:
        return False
