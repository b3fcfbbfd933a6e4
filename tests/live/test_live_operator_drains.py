"""Drains, canary work and images of the operator on a real API server, beside a real Kueue and beside Windlass alone.

Kubelets and node agents are played; the Jobs, StatefulSets and Workloads are moved by the real controllers.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.live.replica import Replica
from tests.live.rights import asked, granted
from tests.live.scenes import GPU, pod, pods
from tests.live.test_live_kueue import leads
from tests.live.test_live_operator import LABELS, MIG, ROOT, STATE, USER, install_operator, operator, ours
from tests.live.test_live_queues import condition, install_crds, job, queues, workload
from tests.real_cluster.api import Api, until
from tests.real_cluster.control_plane import ControlPlane
from tests.real_cluster.fake_kubelet import FakeKubelet, node
from tests.real_cluster.fixtures import unavailable
from tests.real_cluster.kueue import install_kueue, kueue_controller, register_webhooks
from tests.real_cluster.service import free_ports

from windlass.cli.install_operator import OperatorInstallOptions, operator_manifests

NODES = ("n0", "n1", "n2")
TAINT = {"key": "windlass.dev/gpu-not-ready", "effect": "NoSchedule"}
STACK = {"nodes": {"matchLabels": {"pool": "a"}}, "mig": {"config": "all-disabled"}, "maxUnavailable": 1}
CHANGE = {"stack": "a", "mig": {"config": "all-1g.10gb"}, "waves": [{"nodes": "100%", "bake": "1s"}]}
CHOICES = OperatorInstallOptions(workload_namespaces=("default",))


@contextlib.contextmanager
def admitted_by(who: str, plane: ControlPlane, folder: Path) -> Iterator[Replica]:
    """A queue of 8 GPUs, and who admits there; Windlass chooses the places in both cases."""
    api = plane.api
    if who == "Windlass":
        install_crds(api)
        api.create(*queues(8))
        with contextlib.closing(_scheduler(plane, folder)) as one:
            yield one
        return
    if os.geteuid() != 0:
        unavailable("a real Kueue needs root")
    install_kueue(plane)
    (hooks,) = free_ports(1)
    controller = kueue_controller(plane, folder, hooks)
    controller.start()
    try:
        until(lambda: leads(api), 60, f"Kueue leads\n{controller.last_lines()}")
        register_webhooks(plane, hooks)
        api.create(*({**one, "apiVersion": "kueue.x-k8s.io/v1beta2"} for one in queues(8)))
        with contextlib.closing(_scheduler(plane, folder)) as one:
            until(lambda: "Kueue is live and decides on quota" in one.log.read_text(), 60, one.last_lines)
            yield one
    finally:
        controller.stop()


class _Stopped(Replica):
    def close(self) -> None:
        self.stop()


def _scheduler(plane: ControlPlane, folder: Path) -> _Stopped:
    one = _Stopped(plane.kubeconfig, folder / "scheduler.log", "--no-leader-elect")
    one.wait_ready()
    return one


def agents(api: Api) -> None:
    """The node agents: a MIG layout is applied at once."""
    for name in NODES:
        labels = api.get(f"/api/v1/nodes/{name}")["metadata"]["labels"]
        if labels.get(MIG) and labels.get(STATE) != "success":
            api.patch(f"/api/v1/nodes/{name}", {"metadata": {"labels": {STATE: "success"}}})


def bring_up(api: Api, lines: Callable[[], str]) -> None:
    api.create(*(node(name, {GPU: "8"}, LABELS, taints=[TAINT]) for name in NODES), ours("GPUStack", "a", STACK))

    def are_open() -> bool:
        agents(api)
        return not any("taints" in api.get(f"/api/v1/nodes/{name}")["spec"] for name in NODES)

    until(are_open, 60, lines)


def phase(api: Api, name: str) -> str:
    agents(api)
    return str(api.get(f"{ROOT}/fleetchanges/{name}").get("status", {}).get("phase", ""))


def train(api: Api) -> dict[str, Any]:
    found: dict[str, Any] = api.get("/apis/batch/v1/namespaces/default/jobs/train")
    return found


def running(api: Api) -> dict[str, Any]:
    """The pod of the Job."""
    found = [each for name, each in pods(api).items() if name.startswith("train") and each["spec"].get("nodeName")]
    return next((each for each in found if each["status"].get("phase") == "Running"), {})


@pytest.mark.parametrize("who", ["Windlass", "Kueue"])
def test_a_drain_stops_admitted_work_in_its_queue(control_plane: ControlPlane, tmp_path: Path, who: str) -> None:
    api = control_plane.api
    install_operator(api, CHOICES)
    log = tmp_path / "operator.log"
    with (
        FakeKubelet(api),
        admitted_by(who, control_plane, tmp_path) as scheduler,
        operator(control_plane.user(USER), log, "--log-level=debug"),
    ):
        bring_up(api, log.read_text)
        made = job("train", 1, 8)
        made["spec"]["backoffLimit"] = 0  # one pod that counts as failed would end it
        api.create(made)
        until(lambda: running(api), 60, scheduler.last_lines)
        first = running(api)
        api.create(ours("FleetChange", "mig", CHANGE))
        until(lambda: phase(api, "mig") == "Succeeded", 240, lambda: log.read_text()[-6000:])
        until(lambda: running(api) and running(api)["metadata"]["uid"] != first["metadata"]["uid"], 90)
        status = train(api)["status"]
        assert not status.get("failed")
        assert not [each for each in status.get("conditions", ()) if each["type"] == "Failed"]
        found = workload(api, "train")
        assert found["spec"]["active"]
        assert condition(found, "Admitted")[0] == "True"
        assert "windlass.dev/stopped-for" not in (found["metadata"].get("annotations") or {})
    check_rights(log)


def test_canary_work_and_the_image_of_a_stateful_set(control_plane: ControlPlane, tmp_path: Path) -> None:
    api = control_plane.api
    install_operator(api, CHOICES)
    log = tmp_path / "operator.log"
    with (
        FakeKubelet(api) as kubelet,
        contextlib.closing(_scheduler(control_plane, tmp_path)) as scheduler,
        operator(control_plane.user(USER), log, "--log-level=debug"),
    ):
        bring_up(api, log.read_text)
        canary = {"work": {"jobTemplate": {"spec": {"template": {"spec": pod("work", 8)["spec"]}}}}}
        waves = [{"nodes": 1, "bake": "1s"}, {"nodes": "100%", "bake": "1s"}]
        api.create(ours("FleetChange", "mig", {**CHANGE, "waves": waves, "canary": canary}))
        hosts: set[str] = set()

        def is_done() -> bool:
            for each in api.items("/api/v1/namespaces/windlass-canary/pods"):
                if each["status"].get("phase") == "Running":
                    hosts.add(each["spec"]["nodeName"])
                    kubelet.finish("windlass-canary", each["metadata"]["name"])
            return phase(api, "mig") == "Succeeded"

        until(is_done, 120, lambda: f"{log.read_text()[-6000:]}\n{scheduler.last_lines()}")
        assert len(hosts) == 1, "one node is the canary"
        roll_out(api, lambda: f"{log.read_text()[-6000:]}\n{scheduler.last_lines()}")
    check_rights(log)


def roll_out(api: Api, lines: Callable[[], str]) -> None:
    spec = pod("llm", 8)["spec"]
    name = spec["containers"][0]["name"]
    labels = {"app": "llm"}
    api.create(
        {
            "apiVersion": "apps/v1",
            "kind": "StatefulSet",
            "metadata": {"name": "llm", "namespace": "default"},
            "spec": {
                "replicas": 3,
                "serviceName": "llm",
                "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": spec},
            },
        }
    )
    path = "/apis/apps/v1/namespaces/default/statefulsets/llm"
    until(lambda: api.get(path)["status"].get("readyReplicas") == 3, 60, lines)
    wanted = {"namespace": "default", "name": "llm", "container": name, "image": "registry.example.com/llm:2"}
    waves = [{"nodes": 1, "bake": "3s"}, {"nodes": "100%", "bake": "1s"}]
    api.create(ours("FleetChange", "llm", {"stack": "a", "workloadImage": wanted, "waves": waves}))
    until(lambda: phase(api, "llm") == "Baking", 60, lines)
    images = [each["spec"]["containers"][0]["image"] for _, each in sorted(pods(api).items()) if "llm-" in _]
    assert [image == wanted["image"] for image in images] == [False, False, True]
    until(lambda: phase(api, "llm") == "Succeeded", 90, lines)
    found = api.get(path)
    assert found["spec"]["updateStrategy"]["rollingUpdate"]["partition"] == 0
    assert found["status"]["updatedReplicas"] == 3


def check_rights(log: Path) -> None:
    """Nothing was refused, and nothing was asked for that is not printed."""
    rules = [one for one in operator_manifests(CHOICES) if one["kind"] in ("ClusterRole", "Role")]
    rights = {right for one in rules for right in granted(one["rules"])}
    seen = list(asked(log.read_text()))
    assert not {right for right, code in seen if code == 403}
    assert {right for right, _ in seen} <= rights
