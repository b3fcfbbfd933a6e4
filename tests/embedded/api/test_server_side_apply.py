"""Field ownership without a server: invariants, and the compiled fields of new objects against the general ones."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.embedded.api import custom_samples, samples
from tests.embedded.api.desk import APPLY, Desk, refusal
from tests.embedded.api.states import STATES

from windlass.embedded.api.defaults import apply_defaults
from windlass.embedded.api.field_sets import difference, format_path, from_fields_v1, to_fields_v1
from windlass.embedded.api.initial_fields import initial_fields_v1
from windlass.embedded.api.server_side_apply import empty_object
from windlass.model.names.kubernetes import LAST_APPLIED_ANNOTATION

STEPS = st.tuples(
    st.sampled_from(["f:a", "f:b.c/d", 'k:{"name":"x"}', 'v:"y"']),
    st.sampled_from(["f:a", "f:b", 'k:{"n":1,"p":"TCP"}']),
    st.sampled_from(["f:z", "v:1"]),
)
PATHS = st.sets(STEPS.flatmap(lambda steps: st.integers(1, 3).map(lambda length: steps[:length])), max_size=8)


@given(PATHS)
def test_sets_are_written_and_read(paths: set[tuple[str, ...]]) -> None:
    assert from_fields_v1(to_fields_v1(paths)) == paths


def test_the_short_way_comes_to_the_same() -> None:
    desk = Desk()
    for obj in (*samples.CLUSTER_WIDE, *samples.NAMESPACED, *STATES):
        kind = desk.kind_of(obj)
        made, _ = desk.machinery.decode(kind, obj)
        apply_defaults(kind, made)
        node = desk.machinery.schema(kind)
        found = difference(empty_object(desk.machinery, kind), made, node)
        long = {path for path in found.added | found.changed if path[0] not in ("f:apiVersion", "f:kind")}
        short = {
            path for path in from_fields_v1(initial_fields_v1(made, node)) if path[0] not in ("f:apiVersion", "f:kind")
        }
        assert short == long, obj["kind"]


def test_paths_are_shown_as_people_write_them() -> None:
    path = ("f:spec", "f:containers", 'k:{"name":"main"}', "f:image")
    assert format_path(path) == '.spec.containers[name="main"].image'
    assert format_path(("f:metadata", "f:finalizers", 'v:"a/b"')) == '.metadata.finalizers[="a/b"]'


def _config(**data: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": data}


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["x", "y"]),
            st.dictionaries(st.sampled_from("abc"), st.sampled_from("12"), max_size=3),
        ),
        min_size=1,
        max_size=6,
    )
)
def test_every_manager_has_what_it_applied_last(steps: list[tuple[str, dict[str, str]]]) -> None:
    desk = Desk()
    wanted: dict[str, dict[str, str]] = {}
    for manager, data in steps:
        desk.patch(_config(), _config(**data), APPLY, manager, force=True)
        others = [config for name, config in wanted.items() if name != manager]
        for config in others:
            for key in [key for key in config if data.get(key, config[key]) != config[key]]:
                del config[key]
        wanted[manager] = dict(data)
        stored = desk.objects["configmaps", "default", "c"]
        together = {key: value for config in wanted.values() for key, value in config.items()}
        assert stored.get("data", {}) == together


def test_applying_the_same_twice_changes_nothing() -> None:
    desk = Desk()
    for obj in samples.NAMESPACED:
        if obj["kind"] in ("Deployment", "Service", "ConfigMap", "Role"):
            once = desk.patch(obj, obj, APPLY, "me")
            assert desk.patch(obj, obj, APPLY, "me") == once


def test_a_custom_kinds_lists_are_owned_by_their_keys() -> None:
    desk = Desk()
    desk.create(custom_samples.definition())
    one = custom_samples.widget("w", parts=[{"name": "a", "weight": 1}], tags=["x"])
    two = {**one, "spec": {"parts": [{"name": "b", "weight": 2}], "tags": ["y"]}}
    desk.patch(one, one, APPLY, "one")
    made = desk.patch(one, two, APPLY, "two")
    assert [part["name"] for part in made["spec"]["parts"]] == ["a", "b"]
    assert made["spec"]["tags"] == ["x", "y"]
    conflict = {**one, "spec": {"parts": [{"name": "a", "weight": 9}]}}
    assert refusal(lambda: desk.patch(one, conflict, APPLY, "two")) == (
        'Apply failed with 1 conflict: conflict with "one": .spec.parts[name="a"].weight'
    )


def test_kubectl_takes_over_from_its_own_client_side() -> None:
    desk = Desk()
    note = '{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"c"},"data":{"a":"1"}}'
    first = _config(a="1")
    first["metadata"]["annotations"] = {LAST_APPLIED_ANNOTATION: note}
    desk.create(first, "kubectl-client-side-apply")
    made = desk.patch(first, _config(a="2"), APPLY, "kubectl")
    assert made["data"] == {"a": "2"}
    assert '"a":"2"' in made["metadata"]["annotations"][LAST_APPLIED_ANNOTATION]
    assert "conflict" in refusal(lambda: desk.patch(first, _config(a="3"), APPLY, "somebody"))


@pytest.mark.parametrize("applied", [[], "x", {"apiVersion": "v1", "kind": "Pod"}, {**_config(), "metadata": []}])
def test_what_is_no_such_object_is_a_bad_request(applied: Any) -> None:
    desk = Desk()
    desk.create(_config())
    assert refusal(lambda: desk.patch(_config(), applied, APPLY, "me"))
