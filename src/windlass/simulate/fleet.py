"""Builds the nodes of a trace's fleet from sizes, and refuses impossible sizes.

Used by `simulate.synthetic` and the readers in `simulate.traces`.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from windlass.model.errors import InputError
from windlass.model.gpu import node_devices
from windlass.model.meta import ObjectMeta
from windlass.model.names.kubernetes import HOSTNAME_LABEL
from windlass.model.names.nvidia import (
    GPU_COUNT_LABEL,
    GPU_MEMORY_LABEL,
    GPU_PRESENT_LABEL,
    GPU_PRODUCT_LABEL,
    GPU_RESOURCE,
)
from windlass.model.names.others import ALIBABA_MODEL
from windlass.model.node import Node, NodeStatus
from windlass.model.pod import RawQuantity
from windlass.model.requests import node_quantities
from windlass.simulate.pod_templates import cpu_text

NO_POD_LIMIT = 100_000
"""Pods per node of a trace without a limit: the published experiments have none, so this must never bind."""

MAX_GPUS = 16
"""GPUs of the largest servers; more are a typing error."""


class NodeSize(msgspec.Struct, frozen=True):
    cpu_milli: int
    memory_mib: int
    gpus: int = 0
    model: str = ""
    gpu_memory_mib: int = 0
    """Per GPU; 0 if unknown."""


def check_node_size(size: NodeSize, name: str) -> None:
    """Raises `InputError` for an impossible machine; `path` names the field."""
    node = f"Node {name}"
    if size.cpu_milli <= 0:
        raise InputError(f"expected CPU above 0, got {size.cpu_milli} milli-CPU", object=node, path="cpu")
    if size.memory_mib <= 0:
        raise InputError(f"expected memory above 0, got {size.memory_mib} MiB", object=node, path="memory")
    if not 0 <= size.gpus <= MAX_GPUS:
        raise InputError(f"expected 0 to {MAX_GPUS} GPUs, got {size.gpus}", object=node, path="gpu")
    if size.model and not size.gpus:
        raise InputError(f"a GPU model ({size.model}) on a node without GPUs", object=node, path="model")


class NodeFactory:
    """Builds nodes; those of one size share their status."""

    def __init__(self) -> None:
        self._status: dict[NodeSize, NodeStatus] = {}

    def make_node(self, name: str, size: NodeSize) -> Node:
        status = self._status.get(size)
        if status is None:
            check_node_size(size, name)
            status = self._status[size] = _status(size)
        labels = {HOSTNAME_LABEL: name, **gpu_labels(size)}
        return Node(metadata=ObjectMeta(name=name, labels=labels), status=status)


def gpu_labels(size: NodeSize) -> dict[str, str]:
    """The trace's own model label, and the labels of GPU Feature Discovery with the same model name."""
    if not size.gpus:
        return {}
    labels = {GPU_PRESENT_LABEL: "true", GPU_COUNT_LABEL: str(size.gpus)}
    if size.model:
        labels |= {ALIBABA_MODEL: size.model, GPU_PRODUCT_LABEL: size.model}
    if size.gpu_memory_mib:
        labels[GPU_MEMORY_LABEL] = str(size.gpu_memory_mib)
    return labels


def uniform_fleet(groups: Iterable[tuple[str, int, NodeSize]]) -> tuple[Node, ...]:
    """Nodes of a few sizes: (name prefix, count, size) each, named `prefix-0000` …"""
    factory = NodeFactory()
    return tuple(
        factory.make_node(f"{prefix}-{index:04}", size) for prefix, count, size in groups for index in range(count)
    )


def count_gpus(nodes: Iterable[Node]) -> int:
    """Number of healthy GPUs."""
    total = 0
    for node in nodes:
        capacity, allocatable = node_quantities(node)
        total += sum(device.healthy for device in node_devices(node, allocatable, capacity))
    return total


def _status(size: NodeSize) -> NodeStatus:
    resources: dict[str, RawQuantity] = {
        "cpu": cpu_text(size.cpu_milli),
        "memory": f"{size.memory_mib}Mi",
        "pods": str(NO_POD_LIMIT),
    }
    if size.gpus:
        resources[GPU_RESOURCE] = str(size.gpus)
    return NodeStatus(capacity=resources, allocatable=resources)
