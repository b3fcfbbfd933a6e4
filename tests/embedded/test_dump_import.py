"""`windlass up --from DUMP`: a real cluster's objects in a simulated cluster."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from tests.embedded.in_process_cluster import START, InProcessCluster

from windlass.cli.install_crds import crds
from windlass.embedded.bootstrap import bootstrap
from windlass.embedded.dump_import import DumpImport, read_dump_import
from windlass.embedded.embedded_cluster import EmbeddedCluster, EmbeddedClusterOptions
from windlass.embedded.runtime.simulated_containers import Delays
from windlass.embedded.runtime.simulated_nodes import SimulatedNodes
from windlass.model.errors import InputError
from windlass.model.unstructured import Unstructured

GPU = "nvidia.com/gpu"
LONG_AGO = "2026-01-01T00:00:00Z"


def thing(
    kind: str, name: str, api: str = "v1", namespace: str = "", owner: Unstructured | None = None, **more: Any
) -> Unstructured:
    metadata: Unstructured = {
        "name": name,
        "uid": f"old-{kind}-{name}",
        "resourceVersion": "7",
        "creationTimestamp": LONG_AGO,
    }
    if namespace:
        metadata["namespace"] = namespace
    if owner is not None:
        reference = {
            "apiVersion": owner["apiVersion"],
            "kind": owner["kind"],
            "name": owner["metadata"]["name"],
        }
        metadata["ownerReferences"] = [{**reference, "uid": owner["metadata"]["uid"], "controller": True}]
    metadata |= more.pop("metadata", {})
    return {"apiVersion": api, "kind": kind, "metadata": metadata, **more}


def pod(name: str, node: str = "", owner: Unstructured | None = None, gpus: int = 1, **spec: Any) -> Unstructured:
    box = {"name": "main", "image": "train", "resources": {"limits": {GPU: str(gpus)}}}
    whole = {"restartPolicy": "Never", "containers": [box], "schedulerName": "my-scheduler", **spec}
    status: Unstructured = {"phase": "Pending"}
    if node:
        whole["nodeName"] = node
        state = {"running": {"startedAt": LONG_AGO}}
        box_status = {
            "name": "main",
            "image": "train",
            "imageID": "",
            "ready": True,
            "restartCount": 0,
            "state": state,
        }
        ready = {"type": "Ready", "status": "True", "lastTransitionTime": LONG_AGO}
        status = {
            "phase": "Running",
            "startTime": LONG_AGO,
            "containerStatuses": [box_status],
            "conditions": [ready],
        }
    labels = {"app": name}
    if owner is not None and owner["kind"] == "Job":
        labels |= {
            "controller-uid": owner["metadata"]["uid"],
            "batch.kubernetes.io/controller-uid": owner["metadata"]["uid"],
        }
        labels |= {"job-name": owner["metadata"]["name"]}
    return thing("Pod", name, namespace="team", owner=owner, metadata={"labels": labels}, spec=whole, status=status)


def node(name: str, ready: str = "True") -> Unstructured:
    amounts = {"cpu": "64", "memory": "512Gi", "pods": "110", GPU: "4"}
    labels = {
        "kubernetes.io/hostname": name,
        "nvidia.com/gpu.product": "NVIDIA-H200",
        "nvidia.com/gpu.count": "4",
    }
    status = {"capacity": amounts, "allocatable": amounts, "conditions": [{"type": "Ready", "status": ready}]}
    return thing("Node", name, metadata={"labels": labels}, status=status)


def take(tmp_path: Path, *objects: Unstructured) -> tuple[InProcessCluster, list[str], DumpImport]:
    file = tmp_path / "dump.json"
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)}))
    copy = read_dump_import(file, START)
    world = InProcessCluster()
    bootstrap(world.verbs, crds())
    nodes = SimulatedNodes(world.verbs, world.cache, copy.nodes, delays=Delays(0, 0, 0), clock=lambda: world.now)
    nodes.register(world.now)
    lines = copy.create_all(world.verbs)
    world.run(*nodes.controllers)
    assert world.controllers is not None
    nodes.attach_loop(world.controllers.loop)
    return world, lines, copy


def job(**spec: Any) -> Unstructured:
    uid = {"controller-uid": "old-Job-train"}
    template = {"metadata": {"labels": {**uid, "job-name": "train"}}, "spec": pod("x")["spec"]}
    whole = {
        "parallelism": 2,
        "completions": 2,
        "selector": {"matchLabels": uid},
        "template": template,
        **spec,
    }
    return thing("Job", "train", "batch/v1", "team", spec=whole, status={"active": 2, "startTime": LONG_AGO})


class TestPods:
    def test_running_ones_stay_and_pending_ones_pend(self, tmp_path: Path) -> None:
        world, lines, _ = take(tmp_path, node("a"), pod("runs", "a"), pod("waits"))
        world.pass_time(1000)
        runs, waits = world.get("pods", "runs", "team"), world.get("pods", "waits", "team")
        assert (runs["spec"]["nodeName"], runs["status"]["phase"]) == ("a", "Running")
        assert runs["status"]["startTime"] == LONG_AGO
        assert ("nodeName" in waits["spec"], waits["status"]["phase"]) == (False, "Pending")
        assert waits["spec"]["schedulerName"] == "windlass"
        assert lines == ["imported: 1 Node, 2 Pod"]

    def test_a_job_keeps_its_pods(self, tmp_path: Path) -> None:
        train = job()
        world, _, _ = take(tmp_path, node("a"), train, pod("one", "a", train), pod("two", "a", train))
        world.pass_time(100)
        assert len(world.verbs.list("pods", "team")) == 2, "no new ones were made"
        assert world.get("jobs.batch", "train", "team")["status"]["active"] == 2

    def test_a_lost_pod_of_a_job_is_replaced(self, tmp_path: Path) -> None:
        train = job()
        world, _, _ = take(tmp_path, node("a"), train, pod("one", "a", train))
        world.pass_time(10)
        assert len(world.verbs.list("pods", "team")) == 2

    def test_daemons_are_not_rolled_out_anew(self, tmp_path: Path) -> None:
        labels = {"app": "agent"}
        template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "x"}]}}
        daemons = thing(
            "DaemonSet",
            "agent",
            "apps/v1",
            "team",
            spec={"selector": {"matchLabels": labels}, "template": template},
        )
        world, _, _ = take(tmp_path, node("a"), daemons, pod("agent", "a", daemons, gpus=0, restartPolicy="Always"))
        world.pass_time(100)
        assert [item["metadata"]["name"] for item in world.verbs.list("pods", "team")] == ["agent"]

    def test_a_shortened_dump_is_filled_in(self, tmp_path: Path) -> None:
        short = pod("p", "a")
        short["spec"]["containers"] = [{"resources": {"limits": {GPU: "1"}}}]
        short["status"] = {"phase": "Running"}
        world, lines, _ = take(tmp_path, node("a"), short)
        assert lines == ["imported: 1 Node, 1 Pod"]
        assert world.get("pods", "p", "team")["status"]["phase"] == "Running"

    def test_priorities_come_along_without_their_class(self, tmp_path: Path) -> None:
        world, _, _ = take(
            tmp_path, node("a"), pod("p", priority=500, priorityClassName="urgent"), pod("q", priority=7)
        )
        assert world.get("pods", "p", "team")["spec"]["priority"] == 500
        assert world.get("pods", "q", "team")["spec"]["priority"] == 7

    def test_an_owner_of_a_foreign_kind_is_kept(self, tmp_path: Path) -> None:
        ray = thing("RayJob", "ray", "ray.io/v1", "team")
        world, _, _ = take(tmp_path, node("a"), ray, pod("p", "a", ray))
        world.pass_time(10)
        assert world.get("pods", "p", "team")["metadata"]["ownerReferences"][0]["kind"] == "RayJob"

    def test_finalizers_of_those_who_are_not_here_stay_behind(self, tmp_path: Path) -> None:
        train = job()
        counted, foreign = pod("counted", "a", train), pod("foreign", "a")
        counted["metadata"]["finalizers"] = ["batch.kubernetes.io/job-tracking", "example.com/kept"]
        foreign["metadata"]["finalizers"] = ["batch.kubernetes.io/job-tracking", "example.com/kept"]
        world, _, _ = take(tmp_path, node("a"), train, counted, foreign)
        kept = world.get("pods", "counted", "team")["metadata"]
        assert kept["finalizers"] == ["batch.kubernetes.io/job-tracking"]
        for name in ("counted", "foreign"):
            world.verbs.delete("pods", "team", name)
        world.pass_time(60)
        left = {item["metadata"]["name"] for item in world.verbs.list("pods", "team")}
        assert not left & {"counted", "foreign"}


class TestOthers:
    def test_a_node_that_was_not_ready_is_not(self, tmp_path: Path) -> None:
        world, _, _ = take(tmp_path, node("a"), node("b", "False"))
        taints = world.get("nodes", "b", "")["spec"]["taints"]
        assert ("node.kubernetes.io/not-ready", "NoSchedule") in [(taint["key"], taint["effect"]) for taint in taints]

    def test_queues(self, tmp_path: Path) -> None:
        api = "kueue.x-k8s.io/v1beta1"
        flavor = thing("ResourceFlavor", "any", api)
        covered = {
            "coveredResources": [GPU],
            "flavors": [{"name": "any", "resources": [{"name": GPU, "nominalQuota": 4}]}],
        }
        queue = thing("ClusterQueue", "team", api, spec={"resourceGroups": [covered], "namespaceSelector": {}})
        local = thing("LocalQueue", "q", api, "team", spec={"clusterQueue": "team"})
        world, lines, _ = take(tmp_path, node("a"), flavor, queue, local)
        assert lines == ["imported: 1 Node, 1 ResourceFlavor, 1 ClusterQueue, 1 LocalQueue"]
        assert world.get("localqueues.kueue.x-k8s.io", "q", "team")["spec"]["clusterQueue"] == "team"

    def test_a_quota_that_is_overrun_stops_nothing_that_runs(self, tmp_path: Path) -> None:
        quota = thing("ResourceQuota", "few", namespace="team", spec={"hard": {"pods": "1"}})
        world, lines, _ = take(tmp_path, quota, node("a"), pod("one", "a"), pod("two", "a"))
        assert "2 Pod" in lines[0]
        world.pass_time(1)
        assert world.get("resourcequotas", "few", "team")["status"]["used"] == {"pods": "2"}

    def test_what_can_t_be_taken_is_said(self, tmp_path: Path) -> None:
        broken = pod("p")
        broken["spec"]["containers"][0]["resources"] = {"limits": {GPU: "0.5"}}
        _, lines, _ = take(tmp_path, node("a"), broken)
        assert lines[0] == "imported: 1 Node"
        assert "left out: Pod p:" in lines[1]
        assert "must be an integer" in lines[1]

    def test_an_object_of_another_shape_is_left_out(self, tmp_path: Path) -> None:
        odd = [thing("Pod", "p", namespace="team", spec=7), thing("DaemonSet", "d", "apps/v1", "team")]
        odd.append(thing("Job", "j", "batch/v1", "team", spec={"template": []}))
        world, lines, _ = take(tmp_path, node("a"), *odd, pod("fine", "a"))
        assert lines[0] == "imported: 1 Node, 1 Pod"
        assert sorted(line.split()[2:4] for line in lines[1:]) == [
            ["DaemonSet", "d:"],
            ["Job", "j:"],
            ["Pod", "p:"],
        ]
        assert [item["metadata"]["name"] for item in world.verbs.list("pods", "team")] == ["fine"]

    def test_a_node_that_stands_in_two_files_is_one(self, tmp_path: Path) -> None:
        _, lines, copy = take(tmp_path, node("a"), node("a"))
        assert (lines, len(copy.nodes)) == (["imported: 1 Node"], 1)

    @pytest.mark.parametrize(
        ("broken", "said"),
        [
            ({"kind": "Node", "apiVersion": "v1"}, "metadata.name: a Node has no name"),
            (thing("Node", "n", status=5), "status: expected a mapping, found 5"),
            (thing("Node", "n", status={"conditions": {}}), "status.conditions: expected a list"),
            (thing("Node", "Not A Name"), "node Not A Name can't be created"),
        ],
    )
    def test_a_broken_node_is_named(self, tmp_path: Path, broken: Unstructured, said: str) -> None:
        with pytest.raises(InputError) as caught:
            take(tmp_path, broken)
        assert said in str(caught.value)

    def test_a_dump_without_nodes(self, tmp_path: Path) -> None:
        with pytest.raises(InputError, match="contains no Node"):
            take(tmp_path, pod("p"))


def test_a_kept_cluster_is_not_filled_again(tmp_path: Path) -> None:
    """What was deleted after the first start stays deleted."""
    filled: list[str] = []

    async def run() -> None:
        cluster = EmbeddedCluster(EmbeddedClusterOptions(state_dir=tmp_path / "state"))
        try:
            await cluster.start(lambda verbs: filled.append("once"))
        finally:
            await cluster.stop()

    asyncio.run(run())
    asyncio.run(run())
    assert filled == ["once"]
