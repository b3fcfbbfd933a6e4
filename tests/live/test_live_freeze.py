"""`windlass freeze` on a real API server under load, and waiting pods handed to a real kube-scheduler and back."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from tests.live.replica import Replica, replica
from tests.live.rights import REQUEST
from tests.live.scenes import GPU, bound, overbooked, pod
from tests.live.test_live_queues import install_crds, job, queues
from tests.real_cluster.api import Api, until
from tests.real_cluster.control_plane import ControlPlane
from tests.real_cluster.fake_kubelet import FakeKubelet, node

STOP_SECONDS, WATCHED_SECONDS = 5.0, 10.0


def windlass(plane: ControlPlane, *arguments: str) -> str:
    """What the command prints."""
    program = str(Path(sys.executable).with_name("windlass"))
    command = [program, arguments[0], f"--kubeconfig={plane.kubeconfig}", *arguments[1:]]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def writes(log: str) -> list[str]:
    """Those of a replica that logs its requests, but for its lease."""
    return [
        f"{method} {path}" for method, path, _, _ in REQUEST.findall(log) if method != "GET" and "/leases" not in path
    ]


@pytest.fixture
def api(control_plane: ControlPlane) -> Iterator[Api]:
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "windlass-system"}}
    install_crds(control_plane.api)
    control_plane.api.create(namespace)
    with FakeKubelet(control_plane.api):
        yield control_plane.api


@pytest.fixture
def replicas(control_plane: ControlPlane, api: Api, tmp_path: Path) -> Iterator[list[Replica]]:
    with contextlib.ExitStack() as stack:
        found = [
            stack.enter_context(
                replica(control_plane.kubeconfig, tmp_path / name, "--log-level=debug", f"--audit={tmp_path / 'audit'}")
            )
            for name in ("one.log", "two.log")
        ]
        until(lambda: any(running.leads for running in found), 60, found[0].last_lines())
        yield found


@contextlib.contextmanager
def load(api: Api) -> Iterator[None]:
    """Pods and queued Jobs, some of each a second."""
    stop = threading.Event()

    def create() -> None:
        number = 0
        while not stop.wait(0.2):
            api.create(pod(f"load-{number:03}", gpus=number % 3), job(f"train-{number:03}", 1, 1))
            number += 1

    thread = threading.Thread(target=create)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def test_no_write_after_five_seconds_and_nothing_lost(
    control_plane: ControlPlane, api: Api, replicas: list[Replica], tmp_path: Path
) -> None:
    api.create(*(node(f"n{number}", {GPU: "8"}) for number in range(40)), *queues(160))
    with load(api):
        until(lambda: len(bound(api)) > 10, 60, "it works")
        said = windlass(control_plane, "freeze", "--reason=under load")
        assert "windlass-system: frozen (scheduler windlass-scheduler) since " in said
        assert "by admin: under load" in said
        time.sleep(STOP_SECONDS)
        sizes = [len(running.log.read_text()) for running in replicas]
        before = bound(api)
        time.sleep(WATCHED_SECONDS)
        for running, size in zip(replicas, sizes, strict=True):
            assert writes(running.log.read_text()[size:]) == []
        assert bound(api) == before
        assert [running.status("/healthz") for running in replicas] == [200, 200]
        assert "state" not in windlass(control_plane, "freeze", "--off")
        until(lambda: len(bound(api)) > len(before) + 10, 60, "all goes on")
    waiting = [made["metadata"]["name"] for made in api.items("/api/v1/namespaces/default/pods")]
    until(lambda: set(waiting) <= set(bound(api)), 60, "nothing is lost")
    assert not overbooked(api)
    until(lambda: on_record(tmp_path / "audit") == admitted(api), 60, "every admission is on record, once")


def admitted(api: Api) -> list[str]:
    workloads = api.items("/apis/kueue.x-k8s.io/v1beta2/workloads")
    return sorted(
        f"default/{made['metadata']['name']}" for made in workloads if made.get("status", {}).get("admission")
    )


def on_record(folder: Path) -> list[str]:
    """Workloads that were admitted, as `windlass audit` shows them."""
    program = str(Path(sys.executable).with_name("windlass"))
    command = [program, "audit", str(folder), "--action=admitted", "-o", "json"]
    found = subprocess.run(command, capture_output=True, text=True, check=True)
    return sorted(record["workload"] for record in json.loads(found.stdout)["records"])


def test_waiting_pods_are_handed_to_kube_scheduler_and_back(
    control_plane: ControlPlane, api: Api, replicas: list[Replica]
) -> None:
    api.create(*(node(f"n{number}", {GPU: "8"}) for number in range(4)), pod("large", 32), pod("before", 1))
    until(lambda: bound(api, "before"), 60, replicas[0].last_lines())
    said = windlass(control_plane, "handover", "--image=kube-scheduler:test")
    assert "1 pods wait for windlass" in said
    config = api.get("/api/v1/namespaces/windlass-system/configmaps/windlass-handover")["data"]["config.yaml"]
    scheduler = control_plane.scheduler({"profiles": yaml.safe_load(config)["profiles"]}, "handed-over")
    scheduler.start()
    try:
        api.create(*(pod(f"meanwhile-{number}", 2) for number in range(8)))
        until(lambda: len(bound(api, "meanwhile-")) == 8, 60, scheduler.last_lines)
        events = api.items("/apis/events.k8s.io/v1/namespaces/default/events")
        by = {
            event["regarding"]["name"]: event.get("reportingController") or event["deprecatedSource"]["component"]
            for event in events
            if event["reason"] == "Scheduled"
        }
        assert {by[f"meanwhile-{number}"] for number in range(8)} == {"windlass"}, (
            "kube-scheduler's profile of the name"
        )
    finally:
        scheduler.stop()
    api.create(pod("after", 1))
    assert "Windlass schedules again" in windlass(control_plane, "handover", "--back")
    until(lambda: bound(api, "after"), 60, replicas[0].last_lines())
    assert not overbooked(api)
