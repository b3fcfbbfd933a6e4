"""Plays a world on a real kube-apiserver with its controllers: `windlass scheduler` is a process of its own.

There are no kubelets: nodes are objects, and a thread ends pods when their time is over and deletes what is to go.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
import time
from pathlib import Path

import yaml
from tests.invariants.judge import device_list
from tests.live.replica import Replica
from tests.live.test_live_queues import install_crds
from tests.real_cluster.api import Api, ApiError
from tests.real_cluster.control_plane import ControlPlane
from tests.real_cluster.fake_kubelet import FakeKubelet
from tests.worlds.draw_world import GPU, WorldSpec
from tests.worlds.live_cluster import PROGRAM_NICE, LiveCluster

from windlass.embedded.scheduler_thread import with_default_scheduler
from windlass.model.configuration_document import settings_document
from windlass.model.names.windlass import SIMULATED_DURATION_ANNOTATION, UNHEALTHY_DEVICES_ANNOTATION
from windlass.model.times import parse_duration, parse_timestamp
from windlass.model.unstructured import Unstructured

UNREACHABLE = {"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}
DEFAULT_SECONDS = 60


class KubeCluster(LiveCluster):
    def __init__(self, spec: WorldSpec, folder: Path, plane: ControlPlane) -> None:
        super().__init__(folder / "record")
        self._spec, self._folder, self._plane = spec, folder, plane
        self._config = folder / "config.yaml"
        self._config.write_text(yaml.safe_dump(settings_document(with_default_scheduler(spec.settings))))
        self._replica: Replica | None = None
        self._kubelet: FakeKubelet | None = None
        self._failed: dict[str, set[int]] = {}

    def launch(self) -> None:
        self.api = Api(self._plane.kubeconfig)
        install_crds(self.api)
        for node in self._spec.nodes:
            meta = {key: node.tree["metadata"].get(key) or {} for key in ("labels", "annotations")}
            self.api.create({**node.tree, "metadata": {"name": node.tree["metadata"]["name"], **meta}})
        self._kubelet = FakeKubelet(self.api).__enter__()
        threading.Thread(target=self._end_pods, daemon=True).start()
        self._start_scheduler()

    def _start_scheduler(self) -> None:
        log, config = self._folder / "scheduler.log", f"--config={self._config}"
        self._replica = Replica(self._plane.kubeconfig, log, config, "--no-leader-elect", f"--record={self.record}")
        os.setpriority(os.PRIO_PROCESS, self._replica.process.pid, PROGRAM_NICE)
        self._replica.wait_ready()

    def _end_pods(self) -> None:
        """Pods succeed when they have run as long as they say."""
        while not self._stopped.wait(0.5):
            with contextlib.suppress(ApiError, OSError):
                for pod in self.api.items("/api/v1/namespaces/team/pods"):
                    notes, status = pod["metadata"].get("annotations") or {}, pod["status"]
                    seconds = parse_duration(notes.get(SIMULATED_DURATION_ANNOTATION, f"{DEFAULT_SECONDS}s"))
                    is_service = pod["spec"].get("restartPolicy") == "Always"
                    if status.get("phase") != "Running" or is_service or "deletionTimestamp" in pod["metadata"]:
                        continue
                    began = [one for one in status["conditions"] if one["type"] == "PodScheduled"]
                    since = began[0].get("lastTransitionTime") or status["startTime"]
                    if time.time() > float(parse_timestamp(since)) + float(seconds):
                        assert self._kubelet is not None
                        self._kubelet.finish("team", pod["metadata"]["name"])

    # Machines

    def fail(self, target: str) -> None:
        kind, _, name = target.partition("/")
        node, _, index = name.partition(":")
        tree = self.api.get(f"/api/v1/nodes/{node}")
        if kind == "node":
            taints = [taint for taint in tree["spec"].get("taints") or () if taint["key"] != UNREACHABLE["key"]]
            taints.append(UNREACHABLE)  # once: it may have failed before
            self.api.patch(f"/api/v1/nodes/{node}", {"spec": {"taints": taints}})
            return
        self._failed.setdefault(node, set()).add(int(index))
        self._write_health(tree)
        for pod in self.api.items("/api/v1/pods", fieldSelector=f"spec.nodeName={node}"):
            if int(index) in device_list(pod) and pod["status"].get("phase") == "Running":
                assert self._kubelet is not None
                self._kubelet.finish(pod["metadata"]["namespace"], pod["metadata"]["name"], "Failed")

    def _write_health(self, tree: Unstructured) -> None:
        name, ill = tree["metadata"]["name"], self._failed.get(tree["metadata"]["name"], set())
        note = ",".join(map(str, sorted(ill))) or None
        self.api.patch(f"/api/v1/nodes/{name}", {"metadata": {"annotations": {UNHEALTHY_DEVICES_ANNOTATION: note}}})
        left = str(int(tree["status"]["capacity"][GPU]) - len(ill))
        self.api.patch(f"/api/v1/nodes/{name}/status", {"status": {"allocatable": {GPU: left}}})

    def heal(self) -> None:
        failed, self._failed = self._failed, {}
        for tree in self.api.items("/api/v1/nodes"):
            if tree["metadata"]["name"] in failed:
                self._write_health(tree)
            taints = [taint for taint in tree["spec"].get("taints") or () if taint["key"] != UNREACHABLE["key"]]
            if len(taints) < len(tree["spec"].get("taints") or ()):
                self.api.patch(f"/api/v1/nodes/{tree['metadata']['name']}", {"spec": {"taints": taints or None}})

    async def restart_scheduler(self, pause: float) -> None:
        assert self._replica is not None
        await asyncio.to_thread(self._replica.kill)
        await asyncio.sleep(pause / 5)
        await asyncio.to_thread(self._start_scheduler)

    def shut_down(self) -> None:
        if self._replica is not None:
            self._replica.stop()
        if self._kubelet is not None:
            self._kubelet.__exit__()
