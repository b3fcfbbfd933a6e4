"""Topology search: which domains get how many pods of a workload.

`placement.gang` and `timeplan` call `plan_topology` with a tree of the candidate nodes, the requests of the pod sets
and the capacity of the nodes, and get the pods per node. The search knows queues, devices and scores only as numbers
that it is given. The README draws it.
"""

from windlass.placement.topology.matrix_capacity import MatrixCapacity
from windlass.placement.topology.plan import plan_topology
from windlass.placement.topology.replacement import plan_replacement
from windlass.placement.topology.tree import DomainTree
from windlass.placement.topology.types import (
    NodeCapacity,
    PodSetPlacement,
    TopologyFailure,
    TopologyPlan,
    TopologyPodSetRequest,
)

__all__ = [
    "DomainTree",
    "MatrixCapacity",
    "NodeCapacity",
    "PodSetPlacement",
    "TopologyFailure",
    "TopologyPlan",
    "TopologyPodSetRequest",
    "plan_replacement",
    "plan_topology",
]
