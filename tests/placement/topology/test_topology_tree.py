"""The tree of domains and the room on its nodes."""

from __future__ import annotations

import numpy as np
import pytest

from windlass.placement.topology import DomainTree, MatrixCapacity


def test_domains_are_numbered_by_their_values_from_the_widest_level_down() -> None:
    tree = DomainTree.build(("rack", "host"), [("2", "a"), ("1", "z"), ("2", "b"), ("1", "c")])
    assert [layer.size for layer in tree.layers] == [2, 4]
    assert tree.rows.tolist() == [3, 1, 0, 2]
    assert tree.layers[1].parent.tolist() == [0, 0, 1, 1]
    assert tree.layers[0].first_child.tolist() == [0, 2, 4]


def test_the_same_rack_name_in_two_blocks_is_two_racks() -> None:
    tree = DomainTree.build(("block", "rack"), [("A", "1"), ("B", "1")])
    assert [layer.size for layer in tree.layers] == [2, 2]


def test_nodes_are_a_layer_of_their_own_where_a_lowest_domain_has_several() -> None:
    tree = DomainTree.build(("rack",), [("1",), ("1",), ("2",)], names=("b", "a", "c"))
    assert tree.has_node_layer
    assert [layer.size for layer in tree.layers] == [2, 3]
    assert tree.rows.tolist() == [1, 0, 2]


def test_a_node_that_lacks_a_label_is_in_no_domain() -> None:
    tree = DomainTree.build(("rack", "host"), [(None, "a"), ("1", "b")])
    assert tree.rows.tolist() == [1]
    assert tree.total == 2


def test_a_topology_without_levels_is_no_topology() -> None:
    with pytest.raises(ValueError, match="at least one level"):
        DomainTree.build((), [])


def test_a_placement_is_written_as_pods_per_lowest_domain() -> None:
    tree = DomainTree.build(("block", "rack"), [("A", "2"), ("A", "1"), ("A", "1")])
    assert tree.assignment(np.array([0, 1, 2]), np.array([5, 1, 2])) == [(("A", "1"), 3), (("A", "2"), 5)]


def test_the_scarcest_resource_decides_how_many_pods_fit() -> None:
    room = MatrixCapacity(["cpu", "gpu"], np.array([[8, 3], [1, 9], [-4, 9]]), np.array([[2, 1]]))
    assert room.pods_per_node(0).tolist() == [3, 0, 0]


def test_a_cap_is_what_the_caller_counted_itself() -> None:
    room = MatrixCapacity(["cpu"], np.array([[8], [8]]), np.array([[2]]), caps=[np.array([1, 99])])
    assert room.pods_per_node(0).tolist() == [1, 4]
    room.reserve(0, np.array([0, 1]), np.array([1, 1]))
    assert room.pods_per_node(0).tolist() == [0, 3]


def test_beside_a_leader_there_is_less_room_where_it_fits() -> None:
    room = MatrixCapacity(["cpu"], np.array([[8], [3]]), np.array([[1], [4]]))
    takes_leader, beside = room.pods_beside_leader(0, 1)
    assert takes_leader.tolist() == [True, False]
    assert beside.tolist() == [4, 3]


def test_each_node_is_excluded_for_one_reason_the_first_by_name() -> None:
    room = MatrixCapacity(
        ["gpu", "cpu"],
        np.array([[0, 0], [0, 8], [8, 8], [0, 0]]),
        np.array([[1, 1]]),
        caps=[np.array([9, 9, 9, 0])],
        excluded=[{"nodeSelector": 1}],
    )
    assert room.excluded_nodes(0) == {"nodeSelector": 1, 'resource "cpu"': 1, 'resource "gpu"': 1}


def test_a_set_that_asks_for_nothing_fits_everywhere() -> None:
    room = MatrixCapacity(["cpu"], np.array([[0]]), np.array([[0]]))
    assert room.pods_per_node(0)[0] > 10**9
