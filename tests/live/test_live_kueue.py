"""Beside a real Kueue: it decides on quota and Windlass on places, but for a queue that was taken over by name."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.live.replica import Replica
from tests.live.scenes import GPU, bound
from tests.live.test_live_queues import condition, job, queues, workload
from tests.real_cluster.api import Api, Object, until
from tests.real_cluster.control_plane import ControlPlane
from tests.real_cluster.fake_kubelet import FakeKubelet, node
from tests.real_cluster.fixtures import unavailable
from tests.real_cluster.kueue import install_kueue, kueue_controller, register_webhooks
from tests.real_cluster.service import free_ports

KUEUE = "/apis/kueue.x-k8s.io/v1beta2"


def pair(name: str, quota: int) -> list[Object]:
    """A ClusterQueue and its LocalQueue, of that name."""
    _, cluster_queue, local_queue = queues(quota)
    for one in (cluster_queue, local_queue):
        one["apiVersion"] = "kueue.x-k8s.io/v1beta2"
        one["metadata"]["name"] = name
    local_queue["spec"]["clusterQueue"] = name
    return [cluster_queue, local_queue]


def queued(name: str, queue: str) -> Object:
    """Made running: to stop it is the work of Kueue's webhook."""
    made = job(name, 1, 8)
    made["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] = queue
    made["spec"]["suspend"] = False
    return made


def is_suspended(api: Api, name: str) -> bool:
    return bool(api.get(f"/apis/batch/v1/namespaces/default/jobs/{name}")["spec"]["suspend"])


def admitted(api: Api, name: str) -> bool:
    return condition(workload(api, name), "Admitted")[0] == "True"


@pytest.fixture
def api(control_plane: ControlPlane, tmp_path: Path) -> Iterator[Api]:
    if os.geteuid() != 0:
        unavailable("a real Kueue needs root")
    install_kueue(control_plane)
    (hooks,) = free_ports(1)
    controller = kueue_controller(control_plane, tmp_path, hooks)
    controller.start()
    try:
        with FakeKubelet(control_plane.api):
            until(lambda: leads(control_plane.api), 60, f"Kueue leads\n{controller.last_lines()}")
            register_webhooks(control_plane, hooks)
            yield control_plane.api
    finally:
        controller.stop()


def leads(api: Api) -> bool:
    """Kueue has its lease."""
    leases = api.items("/apis/coordination.k8s.io/v1/namespaces/kueue-system/leases")
    return any(one["spec"].get("holderIdentity") for one in leases)


def beside(plane: ControlPlane, log: Path, *arguments: str) -> Replica:
    """A replica that has seen that Kueue is there."""
    one = Replica(plane.kubeconfig, log, "--no-leader-elect", *arguments)
    one.wait_ready()
    until(lambda: "Kueue is live and decides on quota" in one.log.read_text(), 60, one.last_lines)
    return one


def test_kueue_decides_on_quota_and_windlass_on_places(api: Api, control_plane: ControlPlane, tmp_path: Path) -> None:
    flavor = {**queues(0)[0], "apiVersion": "kueue.x-k8s.io/v1beta2"}
    api.create(*(node(f"n{i}", {GPU: "8"}) for i in range(4)), flavor, *pair("main", 8), *pair("moved", 8))
    made = api.create(queued("first", "main"), queued("second", "main"), queued("before", "moved"))
    assert all(each["spec"]["suspend"] for each in made), "Kueue's webhook has stopped them"
    one = beside(control_plane, tmp_path / "one.log")
    try:
        until(lambda: len(bound(api)) == 2, 60, f"what Kueue admitted is placed\n{one.last_lines()}")
        assert bound(api, "before"), "Kueue's to admit, ours to place"
        until(lambda: workload(api, "first") and workload(api, "second"), 60, "Kueue made the Workloads")
        assert sorted((admitted(api, "first"), admitted(api, "second"))) == [False, True], "quota is for one"
        assert sorted((is_suspended(api, "first"), is_suspended(api, "second"))) == [False, True]
        managers = {
            field["manager"]
            for each in api.items(f"{KUEUE}/namespaces/default/workloads")
            for field in each["metadata"]["managedFields"]
        }
        assert managers == {"kueue"} | {each for each in managers if "kueue" in each}, "nobody else wrote there"
    finally:
        one.stop()
    move_over_and_back(api, control_plane, tmp_path)


def move_over_and_back(api: Api, plane: ControlPlane, tmp_path: Path) -> None:
    running = bound(api)
    api.delete("/apis/batch/v1/namespaces/default/jobs/before", propagationPolicy="Background")
    until(lambda: not bound(api, "before"), 60)
    running.pop(next(name for name in running if name.startswith("before")))
    path = f"{KUEUE}/namespaces/default/localqueues/moved"
    api.patch(path, {"spec": {"stopPolicy": "Hold"}})
    api.create(queued("taken", "moved"))
    one = beside(plane, tmp_path / "two.log", "--take-over=default/moved")
    try:
        until(lambda: bound(api, "taken"), 60, f"Windlass admits what Kueue holds\n{one.last_lines()}")
        assert admitted(api, "taken")
        made = api.items(f"{KUEUE}/namespaces/default/workloads")
        owners = [each["metadata"]["ownerReferences"][0]["name"] for each in made]
        assert owners.count("taken") == 1, "one Workload stands for it, whoever made that"
    finally:
        one.stop()
    api.patch(path, {"spec": {"stopPolicy": "None"}})
    one = beside(plane, tmp_path / "three.log")
    try:
        api.create(queued("back", "moved"))
        until(lambda: workload(api, "back"), 60, "Kueue sees it")
        api.delete("/apis/batch/v1/namespaces/default/jobs/taken", propagationPolicy="Background")
        until(lambda: bound(api, "back"), 60, f"Kueue admits it again\n{one.last_lines()}")
        assert {name: where for name, where in bound(api).items() if name in running} == running
    finally:
        one.stop()


def test_a_cohort_is_taken_over_whole_under_load_and_given_back(
    api: Api, control_plane: ControlPlane, tmp_path: Path
) -> None:
    """Two queues of one quota; the quota of both is never lent twice, whichever of the two admits."""
    flavor = {**queues(0)[0], "apiVersion": "kueue.x-k8s.io/v1beta2"}
    pairs = [*pair("left", 8), *pair("right", 8)]
    for queue in (pairs[0], pairs[2]):
        queue["spec"]["cohortName"] = "shared"
    pairs[0]["spec"]["stopPolicy"] = "Hold"
    api.create(*(node(f"n{number}", {GPU: "8"}) for number in range(4)), flavor, *pairs)
    api.create(*(queued(f"left-{number}", "left") for number in range(3)))
    alone = beside(control_plane, tmp_path / "alone.log", "--take-over=left")
    try:
        until(lambda: refusals(api, "left"), 60, alone.last_lines)
        assert "cohort shared also has ClusterQueue right, which Kueue keeps" in refusals(api, "left")[0]
        assert is_suspended(api, "left-0"), "Kueue holds it, and Windlass leaves it alone"
    finally:
        alone.stop()
    api.create(*(queued(f"right-{number}", "right") for number in range(3)))
    until(lambda: lent(api) == 2, 60, "Kueue lends both queues' quota to the right one")
    api.patch(f"{KUEUE}/clusterqueues/right", {"spec": {"stopPolicy": "Hold"}})
    both = beside(control_plane, tmp_path / "both.log", "--take-over=left", "--take-over=right")
    try:
        finish_jobs(api)
        until(lambda: any(admitted(api, f"left-{number}") for number in range(3)), 60, both.last_lines)
        assert not refusals(api, "right")
    finally:
        both.stop()
    for name in ("left", "right"):
        api.patch(f"{KUEUE}/clusterqueues/{name}", {"spec": {"stopPolicy": "None"}})
    finish_jobs(api)
    until(lambda: lent(api) == 2, 60, "Kueue goes on")


def refusals(api: Api, queue: str) -> list[str]:
    events = api.items("/apis/events.k8s.io/v1/events")
    found = [event for event in events if event["reason"] == "TakeOverRefused"]
    return [event["note"] for event in found if event["regarding"]["name"] == queue]


def lent(api: Api) -> int:
    """Workloads of eight GPUs that hold quota; never more than there is for."""
    workloads = api.items(f"{KUEUE}/namespaces/default/workloads")
    held = [made for made in workloads if made.get("status", {}).get("admission") and not finished(made)]
    assert len(held) <= 2, "quota was lent twice"
    return len(held)


def finished(made: Object) -> bool:
    conditions = made.get("status", {}).get("conditions") or ()
    return any(found["type"] == "Finished" and found["status"] == "True" for found in conditions)


def finish_jobs(api: Api) -> None:
    """Deletes the Jobs that run, and watches the quota while others take their place."""
    for made in api.items("/apis/batch/v1/namespaces/default/jobs"):
        if not made["spec"]["suspend"]:
            api.delete(
                f"/apis/batch/v1/namespaces/default/jobs/{made['metadata']['name']}", propagationPolicy="Background"
            )
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        lent(api)
        time.sleep(0.1)
