"""Whatever is done to an object of the queue and workload kinds, it is read or refused by name, and never crashes."""

from __future__ import annotations

import copy
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.model.kueue_samples import ADMITTED, QUEUE_OBJECTS, WORKLOAD
from tests.model.owner_samples import GROUPS, OWNERS, RULES
from tests.model.trees import places

from windlass.cluster.workloads import group_workloads, grouping_inputs
from windlass.model.codec import decode_object, encode_object
from windlass.model.errors import InputError

EXAMPLES: tuple[dict[str, Any], ...] = (*QUEUE_OBJECTS, WORKLOAD, ADMITTED, *OWNERS, *GROUPS, *RULES)
JUNK = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.sampled_from([10**30, -1, 0, 2**63, 1.5, "-1", "1e99", "0.5", "500%", "90x", "Any", "12Gi", "[1]", "{"]),
    st.text(max_size=6),
    st.lists(st.one_of(st.none(), st.integers(), st.text(max_size=3)), max_size=2),
    st.dictionaries(st.text(max_size=6), st.one_of(st.none(), st.integers()), max_size=2),
)


@st.composite
def mutated(draw: st.DrawFn) -> dict[str, Any]:
    """An example in which up to three things were replaced or removed."""
    tree = copy.deepcopy(draw(st.sampled_from(EXAMPLES)))
    for _ in range(draw(st.integers(1, 3))):
        spots = [spot for spot in places(tree) if spot[0] not in ("kind", "apiVersion")]
        if not spots:
            break
        *way, last = draw(st.sampled_from(spots))
        parent: Any = tree
        for step in way:
            parent = parent[step]
        if draw(st.booleans()):
            parent[last] = draw(JUNK)
        else:
            del parent[last]
    return tree


@pytest.mark.parametrize("tree", EXAMPLES, ids=lambda tree: tree["kind"])
def test_examples_go_in_and_out_unchanged(tree: dict[str, Any]) -> None:
    thing = decode_object(tree)
    assert decode_object(encode_object(thing)) == thing
    assert decode_object(msgspec.json.encode(tree)) == thing


def read_or_refused(tree: dict[str, Any]) -> object:
    try:
        return decode_object(tree)
    except InputError as error:
        return error


@given(mutated())
@settings(max_examples=400)
def test_mutated_objects_are_read_or_refused_by_name(tree: dict[str, Any]) -> None:
    thing = read_or_refused(tree)
    if isinstance(thing, InputError):
        assert thing.path
        assert thing.object.startswith(tree["kind"])
        return
    # What was accepted can be worked with: nothing later has anything to refuse.
    for workload in group_workloads(grouping_inputs([thing, *SYSTEM], now=10)).workloads:
        assert workload.pod_sets


SYSTEM = [decode_object(tree) for tree in QUEUE_OBJECTS]
