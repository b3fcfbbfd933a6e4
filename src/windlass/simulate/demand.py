"""GPU demand of a trace's jobs, as far as it is known before they are placed. Used by `simulate.measures`."""

from __future__ import annotations

import msgspec
import numpy as np

from windlass.cluster.node_state import Ints
from windlass.cluster.shape import Shape, ShapeRegistry
from windlass.model.names.nvidia import GPU_REPLICAS_LABEL, MIG_STRATEGY_LABEL, SHARED_GPU_RESOURCE
from windlass.model.names.windlass import DEVICES_LAYOUT_ANNOTATION
from windlass.model.node import Node
from windlass.simulate.trace import Trace


class Demand(msgspec.Struct, frozen=True):
    milli: Ints
    """Milli-GPU of each job."""
    least_memory: int
    """Smallest memory request of a GPU pod, in bytes."""
    is_exact: bool
    """Whether `milli` is what a job will hold. For MIG instances, replicas and shares by memory that depends on the
    device."""


def demand_of(trace: Trace) -> Demand:
    """Pods of a trace share spec and annotations objects, so that each pair is evaluated once."""
    registry = ShapeRegistry()
    known: dict[tuple[int, int], Shape] = {}
    jobs = []
    for job in trace.jobs:
        total = 0
        for pod in job.pods:
            template = (id(pod.spec), id(pod.metadata.annotations))
            if template not in known:
                known[template] = registry.intern(pod)[0]
            total += known[template].gpu_milli
        jobs.append(total)
    gpu_shapes = [shape for shape in known.values() if shape.gpu is not None]
    memory = min((dict(shape.requests).get("memory", 0) for shape in gpu_shapes), default=0)
    is_exact = all(map(_is_milli_known, known.values())) and not any(map(_is_shared, trace.nodes))
    return Demand(np.array(jobs, dtype=np.int64), memory, is_exact)


def _is_milli_known(shape: Shape) -> bool:
    return (shape.gpu is None or shape.gpu_milli > 0) and SHARED_GPU_RESOURCE not in dict(shape.requests)


def _is_shared(node: Node) -> bool:
    """Whether a GPU resource of the node may be a part of a GPU."""
    labels = node.labels
    return (
        labels.get(MIG_STRATEGY_LABEL, "none") != "none"
        or labels.get(GPU_REPLICAS_LABEL, "1") not in ("0", "1")
        or DEVICES_LAYOUT_ANNOTATION in node.metadata.annotations
    )
