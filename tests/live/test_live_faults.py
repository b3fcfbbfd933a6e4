"""Faults on a real cluster: after each of them nothing is double-booked, no gang is partial, and what can run runs."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.live.bind_policy import allow_binds, refuse_binds
from tests.live.replica import Replica, replica
from tests.live.scenes import GPU, PODS, bound, condition, gang, overbooked, pod, pods
from tests.real_cluster.api import Api, Object, until
from tests.real_cluster.control_plane import ControlPlane
from tests.real_cluster.fake_kubelet import FakeKubelet, node

LEASE_SECONDS = 3


@pytest.fixture
def api(control_plane: ControlPlane) -> Iterator[Api]:
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "windlass-system"}}
    control_plane.api.create(namespace)
    with FakeKubelet(control_plane.api):
        yield control_plane.api


Start = Callable[..., Replica]


@pytest.fixture
def start(control_plane: ControlPlane, tmp_path: Path) -> Iterator[Start]:
    """Starts replicas that compete for a short lease."""
    with ExitStack() as stack:

        def begin(name: str, *arguments: str) -> Replica:
            short = f"--lease-seconds={LEASE_SECONDS}"
            return stack.enter_context(replica(control_plane.kubeconfig, tmp_path / f"{name}.log", short, *arguments))

        yield begin


def whole(api: Api, name: str, size: int) -> bool:
    return len(bound(api, name)) == size


def test_a_leader_killed_between_the_binds_of_a_gang(api: Api, start: Start) -> None:
    """The API server takes the binds of half the gang and not yet those of the rest: there the leader dies."""
    size, first_half = 20, 10
    api.create(*(node(f"n{i:03}", {GPU: "8"}) for i in range(size)))
    first = start("first")
    until(lambda: first.leads)
    second = start("second")
    members = gang("g", size)
    refuse_binds(api, [one["metadata"]["name"] for one in members[first_half:]])
    api.create(*members)
    until(lambda: len(bound(api, "g")) == first_half, 60, first.last_lines)
    first.kill()
    assert len(bound(api, "g")) == first_half, "it died with the gang half bound"
    allow_binds(api)
    until(lambda: second.leads, 60, second.last_lines)
    until(lambda: whole(api, "g", size), 60, f"the follower completes the gang\n{second.last_lines()}")
    assert not overbooked(api)
    api.create(pod("later", 8))
    until(lambda: condition(pods(api)["later"]).get("reason") == "Unschedulable")


def test_a_leader_that_was_stopped_for_longer_than_its_lease(api: Api, start: Start) -> None:
    api.create(*(node(f"n{i}", {GPU: "8"}) for i in range(4)))
    first = start("first")
    until(lambda: first.leads)
    second = start("second")
    first.send(signal.SIGSTOP)
    api.create(*gang("g", 3))
    until(lambda: whole(api, "g", 3), 60, f"the follower leads\n{second.last_lines()}")
    first.send(signal.SIGCONT)
    api.create(*(pod(f"p{i}", 4) for i in range(4)))
    until(lambda: len(bound(api, "p")) == 2, 30, second.last_lines)
    until(lambda: len(scheduled(api)) == 5)
    time.sleep(2 * LEASE_SECONDS)
    assert not overbooked(api)
    assert second.leads
    assert not first.leads
    assert len(scheduled(api)) == 5
    assert len({event["reportingInstance"] for event in scheduled(api)}) == 1, "only one of them ever bound"


def scheduled(api: Api) -> list[dict[str, str]]:
    found = api.items("/apis/events.k8s.io/v1/namespaces/default/events")
    return [event for event in found if event["reason"] == "Scheduled"]


def test_the_api_server_is_away_for_half_a_minute(api: Api, start: Start, control_plane: ControlPlane) -> None:
    api.create(*(node(f"n{i}", {GPU: "8"}) for i in range(8)))
    one = start("one", "--no-leader-elect")
    api.create(*gang("before", 3))
    until(lambda: whole(api, "before", 3))
    control_plane.apiserver.stop()
    time.sleep(30)
    control_plane.apiserver.start()
    api.create(*gang("after", 3))
    until(lambda: whole(api, "after", 3), 60, one.last_lines)
    assert whole(api, "before", 3)
    assert not overbooked(api)
    assert one.process.poll() is None


def test_watches_that_are_too_old(api: Api, start: Start, control_plane: ControlPlane) -> None:
    api.create(*(node(f"n{i}", {GPU: "8"}) for i in range(4)))
    one = start("one", "--no-leader-elect")
    api.create(*gang("before", 2))
    until(lambda: whole(api, "before", 2))
    control_plane.apiserver.stop()
    control_plane.etcd.compact()
    control_plane.apiserver.start()
    api.delete(f"{PODS}/before-0", gracePeriodSeconds=0)
    api.delete(f"{PODS}/before-1", gracePeriodSeconds=0)
    api.create(*gang("after", 4))
    until(lambda: whole(api, "after", 4), 60, one.last_lines)
    assert not overbooked(api)


def made_again(api: Api, members: list[Object]) -> list[Object]:
    """The pods as a controller makes them: a gang that nobody completes is stopped as soon as a member is gone."""
    name = {"apiVersion": "v1", "kind": "ConfigMap"}
    (maker,) = api.create({**name, "metadata": {"name": "maker", "namespace": "default"}})
    owner = {**name, "name": "maker", "uid": maker["metadata"]["uid"], "controller": True}
    return [{**one, "metadata": {**one["metadata"], "ownerReferences": [owner]}} for one in members]


def test_a_node_disappears_while_a_gang_is_being_bound(api: Api, start: Start) -> None:
    api.create(*(node(f"n{i:02}", {GPU: "8"}) for i in range(12)))
    one = start("one", "--no-leader-elect")
    members = made_again(api, gang("g", 10))
    api.create(*members)
    until(lambda: bound(api, "g"))
    lost = next(iter(bound(api, "g").values()))
    api.delete(f"/api/v1/nodes/{lost}")
    victims = [name for name, where in bound(api, "g").items() if where == lost]
    for name in victims:  # the garbage collector of pods would, after forty seconds
        api.delete(f"{PODS}/{name}", gracePeriodSeconds=0)
    again = [each for each in members if each["metadata"]["name"] in victims]
    for each in again:
        until(lambda name=each["metadata"]["name"]: not api.exists(f"{PODS}/{name}"))
    api.create(*again)
    until(lambda: whole(api, "g", 10), 60, one.last_lines)
    assert lost not in bound(api, "g").values()
    assert not overbooked(api)


def test_pods_deleted_while_they_are_being_bound(api: Api, start: Start) -> None:
    api.create(*(node(f"n{i}", {GPU: "8"}) for i in range(5)))
    one = start("one", "--no-leader-elect")
    names = [f"p{i:02}" for i in range(40)]
    for name in names:
        api.create(pod(name, 1))
        if int(name[1:]) % 2:
            api.delete(f"{PODS}/{name}", gracePeriodSeconds=0)
    until(lambda: len(bound(api, "p")) == 20, 30, one.last_lines)
    api.create(*(pod(f"q{i:02}", 1) for i in range(20)))
    until(lambda: len(bound(api, "q")) == 20, 30, "what the deleted ones would have taken is free")
    assert not overbooked(api)


def running(api: Api) -> int:
    return sum(one["status"].get("phase") == "Running" for one in pods(api).values())


class Devices:
    """A kubelet's own count: whoever comes when a node's GPUs are given away is refused, as a real one would."""

    def __init__(self, room: int) -> None:
        self._room, self._given = room, dict[str, dict[str, int]]()
        self.refused = 0

    def __call__(self, one: Object) -> str:
        given = self._given.setdefault(one["spec"]["nodeName"], {})
        asked = int(one["spec"]["containers"][0]["resources"]["limits"][GPU])
        if sum(given.values()) + asked > self._room:
            self.refused += 1
            return f"OutOf{GPU}"
        given[one["metadata"]["uid"]] = asked
        return ""


def replicas(name: str, size: int, scheduler: str) -> Object:
    """A ReplicaSet, which makes a new pod at once for each that failed."""
    template = pod(name, 1, scheduler, labels={"app": name})
    del (
        template["apiVersion"],
        template["kind"],
        template["metadata"]["name"],
        template["metadata"]["namespace"],
    )
    spec = {"replicas": size, "selector": {"matchLabels": {"app": name}}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": name}, "spec": spec}


def test_beside_the_default_scheduler_on_the_same_nodes(control_plane: ControlPlane, start: Start) -> None:
    """Both may choose the same GPU at the same moment: the kubelet refuses who comes second, and he is made again."""
    api = control_plane.api
    devices = Devices(8)
    api.create(*(node(f"n{i}", {GPU: "8"}) for i in range(6)))
    peer = control_plane.scheduler()
    peer.start()
    try:
        with FakeKubelet(api, devices):
            one = start("one", "--no-leader-elect")
            api.create(replicas("w", 24, "windlass"), replicas("k", 24, "default-scheduler"))
            until(lambda: running(api) == 48, 120, f"{devices.refused} refused\n{one.last_lines()}")
            assert not overbooked(api)
            api.create(*gang("g", 2, 8))
            until(lambda: condition(pods(api)["g-0"]) != {}, 30, "the gang is decided on")
            assert not bound(api, "g"), "there is nothing left for it"
    finally:
        peer.stop()


def test_an_eviction_that_a_budget_refuses_leaves_the_victims_whole(api: Api, start: Start) -> None:
    from tests.live.test_live_queues import install_crds, job, queues

    install_crds(api)
    api.create(node("n0", {GPU: "8"}), *queues(8))
    api.create(
        {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": "high"},
            "value": 1000,
        }
    )
    one = start("one", "--no-leader-elect")
    api.create(job("low", 4, 2))
    until(lambda: whole(api, "low", 4), 60, one.last_lines)
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "keep", "namespace": "default"},
        "spec": {"minAvailable": 4, "selector": {"matchLabels": {"job-name": "low"}}},
    }
    api.create(budget)
    path = "/apis/policy/v1/namespaces/default/poddisruptionbudgets/keep"
    until(lambda: api.get(path).get("status", {}).get("expectedPods") == 4)
    api.create(job("high", 1, 8, "high"))
    deadline = time.monotonic() + 8
    while time.monotonic() < deadline:
        assert whole(api, "low", 4), "nobody goes while the budget refuses"
        time.sleep(0.5)
    api.delete(path)
    until(lambda: whole(api, "high", 1), 60, one.last_lines)
    assert not bound(api, "low")


def test_an_object_that_cannot_be_read_blocks_its_node_and_nothing_else(api: Api, start: Start) -> None:
    """A share of a GPU that no rule understands, on a pod that somebody else has bound."""
    api.create(*(node(f"n{i}", {GPU: "8"}) for i in range(2)))
    odd = pod("odd", 0, "somebody", annotations={"gpu-fraction": "lots"}, nodeName="n0")
    api.create(odd)
    one = start("one", "--no-leader-elect")
    api.create(*(pod(f"p{i}", 4) for i in range(3)))
    until(lambda: len(bound(api, "p")) == 2, 30, one.last_lines)
    assert set(bound(api, "p").values()) == {"n1"}
    events = "/apis/events.k8s.io/v1/namespaces/default/events"
    told = until(lambda: [each for each in api.items(events) if each["reason"] == "Unreadable"], 30, one.last_lines)
    assert [(each["regarding"]["name"], "series" in each) for each in told] == [("odd", False)]
    assert "gpu-fraction" in told[0]["note"], "the path says what can't be read"
    uid = api.get(f"{PODS}/odd")["metadata"]["uid"]
    assert told[0]["regarding"]["uid"] == uid, "whoever describes the pod finds it"
    api.patch(f"{PODS}/odd", {"metadata": {"labels": {"changed": "yes"}}})
    api.create(pod("p9", 0))
    until(lambda: bound(api, "p9"), 30, one.last_lines)
    assert one.log.read_text().count("default/odd can't be read") == 1, "once is enough"
    api.delete(f"{PODS}/odd", gracePeriodSeconds=0)
    until(lambda: len(bound(api, "p")) == 4, 30, "its node is free again")
