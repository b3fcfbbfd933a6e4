"""A crowded virtual cluster: two pools of GPUs with a flavor each, two queues in one cohort that want more than there
is, a node that dies. After every change of a pod or a Workload the promises about quota and nodes are checked.

    async def story(crowd: Crowd) -> None:
        crowd.submit("train", "a", pods=4)

    play(story)
"""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import Awaitable, Callable
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
from windlass.model.names.kueue import QUEUE_NAME_LABEL, STOPPING_ANNOTATION
from windlass.model.names.windlass import SIMULATED_DURATION_ANNOTATION
from windlass.model.unstructured import Unstructured

JOBS, WORKLOADS, PODS = "jobs.batch", "workloads.kueue.x-k8s.io", "pods"
TAINT = {"key": "example.com/spot", "value": "yes", "effect": "NoSchedule"}
TOLERATION = {"key": "example.com/spot", "operator": "Equal", "value": "yes", "effect": "NoSchedule"}
NODES = {"base": 4, "spot": 2}
GPUS = 4
"""Of a node."""
QUEUES = ("a", "b")


class Crowd:
    def __init__(self, settings: Settings, machine: Machine) -> None:
        pools = tuple(
            FleetPool(
                name=name,
                count=count,
                gpus=(FleetGpus(model="H100", count=GPUS),),
                cpu="64",
                labels={POOL_LABEL: name},
            )
            for name, count in NODES.items()
        )
        nodes = fleet_nodes(Fleet(FleetSpec(pools)), time.time())
        self.cluster = VirtualCluster(nodes, settings, Random(1), machine)
        self.client = self.cluster.client
        self.problems: dict[str, None] = {}
        self.submitted: dict[str, Unstructured] = {}
        self._objects: dict[str, dict[str, Unstructured]] = {PODS: {}, WORKLOADS: {}, JOBS: {}}

    async def start(self) -> None:
        client = self.client
        client.create("namespaces", "", {"metadata": {"name": "team"}})
        for name in NODES:
            tree = flavor(name, {POOL_LABEL: name}, "")
            if name == "spot":
                tree["spec"] |= {"tolerations": [TOLERATION], "nodeTaints": [TAINT]}
            client.create("resourceflavors.kueue.x-k8s.io", "", tree)
        for node in client.list("nodes"):
            if node["metadata"]["labels"][POOL_LABEL] == "spot":
                taints = [*(node["spec"].get("taints") or ()), TAINT]
                client.patch("nodes", "", node["metadata"]["name"], {"spec": {"taints": taints}})
        for name in QUEUES:
            flavors = {pool: {GPU: {"nominalQuota": count * GPUS // 2}} for pool, count in NODES.items()}
            preemption = {"reclaimWithinCohort": "Any", "withinClusterQueue": "LowerPriority"}
            queue = cluster_queue(name, flavors, cohortName="all", preemption=preemption)
            client.create("clusterqueues.kueue.x-k8s.io", "", queue)
            client.create("localqueues.kueue.x-k8s.io", "team", local_queue(name, name))
        for resource in (PODS, WORKLOADS, JOBS):
            client.subscribe(resource, functools.partial(self._on_change, resource))
        await self.cluster.start()

    def submit(self, name: str, queue: str, pods: int, *, seconds: int = 100, **more: Any) -> None:
        """A Job whose pods request one GPU each; `more`: `annotations`, `spec` (of the Job) and `pod` (their spec)."""
        container = {"name": "main", "image": "train", "resources": {"limits": {GPU: "1"}}}
        template = {
            "metadata": {"annotations": {SIMULATED_DURATION_ANNOTATION: f"{seconds}s"}},
            "spec": {"restartPolicy": "Never", "containers": [container], **more.get("pod", {})},
        }
        metadata = {
            "name": name,
            "namespace": "team",
            "labels": {QUEUE_NAME_LABEL: queue},
            "annotations": more.get("annotations", {}),
        }
        spec = {"suspend": True, "parallelism": pods, "backoffLimit": 100, "template": template, **more.get("spec", {})}
        tree = {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}
        self.submitted[name] = self.client.create(JOBS, "team", tree)

    # What there is

    def job(self, name: str) -> Unstructured:
        return self.client.get(JOBS, "team", name)

    def workload(self, name: str) -> Unstructured:
        (found,) = [tree for tree in self.client.list(WORKLOADS) if owner_name(tree) == name]
        return found

    def has_succeeded(self, name: str) -> bool:
        conditions = (self.job(name).get("status") or {}).get("conditions") or ()
        return any(found["type"] == "Complete" and found["status"] == "True" for found in conditions)

    def unfinished(self) -> list[str]:
        return [name for name in self.submitted if not self.has_succeeded(name)]

    async def until_finished(self, seconds: int, *but: str) -> None:
        """Waits until all Jobs but these have succeeded."""
        for _ in range(seconds // 10):
            if set(self.unfinished()) <= set(but):
                return
            await asyncio.sleep(10)
        waiting = {name: _story(self.workload(name)) for name in self.unfinished() if name not in but}
        raise AssertionError(f"not finished: {waiting}")

    # What must hold

    def _on_change(self, resource: str, kind: str, tree: Unstructured, old: Unstructured | None) -> None:
        name = tree["metadata"]["name"]
        if kind == "DELETED":
            self._objects[resource].pop(name, None)
        else:
            self._objects[resource][name] = tree
        try:
            self._check()
        except Exception as error:  # the store only logs what a listener raises
            self._problem(repr(error))

    def _check(self) -> None:
        workloads = [tree for tree in self._objects[WORKLOADS].values() if not is_finished(tree)]
        pods = self._objects[PODS].values()
        pods = [pod for pod in pods if pod["status"].get("phase") not in ("Succeeded", "Failed")]
        bound = [pod for pod in pods if pod["spec"].get("nodeName")]
        self._check_quota(workloads)
        by_node: dict[str, int] = {}
        for pod in bound:
            by_node[pod["spec"]["nodeName"]] = by_node.get(pod["spec"]["nodeName"], 0) + 1
        for node, count in by_node.items():
            if count > GPUS:
                self._problem(f"{count} pods on {node} with {GPUS} GPUs")
        for tree in workloads:
            staying = [
                pod
                for pod in bound
                if owner_name(pod) == owner_name(tree) and not pod["metadata"].get("deletionTimestamp")
            ]
            if (tree.get("status") or {}).get("admission"):
                self._check_pods(tree, staying)
            self._check_template(owner_name(tree), tree)

    def _check_quota(self, workloads: list[Unstructured]) -> None:
        reserved: dict[str, int] = {}
        for tree in workloads:
            for part in assignments(tree):
                name = part["flavors"][GPU]
                reserved[name] = reserved.get(name, 0) + held(tree, part)
        for name, count in reserved.items():
            if count > NODES[name] * GPUS:
                self._problem(f"{count} GPUs of flavor {name} reserved, of {NODES[name] * GPUS}")

    def _check_pods(self, tree: Unstructured, staying: list[Unstructured]) -> None:
        """Never more than admitted, and in the flavor of the admission, with its labels and tolerations."""
        name, parts = owner_name(tree), assignments(tree)
        admitted = sum(held(tree, part) for part in parts)
        if len(staying) > admitted:
            self._problem(f"{name}: {len(staying)} pods bound, {admitted} admitted")
        pools = {part["flavors"][GPU] for part in parts}
        for pod in staying:
            pool, spec = pod["spec"]["nodeName"].rpartition("-")[0], pod["spec"]
            tolerates = TOLERATION in (spec.get("tolerations") or ())
            if pool not in pools or (spec.get("nodeSelector") or {}).get(POOL_LABEL) != pool:
                self._problem(f"{name}: a pod on {pool} with {spec.get('nodeSelector')}, admitted in {pools}")
            if tolerates != (pool == "spot"):
                self._problem(f"{name}: a pod on {pool} {'with' if tolerates else 'without'} the toleration")

    def _check_template(self, name: str, tree: Unstructured) -> None:
        """A Job that waits is what its owner wrote, apart from its size."""
        job = self._objects[JOBS].get(name)
        if job is None or not job["spec"].get("suspend") or (tree.get("status") or {}).get("admission"):
            return
        if STOPPING_ANNOTATION in (job["metadata"].get("annotations") or {}):
            return
        if job["spec"]["template"]["spec"] != self.submitted[name]["spec"]["template"]["spec"]:
            self._problem(f"{name} waits with a changed template")

    def _problem(self, text: str) -> None:
        self.problems[text] = None


def play(story: Callable[[Crowd], Awaitable[None]], settings: Settings | None = None, seed: int = 1) -> None:
    """Plays it to its end; nothing may have been exceeded."""

    async def main(machine: Machine) -> None:
        crowd = Crowd(settings or Settings(gang_grace_seconds=60), machine)
        await crowd.start()
        await story(crowd)
        await crowd.cluster.stop()
        assert list(crowd.problems) == []

    run_virtually(main, seed)


def owner_name(tree: Unstructured) -> str:
    references = tree["metadata"].get("ownerReferences") or ()
    return next((str(reference["name"]) for reference in references if reference.get("controller")), "")


def assignments(workload: Unstructured) -> list[Unstructured]:
    return ((workload.get("status") or {}).get("admission") or {}).get("podSetAssignments") or []


def held(workload: Unstructured, part: Unstructured) -> int:
    """Pods of an assignment, less those that were given back."""
    given_back = {item["name"]: item["count"] for item in workload["status"].get("reclaimablePods") or ()}
    declared = {item["name"]: item["count"] for item in workload["spec"]["podSets"]}
    count = min(part["count"], declared[part["name"]] - given_back.get(part["name"], 0))
    return max(0, int(count))


def condition(workload: Unstructured, kind: str) -> Unstructured:
    conditions = (workload.get("status") or {}).get("conditions") or ()
    return next((found for found in conditions if found["type"] == kind), {})


def is_finished(workload: Unstructured) -> bool:
    return condition(workload, "Finished").get("status") == "True"


def _story(workload: Unstructured) -> str:
    return "; ".join(
        f"{found['type']}={found['status']}: {found['message']}"
        for found in (workload.get("status") or {}).get("conditions") or ()
    )
