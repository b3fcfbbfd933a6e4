"""Made-up clusters and workloads of a given size, as plain Kubernetes objects.

Feeds `engine.tasks`. Everything is counted off, nothing is drawn, so that two runs decide on the same bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from windlass.model.codec import decode_object
from windlass.model.node import Node
from windlass.model.pod import Pod
from windlass.model.unstructured import Unstructured

RACK, BLOCK, ZONE = "cloud.example/rack", "cloud.example/block", "topology.kubernetes.io/zone"
HOST = "kubernetes.io/hostname"
QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
GROUP_LABEL = "kueue.x-k8s.io/pod-group-name"
GROUP_TOTAL_COUNT = "kueue.x-k8s.io/pod-group-total-count"
REQUIRED_TOPOLOGY = "kueue.x-k8s.io/podset-required-topology"
PREFERRED_TOPOLOGY = "kueue.x-k8s.io/podset-preferred-topology"
GPU = "nvidia.com/gpu"
NAMESPACE = "bench"
MODELS = (("NVIDIA-H100-80GB-HBM3", 81_559), ("NVIDIA-A100-SXM4-80GB", 81_920))
NODES_A_RACK = 50
RACKS_A_BLOCK = 10


def gpu_nodes(count: int, *, nodes_per_rack: int = NODES_A_RACK, gpus: int = 8) -> list[Node]:
    """Nodes of 8 GPUs in racks, blocks and three zones; every fifth has the older model."""
    made = []
    for number in range(count):
        model, memory = MODELS[number % 5 == 4]
        rack = number // nodes_per_rack
        labels = {
            "windlass.dev/bench": "true",
            HOST: f"node-{number:05}",
            RACK: f"rack-{rack:04}",
            BLOCK: f"block-{rack // RACKS_A_BLOCK:03}",
            ZONE: f"zone-{rack % 3}",
            "nvidia.com/gpu.present": "true",
            "nvidia.com/gpu.count": str(gpus),
            "nvidia.com/gpu.product": model,
            "nvidia.com/gpu.memory": str(memory),
        }
        made.append(_node(f"node-{number:05}", labels, {"cpu": "128", "memory": "2Ti", GPU: str(gpus)}))
    return made


def cpu_nodes(blocks: int, racks: int, hosts: int, *, cpu: str = "96", memory: str = "256Gi") -> list[Node]:
    """Nodes without GPUs in a tree of blocks and racks."""
    made = []
    for number in range(blocks * racks * hosts):
        rack = number // hosts
        labels = {
            "windlass.dev/bench": "true",
            HOST: f"node-{number:05}",
            RACK: f"rack-{rack:04}",
            BLOCK: f"block-{rack // racks:03}",
        }
        made.append(_node(f"node-{number:05}", labels, {"cpu": cpu, "memory": memory}))
    return made


def _node(name: str, labels: Unstructured, amounts: Unstructured) -> Node:
    amounts = {**amounts, "pods": "110"}
    tree = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "status": {"capacity": amounts, "allocatable": amounts},
    }
    made = decode_object(tree)
    assert isinstance(made, Node)
    return made


def make_pods(template: Pod, count: int, name: str, first: int = 0) -> list[Pod]:
    """So many pods that differ in name and uid alone, as a controller makes them."""
    return [make_pod(template, f"{name}-{number:06}") for number in range(first, first + count)]


def make_pod(template: Pod, name: str, **more: Any) -> Pod:
    metadata = msgspec.structs.replace(template.metadata, name=name, uid=f"uid-{name}", **more)
    return msgspec.structs.replace(template, metadata=metadata)


def bound_pod(pod: Pod, node: str) -> Pod:
    """The pod as it runs there."""
    return msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, node_name=node))


def pod_template(
    requests: Mapping[str, str],
    *,
    labels: Mapping[str, str] = {},
    annotations: Mapping[str, str] = {},
    priority: int = 0,
    **spec: Any,
) -> Pod:
    """A template; GPUs are limits too."""
    limits = {name: amount for name, amount in requests.items() if "/" in name}
    tree = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "template",
            "namespace": NAMESPACE,
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": dict(labels),
            "annotations": dict(annotations),
        },
        "spec": {
            "containers": [
                {"name": "main", "resources": {"requests": dict(requests), "limits": limits}},
            ],
            "priority": priority,
            **spec,
        },
    }
    made = decode_object(tree)
    assert isinstance(made, Pod)
    return made


def pod_templates(count: int) -> list[Pod]:
    """Templates of so many different shapes: GPUs from none to eight, CPU and memory beside them, some with a choice
    of model, some with a toleration, so that a node tells every two of them apart."""
    made = []
    for number in range(count):
        gpus = (0, 1, 1, 2, 1, 4, 1, 8)[number % 8]
        cpu, memory = 1 + number // 8 % 7 + 2 * gpus, 4 + number % 13 + 16 * gpus
        requests = {"cpu": f"{cpu}", "memory": f"{memory}Gi", **({GPU: str(gpus)} if gpus else {})}
        spec: Unstructured = {}
        if gpus and number % 3 == 1:
            spec["nodeSelector"] = {"nvidia.com/gpu.product": MODELS[number % 2][0]}
        if number % 5 == 2:
            spec["tolerations"] = [{"key": f"team-{number % 4}", "operator": "Exists"}]
        made.append(pod_template(requests, labels={"app": f"app-{number:03}"}, **spec))
    return made


def affinity_pod_templates(count: int) -> list[Pod]:
    """Templates whose pods mind one another: spread over zones, apart on hosts, beside a friend in a zone, preferring
    another rack; as many of each."""
    made = []
    for number in range(count):
        labels = {"app": f"tied-{number:03}"}
        selector = {"labelSelector": {"matchLabels": labels}}
        term = {**selector, "topologyKey": HOST}
        rule: Unstructured
        match number % 4:
            case 0:
                spread = {**selector, "topologyKey": ZONE, "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}
                rule = {"topologySpreadConstraints": [spread]}
            case 1:
                rule = {"affinity": {"podAntiAffinity": {_REQUIRED_RULE: [term]}}}
            case 2:
                with_peer = {**selector, "topologyKey": ZONE}
                rule = {"affinity": {"podAffinity": {_REQUIRED_RULE: [with_peer]}}}
            case _:
                wish = {"weight": 10, "podAffinityTerm": {**selector, "topologyKey": RACK}}
                rule = {"affinity": {"podAntiAffinity": {_PREFERRED_RULE: [wish]}}}
        requests = {"cpu": f"{1 + number % 4}", "memory": "8Gi", **({GPU: "1"} if number % 2 else {})}
        made.append(pod_template(requests, labels=labels, **rule))
    return made


_REQUIRED_RULE = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED_RULE = "preferredDuringSchedulingIgnoredDuringExecution"


def gang_pods(count: int, size: int, requests: Mapping[str, str], queue: str, **topology: str) -> list[Pod]:
    """The pods of Kueue pod groups in a queue. `topology`: `required` or `preferred`, with a level."""
    wish = {
        {"required": REQUIRED_TOPOLOGY, "preferred": PREFERRED_TOPOLOGY}[mode]: level
        for mode, level in topology.items()
    }
    made = []
    for number in range(count):
        template = pod_template(
            requests,
            labels={QUEUE_LABEL: queue, GROUP_LABEL: f"gang-{number:04}"},
            annotations={GROUP_TOTAL_COUNT: str(size), **wish},
        )
        made += make_pods(template, size, f"gang-{number:04}")
    return made


TIMED_QUEUES = ("time-0", "time-1", "time-2")
_DURATION = "windlass.dev/duration"


def _timed(number: int, gpus: int, seconds: int, **group: str) -> Pod:
    labels = {QUEUE_LABEL: TIMED_QUEUES[number % 3]}
    annotations = {_DURATION: f"{seconds}s"}
    if group:
        labels[GROUP_LABEL], annotations[GROUP_TOTAL_COUNT] = group["name"], group["total"]
        if "required" in group:
            annotations[REQUIRED_TOPOLOGY] = group["required"]
    return pod_template(
        {"cpu": "8", "memory": "64Gi", GPU: str(gpus)}, labels=labels, annotations=annotations
    )


def running_pods_with_duration(nodes: int, count: int) -> list[Pod]:
    """Pods of one to eight GPUs with different ends, on nodes that they don't fill evenly."""
    free = [8] * nodes
    made = []
    for number in range(count):
        gpus = (1, 2, 2, 4, 4, 8)[number * 5 % 6]
        node = next((n for k in range(12) if free[n := (number * 7_919 + k * 131) % nodes] >= gpus), None)
        if node is not None:
            free[node] -= gpus
            seconds = 4_000 + number * 6_151 % 86_000
            made.append(
                bound_pod(make_pod(_timed(number, gpus, seconds), f"run-{number:05}"), f"node-{node:05}")
            )
    return made


