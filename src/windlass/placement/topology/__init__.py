"""Topology search: which domains get how many pods of a job.

Fed by `engine` with a tree of the candidate nodes, what the pod sets ask for and the room that there is; feeds it the
pods per node. It knows nothing of queues, devices or scores beyond the numbers that it is handed. The README beside
this file draws the search.
"""

from windlass.placement.topology.ask import (
    Room,
    SetPlacement,
    TopologyAsk,
    TopologyFailure,
    TopologyPlan,
)
from windlass.placement.topology.plan import plan_topology
from windlass.placement.topology.replacement import plan_replacement
from windlass.placement.topology.room import MatrixRoom
from windlass.placement.topology.tree import DomainTree

__all__ = [
    "DomainTree",
    "MatrixRoom",
    "Room",
    "SetPlacement",
    "TopologyAsk",
    "TopologyFailure",
    "TopologyPlan",
    "plan_replacement",
    "plan_topology",
]
