"""What the jobs of a trace ask of GPUs, as far as it can be known before they are placed.

`simulate.measures` counts allocation with it.
"""

from __future__ import annotations

import msgspec
import numpy as np

from windlass.cluster.node_state import Ints
from windlass.cluster.shape import Shape, ShapeRegistry
from windlass.model.device import LAYOUT_ANNOTATION
from windlass.model.node import Node
from windlass.simulate.trace import Trace

SHARED = "nvidia.com/gpu.shared"
STRATEGY = "nvidia.com/mig.strategy"
REPLICAS = "nvidia.com/gpu.replicas"


class Demand(msgspec.Struct, frozen=True):
    milli: Ints
    """Milli-GPU of each job."""
    least_memory: int
    """Bytes that the least demanding GPU pod asks for."""
    is_exact: bool
    """Whether the milli-GPU are what a job will hold. MIG instances, replicas and shares by memory are worth what the
    device that they are on makes them worth."""


def demand_of(trace: Trace) -> Demand:
    """Pods of a trace share spec and annotations, so each pair is looked at once."""
    book = ShapeRegistry()
    known: dict[tuple[int, int], Shape] = {}
    jobs = []
    for job in trace.jobs:
        total = 0
        for pod in job.pods:
            alike = (id(pod.spec), id(pod.metadata.annotations))
            if alike not in known:
                known[alike] = book.intern(pod)[0]
            total += known[alike].gpu_milli
        jobs.append(total)
    gpu_shapes = [shape for shape in known.values() if shape.gpu is not None]
    memory = min((dict(shape.requests).get("memory", 0) for shape in gpu_shapes), default=0)
    told = all(_is_told(shape) for shape in known.values()) and not any(map(_is_cut, trace.nodes))
    return Demand(np.array(jobs, dtype=np.int64), memory, told)


def _is_told(shape: Shape) -> bool:
    return (shape.gpu is None or shape.gpu_milli > 0) and SHARED not in dict(shape.requests)


def _is_cut(node: Node) -> bool:
    """Whether its GPUs may be handed out in parts under the name of whole ones."""
    labels = node.labels
    return (
        labels.get(STRATEGY, "none") != "none"
        or labels.get(REPLICAS, "1") not in ("0", "1")
        or LAYOUT_ANNOTATION in node.metadata.annotations
    )
