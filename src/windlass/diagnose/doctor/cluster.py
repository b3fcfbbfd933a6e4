"""`doctor cluster` and `doctor node`: are the GPU nodes of this cluster fit for work.

Called by `cli.doctor` with evidence. Nodes are compared within their pool to find the one that differs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from windlass.diagnose import gpu_stack, nodes
from windlass.diagnose.doctor.report import ERROR, OK, WARNING, Symptom
from windlass.diagnose.evidence import Evidence
from windlass.diagnose.operator_nodes import node_notes
from windlass.diagnose.quotas import is_ineffective_key
from windlass.diagnose.stack_components import gpu_nodes
from windlass.diagnose.unstructured import nested_map
from windlass.model.digits import is_digits
from windlass.model.errors import InputError
from windlass.model.names.kubernetes import INSTANCE_TYPE_LABEL
from windlass.model.names.nvidia import (
    GPU_COUNT_LABEL,
    GPU_PRODUCT_LABEL,
    GPU_REPLICAS_LABEL,
    GPU_RESOURCE,
    MIG_RESOURCE_PREFIX,
)
from windlass.model.names.windlass import CONTAINER_GPUS_ANNOTATION
from windlass.model.node import Node
from windlass.model.pod import Pod
from windlass.model.requests import pod_requests
from windlass.node.container_runtime import DEVICES_COME, NOTHING_CARRIES_OUT

POOL_LABELS = (
    "cloud.google.com/gke-nodepool",
    "eks.amazonaws.com/nodegroup",
    "karpenter.sh/nodepool",
    "kubernetes.azure.com/agentpool",
    INSTANCE_TYPE_LABEL,
    "nvidia.com/gpu.machine",
)
DRIVER = "nvidia.com/cuda.driver-version.full"
NO_GPU_NODE = "is no GPU node: no label, resource, taint or machine type says that it has GPUs"


def examine_cluster(evidence: Evidence, now: int) -> list[Symptom]:
    """All checks on every GPU node, and those that compare nodes."""
    gpus = gpu_nodes(evidence)
    if not gpus:
        return [Symptom("gpu-nodes", ERROR, "cluster", "no node looks like a GPU node", "", "kubectl get nodes")]
    found = [Symptom("gpu-nodes", OK, "cluster", f"{len(gpus)} of {len(evidence.nodes)} nodes have GPUs")]
    for node in gpus:
        found += examine_node(evidence, node, now)
    found += _pools(gpus)
    found += _mixed_models(evidence, gpus)
    found += _quota_keys(evidence)
    found += _resource_claims(evidence)
    return found


def examine_node(evidence: Evidence, node: Node, now: int) -> list[Symptom]:
    """Faults of one node; a single `ok` if there are none, or if it is no GPU node."""
    if node not in gpu_nodes(evidence):
        return [*_takes_work(node), Symptom("node", OK, node.name, NO_GPU_NODE)]
    found = [*_takes_work(node), *_advertises(node), *_labels(node), *_tainted(evidence, node)]
    found += [
        Symptom(
            finding.code.lower().replace("_", "-"),
            ERROR,
            node.name,
            finding.headline or finding.evidence[0],
            finding.sentence,
            "",
        )
        for finding in gpu_stack.node_findings(evidence, node, now, "")
        if finding.code not in ("NODE_UNSCHEDULABLE",)
    ]
    found += _validated(node)
    found += _operator_notes(evidence, node)
    return [*(found or [Symptom("node", OK, node.name, _summary(node))]), *_container_gpus(evidence, node)]


def _summary(node: Node) -> str:
    has = ", ".join(f"{amount} {name}" for name, amount in nodes.gpu_resources(node).items())
    return f"{node.labels.get(GPU_PRODUCT_LABEL, 'GPUs')}: {has}"


def _takes_work(node: Node) -> Iterator[Symptom]:
    down = nodes.unschedulable_reason(node)
    if down:
        yield Symptom("takes-work", ERROR, node.name, f"is {down}", "it takes no new pods", nodes.down_remedy(node))


def _advertises(node: Node) -> Iterator[Symptom]:
    if not nodes.gpu_resources(node):
        yield Symptom(
            "advertises-gpus",
            ERROR,
            node.name,
            "looks like a GPU node but advertises no GPU",
            "no device plugin has registered",
            f"kubectl get pods -A --field-selector spec.nodeName={node.name}",
        )
    for name in nodes.gpu_resources(node):
        unhealthy = nodes.unhealthy_device_count(node, name)
        if unhealthy:
            yield Symptom(
                "allocatable-equals-capacity",
                ERROR,
                node.name,
                f"{unhealthy} of its {name} are unhealthy",
                "the device plugin withdrew them; pods on them are still counted",
                f"kubectl describe node {node.name}; then look for Xid in its kernel log",
            )
    count = node.labels.get(GPU_COUNT_LABEL, "")
    whole = nodes.gpu_resources(node).get(GPU_RESOURCE)
    shared = node.labels.get(GPU_REPLICAS_LABEL, "1") not in ("", "0", "1")
    if is_digits(count) and whole is not None and not shared and whole < int(count):
        yield Symptom(
            "expected-count",
            ERROR,
            node.name,
            f"advertises {whole} nvidia.com/gpu, but its label says {count}",
            "a GPU is lost, or partitioned by MIG",
            "nvidia-smi -L on the node",
        )


def _labels(node: Node) -> Iterator[Symptom]:
    if nodes.gpu_resources(node) and GPU_PRODUCT_LABEL not in node.labels:
        yield Symptom(
            "labels",
            WARNING,
            node.name,
            f"lacks {GPU_PRODUCT_LABEL}",
            "pods that select by product do not match it",
            "restart the gpu-feature-discovery pod on the node",
        )


def _tainted(evidence: Evidence, node: Node) -> Iterator[Symptom]:
    """Pods without GPUs on an untainted GPU node: they can use up the CPU that its GPUs need."""
    if any(taint.effect in ("NoSchedule", "NoExecute") for taint in node.spec.taints):
        return
    cpu_only = [item for item in evidence.pods_on(node.name) if _is_cpu_only(item.decoded)]
    if cpu_only:
        yield Symptom(
            "gpu-nodes-tainted",
            WARNING,
            node.name,
            f"has no taint and runs {len(cpu_only)} pods without GPUs",
            "they can use up the CPU that its GPUs need",
            f"kubectl taint node {node.name} nvidia.com/gpu=present:NoSchedule",
        )


def _is_cpu_only(value: object) -> bool:
    if not isinstance(value, Pod) or value.is_terminal:
        return False
    if any(owner.kind in ("DaemonSet", "Node") for owner in value.metadata.owner_references):
        return False
    try:
        return not nodes.device_requests(pod_requests(value))
    except InputError:
        return False


def _operator_notes(evidence: Evidence, node: Node) -> Iterator[Symptom]:
    for note in node_notes(evidence, node.name):
        cause = "the operator works on it, or waits for a person"
        yield Symptom("operator", WARNING, node.name, note, cause, f"windlass stack explain {node.name}")


def _validated(node: Node) -> Iterator[Symptom]:
    state = node.labels.get("nvidia.com/gpu.validation", node.labels.get("windlass.dev/validated", ""))
    if state in ("false", "failed"):
        yield Symptom(
            "validation",
            ERROR,
            node.name,
            "validation has failed",
            "",
            f"windlass node validate on {node.name}",
        )


def _container_gpus(evidence: Evidence, node: Node) -> Iterator[Symptom]:
    """How containers get their GPUs there, as Windlass's agent found it."""
    way = node.metadata.annotations.get(CONTAINER_GPUS_ANNOTATION, "")
    if not way:
        return
    classes = [item.name for item in evidence.of_kind("RuntimeClass") if "nvidia" in str(item.data.get("handler"))]
    named = f"RuntimeClasses of NVIDIA's runtime: {', '.join(classes) or 'none'}"
    level = ERROR if NOTHING_CARRIES_OUT in way else OK if DEVICES_COME in way else WARNING
    yield Symptom("container-gpus", level, node.name, way, named)


