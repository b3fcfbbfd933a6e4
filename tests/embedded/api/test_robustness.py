"""Whatever comes in: what comes out is an answer or a refusal that blames the client, and the input is left alone."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.embedded.api import custom_samples, refusals, samples, sequences
from tests.embedded.api.desk import APPLY, Desk
from tests.embedded.api.mutations import STRANGE, mutated

from windlass.embedded.api.errors import ApiError
from windlass.embedded.api.json_trees import deep_copy
from windlass.model.unstructured import Unstructured

EVERYTHING = (
    *samples.CLUSTER_WIDE,
    *samples.NAMESPACED,
    *refusals.CLUSTER_WIDE,
    *refusals.NAMESPACED,
    custom_samples.definition(),
    *custom_samples.GOOD,
)
PATCHES = (sequences.MERGE, sequences.STRATEGIC, sequences.JSON, APPLY)
_OWNED: list[Any] = [
    {
        "manager": "m",
        "operation": "Apply",
        "apiVersion": "v1",
        "time": "2026-01-02T03:04:05Z",
        "fieldsType": "FieldsV1",
        "fieldsV1": {"f:spec": {"f:containers": {'k:{"name":"main"}': {".": {}, "f:image": {}}}}},
    }
]


def _desk() -> Desk:
    desk = Desk()
    desk.create(custom_samples.definition())
    desk.create(samples.made("v1", "ResourceQuota", "q", spec={"hard": {"pods": "5", "requests.nvidia.com/gpu": "3"}}))
    desk.create(
        samples.made("v1", "LimitRange", "l", spec={"limits": [{"type": "Container", "default": {"cpu": "1"}}]})
    )
    return desk


def _client_error(act: Any) -> Any:
    """What comes of it, or none where it was refused."""
    refused: ApiError | None = None
    try:
        return act()
    except ApiError as problem:
        refused = problem
    assert 400 <= refused.code < 500, refused.message
    msgspec.json.encode(refused.status())
    return None


@settings(max_examples=400, deadline=None)
@given(st.sampled_from(range(len(EVERYTHING))), st.integers(0, 10**9))
def test_strange_objects_are_made_or_refused(which: int, seed: int) -> None:
    obj = mutated(EVERYTHING[which], seed)
    before = deep_copy(obj)
    made = _client_error(lambda: _desk().create(obj))
    assert obj == before
    if made is not None:
        msgspec.json.encode(made)


@settings(max_examples=400, deadline=None)
@given(
    st.sampled_from(
        [sample for sample in samples.NAMESPACED if sample["kind"] in ("Pod", "Deployment", "Job", "Service")]
    ),
    st.sampled_from(PATCHES),
    st.integers(0, 10**9),
)
def test_strange_patches_are_applied_or_refused(target: Unstructured, content_type: str, seed: int) -> None:
    desk = _desk()
    if _client_error(lambda: desk.create(target)) is None:
        return
    before = deep_copy(desk.objects)
    patch: Any = mutated({**target, "status": {"phase": "x"}}, seed)
    if content_type == sequences.JSON:
        patch = [
            {
                "op": ["add", "remove", "replace", "test", "move", "copy", "x"][seed % 7],
                "path": path,
                "value": value,
            }
            for path in ("/spec", "/spec/containers/0", "/metadata/labels/a", "/spec/-", "")
            for value in STRANGE[seed % 5 :: 7]
        ][: 1 + seed % 3]
    elif seed % 3:
        patch.pop("apiVersion", None)
        patch = mutated(patch, seed + 1)
    if _client_error(lambda: desk.patch(target, patch, content_type, force=bool(seed % 2))) is None:
        assert desk.objects == before


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(range(len(EVERYTHING))), st.integers(0, 10**9))
def test_strange_objects_are_shown(which: int, seed: int) -> None:
    """What is stored has been decoded; whatever that let through must fit into a table."""
    desk = _desk()
    obj = mutated(EVERYTHING[which], seed)
    kind = desk.machinery.kinds.by_kind(EVERYTHING[which]["apiVersion"], EVERYTHING[which]["kind"])
    assert kind is not None
    decoded = _client_error(lambda: desk.machinery.decode(kind, obj))
    if decoded is not None:
        msgspec.json.encode(desk.machinery.table(kind, [decoded[0]], 0.0))


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(PATCHES), st.integers(0, 10**9))
def test_strange_accounts_of_fields(content_type: str, seed: int) -> None:
    """Clients may write `managedFields`, and not always well."""
    desk = _desk()
    target = samples.pod("owned")
    desk.create(target)
    strange = mutated({"metadata": {"managedFields": _OWNED}}, seed)
    _client_error(lambda: desk.patch(target, strange, sequences.MERGE, "a"))
    image = {**target, "spec": {"containers": [{"name": "main", "image": f"x:{seed % 3}"}]}}
    if content_type != sequences.JSON:
        _client_error(lambda: desk.patch(target, image, content_type, "b", force=bool(seed % 2)))


def _nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = {"properties": {"a": value, "type": "object"}}
    return value


@pytest.mark.parametrize("levels", [20, 150, 400, 900])
def test_deep_objects_are_refused_before_they_break_something(levels: int) -> None:
    deep = _nested(levels)
    desk = _desk()
    desk.create(samples.made("v1", "ConfigMap", "c"))
    crd = custom_samples.definition(schema={"openAPIV3Schema": {"type": "object", "properties": {"a": deep}}})
    crd["metadata"] = {"name": "gadgets.example.com"}
    crd["spec"]["names"] = {"plural": "gadgets", "kind": "Gadget"}
    for obj in (
        custom_samples.widget(free=deep),
        samples.made("apps/v1", "ControllerRevision", "r", data=deep, revision=1),
        crd,
    ):
        _client_error(lambda obj=obj: desk.create(obj))
    config = samples.made("v1", "ConfigMap", "c")
    for content_type in (sequences.MERGE, sequences.STRATEGIC, APPLY):
        patch = {**config, "data": deep}
        _client_error(lambda patch=patch, content_type=content_type: desk.patch(config, patch, content_type))
