"""JSON patch, merge patch and strategic merge patch; beside a real server in `test_against_kubernetes.py`."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.embedded.api.errors import ApiError
from windlass.embedded.api.json_trees import deep_copy
from windlass.embedded.api.kinds import Kinds
from windlass.embedded.api.patches import json_patch, merge_patch
from windlass.embedded.api.schema import SchemaNode, kind_schema
from windlass.embedded.api.strategic_merge import strategic_merge

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text("ab", max_size=2),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("abc", max_size=2), inner, max_size=3),
    max_leaves=10,
)


@pytest.mark.parametrize(
    ("value", "patch", "result"),
    [  # the table of RFC 7386, appendix A
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b"}, {"a": None}, {}),
        ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        (["a", "b"], ["c", "d"], ["c", "d"]),
        ({"a": "b"}, ["c"], ["c"]),
        ({"a": "foo"}, None, None),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
    ],
)
def test_merge_patch(value: Any, patch: Any, result: Any) -> None:
    assert merge_patch(value, patch) == result


@given(JSON, JSON)
def test_merge_patch_is_idempotent_and_leaves_its_input(value: Any, patch: Any) -> None:
    before = deep_copy(value)
    once = merge_patch(value, patch)
    assert merge_patch(once, patch) == once
    assert value == before


@pytest.mark.parametrize(
    ("operations", "result"),
    [
        ([{"op": "add", "path": "/b/1", "value": 9}], {"a": {"x": 1}, "b": [1, 9, 2]}),
        ([{"op": "add", "path": "/b/-", "value": 9}], {"a": {"x": 1}, "b": [1, 2, 9]}),
        ([{"op": "remove", "path": "/b/0"}], {"a": {"x": 1}, "b": [2]}),
        ([{"op": "replace", "path": "/a/x", "value": 2}], {"a": {"x": 2}, "b": [1, 2]}),
        ([{"op": "move", "from": "/a/x", "path": "/c"}], {"a": {}, "b": [1, 2], "c": 1}),
        ([{"op": "copy", "from": "/a", "path": "/c"}], {"a": {"x": 1}, "b": [1, 2], "c": {"x": 1}}),
        ([{"op": "test", "path": "/b", "value": [1, 2]}], {"a": {"x": 1}, "b": [1, 2]}),
        ([{"op": "add", "path": "/a~1b~0", "value": 1}], {"a": {"x": 1}, "b": [1, 2], "a/b~": 1}),
    ],
)
def test_json_patch(operations: Any, result: Any) -> None:
    value = {"a": {"x": 1}, "b": [1, 2]}
    assert json_patch(value, operations) == result
    assert value == {"a": {"x": 1}, "b": [1, 2]}


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "remove", "path": "/zz"},
        {"op": "remove", "path": "/b/7"},
        {"op": "test", "path": "/a/x", "value": True},
        {"op": "add", "path": "/q/r", "value": 1},
        {"op": "add", "path": "no", "value": 1},
        {"op": "nope", "path": "/a"},
        {"op": "add", "path": "/b/01x", "value": 1},
        {"op": "copy", "from": "/zz", "path": "/y"},
    ],
)
def test_json_patches_that_fail(operation: Any) -> None:
    with pytest.raises(ApiError) as refused:
        json_patch({"a": {"x": 1}, "b": [1, 2]}, [operation])
    assert (refused.value.code, refused.value.reason) == (422, "Invalid")


def _pod_node() -> SchemaNode:
    kind = Kinds().by_resource("pods")
    assert kind is not None
    return kind_schema(kind)


def _patched(containers: Any, patch: Any) -> Any:
    value = {"spec": {"containers": containers}}
    before = deep_copy(value)
    made = strategic_merge(value, {"spec": patch}, _pod_node())
    assert value == before
    return made["spec"]


def test_containers_are_merged_by_name() -> None:
    made = _patched(
        [{"name": "a", "image": "1", "args": ["x"]}, {"name": "b"}],
        {"containers": [{"name": "a", "image": "2"}, {"name": "c"}]},
    )
    merged = {"name": "a", "image": "2", "args": ["x"]}
    assert made == {"containers": [merged, {"name": "c"}, {"name": "b"}]}


def test_lists_without_a_key_are_replaced() -> None:
    made = strategic_merge(
        {"spec": {"tolerations": [{"key": "a"}]}}, {"spec": {"tolerations": [{"key": "b"}]}}, _pod_node()
    )
    assert made["spec"]["tolerations"] == [{"key": "b"}]


def test_directives() -> None:
    two = [{"name": "a", "image": "1"}, {"name": "b", "image": "1"}]
    assert _patched(two, {"containers": [{"$patch": "delete", "name": "a"}]})["containers"] == two[1:]
    replaced = _patched(two, {"containers": [{"$patch": "replace"}, {"name": "z"}]})
    assert replaced["containers"] == [{"name": "z"}]
    assert _patched(two, {"$patch": "replace", "nodeName": "n"}) == {"nodeName": "n"}
    kept = _patched(two, {"$retainKeys": ["nodeName"], "nodeName": "n"})
    assert kept == {"nodeName": "n"}
    ordered = _patched(two, {"$setElementOrder/containers": [{"name": "b"}, {"name": "a"}]})
    assert [container["name"] for container in ordered["containers"]] == ["b", "a"]


def test_finalizers_are_a_set() -> None:
    value = {"metadata": {"finalizers": ["a/b", "c/d"]}}
    more = strategic_merge(value, {"metadata": {"finalizers": ["e/f", "a/b"]}}, _pod_node())
    assert more["metadata"]["finalizers"] == ["e/f", "a/b", "c/d"]
    less = strategic_merge(value, {"metadata": {"$deleteFromPrimitiveList/finalizers": ["a/b"]}}, _pod_node())
    assert less["metadata"]["finalizers"] == ["c/d"]


@pytest.mark.parametrize(
    "patch",
    [
        {"containers": [{"image": "x"}]},
        {"containers": ["x"]},
        {"$patch": "nope"},
        {"$retainKeys": "x"},
        {"$setElementOrder/containers": 5},
        {"$deleteFromPrimitiveList/x": 5},
    ],
)
def test_bad_strategic_patches_are_a_bad_request(patch: Any) -> None:
    with pytest.raises(ApiError) as refused:
        _patched([{"name": "a"}], patch)
    assert refused.value.code == 400


@pytest.mark.parametrize(
    ("patch", "message"),
    [
        (
            {"op": "x"},
            "error decoding patch: json: cannot unmarshal object into Go value of type []handlers.jsonPatchOp",
        ),
        (
            [1],
            "error decoding patch: json: cannot unmarshal number into Go value of type handlers.jsonPatchOp",
        ),
        (
            "x",
            "error decoding patch: json: cannot unmarshal string into Go value of type []handlers.jsonPatchOp",
        ),
    ],
)
def test_what_is_no_json_patch(patch: Any, message: str) -> None:
    with pytest.raises(ApiError) as refused:
        json_patch({}, patch)
    assert (refused.value.code, refused.value.message) == (400, message)


def test_long_lists_are_merged_and_ordered() -> None:
    """Element by element against each other, this would take hours."""
    count = 100_000
    live = [{"name": f"c{number}", "image": "old"} for number in range(count)]
    changed = [{"name": f"c{number}", "image": "new"} for number in range(0, count, 2)]
    gone = [{"name": f"c{number}", "$patch": "delete"} for number in range(1, count, 4)]
    made = _patched(live, {"containers": [*changed, *gone, {"name": "more", "image": "x"}]})["containers"]
    assert len(made) == count - len(gone) + 1
    assert [container["name"] for container in made[:3]] == ["c0", "c2", "c3"]
    assert [container["image"] for container in made[:3]] == ["new", "new", "old"]
    assert "more" in (container["name"] for container in made[-2:])


def test_no_patch_changes_nothing() -> None:
    assert json_patch({"a": 1}, None) == {"a": 1}
    assert strategic_merge({"spec": {}}, None, _pod_node()) == {"spec": {}}
