"""The model of an all-reduce: what the formulas come to by hand, and what holds on any placement."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass_bench.claims.allreduce import (
    GB,
    HDR_PORT,
    NVLINK_4,
    PCIE_4,
    Fabric,
    JobPlacement,
    all_reduce_seconds,
    ethernet,
    inter_node_seconds,
    ring_seconds,
    step_seconds,
    tree_seconds,
)
from windlass_bench.claims.locality import place_job_variants, tenth_speed_threshold
from windlass_bench.claims.parks import rack_fleet

QUIET = Fabric(inside_delay=0, network_delay=0)
spots = st.dictionaries(
    st.tuples(st.sampled_from(("r1", "r2", "r3")), st.sampled_from("abcdefgh")),
    st.integers(1, 8),
    min_size=1,
    max_size=12,
).map(JobPlacement)
sizes = st.floats(1e3, 1e11)


def whole_nodes(nodes: int, racks: int) -> JobPlacement:
    return JobPlacement({(f"r{index % racks}", f"n{index}"): 8 for index in range(nodes)})


class TestByHand:
    def test_a_ring_of_two_sends_the_size_once(self) -> None:
        assert ring_seconds(2, 10.0, 5.0, 0.0) == 2.0

    def test_a_ring_of_many_nears_twice_the_size(self) -> None:
        assert ring_seconds(1000, 1.0, 1.0, 0.0) == pytest.approx(2, rel=0.01)

    def test_four_nodes_on_eight_rails(self) -> None:
        """In the node 2·7/8·S/450 GB/s, between nodes 2·3/4·S/200 GB/s."""
        seconds = all_reduce_seconds(whole_nodes(4, 1), 14 * GB, QUIET)
        assert seconds == pytest.approx(1.75 * 14 / 450 + 1.5 * 14 / 200)

    def test_oversubscription_divides_what_leaves_a_rack(self) -> None:
        narrow = Fabric(inside_delay=0, network_delay=0, oversubscription=4)
        near, far = whole_nodes(4, 1), whole_nodes(4, 2)
        assert inter_node_seconds(near, GB, narrow) == inter_node_seconds(near, GB, QUIET)
        assert inter_node_seconds(far, GB, narrow) == pytest.approx(4 * inter_node_seconds(near, GB, QUIET))

    def test_the_bandwidths_are_those_of_the_data_sheets(self) -> None:
        assert (NVLINK_4 * 2 / GB, PCIE_4 / GB, HDR_PORT / GB, ethernet(100) / GB) == (900, 32, 25, 12.5)

    def test_a_tree_is_shorter_for_small_messages_only(self) -> None:
        assert tree_seconds(32, 1e3, HDR_PORT, 1e-5) < ring_seconds(32, 1e3, HDR_PORT, 1e-5)
        assert tree_seconds(32, 1e10, HDR_PORT, 1e-5) > ring_seconds(32, 1e10, HDR_PORT, 1e-5)

    def test_a_tenth_of_the_speed(self) -> None:
        compute = tenth_speed_threshold(1.0, 100.0)
        assert compute is not None
        assert (compute + 1.0) / (compute + 100.0) == pytest.approx(0.1)
        assert tenth_speed_threshold(1.0, 9.0) is None


class TestProperties:
    @given(spots, sizes)
    def test_more_bytes_take_longer(self, spot: JobPlacement, size: float) -> None:
        assert all_reduce_seconds(spot, size, Fabric()) <= all_reduce_seconds(spot, 2 * size, Fabric())

    @given(spots, sizes, st.floats(1, 16))
    def test_a_narrower_fabric_is_never_faster(self, spot: JobPlacement, size: float, narrow: float) -> None:
        assert all_reduce_seconds(spot, size, Fabric(oversubscription=narrow)) >= all_reduce_seconds(
            spot, size, Fabric()
        )

    @given(st.integers(2, 16), sizes, st.floats(1, 16))
    def test_one_rack_is_never_slower_than_several(self, nodes: int, size: float, narrow: float) -> None:
        fabric = Fabric(oversubscription=narrow)
        near, far = (all_reduce_seconds(whole_nodes(nodes, racks), size, fabric) for racks in (1, 2))
        assert near <= far

    @given(sizes, st.sampled_from((1, 2, 4, 8)))
    def test_scattered_gpus_are_never_faster(self, size: float, gpus_a_node: int) -> None:
        scattered = JobPlacement({("r", f"n{index}"): gpus_a_node for index in range(32 // gpus_a_node)})
        assert all_reduce_seconds(whole_nodes(4, 1), size, QUIET) <= all_reduce_seconds(scattered, size, QUIET) * (
            1 + 1e-9
        )

    @given(spots, sizes, st.floats(0, 10), st.floats(0, 1))
    def test_a_step_takes_its_compute_at_least(
        self, spot: JobPlacement, size: float, compute: float, overlap: float
    ) -> None:
        seconds = step_seconds(spot, size, Fabric(), compute, overlap)
        assert compute * (1 - 1e-9) <= seconds <= (compute + all_reduce_seconds(spot, size, Fabric())) * (1 + 1e-9)


class TestPlacements:
    def test_the_engine_keeps_the_rack_and_spreading_does_not(self) -> None:
        for seed in (1, 42):
            near, far, near_singles, singles = (spot for _, spot in place_job_variants(rack_fleet(64, 8), seed))
            assert [spot.total for spot in (near, far, near_singles, singles)] == [32] * 4
            assert (near.racks, near_singles.racks) == (1, 1)
            assert far.racks > 1
            assert (len(near.gpus), len(near_singles.gpus), len(singles.gpus)) == (4, 4, 32)
