"""Custom kinds without a server: versions, columns, pruning, and the order of versions."""

from __future__ import annotations

import pytest
from tests.embedded.api.custom_samples import BAD, BAD_DEFINITIONS, GOOD, definition, widget
from tests.embedded.api.desk import Desk, refusal

from windlass.embedded.api.custom_kind import version_order
from windlass.embedded.api.events import to_core_v1, to_events_v1
from windlass.embedded.api.jsonpath import BadPath, find


@pytest.mark.parametrize("bad", BAD_DEFINITIONS)
def test_unsound_definitions_are_refused(bad: dict[str, object]) -> None:
    assert "is invalid" in refusal(lambda: Desk().create(bad))


def test_objects_are_pruned_and_filled_in() -> None:
    desk = Desk()
    desk.create(definition())
    made = desk.create({**widget(nested={}, unknown=1, free={"any": 1}), "extra": 1})
    assert made["spec"] == {
        "size": 2,
        "mode": "Fast",
        "flag": False,
        "nested": {"depth": 3},
        "free": {"any": 1},
    }
    assert "extra" not in made
    assert made["metadata"]["generation"] == 1


@pytest.mark.parametrize("bad", BAD)
def test_bad_objects_are_refused(bad: dict[str, object]) -> None:
    desk = Desk()
    desk.create(definition())
    assert "is invalid" in refusal(lambda: desk.create(bad))


def test_strict_validation_names_the_fields() -> None:
    desk = Desk()
    desk.create(definition())
    message = refusal(lambda: desk.create({**widget(foo=1), "bar": 1}, field_validation="Strict"))
    assert message == (
        'Widget in version "v1" cannot be handled as a Widget: strict decoding error: '
        'unknown field "bar", unknown field "spec.foo"'
    )
    desk.create({**widget(foo=1), "bar": 1}, field_validation="Warn")
    assert desk.warnings == ['unknown field "bar"', 'unknown field "spec.foo"']


def test_columns_come_from_the_definition() -> None:
    desk = Desk()
    desk.create(definition())
    made = desk.create(GOOD[1])
    made["status"] = {"conditions": [{"type": "Ready", "status": "True"}]}
    kind = desk.kind_of(made)
    table = desk.machinery.table(kind, [made], 0.0)
    assert [column["name"] for column in table["columnDefinitions"]] == [
        "Name",
        "Size",
        "Mode",
        "Ready",
        "Tags",
        "Flag",
        "Age",
    ]
    assert table["rows"][0]["cells"][:6] == ["full", 2, "Fast", "True", '["a","b"]', False]


def test_a_kind_with_two_versions_has_one_store() -> None:
    desk = Desk()
    crd = definition()
    crd["spec"]["versions"].append({**crd["spec"]["versions"][0], "name": "v2beta1", "storage": False})
    desk.create(crd)
    kinds = [kind for kind in desk.machinery.kinds if kind.group == "example.com"]
    assert [kind.version for kind in kinds] == ["v1", "v2beta1"]
    assert {kind.storage_resource for kind in kinds} == {"widgets.example.com"}


def test_a_taken_kind_is_not_established() -> None:
    desk = Desk()
    desk.create(definition())
    other = definition()
    other["metadata"]["name"] = "gadgets.example.com"
    other["spec"]["names"] = {"plural": "gadgets", "kind": "Widget"}
    status = {condition["type"]: condition["status"] for condition in desk.create(other)["status"]["conditions"]}
    assert status == {"NamesAccepted": "False", "Established": "False"}


def test_generation_counts_changes_of_the_spec_only() -> None:
    desk = Desk()
    desk.create(definition())
    target = desk.create(widget())
    merge = "application/merge-patch+json"
    assert desk.patch(target, {"metadata": {"labels": {"a": "b"}}}, merge)["metadata"]["generation"] == 1
    status = desk.patch(target, {"status": {"replicas": 3}}, merge, subresource="status")
    assert (status["metadata"]["generation"], status["status"]) == (1, {"replicas": 3})
    changed = desk.patch(target, {"spec": {"size": 3}, "status": {"replicas": 9}}, merge)
    assert (changed["metadata"]["generation"], changed["status"]) == (2, {"replicas": 3})


def test_versions_are_ordered_as_kubernetes_orders_them() -> None:
    names = ["v1alpha1", "foo", "v2", "v1beta1", "v1", "v10beta3", "v1beta2"]
    assert sorted(names, key=version_order) == [
        "v2",
        "v1",
        "v10beta3",
        "v1beta2",
        "v1beta1",
        "v1alpha1",
        "foo",
    ]


@pytest.mark.parametrize(
    ("path", "found"),
    [
        (".a.b", [1]),
        ("{.a.b}", [1]),
        (".list[1].name", ["y"]),
        (".list[*].name", ["x", "y"]),
        ('.list[?(@.name=="y")].value', [2]),
        (".a['x\\.y']", [3]),
        (".a.x\\.y", [3]),
        (".nope.b", []),
        (".list[-1].name", ["y"]),
    ],
)
def test_paths(path: str, found: list[object]) -> None:
    tree = {"a": {"b": 1, "x.y": 3}, "list": [{"name": "x"}, {"name": "y", "value": 2}]}
    assert find(tree, path) == found


def test_a_bad_path() -> None:
    with pytest.raises(BadPath):
        find({}, ".a[")


def test_events_have_two_faces() -> None:
    core = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": "e"},
        "involvedObject": {"name": "p"},
        "message": "hello",
        "reportingComponent": "windlass",
        "count": 2,
        "eventTime": None,
    }
    other = to_events_v1(core)
    assert other["apiVersion"] == "events.k8s.io/v1"
    assert (other["regarding"], other["note"], other["deprecatedCount"]) == ({"name": "p"}, "hello", 2)
    assert to_core_v1(other) == core


def test_patterns_can_not_hold_the_server_up() -> None:
    desk = Desk()
    crd = definition()
    crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["name"] = {
        "type": "string",
        "pattern": "^(a+)+$",
    }
    desk.create(crd)
    assert "should match" in refusal(lambda: desk.create(widget("w", name="a" * 5000 + "!")))
    assert "should match" in refusal(lambda: desk.create(widget("w", name="a\n")))
    desk.create(widget("w", name="aaa"))
