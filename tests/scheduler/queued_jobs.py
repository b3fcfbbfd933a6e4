"""A virtual cluster with two pools of GPUs, a flavor for each and one queue: Jobs are submitted, changed and watched.

    @on_cluster()
    async def test_…(cluster: QueuedJobs) -> None:
        cluster.submit("train", pods=4)
        await asyncio.sleep(10)

After every change of an object the quota is compared with the pods: never more bound than admitted, never more
reserved than there is.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any

from tests.invariants.objects import cluster_queue, flavor, local_queue
from tests.worlds.draw_world import GPU, POOL_LABEL
from tests.worlds.virtual_cluster import VirtualCluster
from tests.worlds.virtual_time import Machine, run_virtually

from windlass.embedded.runtime.fleet_nodes import fleet_nodes
from windlass.model.configuration import Settings
from windlass.model.fleet import Fleet, FleetGpus, FleetPool
from windlass.model.fleet_spec import FleetSpec
from windlass.model.names.kueue import QUEUE_NAME_LABEL
from windlass.model.names.windlass import SIMULATED_DURATION_ANNOTATION
from windlass.model.unstructured import Unstructured

TAINT = {"key": "example.com/reserved", "value": "yes", "effect": "NoSchedule"}
TOLERATION = {"key": "example.com/reserved", "operator": "Equal", "value": "yes", "effect": "NoSchedule"}
JOBS, WORKLOADS, PODS = "jobs.batch", "workloads.kueue.x-k8s.io", "pods"


class QueuedJobs:
    def __init__(self, quota: dict[str, int], machine: Machine) -> None:
        self.quota = quota
        pools = tuple(
            FleetPool(name=name, count=1, gpus=(FleetGpus(model="H100", count=8),), cpu="64", labels={POOL_LABEL: name})
            for name in ("big", "small")
        )
        self.cluster = VirtualCluster(
            fleet_nodes(Fleet(FleetSpec(pools)), time.time()), Settings(gang_grace_seconds=60), Random(1), machine
        )
        self.client = self.cluster.client
        self.problems: list[str] = []

    async def start(self) -> None:
        client = self.client
        client.create("namespaces", "", {"metadata": {"name": "team"}})
        for name in self.quota:
            tree = flavor(name, {POOL_LABEL: name}, "")
            if name == "small":
                tree["spec"]["tolerations"] = [TOLERATION]
                tree["spec"]["nodeTaints"] = [TAINT]
            client.create("resourceflavors.kueue.x-k8s.io", "", tree)
        for node in client.list("nodes"):
            if node["metadata"]["labels"][POOL_LABEL] == "small":
                taints = [*(node["spec"].get("taints") or ()), TAINT]
                client.patch("nodes", "", node["metadata"]["name"], {"spec": {"taints": taints}})
        flavors = {name: {GPU: {"nominalQuota": gpus}} for name, gpus in self.quota.items()}
        client.create("clusterqueues.kueue.x-k8s.io", "", cluster_queue("q", flavors))
        client.create("localqueues.kueue.x-k8s.io", "team", local_queue("q", "q"))
        client.subscribe(PODS, lambda *_: self._compare())
        client.subscribe(WORKLOADS, lambda *_: self._compare())
        await self.cluster.start()

    # What people do

    def submit(self, name: str, pods: int, *, seconds: int = 100_000, **more: Any) -> Unstructured:
        """A Job whose pods request one GPU each; `more`: `annotations` and `spec` of the Job; of its pods `template`
        (annotations) and `pod` (spec)."""
        container = {"name": "main", "image": "train", "resources": {"limits": {GPU: "1"}}}
        template = {
            "metadata": {"annotations": {SIMULATED_DURATION_ANNOTATION: f"{seconds}s", **more.get("template", {})}},
            "spec": {"restartPolicy": "Never", "containers": [container], **more.get("pod", {})},
        }
        metadata = {
            "name": name,
            "namespace": "team",
            "labels": {QUEUE_NAME_LABEL: "q"},
            "annotations": more.get("annotations", {}),
        }
        spec = {"suspend": True, "parallelism": pods, "template": template, **more.get("spec", {})}
        tree = {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}
        return self.client.create(JOBS, "team", tree)

    def resize(self, name: str, pods: int) -> None:
        self.client.patch(JOBS, "team", name, {"spec": {"parallelism": pods}})

    def set_quota(self, gpus: int) -> None:
        """Of the first flavor."""
        queue = self.client.get("clusterqueues.kueue.x-k8s.io", "", "q")
        groups = [{**group} for group in queue["spec"]["resourceGroups"]]
        first, *rest = groups[0]["flavors"]
        resources = [{**first["resources"][0], "nominalQuota": gpus}]
        groups[0]["flavors"] = [{**first, "resources": resources}, *rest]
        self.client.patch("clusterqueues.kueue.x-k8s.io", "", "q", {"spec": {"resourceGroups": groups}})

    # What there is

    def job(self, name: str) -> Unstructured:
        return self.client.get(JOBS, "team", name)

    def workload(self, name: str) -> Unstructured:
        found = [tree for tree in self.client.list(WORKLOADS) if _owner_name(tree) == name]
        assert len(found) == 1, found
        return found[0]

    def admitted(self, name: str) -> int:
        """Pods that the Job's admission has, less those that were given back."""
        return _admitted(self.workload(name))

    def bound(self, name: str) -> list[Unstructured]:
        return [pod for pod in self.pods(name) if pod["spec"].get("nodeName")]

    def pods(self, name: str) -> list[Unstructured]:
        """Those that have not ended."""
        found = [pod for pod in self.client.list(PODS) if _owner_name(pod) == name]
        return [pod for pod in found if pod["status"].get("phase") not in ("Succeeded", "Failed")]

    def usage(self) -> int:
        """GPUs that the queue's status says are used."""
        flavors = self.client.get("clusterqueues.kueue.x-k8s.io", "", "q")["status"].get("flavorsUsage") or ()
        return sum(int(part["total"]) for one in flavors for part in one["resources"] if part["name"] == GPU)

    def _compare(self) -> None:
        workloads = [tree for tree in self.client.list(WORKLOADS) if not _is_finished(tree)]
        reserved = sum(_admitted(tree) for tree in workloads)
        if reserved > sum(self.quota.values()):
            self.problems.append(f"{reserved} of {sum(self.quota.values())} GPUs reserved")
        for tree in workloads:
            name = _owner_name(tree)
            staying = [pod for pod in self.bound(name) if not pod["metadata"].get("deletionTimestamp")]
            if len(staying) > _admitted(tree) and tree.get("status", {}).get("admission"):
                self.problems.append(f"{name}: {len(staying)} pods bound, {_admitted(tree)} admitted")


