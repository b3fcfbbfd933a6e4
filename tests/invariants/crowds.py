"""Whole clusters at random, as somebody's dump would have them: nodes, what runs, and everything that waits.

Lone pods, gangs in every form in which people write them, queued Jobs and Workloads, budgets and limits, with few
different times, so that ties are common. `bystanders` are objects that nothing in such a cluster refers to.
Every name is a token of its own (`nm007`), so that all of them can be changed at once.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

from tests.invariants.objects import EPOCH, GPU, H100, HOSTNAME, RACK, stamp

from windlass.model.unstructured import Unstructured

KUEUE = "kueue.x-k8s.io"
NOW = EPOCH + 7200
NAME = re.compile(r"nm[0-9]{3}")
TAINT = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}


class Crowd:
    """Makes the objects of one cluster."""

    def __init__(self, rng: Random) -> None:
        self.rng, self.objects = rng, []
        self._names = rng.sample(range(1000), 400)
        self.nodes: list[str] = []
        self.queues: list[str] = []

    def name(self) -> str:
        return f"nm{self._names.pop():03}"

    def meta(self, name: str = "", **more: Any) -> Unstructured:
        name = name or self.name()
        created = stamp(EPOCH + 600 * self.rng.randint(0, 3))
        return {"name": name, "namespace": "team", "uid": f"u-{name}", "creationTimestamp": created, **more}

    def put(self, tree: Unstructured) -> Unstructured:
        self.objects.append(tree)
        return tree

    # Nodes and queues

    def add_nodes(self) -> None:
        for number in range(self.rng.randint(2, 5)):
            gpus, name = self.rng.choice((1, 2, 4, 8)), self.name()
            room = {"cpu": str(self.rng.choice((4, 8, 32))), "memory": "64Gi", "pods": "20", GPU: str(gpus)}
            labels = {HOSTNAME: name, RACK: f"r{number % 2}", "nvidia.com/gpu.product": H100}
            spec = {"taints": [TAINT]} if self.rng.random() < 0.2 else {}
            ready = [{"type": "Ready", "status": "True"}]
            status = {"capacity": room, "allocatable": room, "conditions": ready}
            meta = {"name": name, "labels": {**labels, "nvidia.com/gpu.count": str(gpus)}}
            self.put({"apiVersion": "v1", "kind": "Node", "metadata": meta, "spec": spec, "status": status})
            self.nodes.append(name)

    def add_queues(self) -> None:
        flavor, cohort = self.name(), self.name()
        self.put({"apiVersion": f"{KUEUE}/v1beta2", "kind": "ResourceFlavor", "metadata": {"name": flavor}})
        for _ in range(self.rng.randint(1, 2)):
            self.queues.append(self.add_queue(flavor, cohort, "team"))

    def add_queue(self, flavor: str, cohort: str, namespace: str) -> str:
        name, local = self.name(), self.name()
        amounts = {"cpu": "64", "memory": "1Ti", GPU: str(self.rng.choice((2, 4, 8))), "pods": "100"}
        quotas = [{"name": resource, "nominalQuota": amount} for resource, amount in amounts.items()]
        group = {"coveredResources": [*amounts], "flavors": [{"name": flavor, "resources": quotas}]}
        spec: Unstructured = {"namespaceSelector": {}, "resourceGroups": [group], "cohortName": cohort}
        reclaim = self.rng.choice(("Never", "Any"))
        spec["preemption"] = {"withinClusterQueue": "LowerPriority", "reclaimWithinCohort": reclaim}
        api = f"{KUEUE}/v1beta2"
        self.put({"apiVersion": api, "kind": "ClusterQueue", "metadata": {"name": name}, "spec": spec})
        meta = {"name": local, "namespace": namespace}
        self.put({"apiVersion": api, "kind": "LocalQueue", "metadata": meta, "spec": {"clusterQueue": name}})
        return local

    # Pods

    def spec(self, on: str = "") -> Unstructured:
        rng = self.rng
        asks = {"cpu": rng.choice(("1", "2")), "memory": "1Gi"}
        gpus = rng.choice((0, 1, 1, 2, 4, 8))
        limits = {GPU: str(gpus)} if gpus else {}
        made: Unstructured = {
            "containers": [{"name": "c", "resources": {"requests": {**asks, **limits}, "limits": limits}}]
        }
        made["priority"] = rng.choice((0, 0, 0, 10))
        if rng.random() < 0.6:
            made["tolerations"] = [{"key": TAINT["key"], "operator": "Exists"}]
        if rng.random() < 0.1:
            made["nodeSelector"] = {RACK: "r0"}
        if rng.random() < 0.15:
            made["activeDeadlineSeconds"] = rng.choice((600, 86_400))
        return {**made, "nodeName": on} if on else made

    def pod(self, spec: Unstructured, meta: Unstructured) -> Unstructured:
        status: Unstructured = {"phase": "Pending"}
        if spec.get("nodeName"):
            status = {"phase": "Running", "startTime": meta["creationTimestamp"]}
        return self.put({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec, "status": status})

    def add_lone(self, on: str = "") -> None:
        notes = {"gpu-fraction": "0.5"} if self.rng.random() < 0.15 else {}
        spec = self.spec(on)
        if notes:
            spec["containers"][0]["resources"] = {"requests": {"cpu": "1"}}
        labels = {"app": "web"} if self.rng.random() < 0.3 else {}
        if self.queues and self.rng.random() < 0.3:
            labels[f"{KUEUE}/queue-name"] = self.rng.choice(self.queues)
        self.pod(spec, self.meta(labels=labels, annotations=notes))

    def add_gang(self) -> None:
        form = self.rng.choice(FORMS)
        members = [self.spec() for _ in range(self.rng.randint(1, 3))]
        if self.rng.random() < 0.6:
            members = [json.loads(json.dumps(members[0])) for _ in members]
        for spec in members:
            spec["priority"] = members[0]["priority"]
        if self.rng.random() < 0.2:
            members[0]["nodeName"] = self.rng.choice(self.nodes)
        form(self, members)

    def add_budget(self) -> None:
        meta = self.meta()
        spec = {"maxUnavailable": self.rng.choice((0, 1)), "selector": {"matchLabels": {"app": "web"}}}
        self.put({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": meta, "spec": spec})


# Gangs in every form


def by_kueue_label(crowd: Crowd, members: list[Unstructured]) -> None:
    group, queue = crowd.name(), crowd.rng.choice([*crowd.queues, "", ""])
    labels = {f"{KUEUE}/pod-group-name": group, **({f"{KUEUE}/queue-name": queue} if queue else {})}
    total = len(members) + (crowd.rng.random() < 0.1)
    for spec in members:
        crowd.pod(spec, crowd.meta(labels=labels, annotations={f"{KUEUE}/pod-group-total-count": str(total)}))


def by_coscheduling(crowd: Crowd, members: list[Unstructured]) -> None:
    group = _group(crowd, "scheduling.x-k8s.io/v1alpha1", {"minMember": len(members)})
    for spec in members:
        crowd.pod(spec, crowd.meta(labels={"scheduling.x-k8s.io/pod-group": group}, annotations={}))


def by_volcano(crowd: Crowd, members: list[Unstructured]) -> None:
    group = _group(crowd, "scheduling.volcano.sh/v1beta1", {"minMember": len(members)})
    for spec in members:
        crowd.pod(spec, crowd.meta(labels={}, annotations={"scheduling.k8s.io/group-name": group}))


def by_native_group(crowd: Crowd, members: list[Unstructured]) -> None:
    policy = {"gang": {"minCount": len(members)}}
    group = _group(crowd, "scheduling.k8s.io/v1alpha2", {"schedulingPolicy": policy})
    for spec in members:
        crowd.pod({**spec, "schedulingGroup": {"podGroupName": group}}, crowd.meta(labels={}, annotations={}))


def by_owner(crowd: Crowd, members: list[Unstructured]) -> None:
    job = crowd.name()
    owner = {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "name": job,
        "uid": job,
        "controller": True,
    }
    for spec in members:
        crowd.pod(spec, crowd.meta(labels={}, annotations={}, ownerReferences=[owner]))


def by_queued_job(crowd: Crowd, members: list[Unstructured]) -> None:
    queue = crowd.rng.choice([*crowd.queues, crowd.name()])
    template = {key: value for key, value in members[0].items() if key != "nodeName"}
    spec = {
        "parallelism": len(members),
        "completions": len(members),
        "suspend": True,
        "template": {"spec": {**template, "restartPolicy": "Never"}},
    }
    meta = crowd.meta(labels={f"{KUEUE}/queue-name": queue}, annotations={})
    crowd.put({"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": spec})


def _group(crowd: Crowd, api: str, spec: Unstructured) -> str:
    meta = crowd.meta(labels={}, annotations={})
    crowd.put({"apiVersion": api, "kind": "PodGroup", "metadata": meta, "spec": spec})
    name: str = meta["name"]
    return name


FORMS: tuple[Callable[[Crowd, list[Unstructured]], None], ...] = (
    by_kueue_label,
    by_kueue_label,
    by_coscheduling,
    by_volcano,
    by_native_group,
    by_owner,
    by_queued_job,
)


def crowd(rng: Random) -> list[Unstructured]:
    made = Crowd(rng)
    made.add_nodes()
    if rng.random() < 0.5:
        made.add_queues()
    for _ in range(rng.randint(0, 5)):
        made.add_lone(on=rng.choice(made.nodes))
    for _ in range(rng.randint(1, 6)):
        made.add_lone()
    for _ in range(rng.randint(0, 4)):
        made.add_gang()
    if rng.random() < 0.3:
        made.add_budget()
    return made.objects


def lone_crowd(rng: Random) -> list[Unstructured]:
    """Nothing but nodes and pods on their own, without limits of their run time."""
    made = Crowd(rng)
    made.add_nodes()
    for _ in range(rng.randint(0, 8)):
        made.add_lone(on=rng.choice(made.nodes))
    for _ in range(rng.randint(1, 8)):
        made.add_lone()
    for obj in made.objects:
        obj["spec"].pop("activeDeadlineSeconds", None)
    return made.objects


def bystanders(rng: Random) -> list[Unstructured]:
    """Objects that nothing in a crowd refers to, one of each kind."""
    elsewhere = {"namespace": "elsewhere"}
    unused = Crowd(rng)
    unused.add_queue("unused-flavor", "unused-cohort", "elsewhere")
    budget = {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}}
    return [
        {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": "unused"},
            "value": 7,
        },
        {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "unused", **elsewhere}, "spec": {}},
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "elsewhere"}},
        {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": {"name": "unused", **elsewhere},
            "spec": budget,
        },
        {
            "apiVersion": f"{KUEUE}/v1beta2",
            "kind": "ResourceFlavor",
            "metadata": {"name": "unused-flavor"},
        },
        {
            "apiVersion": f"{KUEUE}/v1beta2",
            "kind": "Topology",
            "metadata": {"name": "unused"},
            "spec": {"levels": [{"nodeLabel": HOSTNAME}]},
        },
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": "unused", "uid": "unused", "creationTimestamp": stamp(EPOCH), **elsewhere},
            "spec": {"replicas": 0, "template": {"spec": {"containers": []}}},
        },
        *unused.objects,
    ]


def names_in(objects: list[Unstructured]) -> list[str]:
    return sorted(set(NAME.findall(json.dumps(objects))))


def renamed(text: str, names: dict[str, str]) -> str:
    return NAME.sub(lambda match: names[match.group()], text)


def longer_names(names: list[str]) -> dict[str, str]:
    """Other names in the same order, of other lengths."""
    return {name: f"other-{rank:03}{'x' * (rank % 3)}" for rank, name in enumerate(names)}


def seeds(count: int, first: int) -> Iterator[Random]:
    return (Random(seed) for seed in range(first, first + count))
