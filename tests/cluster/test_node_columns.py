"""Node columns: codes, and node selectors evaluated on them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reference.builders import make_node, need, node_term, taint
from reference.matching import node_selector_matches
from reference.strategies import node_selectors, nodes
from windlass.cluster.node_columns import ABSENT, NodeColumns
from windlass.model.affinity import matches_node_selector
from windlass.model.pod import NodeSelector

NODES = [
    make_node("a", gpus="8", gpu="h100"),
    make_node("b", gpus="4", gpu="a100"),
    make_node("c", gpus="many"),
    make_node("d"),
]


def matching(*terms):
    facts = NodeColumns(NODES)
    mask = facts.matching(NodeSelector(node_selector_terms=terms))
    return "".join(name for name, hit in zip(facts.names, mask, strict=True) if hit)


def test_rows_are_in_the_order_given_and_names_lead_back_to_them():
    facts = NodeColumns(NODES)
    assert facts.size == 4
    assert facts.names == ("a", "b", "c", "d")
    assert facts.index["c"] == 2


def test_a_label_column_has_a_code_per_value_and_marks_absence():
    column = NodeColumns([*NODES, make_node("e", gpu="h100")]).label("gpu")
    assert column.values == ("h100", "a100")
    assert column.codes.tolist() == [0, 1, ABSENT, ABSENT, 0]
    assert column.present.tolist() == [True, True, False, False, True]


def test_nodes_with_equal_taints_share_a_code():
    facts = NodeColumns([make_node("a", taints=[taint("x")]), make_node("b"), make_node("c", taints=[taint("x")])])
    assert facts.taint_set_codes.tolist() == [0, 1, 0]
    assert facts.taint_sets == ((taint("x"),), ())


@pytest.mark.parametrize(
    ("requirement", "expected"),
    [
        (need("gpu", "In", "h100", "t4"), "a"),
        (need("gpu", "NotIn", "h100"), "bcd"),
        (need("gpu", "Exists"), "ab"),
        (need("gpu", "DoesNotExist"), "cd"),
        (need("gpus", "Gt", "4"), "a"),
        (need("gpus", "Lt", "5"), "b"),
        (need("unheard-of", "NotIn", "x"), "abcd"),
        (need("unheard-of", "In", "x"), ""),
    ],
)
def test_operators(requirement, expected):
    assert matching(node_term(requirement)) == expected


@pytest.mark.parametrize(
    "requirement",
    [
        need("gpu", "In"),
        need("gpu", "NotIn"),
        need("gpu", "Exists", "h100"),
        need("gpus", "Gt", "four"),
        need("gpus", "Lt", "4", "5"),
        need("gpu", "Resembles", "h100"),
    ],
)
def test_a_requirement_that_makes_no_sense_matches_nothing(requirement):
    assert matching(node_term(requirement)) == ""
    assert matching(node_term(requirement), node_term(need("gpu", "Exists"))) == "ab"


def test_match_fields_select_by_node_name():
    assert matching(node_term(fields=(need("metadata.name", "In", "b"),))) == "b"
    assert matching(node_term(fields=(need("metadata.name", "NotIn", "b"),))) == "acd"
    assert matching(node_term(need("gpu", "Exists"), fields=(need("metadata.name", "NotIn", "b"),))) == "a"
    assert matching(node_term(fields=(need("metadata.uid", "In", "b"),))) == ""


def test_an_empty_term_and_no_terms_match_nothing():
    assert matching() == ""
    assert matching(node_term()) == ""


def test_columns_can_not_be_written_to():
    facts = NodeColumns(NODES)
    for array in (facts.label("gpu").codes, facts.unschedulable, facts.taint_set_codes):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0


@given(found=st.tuples(*(nodes(index) for index in range(4))), selector=node_selectors)
def test_matching_all_nodes_at_once_equals_matching_them_one_by_one(found, selector):
    mask = NodeColumns(found).matching(selector).tolist()
    assert mask == [node_selector_matches(selector, node) for node in found]
    assert mask == [matches_node_selector(selector, node.labels, node.name) for node in found]