def pending_pods_with_duration(count: int) -> list[Pod]:
    """Single pods and gangs of up to eight, most gangs within a rack, all with a run time."""
    made: list[Pod] = []
    for number in range(count):
        size, gpus = (1, 1, 1, 2, 4, 8)[number * 5 % 6], (1, 2, 4, 8, 8)[number % 5]
        seconds, name = 600 + number * 6_151 % 39_000, f"wait-{number:05}"
        if size == 1:
            made.append(make_pod(_timed(number, gpus, seconds), name))
            continue
        rack = {"required": RACK} if number % 5 > 1 else {}
        template = _timed(number, gpus, seconds, name=name, total=str(size), **rack)
        made += make_pods(template, size, name)
    return made


def queue_objects(queues: Sequence[Unstructured], *, topology: Sequence[str] = ()) -> list[object]:
    """A ResourceFlavor `default` over all nodes (with a Topology, where levels are given), these ClusterQueues and a
    LocalQueue of the same name for each."""
    flavor: Unstructured = {}
    trees: list[Unstructured] = []
    if topology:
        flavor = {"nodeLabels": {"windlass.dev/bench": "true"}, "topologyName": "default"}
        levels = [{"nodeLabel": level} for level in topology]
        trees.append(_kueue("Topology", "default", {"levels": levels}, "v1beta1"))
    trees.append(_kueue("ResourceFlavor", "default", flavor))
    for queue in map(dict, queues):
        name = queue.pop("name")
        trees.append(_kueue("ClusterQueue", name, queue))
        local = _kueue("LocalQueue", name, {"clusterQueue": name})
        local["metadata"]["namespace"] = NAMESPACE
        trees.append(local)
    return [decode_object(tree) for tree in trees]


def cluster_queue(name: str, quota: Mapping[str, str], **more: Any) -> Unstructured:
    """`borrowing`: a limit for every resource; everything else is the spec's own."""
    borrowing = more.pop("borrowing", None)
    resources = [
        {"name": resource, "nominalQuota": amount}
        | ({} if borrowing is None else {"borrowingLimit": borrowing})
        for resource, amount in quota.items()
    ]
    group = {"coveredResources": list(quota), "flavors": [{"name": "default", "resources": resources}]}
    return {"name": name, "namespaceSelector": {}, "resourceGroups": [group], **more}


def _kueue(kind: str, name: str, spec: Unstructured, version: str = "v1beta2") -> Unstructured:
    return {
        "apiVersion": f"kueue.x-k8s.io/{version}",
        "kind": kind,
        "metadata": {"name": name},
        "spec": spec,
    }
