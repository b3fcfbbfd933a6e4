"""Errors say on one line where they are, what is wrong and what would help."""

from __future__ import annotations

import pickle

import pytest

from windlass.model.errors import ClusterUnreachable, InputError, WindlassError


def test_all_parts_stand_in_order() -> None:
    error = InputError(
        "is negative",
        file="a.yaml",
        line=3,
        column=7,
        object="Pod a/b",
        path="spec.x",
        remedy="write 0 or more",
    )
    assert str(error) == "a.yaml:3:7: Pod a/b: spec.x: is negative (write 0 or more)"


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (InputError("broken"), "broken"),
        (InputError("broken", file="a"), "a: broken"),
        (InputError("broken", file="a", line=2), "a:2: broken"),
        (InputError("broken", path="spec.x"), "spec.x: broken"),
        (InputError("broken", object="Node n", remedy="mend it"), "Node n: broken (mend it)"),
    ],
)
def test_absent_parts_leave_no_trace(error: InputError, text: str) -> None:
    assert str(error) == text


def test_an_error_is_one_line() -> None:
    assert "\n" not in str(InputError("a\nb", file="x\ny", remedy="c\nd"))


def test_context_fills_in_and_does_not_overwrite() -> None:
    inner = InputError("broken", path="spec.x", code="REQUESTS_NE_LIMITS")
    outer = inner.with_context(path="spec", object="Pod a/b", file="f", line=9, code="INVALID_OBJECT")
    assert str(outer) == "f:9: Pod a/b: spec.x: broken"
    assert outer.code == "REQUESTS_NE_LIMITS"
    assert str(inner) == "spec.x: broken"


def test_exit_codes() -> None:
    assert (WindlassError.exit_code, InputError.exit_code, ClusterUnreachable.exit_code) == (1, 2, 3)
    assert issubclass(InputError, WindlassError)
    assert issubclass(ClusterUnreachable, WindlassError)


def test_an_error_survives_the_way_out_of_a_worker_process() -> None:
    error = InputError("broken", file="f", line=2, object="Pod a/b", path="spec.x", remedy="mend it")
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
