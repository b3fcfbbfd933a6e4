"""Made-up clusters and workloads of a given size, as plain Kubernetes objects.

Feeds `engine.tasks`. Everything is counted off, nothing is drawn, so that two runs decide on the same bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from windlass.model.codec import decode_object
from windlass.model.names.kubernetes import HOSTNAME_LABEL, ZONE_LABEL
from windlass.model.names.kueue import (
    KUEUE_POD_GROUP_NAME,
    POD_GROUP_TOTAL_COUNT_ANNOTATION,
    PREFERRED_TOPOLOGY_ANNOTATION,
    QUEUE_NAME_LABEL,
    REQUIRED_TOPOLOGY_ANNOTATION,
)
from windlass.model.names.nvidia import (
    GPU_COUNT_LABEL,
    GPU_MEMORY_LABEL,
    GPU_PRESENT_LABEL,
    GPU_PRODUCT_LABEL,
    GPU_RESOURCE,
)
from windlass.model.names.windlass import BENCH_LABEL, DECLARED_DURATION_ANNOTATION
from windlass.model.node import Node
from windlass.model.pod import Pod
from windlass.model.unstructured import Unstructured

RACK, BLOCK = "cloud.example/rack", "cloud.example/block"
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
            BENCH_LABEL: "true",
            HOSTNAME_LABEL: f"node-{number:05}",
            RACK: f"rack-{rack:04}",
            BLOCK: f"block-{rack // RACKS_A_BLOCK:03}",
            ZONE_LABEL: f"zone-{rack % 3}",
            GPU_PRESENT_LABEL: "true",
            GPU_COUNT_LABEL: str(gpus),
            GPU_PRODUCT_LABEL: model,
            GPU_MEMORY_LABEL: str(memory),
        }
        made.append(_node(f"node-{number:05}", labels, {"cpu": "128", "memory": "2Ti", GPU_RESOURCE: str(gpus)}))
    return made


def cpu_nodes(blocks: int, racks: int, hosts: int, *, cpu: str = "96", memory: str = "256Gi") -> list[Node]:
    """Nodes without GPUs in a tree of blocks and racks."""
    made = []
    for number in range(blocks * racks * hosts):
        rack = number // hosts
        labels = {
            BENCH_LABEL: "true",
            HOSTNAME_LABEL: f"node-{number:05}",
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


def running_pod(template: Pod, number: int, node: int) -> Pod:
    return bound_pod(make_pod(template, f"run-{number:06}"), f"node-{node:05}")


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
            "containers": [{"name": "main", "resources": {"requests": dict(requests), "limits": limits}}],
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
        requests = {"cpu": f"{cpu}", "memory": f"{memory}Gi", **({GPU_RESOURCE: str(gpus)} if gpus else {})}
        spec: Unstructured = {}
        if gpus and number % 3 == 1:
            spec["nodeSelector"] = {GPU_PRODUCT_LABEL: MODELS[number % 2][0]}
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
        term = {**selector, "topologyKey": HOSTNAME_LABEL}
        rule: Unstructured
        match number % 4:
            case 0:
                spread = {
                    **selector,
                    "topologyKey": ZONE_LABEL,
                    "maxSkew": 1,
                    "whenUnsatisfiable": "DoNotSchedule",
                }
                rule = {"topologySpreadConstraints": [spread]}
            case 1:
                rule = {"affinity": {"podAntiAffinity": {_REQUIRED_RULE: [term]}}}
            case 2:
                with_peer = {**selector, "topologyKey": ZONE_LABEL}
                rule = {"affinity": {"podAffinity": {_REQUIRED_RULE: [with_peer]}}}
            case _:
                wish = {"weight": 10, "podAffinityTerm": {**selector, "topologyKey": RACK}}
                rule = {"affinity": {"podAntiAffinity": {_PREFERRED_RULE: [wish]}}}
        requests = {
            "cpu": f"{1 + number % 4}",
            "memory": "8Gi",
            **({GPU_RESOURCE: "1"} if number % 2 else {}),
        }
        made.append(pod_template(requests, labels=labels, **rule))
    return made


_REQUIRED_RULE = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED_RULE = "preferredDuringSchedulingIgnoredDuringExecution"


def gang_pods(count: int, size: int, requests: Mapping[str, str], queue: str, **topology: str) -> list[Pod]:
    """The pods of Kueue pod groups in a queue. `topology`: `required` or `preferred`, with a level."""
    wish = {
        {"required": REQUIRED_TOPOLOGY_ANNOTATION, "preferred": PREFERRED_TOPOLOGY_ANNOTATION}[mode]: level
        for mode, level in topology.items()
    }
    made = []
    for number in range(count):
        template = pod_template(
            requests,
            labels={QUEUE_NAME_LABEL: queue, KUEUE_POD_GROUP_NAME: f"gang-{number:04}"},
            annotations={POD_GROUP_TOTAL_COUNT_ANNOTATION: str(size), **wish},
        )
        made += make_pods(template, size, f"gang-{number:04}")
    return made


TIMED_QUEUES = ("time-0", "time-1", "time-2")


def _timed(number: int, gpus: int, seconds: int, **group: str) -> Pod:
    labels = {QUEUE_NAME_LABEL: TIMED_QUEUES[number % 3]}
    annotations = {DECLARED_DURATION_ANNOTATION: f"{seconds}s"}
    if group:
        labels[KUEUE_POD_GROUP_NAME], annotations[POD_GROUP_TOTAL_COUNT_ANNOTATION] = (
            group["name"],
            group["total"],
        )
        if "required" in group:
            annotations[REQUIRED_TOPOLOGY_ANNOTATION] = group["required"]
    return pod_template({"cpu": "8", "memory": "64Gi", GPU_RESOURCE: str(gpus)}, labels=labels, annotations=annotations)


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
            made.append(bound_pod(make_pod(_timed(number, gpus, seconds), f"run-{number:05}"), f"node-{node:05}"))
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
        flavor = {"nodeLabels": {BENCH_LABEL: "true"}, "topologyName": "default"}
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
        {"name": resource, "nominalQuota": amount} | ({} if borrowing is None else {"borrowingLimit": borrowing})
        for resource, amount in quota.items()
    ]
    group = {"coveredResources": list(quota), "flavors": [{"name": "default", "resources": resources}]}
    return {"name": name, "namespaceSelector": {}, "resourceGroups": [group], **more}


def _kueue(kind: str, name: str, spec: Unstructured, version: str = "v1beta2") -> Unstructured:
    return {"apiVersion": f"kueue.x-k8s.io/{version}", "kind": kind, "metadata": {"name": name}, "spec": spec}
