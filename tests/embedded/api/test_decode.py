"""Decoding: what is kept, what is dropped, what is refused, and in which words."""

from __future__ import annotations

from typing import Any

import pytest
from tests.embedded.api.samples import container, pod
from tests.embedded.api.test_robustness import EVERYTHING

from windlass.embedded.api.decode import decode
from windlass.embedded.api.errors import ApiError
from windlass.embedded.api.kinds import Kinds
from windlass.embedded.api.quantities import InvalidQuantity, canonical

KINDS = Kinds()
POD = KINDS.by_resource("pods")
assert POD is not None


def _pod(**spec: Any) -> Any:
    assert POD is not None
    return decode(POD, pod(**spec))[0]["spec"]


def test_false_is_dropped_where_go_drops_it_and_kept_where_it_is_meant() -> None:
    spec = _pod(hostNetwork=False, automountServiceAccountToken=False, nodeSelector={}, securityContext={})
    assert "hostNetwork" not in spec
    assert spec["automountServiceAccountToken"] is False
    assert "nodeSelector" not in spec
    assert spec["securityContext"] == {}


def test_base64_may_be_wrapped_as_its_command_wraps_it() -> None:
    secrets = KINDS.by_resource("secrets")
    assert secrets is not None
    tree = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "data": {"key": "aGVs\r\nbG8=\n"}}
    assert decode(secrets, tree)[0]["data"] == {"key": "aGVsbG8="}
    with pytest.raises(ApiError, match="illegal base64 data at input byte 2"):
        decode(secrets, {**tree, "data": {"key": "aG Vs"}})


def test_quantities_are_canonical() -> None:
    limits = {"cpu": "0.5", "memory": "1024Mi", "nvidia.com/gpu": 1, "ephemeral-storage": "1e3"}
    spec = _pod(containers=[container(resources={"limits": limits})])
    assert spec["containers"][0]["resources"]["limits"] == {
        "cpu": "500m",
        "memory": "1Gi",
        "nvidia.com/gpu": "1",
        "ephemeral-storage": "1e3",
    }


@pytest.mark.parametrize(
    ("raw", "written"),
    [
        ("1500m", "1500m"),
        ("2.0", "2"),
        ("1.5Gi", "1536Mi"),
        (0, "0"),
        ("1E", "1E"),
        ("9" * 30, "9223372036854775807"),
    ],
)
def test_canonical(raw: Any, written: str) -> None:
    assert canonical(raw) == written


@pytest.mark.parametrize("raw", ["", "abc", "1 Gi", "--1", "1x", "1KiB", "."])
def test_not_quantities(raw: str) -> None:
    with pytest.raises(InvalidQuantity):
        canonical(raw)


def test_times_are_written_in_utc() -> None:
    assert POD is not None
    made, _ = decode(POD, {"metadata": {"creationTimestamp": "2026-01-02T03:04:05.678+02:00"}})
    assert made["metadata"]["creationTimestamp"] == "2026-01-02T01:04:05Z"


def test_the_input_is_not_changed() -> None:
    assert POD is not None
    given = pod(hostNetwork=False)
    decode(POD, given)
    assert given == pod(hostNetwork=False)


def test_decoding_twice_changes_nothing_more() -> None:
    for obj in EVERYTHING:
        kind = KINDS.by_kind(obj["apiVersion"], obj["kind"])
        if kind is not None:
            try:
                once, _ = decode(kind, obj)
            except ApiError:
                continue
            assert decode(kind, once) == (once, [])


_CANNOT = "json: cannot unmarshal"
_GRACE = "terminationGracePeriodSeconds"


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (
            {"containers": "x"},
            f"{_CANNOT} string into Go struct field PodSpec.spec.containers of type []v1.Container",
        ),
        (
            {"containers": [{"name": 3}]},
            f"{_CANNOT} number into Go struct field Container.spec.containers.name of type string",
        ),
        ({_GRACE: "1"}, f"{_CANNOT} string into Go struct field PodSpec.spec.{_GRACE} of type int64"),
        (
            {"overhead": {"cpu": "abc"}},
            "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
        ),
    ],
)
def test_wrong_types_are_a_bad_request(spec: Any, message: str) -> None:
    assert POD is not None
    with pytest.raises(ApiError) as refused:
        decode(POD, {"spec": spec})
    assert refused.value.code == 400
    assert refused.value.message == f'Pod in version "v1" cannot be handled as a Pod: {message}'


def test_unknown_fields() -> None:
    assert POD is not None
    strange = pod(containers=[{**container(), "bar": 1}], foo=1)
    made, warnings = decode(POD, strange, "Warn")
    assert warnings == ['unknown field "spec.containers[0].bar"', 'unknown field "spec.foo"']
    assert "foo" not in made["spec"]
    assert decode(POD, strange, "Ignore")[1] == []
    with pytest.raises(ApiError) as refused:
        decode(POD, strange, "Strict")
    assert refused.value.message.endswith(f"strict decoding error: {', '.join(warnings)}")