# Comparing nodes


def _pool(node: Node) -> str:
    """Without pools, nodes with GPUs of one model are compared."""
    own = next((node.labels[label] for label in POOL_LABELS if label in node.labels), "")
    return own or node.labels.get(GPU_PRODUCT_LABEL, "(no pool)")


def _pools(gpus: list[Node]) -> Iterator[Symptom]:
    pools: dict[str, list[Node]] = {}
    for node in gpus:
        pools.setdefault(_pool(node), []).append(node)
    for name, members in pools.items():
        yield from _differs(name, members, DRIVER, "driver", "roll the driver out to the whole pool")
        known = ((node.name, _physical_gpus(node)) for node in members)
        counts = {node: count for node, count in known if count is not None}
        usual = next(iter(Counter(counts.values()).most_common(1)), (0, 0))[0]
        for different in [name for name, count in counts.items() if count != usual]:
            message = f"has {counts[different]} GPUs; most nodes of its pool have {usual}"
            meaning = "a GPU is lost, or the nodes are partitioned differently"
            yield Symptom("gpus-per-node", WARNING, different, message, meaning, "nvidia-smi -L on the node")


def _physical_gpus(node: Node) -> int | None:
    """GPUs of a node; where it advertises MIG instances or shares, as its label says, or None without one."""
    product, label = node.labels.get(GPU_PRODUCT_LABEL, ""), node.labels.get(GPU_COUNT_LABEL, "")
    resources = nodes.gpu_resources(node)
    if "-MIG-" in product:
        return None  # with MIG's single strategy, the label counts instances as well
    if node.labels.get(GPU_REPLICAS_LABEL, "1") in ("", "0", "1") and not any(map(_is_part, resources)):
        return sum(resources.values())
    return int(label) if is_digits(label) else None


