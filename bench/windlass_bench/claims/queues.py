"""Queues of the simulated cluster: Kueue objects from a short description, decoded as any other.

Used by the claims whose work waits in queues or asks for a topology.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from windlass.model.codec import decode_object
from windlass.model.names.kubernetes import HOSTNAME_LABEL
from windlass.model.names.kueue import KUEUE_API_VERSION
from windlass.model.names.nvidia import GPU_RESOURCE
from windlass.model.names.windlass import RACK_LABEL

FLAVOR, TOPOLOGY, COHORT = "default", "default", "park"


class QueueSpec(msgspec.Struct, frozen=True):
    """A ClusterQueue and the LocalQueue of the same name."""

    name: str
    gpus: int
    """Nominal quota."""
    preemption: dict[str, Any] = {}
    strategy: str = "BestEffortFIFO"


def queue_objects(queues: Sequence[QueueSpec], topology: bool = True) -> tuple[object, ...]:
    """All of them in one cohort, on one flavor, with the levels rack and host where jobs may ask for them."""
    return tuple(decode_object(tree) for tree in _trees(queues, topology))


def _trees(queues: Sequence[QueueSpec], topology: bool) -> Iterator[dict[str, Any]]:
    if topology:
        yield _tree("Topology", TOPOLOGY, {"levels": [{"nodeLabel": RACK_LABEL}, {"nodeLabel": HOSTNAME_LABEL}]})
    yield _tree("ResourceFlavor", FLAVOR, {"topologyName": TOPOLOGY} if topology else {})
    for queue in queues:
        cell = {"name": GPU_RESOURCE, "nominalQuota": queue.gpus}
        group = {"coveredResources": [GPU_RESOURCE], "flavors": [{"name": FLAVOR, "resources": [cell]}]}
        spec: dict[str, Any] = {
            "cohortName": COHORT,
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
    return {"apiVersion": KUEUE_API_VERSION, "kind": kind, "metadata": metadata, "spec": spec}
