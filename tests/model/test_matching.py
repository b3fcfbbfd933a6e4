"""Label selectors, tolerations and node selector terms, with kube-scheduler's meaning."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.model.affinity import (
    check_node_affinity,
    matches_node_selector,
    matches_node_term,
    matches_required_node_affinity,
)
from windlass.model.errors import InputError
from windlass.model.labels import check_selector, matches_selector
from windlass.model.meta import LabelSelector, LabelSelectorRequirement
from windlass.model.node import Taint
from windlass.model.pod import (
    Affinity,
    NodeAffinity,
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    Pod,
    PodSpec,
    PreferredSchedulingTerm,
    Toleration,
)
from windlass.model.taints import (
    check_taints,
    check_tolerations,
    find_untolerated_taint,
    parse_integer,
    tolerates,
)


def wants(operator: str, *values: str, key: str = "k") -> LabelSelector:
    return LabelSelector(match_expressions=(LabelSelectorRequirement(key=key, operator=operator, values=values),))


def term(operator: str, *values: str, key: str = "k") -> NodeSelectorTerm:
    return NodeSelectorTerm(match_expressions=(NodeSelectorRequirement(key=key, operator=operator, values=values),))


def by_name(operator: str, *values: str) -> NodeSelectorTerm:
    field = NodeSelectorRequirement(key="metadata.name", operator=operator, values=values)
    return NodeSelectorTerm(match_fields=(field,))


OPERATOR_CASES = [
    ("In", ("a", "b"), {"k": "a"}, True),
    ("In", ("a",), {"k": "c"}, False),
    ("In", ("a",), {}, False),
    ("NotIn", ("a",), {"k": "a"}, False),
    ("NotIn", ("a",), {"k": "c"}, True),
    ("NotIn", ("a",), {}, True),
    ("Exists", (), {"k": ""}, True),
    ("Exists", (), {"x": ""}, False),
    ("DoesNotExist", (), {"k": ""}, False),
    ("DoesNotExist", (), {}, True),
]


@pytest.mark.parametrize(("operator", "values", "labels", "expected"), OPERATOR_CASES)
def test_operators_mean_the_same_for_pods_and_nodes(
    operator: str, values: tuple[str, ...], labels: dict[str, str], expected: bool
) -> None:
    assert matches_selector(wants(operator, *values), labels) is expected
    assert matches_node_term(term(operator, *values), labels, "n") is expected


def test_no_selector_matches_nothing_and_an_empty_one_everything() -> None:
    assert not matches_selector(None, {"k": "a"})
    assert matches_selector(LabelSelector(), {})


def test_all_parts_of_a_selector_must_match() -> None:
    both = LabelSelector(match_labels={"x": "1"}, match_expressions=wants("Exists").match_expressions)
    assert matches_selector(both, {"x": "1", "k": ""})
    assert not matches_selector(both, {"x": "2", "k": ""})
    assert not matches_selector(both, {"x": "1"})


@pytest.mark.parametrize(
    ("operator", "bound", "label", "expected"),
    [
        ("Gt", "4", "5", True),
        ("Gt", "5", "5", False),
        ("Lt", "5", "4", True),
        ("Lt", "4", "4", False),
        ("Gt", "10", "9", False),
        ("Lt", "-1", "-2", True),
        ("Gt", "4", "5.0", False),
        ("Gt", "4", "many", False),
        ("Gt", "x", "5", False),
        ("Gt", "4", "99999999999999999999", False),
    ],
)
def test_comparisons_need_integers(operator: str, bound: str, label: str, expected: bool) -> None:
    assert matches_node_term(term(operator, bound), {"k": label}, "n") is expected
    assert not matches_node_term(term(operator, bound), {}, "n")


def test_fields_match_the_nodes_name() -> None:
    assert matches_node_term(by_name("In", "n"), {}, "n")
    assert not matches_node_term(by_name("In", "n"), {}, "m")
    assert matches_node_term(by_name("NotIn", "n"), {}, "m")


def test_terms_are_alternatives_and_empty_ones_match_nothing() -> None:
    assert not matches_node_term(NodeSelectorTerm(), {"k": "a"}, "n")
    assert not matches_node_selector(NodeSelector(), {"k": "a"}, "n")
    either = NodeSelector(node_selector_terms=(NodeSelectorTerm(), term("In", "z"), by_name("In", "n")))
    assert matches_node_selector(either, {"k": "a"}, "n")
    assert not matches_node_selector(either, {"k": "a"}, "m")


def test_a_pod_needs_both_its_selector_and_its_affinity() -> None:
    required = NodeSelector(node_selector_terms=(term("In", "a"),))
    affinity = Affinity(node_affinity=NodeAffinity(required_during_scheduling_ignored_during_execution=required))
    pod = Pod(spec=PodSpec(node_selector={"x": "1"}, affinity=affinity))
    assert matches_required_node_affinity(pod, {"k": "a", "x": "1"}, "n")
    assert not matches_required_node_affinity(pod, {"k": "a"}, "n")
    assert not matches_required_node_affinity(pod, {"x": "1"}, "n")
    assert matches_required_node_affinity(Pod(), {}, "n")


TAINT = Taint(key="gpu", value="yes", effect="NoSchedule")


@pytest.mark.parametrize(
    ("toleration", "expected"),
    [
        (Toleration(key="gpu", value="yes", effect="NoSchedule"), True),
        (Toleration(key="gpu", operator="Equal", value="yes"), True),
        (Toleration(key="gpu", value="no"), False),
        (Toleration(key="gpu"), False),
        (Toleration(key="gpu", operator="Exists"), True),
        (Toleration(operator="Exists"), True),
        (Toleration(operator="Exists", effect="NoExecute"), False),
        (Toleration(key="other", operator="Exists"), False),
    ],
)
def test_tolerations(toleration: Toleration, expected: bool) -> None:
    assert tolerates((Toleration(key="z", operator="Exists"), toleration), TAINT) is expected


@given(st.integers(-100, 100), st.integers(-100, 100))
def test_numeric_tolerations_compare_the_taint_with_the_bound(value: int, bound: int) -> None:
    taint = Taint(key="sla", value=str(value), effect="NoExecute")
    assert tolerates((Toleration(key="sla", operator="Gt", value=str(bound)),), taint) is (value > bound)
    assert tolerates((Toleration(key="sla", operator="Lt", value=str(bound)),), taint) is (value < bound)


def test_a_taint_that_is_no_number_is_not_covered_by_a_comparison() -> None:
    assert not tolerates((Toleration(key="gpu", operator="Gt", value="1"),), TAINT)


def test_the_first_untolerated_taint_of_the_effects_asked_for() -> None:
    soft = Taint(key="soft", effect="PreferNoSchedule")
    hard = Taint(key="hard", effect="NoExecute")
    assert find_untolerated_taint((soft, hard), ()) is hard
    assert find_untolerated_taint((soft, hard), (), ("PreferNoSchedule",)) is soft
    assert find_untolerated_taint((soft, hard), (Toleration(key="hard", operator="Exists"),)) is None


@given(st.text(alphabet="+-0123456789_ x", max_size=22))
def test_integers_are_read_as_go_reads_them(text: str) -> None:
    digits = text[1:] if text[:1] in ("+", "-") else text
    sound = digits != "" and all(character in "0123456789" for character in digits) and len(digits) <= 19
    number = int(text) if sound else None
    expected = number if number is not None and -(2**63) <= number < 2**63 else None
    assert parse_integer(text) == expected


@pytest.mark.parametrize(
    ("selector", "path"),
    [
        (wants("Is", "a"), "s.matchExpressions[0].operator"),
        (wants("In"), "s.matchExpressions[0].values"),
        (wants("Exists", "a"), "s.matchExpressions[0].values"),
    ],
)
def test_broken_selectors_are_named(selector: LabelSelector, path: str) -> None:
    with pytest.raises(InputError) as caught:
        check_selector(selector, "s")
    assert caught.value.path == path
    assert caught.value.remedy


REQUIRED = "a.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms"


@pytest.mark.parametrize(
    ("terms", "path"),
    [
        ((), REQUIRED),
        ((term("Near", "a"),), f"{REQUIRED}[0].matchExpressions[0].operator"),
        ((term("Exists"), term("Gt", "x")), f"{REQUIRED}[1].matchExpressions[0].values"),
        ((term("Gt", "1", "2"),), f"{REQUIRED}[0].matchExpressions[0].values"),
        ((by_name("Exists"),), f"{REQUIRED}[0].matchFields[0].operator"),
        ((by_name("In", "a", "b"),), f"{REQUIRED}[0].matchFields[0].values"),
    ],
)
def test_broken_node_terms_are_named(terms: tuple[NodeSelectorTerm, ...], path: str) -> None:
    required = NodeSelector(node_selector_terms=terms)
    with pytest.raises(InputError) as caught:
        check_node_affinity(NodeAffinity(required_during_scheduling_ignored_during_execution=required), "a")
    assert caught.value.path == path


def test_weights_are_1_to_100() -> None:
    preferred = (PreferredSchedulingTerm(weight=101, preference=term("Exists")),)
    with pytest.raises(InputError) as caught:
        check_node_affinity(NodeAffinity(preferred_during_scheduling_ignored_during_execution=preferred), "a")
    assert caught.value.path == "a.preferredDuringSchedulingIgnoredDuringExecution[0].weight"


@pytest.mark.parametrize(
    ("toleration", "field"),
    [
        (Toleration(key="a", operator="Like"), "operator"),
        (Toleration(key="a", effect="Never"), "effect"),
        (Toleration(value="a"), "operator"),
        (Toleration(key="a", operator="Exists", value="x"), "value"),
        (Toleration(key="a", operator="Gt", value="x"), "value"),
    ],
)
def test_broken_tolerations_are_named(toleration: Toleration, field: str) -> None:
    with pytest.raises(InputError) as caught:
        check_tolerations((Toleration(operator="Exists"), toleration), "spec.tolerations")
    assert caught.value.path == f"spec.tolerations[1].{field}"


def test_broken_taints_are_named() -> None:
    with pytest.raises(InputError) as caught:
        check_taints((TAINT, Taint(key="a", effect="Sometimes")), "spec.taints")
    assert caught.value.path == "spec.taints[1].effect"
    with pytest.raises(InputError):
        check_taints((Taint(key="", effect="NoSchedule"),), "spec.taints")
