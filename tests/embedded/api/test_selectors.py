"""Label and field selectors."""

from __future__ import annotations

from typing import Any

import pytest

from windlass.embedded.api.errors import ApiError
from windlass.embedded.api.kinds import Kinds
from windlass.embedded.api.selectors import field_selector, label_selector, matches_selector

KINDS = Kinds()


@pytest.mark.parametrize(
    ("text", "labels", "matches"),
    [
        ("a=b", {"a": "b"}, True),
        ("a==b", {"a": "c"}, False),
        ("a!=b", {}, True),
        ("a!=b", {"a": "b"}, False),
        ("a", {"a": ""}, True),
        ("!a", {"a": ""}, False),
        ("a in (b, c)", {"a": "c"}, True),
        ("a in (b,c),d", {"a": "c"}, False),
        ("a notin (b)", {}, True),
        ("a notin (b)", {"a": "b"}, False),
        ("a=", {"a": ""}, True),
        ("n>3", {"n": "4"}, True),
        ("n<3", {"n": "4"}, False),
        ("n>3", {"n": "x"}, False),
        ("nvidia.com/gpu.product=H100,x", {"nvidia.com/gpu.product": "H100", "x": "1"}, True),
    ],
)
def test_labels(text: str, labels: dict[str, str], matches: bool) -> None:
    chosen = label_selector(text)
    assert chosen is not None
    assert chosen({"metadata": {"labels": labels}}) is matches


def test_no_selector_is_no_function() -> None:
    assert label_selector("") is None


_CANNOT = "unable to parse requirement: "


@pytest.mark.parametrize(
    ("text", "message"),
    [  # as a real API server answers
        ("(((", "found '(', expected: !, identifier, or 'end of string'"),
        ("a=b c", "found 'c', expected: ',' or 'end of string'"),
        ("a,", "found '', expected: identifier after ','"),
        ("a b", f"{_CANNOT}found 'b', expected: in, notin, =, ==, !=, gt, lt"),
        ("=", "found '=', expected: !, identifier, or 'end of string'"),
        ("!", f"{_CANNOT}found '', expected: identifier"),
        ("a in", f"{_CANNOT}found '' expected: '('"),
        ("a in b)", f"{_CANNOT}found 'b' expected: '('"),
        ("a in (b", f"{_CANNOT}found '', expected: ',' or ')'"),
        ("a in (b c)", f"{_CANNOT}found 'c', expected: ',' or ')'"),
        ("a=b,,c", "found ',', expected: identifier after ','"),
        ("a===b", f"{_CANNOT}found '=', expected: identifier"),
        (
            "a<b",
            f"{_CANNOT}values[0]: Invalid value: \"b\": for 'Gt', 'Lt' operators, the value must be an integer",
        ),
        ("a!", f"{_CANNOT}found '!', expected: in, notin, =, ==, !=, gt, lt"),
        ("!!a", f"{_CANNOT}found '!', expected: identifier"),
    ],
)
def test_bad_labels(text: str, message: str) -> None:
    with pytest.raises(ApiError) as refused:
        label_selector(text)
    assert (refused.value.code, refused.value.message) == (400, message)


def test_keys_and_values_of_selectors_are_checked() -> None:
    for text in ("-a=b", "a=-b", "a in (b, -c)"):
        with pytest.raises(ApiError, match="consist of alphanumeric characters"):
            label_selector(text)


POD: dict[str, Any] = {
    "metadata": {"name": "p", "namespace": "n"},
    "spec": {"nodeName": "x"},
    "status": {"phase": "Running", "podIP": "10.0.0.1"},
}


@pytest.mark.parametrize(
    ("text", "matches"),
    [
        ("metadata.name=p", True),
        ("spec.nodeName!=x", False),
        ("status.phase=Running,metadata.namespace=n", True),
        ("spec.hostNetwork=false", True),
        ("status.podIP=10.0.0.1", True),
        ("spec.schedulerName=", True),
    ],
)
def test_fields_of_pods(text: str, matches: bool) -> None:
    kind = KINDS.by_resource("pods")
    assert kind is not None
    chosen = field_selector(text, kind)
    assert chosen is not None
    assert chosen(POD) is matches


@pytest.mark.parametrize(
    ("resource", "text", "message"),
    [
        ("pods", "spec.foo=1", "field label not supported: spec.foo"),
        ("jobs.batch", "spec.foo=1", 'field label "spec.foo" not supported for Job'),
        (
            "configmaps",
            "data=1",
            '"data" is not a known field selector: only "metadata.name", "metadata.namespace"',
        ),
        ("pods", "spec.foo", "invalid selector: 'spec.foo'; can't understand 'spec.foo'"),
    ],
)
def test_fields_that_are_not_supported(resource: str, text: str, message: str) -> None:
    kind = KINDS.by_resource(resource)
    assert kind is not None
    with pytest.raises(ApiError) as refused:
        field_selector(text, kind)
    assert (refused.value.code, refused.value.message) == (400, message)


def test_events_are_selected_by_the_names_of_their_group() -> None:
    event = {"metadata": {}, "involvedObject": {"name": "p"}, "reportingComponent": "windlass"}
    core, other = KINDS.by_path("", "v1", "events"), KINDS.by_path("events.k8s.io", "v1", "events")
    assert core is not None
    assert other is not None
    for kind, text in (
        (core, "involvedObject.name=p"),
        (other, "regarding.name=p,reportingController=windlass"),
    ):
        chosen = field_selector(text, kind)
        assert chosen is not None
        assert chosen(event)
    with pytest.raises(ApiError):
        field_selector("involvedObject.name=p", other)


def test_selectors_in_specs() -> None:
    assert not matches_selector(None, {})
    assert matches_selector({}, {"a": "b"})
    expression = {"key": "a", "operator": "NotIn", "values": ["c"]}
    assert matches_selector({"matchLabels": {"a": "b"}, "matchExpressions": [expression]}, {"a": "b"})
    assert not matches_selector({"matchExpressions": [{"key": "z", "operator": "Exists"}]}, {"a": "b"})