def on_cluster(**quota: int) -> Callable[[Callable[[QueuedJobs], Coroutine[Any, Any, None]]], Callable[[], None]]:
    """Runs the test on the cluster with this quota by flavor; in the end nothing may have been exceeded."""

    def decorate(test: Callable[[QueuedJobs], Coroutine[Any, Any, None]]) -> Callable[[], None]:
        async def main(machine: Machine) -> None:
            jobs = QueuedJobs(quota or {"big": 8}, machine)
            await jobs.start()
            await test(jobs)
            await jobs.cluster.stop()
            assert jobs.problems == []

        @functools.wraps(test)
        def run() -> None:
            run_virtually(main, 1)

        # pytest would take the parameter of the test for a fixture.
        del run.__wrapped__  # type: ignore[attr-defined]
        return run

    return decorate


def _owner_name(tree: Unstructured) -> str:
    references = tree["metadata"].get("ownerReferences") or ()
    return next((str(reference["name"]) for reference in references if reference.get("controller")), "")


def _admitted(workload: Unstructured) -> int:
    status = workload.get("status") or {}
    parts = (status.get("admission") or {}).get("podSetAssignments") or () if not _is_finished(workload) else ()
    given_back = {part["name"]: part["count"] for part in status.get("reclaimablePods") or ()}
    declared = {part["name"]: part["count"] for part in workload["spec"]["podSets"]}
    return sum(min(part["count"], declared[part["name"]] - given_back.get(part["name"], 0)) for part in parts)


def _is_finished(tree: Unstructured) -> bool:
    conditions = (tree.get("status") or {}).get("conditions") or ()
    return any(condition["type"] == "Finished" and condition["status"] == "True" for condition in conditions)
