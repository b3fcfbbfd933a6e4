"""Plain objects with one workload that is held, and the explained verdict of it."""

from __future__ import annotations

from typing import Any

from tests.engine.plain_objects import node, planned, pod

from windlass.model.unstructured import Unstructured
from windlass.model.verdict import Change, Limit, Verdict

KUEUE = "kueue.x-k8s.io/v1beta2"
GPU, PRODUCT = "nvidia.com/gpu", "nvidia.com/gpu.product"
RACK, ZONE = "windlass.dev/rack", "topology.kubernetes.io/zone"
REQUIRED = "kueue.x-k8s.io/podset-required-topology"


def verdict(*objects: Unstructured, of: str = "w") -> Verdict:
    plan, _ = planned(*objects)
    found = {hold.workload: hold.verdict for hold in plan.holds}
    return found[f"default/{of}"]


def in_queue(name: str = "q") -> Unstructured:
    return {"labels": {"kueue.x-k8s.io/queue-name": name}}


def asking(made: Unstructured, **amounts: object) -> Unstructured:
    """The pod with further requests; `example.com/nic` by `**{"example.com/nic": 2}`."""
    made["spec"]["containers"][0]["resources"]["limits"] |= {name: str(amount) for name, amount in amounts.items()}
    return made


def labelled(made: Unstructured, **labels: str) -> Unstructured:
    made["metadata"]["labels"] |= labels
    return made


def of_model(name: str, model: str, gpus: int = 8) -> Unstructured:
    return labelled(node(name, gpus), **{PRODUCT: model})


def tainted(name: str, *taints: tuple[str, str, str], gpus: int = 8) -> Unstructured:
    listed = [{"key": key, "value": value, "effect": effect} for key, value, effect in taints]
    return {**node(name, gpus), "spec": {"taints": listed}}


def having(made: Unstructured, **amounts: object) -> Unstructured:
    """The node with other amounts of resources."""
    made["status"]["allocatable"] = made["status"]["allocatable"] | {key: str(n) for key, n in amounts.items()}
    made["status"]["capacity"] = made["status"]["allocatable"]
    return made


def share(name: str, fraction: str, **more: Any) -> Unstructured:
    return pod(name, 0, metadata={"annotations": {"gpu-fraction": fraction}}, **more)


def member(name: str, total: int, gpus: int, group: str = "w", queue: str = "", **more: Any) -> Unstructured:
    annotations = {"kueue.x-k8s.io/pod-group-total-count": str(total), **more.pop("annotations", {})}
    labels = {"kueue.x-k8s.io/pod-group-name": group, **(in_queue(queue)["labels"] if queue else {})}
    return pod(name, gpus, metadata={"labels": labels, "annotations": annotations}, **more)


def gang(count: int, gpus: int, name: str = "w", **more: Any) -> list[Unstructured]:
    return [member(f"{name}{at}", count, gpus, name, **dict(more)) for at in range(count)]


def racks(*sizes: int) -> list[Unstructured]:
    """Nodes `n0`, `n1`, … in racks of two, all in one zone."""
    return [labelled(node(f"n{at}", size), **{RACK: f"r{at // 2}", ZONE: "z"}) for at, size in enumerate(sizes)]


def flavor(name: str = "f", **labels: str) -> Unstructured:
    return {
        "apiVersion": KUEUE,
        "kind": "ResourceFlavor",
        "metadata": {"name": name},
        "spec": {"nodeLabels": labels},
    }


def queue(quotas: dict[str, dict[str, object]], name: str = "q", **spec: Any) -> list[Unstructured]:
    """A ClusterQueue with the quotas of each flavor, and a LocalQueue of the same name."""
    resources = list(next(iter(quotas.values())))
    flavors = [
        {"name": flavor_, "resources": [{"name": key, "nominalQuota": amount} for key, amount in amounts.items()]}
        for flavor_, amounts in quotas.items()
    ]
    groups = [{"coveredResources": resources, "flavors": flavors}]
    local = {"name": name, "namespace": "default"}
    return [
        {
            "apiVersion": KUEUE,
            "kind": "ClusterQueue",
            "metadata": {"name": name},
            "spec": {"namespaceSelector": {}, "resourceGroups": groups, **spec},
        },
        {"apiVersion": KUEUE, "kind": "LocalQueue", "metadata": local, "spec": {"clusterQueue": name}},
    ]


def gpu_limit(kind: str, text: str, needed: str, available: str, nodes: int) -> Limit:
    return Limit(kind, text, resource=GPU, needed=needed, available=available, nodes=nodes)


def changes(found: Verdict) -> list[tuple[str, str, int]]:
    """(kind, text, loss) of every change."""
    return [(change.kind, change.text, change.loss) for change in found.changes]


def change_of(found: Verdict, kind: str) -> Change:
    (one,) = [change for change in found.changes if change.kind == kind]
    return one
