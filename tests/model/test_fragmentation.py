"""The sentence about free GPUs that are not together."""

from __future__ import annotations

import pytest

from windlass.model.fragmentation import describe_fragmentation


@pytest.mark.parametrize(
    ("free", "per_pod", "pods", "fitting", "text"),
    [
        (
            [7, 8, 7],
            8,
            2,
            1,
            "22 GPUs are free, but spread over 3 nodes (8, 7, 7): room for 1 of 2 pods with 8 GPUs each",
        ),
        (
            [2, 2],
            4,
            1,
            0,
            "4 GPUs are free, but spread over 2 nodes (2, 2): no node has room for a pod with 4 GPUs",
        ),
        ([0.5, 0.5, 0], 0.6, 1, 0, "1 GPU is free, but spread over 2 nodes (0.5, 0.5): no GPU has 0.6 free"),
        ([4], 6, 1, 0, "4 GPUs are free, all on one node: no node has room for a pod with 6 GPUs"),
        (
            [1] * 8,
            2,
            1,
            0,
            "8 GPUs are free, but spread over 8 nodes (1, 1, 1, 1, 1, 1 and 2 more): no node has room for a pod with "
            "2 GPUs",
        ),
    ],
)
def test_how_many_are_free_where_and_how_many_pods_fit(
    free: list[float], per_pod: float, pods: int, fitting: int, text: str
) -> None:
    assert describe_fragmentation(free, per_pod, pods, fitting) == text


def test_other_devices_are_named_by_their_resource() -> None:
    text = describe_fragmentation([1, 1], 2, 1, 0, "amd.com/gpu")
    assert text.startswith("2 amd.com/gpu are free, but spread over 2 nodes")
