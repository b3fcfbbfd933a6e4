"""Queues for the stage: Kueue objects made of a few words, decoded as any other.

Used by the claims whose work waits in queues or asks for a topology.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from windlass.model.objects import decode_object
from windlass.model.topology import HOSTNAME, RACK

KUEUE = "kueue.x-k8s.io/v1beta2"
QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
GPU = "nvidia.com/gpu"
FLAVOR, TOPOLOGY = "default", "default"


class QueueSpec(msgspec.Struct, frozen=True):
    """A ClusterQueue and the LocalQueue of the same name."""

    name: str
    gpus: int
    """Nominal quota."""
    preemption: dict[str, Any] = {}
    strategy: str = "BestEffortFIFO"


def queue_objects(queues: Sequence[QueueSpec], cohort: str = "park") -> tuple[object, ...]:
    """All of them in one cohort, on one flavor with the levels rack and host."""
    return tuple(decode_object(tree) for tree in _trees(queues, cohort))


def _trees(queues: Sequence[QueueSpec], cohort: str) -> Iterator[dict[str, Any]]:
    yield _tree("Topology", TOPOLOGY, {"levels": [{"nodeLabel": RACK}, {"nodeLabel": HOSTNAME}]})
    yield _tree("ResourceFlavor", FLAVOR, {"topologyName": TOPOLOGY})
    for queue in queues:
        cell = {"name": GPU, "nominalQuota": queue.gpus}
        group = {"coveredResources": [GPU], "flavors": [{"name": FLAVOR, "resources": [cell]}]}
        spec: dict[str, Any] = {
            "cohortName": cohort,
            "namespaceSelector": {},
            "queueingStrategy": queue.strategy,
            "resourceGroups": [group],
        }
        if queue.preemption:
            spec["preemption"] = queue.preemption
        yield _tree("ClusterQueue", queue.name, spec)
        yield _tree("LocalQueue", queue.name, {"clusterQueue": queue.name}, "default")


def _tree(kind: str, name: str, spec: dict[str, Any], namespace: str = "") -> dict[str, Any]:
    metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
    return {"apiVersion": KUEUE, "kind": kind, "metadata": metadata, "spec": spec}
