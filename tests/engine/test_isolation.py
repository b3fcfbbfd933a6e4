"""An invalid pod never keeps others from being decided: it is held with its reason, and they start."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.engine.plain_objects import NOW, START, holds, node, planned, pod

from windlass.model.codec import decode_object
from windlass.model.configuration import Settings
from windlass.model.errors import InputError
from windlass.model.times import parse_timestamp
from windlass.model.unstructured import Unstructured
from windlass.planner import plan_objects

GROUP = {"kueue.x-k8s.io/pod-group-name": "g"}
ALONE_IN_IT = {"kueue.x-k8s.io/pod-group-total-count": "1"}
TOO_MANY: Unstructured = {"containers": [{"name": "c", "resources": {"limits": {"nvidia.com/gpu": "5000000000"}}}]}
RESOURCES = {f"example.com/r{i}": "1" for i in range(30)}
ODD: dict[str, Unstructured] = {
    "a share of two GPUs": {"metadata": {"annotations": {"gpu-fraction": "2"}}},
    "five thousand million GPUs": TOO_MANY,
    "a share and a limit": {
        "metadata": {
            "labels": {"kueue.x-k8s.io/max-exec-time-seconds": "60"},
            "annotations": {"gpu-fraction": "2"},
        }
    },
    "thirty resources": {"containers": [{"name": "c", "resources": {"limits": RESOURCES}}]},
    "half a GPU": {"containers": [{"name": "c", "resources": {"limits": {"nvidia.com/gpu": "500m"}}}]},
    "no quantity": {"containers": [{"name": "c", "resources": {"limits": {"nvidia.com/gpu": "many"}}}]},
}
GOOD = [pod(f"good-{i}", 1) for i in range(3)]


def in_group(tree: Unstructured) -> Unstructured:
    """The pod as the only one of a group."""
    metadata = tree.get("metadata", {})
    labels, notes = {**metadata.get("labels", {}), **GROUP}, metadata.get("annotations", {}) | ALONE_IN_IT
    return {**tree, "metadata": {**metadata, "labels": labels, "annotations": notes}}


@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize("name", ODD)
def test_a_pod_that_cannot_be_read_is_held_and_the_others_start(name: str, grouped: bool):
    odd = in_group(ODD[name]) if grouped else dict(ODD[name])
    plan, _ = planned(node("n1"), pod("odd", 1, **odd), *GOOD)
    assert {bind.pod for bind in plan.binds} == {"default/good-0", "default/good-1", "default/good-2"}
    held = {hold.workload: hold.verdict for hold in plan.holds}
    verdict = held["default/g" if grouped else "default/odd"]
    assert verdict.code in ("INVALID_OBJECT", "FRACTIONAL_GPU_REQUEST")
    assert verdict.detail, "it says what can't be read"


@given(
    grouped=st.booleans(),
    which=st.lists(st.sampled_from(sorted(ODD)), min_size=1, max_size=3, unique=True),
    running=st.booleans(),
)
def test_several_of_them_and_some_already_running(grouped: bool, which: list[str], running: bool):
    odd = [
        pod(
            f"odd-{i}",
            1,
            on="n2" if running and i == 0 else "",
            **(in_group(ODD[name]) if grouped else ODD[name]),
        )
        for i, name in enumerate(which)
    ]
    plan, _ = planned(node("n1"), node("n2"), *odd, *GOOD)
    bound = {bind.pod: bind.node for bind in plan.binds}
    assert {"default/good-0", "default/good-1", "default/good-2"} <= bound.keys()
    if running:
        assert set(bound.values()) == {"n1"}, "what is free on n2 is not known"


MIXED: Unstructured = {
    "containers": [{"name": "c", "resources": {"limits": {"nvidia.com/gpu": "1", "nvidia.com/mig-1g.10gb": "1"}}}]
}


def mixed_node(name: str, gpus: int, instances: int) -> Unstructured:
    """A node of the mixed strategy: whole GPUs beside MIG instances."""
    made = node(name, gpus)
    room = {**made["status"]["allocatable"], "nvidia.com/mig-1g.10gb": str(instances)}
    return {**made, "status": {**made["status"], "capacity": room, "allocatable": room}}


@pytest.mark.parametrize("grouped", [False, True])
def test_whole_gpus_and_mig_instances_in_one_pod_go_where_a_node_has_both(grouped: bool):
    asks = in_group(MIXED) if grouped else MIXED
    plan, _ = planned(node("n1"), mixed_node("n2", 1, 7), pod("odd", 1, **asks))
    assert [(bind.pod, bind.node) for bind in plan.binds] == [("default/odd", "n2")]


def test_and_where_no_node_has_both_the_hold_says_what_is_lacking():
    plan, _ = planned(node("n1"), mixed_node("n2", 0, 7), pod("odd", 1, **MIXED), *GOOD)
    assert len(plan.binds) == 3
    assert holds(plan) == {"default/odd": "REQUEST_EXCEEDS_CLUSTER"}
    assert "nvidia.com/mig-1g.10gb" in plan.holds[0].verdict.message


def test_two_profiles_at_once_are_counted():
    asks = {"nvidia.com/mig-1g.10gb": "1", "nvidia.com/mig-3g.40gb": "1"}
    made = mixed_node("n1", 0, 2)
    room = {**made["status"]["allocatable"], "nvidia.com/mig-3g.40gb": "1"}
    made["status"] |= {"capacity": room, "allocatable": room}
    pods = [pod(f"p-{i}", 1, containers=[{"name": "c", "resources": {"limits": asks}}]) for i in range(2)]
    plan, _ = planned(made, *pods)
    assert [bind.pod for bind in plan.binds] == ["default/p-0"]


def test_a_limit_beyond_the_year_9999_is_no_reason_to_fail():
    endless = {"metadata": {"annotations": {"windlass.dev/duration": "2000000h"}}}
    plan, _ = planned(
        node("n1"),
        pod("runs", 8, on="n1", metadata={"annotations": {"windlass.dev/duration": "1000000000s"}}),
        pod("waits", 8, metadata={"annotations": {"windlass.dev/duration": "9000000000s"}}),
        pod("behind", 8, **endless),
    )
    assert len(list(plan.holds)) == 2


def reservation(resources: dict[str, str]) -> Unstructured:
    until = "2026-01-02T00:00:00Z"
    spec = {"from": START, "until": until, "who": {"namespaces": ["x"]}, "resources": resources}
    meta = {"name": "r"}
    return {"apiVersion": "windlass.dev/v1", "kind": "Reservation", "metadata": meta, "spec": spec}


@pytest.mark.parametrize("resource", ["example.com/foo", "nvidia.com/mig-1g.10gb"])
def test_a_reservation_of_what_nobody_has_stops_nobody(resource: str):
    """The arrays had no column for it: the compiled kernel read past their end."""
    plan, _ = planned(node("n1"), reservation({resource: "1"}), *GOOD)
    assert len(plan.binds) == len(GOOD)
    assert "reservation/r" in holds(plan)


def test_a_reservation_of_absurdly_many_gpus_is_refused_when_it_is_read():
    with pytest.raises(InputError, match="more than any node has"):
        decode_object(reservation({"nvidia.com/gpu": "5000"}))


def test_requests_of_exbibytes_do_not_add_up_to_a_free_node():
    """Two of them are more than 64 bits hold."""
    huge = {"containers": [{"name": "c", "resources": {"requests": {"memory": "5Ei"}}}]}
    running = [pod(f"huge-{i}", 0, on="n1", **huge) for i in range(2)]
    small = {"containers": [{"name": "c", "resources": {"requests": {"memory": "1Gi"}}}]}
    plan, _ = planned(node("n1"), *running, pod("waits", 0, **small))
    assert holds(plan) == {"default/waits": "CPU_MEM_INSUFFICIENT"}


def test_a_limit_of_more_than_a_lifetime_is_no_date():
    busy = pod("busy", 8, on="n1", activeDeadlineSeconds=2**63 - 1)
    plan, _ = planned(node("n1"), busy, pod("waits", 1))
    assert holds(plan) == {"default/waits": "GPU_FULL"}


def test_a_leader_without_workers_whose_workers_would_ask_for_a_rack():
    """LeaderWorkerSet of size 1 and several levels of topology: a set of no pods below no domain."""
    levels = ("topology.kubernetes.io/zone", "topology.kubernetes.io/rack", "kubernetes.io/hostname")
    labels = {**dict.fromkeys(levels[:2], "a"), levels[2]: "n1"}
    asks = {"kueue.x-k8s.io/podset-required-topology": levels[1]}
    templates = {
        "size": 1,
        "leaderTemplate": {"spec": pod("leader", 1)["spec"]},
        "workerTemplate": {"metadata": {"annotations": asks}, "spec": pod("worker", 1)["spec"]},
    }
    lws = {
        "apiVersion": "leaderworkerset.x-k8s.io/v1",
        "kind": "LeaderWorkerSet",
        "metadata": {"name": "lws"},
        "spec": {"leaderWorkerTemplate": templates},
    }
    where = node("n1")
    where["metadata"]["labels"] = labels
    objects = [decode_object(one) for one in (where, pod("busy", 8, on="n1"), lws)]
    plan, _ = plan_objects(objects, Settings(topology_levels=levels), parse_timestamp(NOW))
    assert holds(plan) == {"default/lws-0": "GPU_FULL"}


def test_a_group_of_resources_without_flavors_is_refused_when_it_is_read():
    """As Kueue's CRD refuses it; explaining a hold of such a queue failed."""
    spec = {"resourceGroups": [{"coveredResources": ["cpu"], "flavors": []}]}
    meta = {"name": "q"}
    queue = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ClusterQueue", "metadata": meta, "spec": spec}
    with pytest.raises(InputError, match="flavors"):
        decode_object(queue)


@pytest.mark.parametrize("name", ODD)
def test_alone_or_in_a_group_it_is_held_for_the_same(name: str):
    codes = {
        holds(planned(node("n1"), pod("odd", 1, **asks))[0]).popitem()[1] for asks in (ODD[name], in_group(ODD[name]))
    }
    assert len(codes) == 1
