"""What worlds in real time have in common: objects over sockets, watches that feed the judge, a machine short of CPU.

`live_up` plays them on `windlass up`, `live_kube` on a real kube-apiserver; both are real processes.
"""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import urllib3
from tests.real_cluster.api import Api, ApiError
from tests.worlds.followed_record import follow_record
from tests.worlds.judge import Judge
from tests.worlds.judges.trees import key_of

from windlass.model.group_membership import KUEUE_GROUP, GroupSource
from windlass.model.plan import Plan
from windlass.model.unstructured import Unstructured

WATCHED = {
    "pods": "/api/v1/pods",
    "nodes": "/api/v1/nodes",
    "jobs": "/apis/batch/v1/jobs",
    "workloads": "/apis/kueue.x-k8s.io/v1beta2/workloads",
    "clusterqueues": "/apis/kueue.x-k8s.io/v1beta2/clusterqueues",
    "cohorts": "/apis/kueue.x-k8s.io/v1beta2/cohorts",
    "resourceflavors": "/apis/kueue.x-k8s.io/v1beta2/resourceflavors",
    "localqueues": "/apis/kueue.x-k8s.io/v1beta2/localqueues",
    "topologies": "/apis/kueue.x-k8s.io/v1beta2/topologies",
}
ROOTS = {
    "": "/api/v1",
    "apps": "/apis/apps/v1",
    "batch": "/apis/batch/v1",
    "policy": "/apis/policy/v1",
    "scheduling.k8s.io": "/apis/scheduling.k8s.io/v1",
    "kueue.x-k8s.io": "/apis/kueue.x-k8s.io/v1beta2",
}
CLUSTER_WIDE = (
    "nodes",
    "priorityclasses",
    "clusterqueues",
    "cohorts",
    "resourceflavors",
    "topologies",
    "workloadpriorityclasses",
)
BURNERS, BURN_SECONDS, BURNER_NICE, PROGRAM_NICE = 6, 60, 12, 17
"""Burners are nicer than everything else on the machine but the programs under test, and end by themselves."""


class LiveCluster:
    cannot = frozenset(
        {"submit_owner", "submit_large_gang", "hang_kubelet", "cut_off_leader", "bad_network", "slow_watches"}
    )
    group_forms: tuple[GroupSource, ...] = (KUEUE_GROUP,)

    def __init__(self, record: Path) -> None:
        self.api: Api
        self.record = record
        """Where the scheduler records its decisions."""
        self.counts: dict[str, int] = {}
        self._stopped = threading.Event()
        self._watches: list[threading.Thread] = []
        self._burners: list[subprocess.Popen[bytes]] = []

    async def start(self, judge: Judge) -> None:
        loop = asyncio.get_running_loop()
        await asyncio.to_thread(self.launch)
        await self.create("namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}})
        for kind, path in WATCHED.items():
            thread = threading.Thread(target=self._follow, args=(kind, path, judge, loop), daemon=True)
            thread.start()
            self._watches.append(thread)

        def tell(plan: Plan) -> None:
            with contextlib.suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(judge.on_plan, plan)

        threading.Thread(target=follow_record, args=(self.record, tell, self._stopped), daemon=True).start()

    def launch(self) -> None:
        """Starts the processes; sets `api`."""
        raise NotImplementedError

    def _follow(self, kind: str, path: str, judge: Judge, loop: asyncio.AbstractEventLoop) -> None:
        known: dict[str, Unstructured] = {}

        def tell(event: str, tree: Unstructured) -> None:
            old = known.pop(key_of(tree), None)
            if event != "DELETED":
                known[key_of(tree)] = tree
            with contextlib.suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(judge.on_change, kind, event, tree, old)

        while not self._stopped.is_set():
            with contextlib.suppress(ApiError, urllib3.exceptions.HTTPError, OSError, ValueError):
                listed = self.api.get(path)
                for tree in listed.get("items") or ():
                    tell("ADDED" if key_of(tree) not in known else "MODIFIED", tree)
                version = listed["metadata"]["resourceVersion"]
                for event in self.api.watch(path, 30, resourceVersion=version):
                    if self._stopped.is_set() or event["type"] == "ERROR":
                        break
                    tell(event["type"], event["object"])
            self._stopped.wait(0.1)

    # Objects

    async def create(self, resource: str, tree: Unstructured) -> None:
        with _ignored(409):
            await asyncio.to_thread(self.api.post, self._collection(resource, tree), tree)

    async def list(self, resource: str) -> list[Unstructured]:
        plural, _, group = resource.partition(".")
        return await asyncio.to_thread(self.api.items, f"{ROOTS[group]}/{plural}")

    async def patch(self, resource: str, tree: Unstructured, merge: Unstructured) -> None:
        with _ignored(404, 409, 422):
            await asyncio.to_thread(self.api.patch, self._path(resource, tree), merge)

    async def delete(self, resource: str, tree: Unstructured) -> None:
        with _ignored(404, 409):
            body = {"propagationPolicy": "Background"}
            await asyncio.to_thread(lambda: self.api.delete(self._path(resource, tree), **body))

    def _collection(self, resource: str, tree: Unstructured) -> str:
        plural, _, group = resource.partition(".")
        inside = "" if plural in (*CLUSTER_WIDE, "namespaces") else f"/namespaces/{tree['metadata']['namespace']}"
        return f"{ROOTS[group]}{inside}/{plural}"

    def _path(self, resource: str, tree: Unstructured) -> str:
        return f"{self._collection(resource, tree)}/{tree['metadata']['name']}"

    # Machines

    def fail(self, target: str) -> None:
        raise NotImplementedError

    def hang_kubelet(self, node: str) -> None:
        raise NotImplementedError

    def heal(self) -> None:
        raise NotImplementedError

    async def restart_scheduler(self, pause: float) -> None:
        raise NotImplementedError

    async def cut_off_leader(self) -> None:
        raise NotImplementedError

    def set_network(self, latency: float, failures: float, watch_lag: float, decision_seconds: float) -> None:
        """Short of CPU, or not any more."""
        for burner in self._burners:
            burner.kill()
            burner.wait()
        self._burners.clear()
        if decision_seconds:
            burn = f"import time\nend = time.time() + {BURN_SECONDS}\nwhile time.time() < end: pass"
            command = ["nice", "-n", str(BURNER_NICE), sys.executable, "-c", burn]
            self._burners = [subprocess.Popen(command) for _ in range(BURNERS)]

    async def stop(self) -> None:
        self._stopped.set()
        self.set_network(0, 0, 0, 0)
        await asyncio.to_thread(self.shut_down)

    def shut_down(self) -> None:
        raise NotImplementedError


@contextlib.contextmanager
def _ignored(*codes: int) -> Any:
    try:
        yield
    except ApiError as error:
        if error.code not in codes:
            raise


def end(process: subprocess.Popen[bytes], seconds: float = 20.0) -> None:
    process.terminate()
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
