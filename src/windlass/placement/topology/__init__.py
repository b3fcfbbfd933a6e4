"""Topology search: which domains get how many pods of a job.

Fed by `engine` with a tree of the candidate nodes, what the pod sets ask for and the room that there is; feeds it the
pods per node. It knows nothing of queues, devices or scores beyond the numbers that it is handed. The README beside
this file draws the search.
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
