"""Workloads that can never fit are held with that reason, and others are not."""

from __future__ import annotations

import pytest

from reference.park import Desk, gpu_node, mig_node, node, pod
from windlass.model.names.windlass import RACK_LABEL
from windlass.model.node import Taint

LOST = Taint("node.kubernetes.io/unreachable", "NoExecute")
NOTES = {"kueue.x-k8s.io/podset-required-topology": RACK_LABEL}


def gang(count, gpus, **options):
    """With a topology annotation it goes through `WorkloadPlacer`."""
    return [pod(f"w{i}", gpus, group=("w", count), **options) for i in range(count)]


def racks(count, *, per_rack=2, gpus=8, **options):
    return [gpu_node(f"n{i}", gpus, labels={RACK_LABEL: f"r{i // per_rack}"}, **options) for i in range(count)]


def code(*objects):
    return Desk(*objects).verdict("w0").code


def test_more_pods_than_the_cluster_has_room_for():
    verdict = Desk(*racks(2), *gang(3, 8, annotations=NOTES)).verdict("w0")
    assert verdict.code == "REQUEST_EXCEEDS_CLUSTER"
    assert "on the empty cluster only 2 of 3 pods would fit" in verdict.message


def test_more_pods_than_a_rack_has_room_for():
    verdict = Desk(*racks(4), *gang(3, 8, annotations=NOTES)).verdict("w0")
    assert verdict.code == "REQUEST_EXCEEDS_CLUSTER"
    assert "the largest rack has room for 2 of 3 pods when it is empty" in verdict.message


def test_the_same_rack_name_elsewhere_is_another_rack():
    nodes = [
        gpu_node(f"n{i}", 8, labels={RACK_LABEL: "r", "topology.kubernetes.io/zone": f"z{i // 2}"}) for i in range(4)
    ]
    assert code(*nodes, *gang(3, 8, annotations=NOTES)) == "REQUEST_EXCEEDS_CLUSTER"


def test_what_is_only_in_use_is_not_infeasible():
    busy = [pod(f"p{i}", 8, on=f"n{i}") for i in range(2)]
    assert code(*racks(2), *busy, *gang(2, 8, annotations=NOTES)) == "KUEUE_TOPOLOGY_NOFIT"


@pytest.mark.parametrize("options", [{"cordoned": True}, {"taints": (LOST,)}], ids=["cordoned", "lost"])
def test_a_node_that_may_come_back_counts(options):
    nodes = [*racks(1), gpu_node("n1", 8, labels={RACK_LABEL: "r0"}, **options)]
    assert code(*nodes, *gang(2, 8, annotations=NOTES)) != "REQUEST_EXCEEDS_CLUSTER"


def test_a_taint_that_stays_is_named_and_not_called_a_matter_of_size():
    nodes = racks(2, taints=(Taint("team", "NoSchedule", "blue"),))
    verdict = Desk(*nodes, *gang(2, 8, annotations=NOTES)).verdict("w0")
    assert verdict.code == "TAINT_NOT_TOLERATED"
    assert "2 node(s) had untolerated taint(s)" in verdict.message


@pytest.mark.parametrize(
    ("member", "most"),
    [
        ({"share": "0.5"}, 16),
        ({"share": "0.4"}, 16),
        ({"memory_mib": 1000}, 99),
        ({"models": ["Tesla-T4"]}, 0),
    ],
    ids=["halves", "two fifths", "by memory", "another model"],
)
def test_shares_and_models(member, most):
    """A bound may be too high, never too low."""
    count = min(most + 1, 40)
    pods = [
        pod(f"w{i}", cpu="10m", group=("w", count), annotations=dict(NOTES), **member)
        if "models" not in member
        else pod(f"w{i}", 1, cpu="10m", group=("w", count), annotations=dict(NOTES), **member)
        for i in range(count)
    ]
    exceeds = code(*racks(1), *pods) == "REQUEST_EXCEEDS_CLUSTER" if most < 99 else False
    assert exceeds == (most < 99)


def test_instances_that_are_made_on_demand_are_no_matter_of_what_is_advertised():
    pods = [pod(f"w{i}", cpu="10m", mig=("1g.10gb", 1), group=("w", 2), annotations=NOTES) for i in range(2)]
    desk = Desk(mig_node("n0", 1, labels={RACK_LABEL: "r0"}), *pods)
    assert desk.run() == {"w0": "n0", "w1": "n0"}


def test_a_resource_that_no_node_has():
    pods = [pod("w0", 1, asks={"example.com/nic": "1"}, group=("w", 1), annotations=NOTES)]
    assert code(*racks(1), node("plain"), *pods) == "REQUEST_EXCEEDS_CLUSTER"
