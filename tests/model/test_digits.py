"""What counts as a number, wherever a label, an annotation or a file may have anything."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.model.digits import is_digits
from windlass.model.times import format_timestamp
from windlass.node.preferred_devices import pending_pods


@given(st.text(max_size=30) | st.text(alphabet="0123456789²٣", max_size=30))
def test_what_counts_as_a_number_can_be_read_as_one(text: str) -> None:
    if is_digits(text):
        assert 0 <= int(text) < 2**63


@pytest.mark.parametrize(
    ("text", "is_number"), [("0", True), ("²", False), ("", False), ("٣", False), ("9" * 5000, False)]
)
def test_digits(text: str, is_number: bool) -> None:
    assert is_digits(text) is is_number


def test_a_wish_that_is_no_device_is_left_out() -> None:
    limits = {"nvidia.com/gpu": "1", "nvidia.com/mig-1g.10gb": "²"}
    pod = {
        "metadata": {"name": "p", "namespace": "team", "annotations": {"windlass.dev/devices": "²,1"}},
        "spec": {"containers": [{"resources": {"limits": limits}}]},
    }
    assert [(found.resource, found.devices) for found in pending_pods([pod], {})] == [("nvidia.com/gpu", (1,))]


@given(st.integers())
def test_every_number_of_seconds_is_shown_as_some_time(seconds: int) -> None:
    assert format_timestamp(seconds).endswith("Z")
