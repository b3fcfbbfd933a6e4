"""Resources that no node has: pods may invent as many names as they like, and nobody else pays for it."""

from __future__ import annotations

import numpy as np
import pytest

from reference.park import Desk, gpu_node, node, pod
from windlass.cluster.delta import Deleted, Put
from windlass.cluster.resource_columns import UNADVERTISED
from windlass.engine import decide

NIC = "example.com/nic"


def invented(name: str, count: int = 20, **options: object) -> object:
    return pod(name, asks={f"{name}.example.com/r{number}": "1" for number in range(count)}, **options)


def bound_nodes(desk: Desk) -> dict[str, str]:
    return {bind.pod.removeprefix("default/"): bind.node for bind in desk.plan().binds}


@pytest.mark.parametrize("on", ["", "n1"])
def test_names_that_pods_invent_make_no_array_wider(on: str) -> None:
    desk = Desk(gpu_node("n1", 4), gpu_node("n2", 4))
    before = desk.store.snapshot().node_state.free.shape
    desk.put(*(invented(f"p{number}", on=on) for number in range(50)), pod("good", 1))
    assert desk.store.snapshot().node_state.free.shape == before
    assert bound_nodes(desk) == {"good": "n1"} or on


def test_who_asks_for_them_is_told_so() -> None:
    desk = Desk(node("n1"), invented("p", 2))
    (hold,) = desk.plan().holds
    assert hold.verdict.code == "RESOURCE_NAME_MISMATCH"


def test_a_pod_on_a_node_gives_back_what_it_took() -> None:
    desk = Desk(node("n1"), invented("p", 3, on="n1"))
    desk.store.snapshot()
    desk.apply(Deleted("Pod", "default/p"))
    assert not desk.store.snapshot().node_state.free[:, UNADVERTISED].any()
    desk.put(invented("q", 3))
    assert bound_nodes(desk) == {}


def test_a_node_gets_a_resource_that_its_pods_have_already() -> None:
    """As when a device plugin comes back after a restart."""
    desk = Desk(node("n1"), pod("old", asks={NIC: "1"}, on="n1"), pod("a", asks={NIC: "1"}), pod("b", asks={NIC: "1"}))
    assert bound_nodes(desk) == {}
    desk.put(node("n1", **{NIC: 2}))
    assert bound_nodes(desk) == {"a": "n1"}


def test_a_decision_on_an_older_snapshot_knows_nothing_of_it() -> None:
    """Decisions run beside the store, on arrays that have no such column."""
    desk = Desk(node("n1"), pod("a", asks={NIC: "1"}), pod("b"))
    older = desk.store.snapshot()
    desk.store.apply([Put(node("n2", **{NIC: 1}))])
    assert [bind.pod for bind in decide(older, desk.config, 0).binds] == ["default/b"]
    assert older.resources.column(NIC) == UNADVERTISED
    assert np.array_equal(older.node_state.allocatable[:, UNADVERTISED], [0])
    assert bound_nodes(desk)["a"] == "n2"