def _is_part(resource: str) -> bool:
    return resource.startswith(MIG_RESOURCE_PREFIX) or resource.endswith(".shared")


def _differs(pool: str, members: list[Node], label: str, what: str, mend: str) -> Iterator[Symptom]:
    values = Counter(node.labels[label] for node in members if label in node.labels)
    if len(values) > 1:
        usual = values.most_common(1)[0][0]
        different = [
            f"{node.name} has {what} {node.labels[label]}" for node in members if node.labels.get(label, usual) != usual
        ]
        message = f"{', '.join(different[:5])}; most nodes of the pool have {usual}"
        yield Symptom(f"same-{what}", WARNING, pool, message, "jobs across them may behave differently", mend)


def _mixed_models(evidence: Evidence, gpus: list[Node]) -> Iterator[Symptom]:
    """Pools with several GPU models, and free GPUs that waiting pods exclude by selecting one product."""
    pools: dict[str, set[str]] = {}
    for node in gpus:
        if GPU_PRODUCT_LABEL in node.labels:
            pools.setdefault(_pool(node), set()).add(node.labels[GPU_PRODUCT_LABEL])
    for name, products in pools.items():
        if len(products) > 1:
            yield Symptom(
                "one-model-per-pool",
                WARNING,
                name,
                f"has GPUs of {len(products)} models: {', '.join(sorted(products))}",
                "jobs must select a product to get a certain one",
            )
    yield from _stranded_by_pins(evidence, gpus)


def _stranded_by_pins(evidence: Evidence, gpus: list[Node]) -> Iterator[Symptom]:
    free: Counter[str] = Counter()
    for node in gpus:
        total = nodes.gpu_resources(node).get(GPU_RESOURCE, 0)
        used = sum(_gpus(item.decoded) for item in evidence.pods_on(node.name))
        free[node.labels.get(GPU_PRODUCT_LABEL, "")] += max(0, total - used)
    for item in evidence.of_kind("Pod"):
        pod = item.decoded
        if not isinstance(pod, Pod) or pod.is_bound or pod.is_terminal or not _gpus(pod):
            continue
        pinned = pod.spec.node_selector.get(GPU_PRODUCT_LABEL)
        elsewhere = sum(amount for product, amount in free.items() if product != pinned)
        if pinned is not None and free[pinned] < _gpus(pod) <= elsewhere:
            yield Symptom(
                "pins-strand-gpus",
                WARNING,
                f"{item.namespace}/{item.name}",
                f"waits for {pinned} while {elsewhere} other GPUs are free",
                "its selection of one product leaves them idle",
                "prefer products (preferred node affinity) instead of requiring one",
            )


def _gpus(value: object) -> int:
    if not isinstance(value, Pod) or value.is_terminal:
        return 0
    try:
        return pod_requests(value).get(GPU_RESOURCE, 0)
    except InputError:
        return 0


def _resource_claims(evidence: Evidence) -> Iterator[Symptom]:
    """Pods that Windlass would hold, by the scheduler that they name: counted before it gets that name."""
    decoded = (item.decoded for item in evidence.of_kind("Pod"))
    pods = [pod for pod in decoded if isinstance(pod, Pod) and pod.spec.resource_claims and not pod.is_terminal]
    for name, count in sorted(Counter(pod.spec.scheduler_name for pod in pods).items()):
        waiting = sum(pod.spec.scheduler_name == name and not pod.is_bound for pod in pods)
        yield Symptom(
            "resource-claims",
            WARNING,
            f"scheduler {name}",
            f"{count} of its pods use resource claims, {waiting} of them wait",
            "Windlass doesn't allocate resource claims: under this name it would hold such pods",
            "leave them to kube-scheduler under a name that Windlass doesn't have",
        )


def _quota_keys(evidence: Evidence) -> Iterator[Symptom]:
    for quota in evidence.of_kind("ResourceQuota"):
        for key in nested_map(quota.data, "spec", "hard"):
            if is_ineffective_key(key):
                bare = key.removeprefix("limits.")
                yield Symptom(
                    "quota-key", ERROR, quota.title, f"key {key} limits nothing", "", f"write requests.{bare}"
                )
