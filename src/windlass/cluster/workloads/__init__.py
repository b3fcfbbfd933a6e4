"""From objects to workloads: which pods start together, what they request, what they use already.

    objects ─► grouping_inputs ─► GroupingInputs ─► group_workloads ─► Grouping (workloads, notes)
    changes ─► WorkloadIndex ─► Grouping, where objects come one by one

Pure functions on decoded objects. `workload_sync` keeps the index for the store; `queueing` admits the workloads and
`placement` places their pods.
"""

from __future__ import annotations

from windlass.cluster.workloads.grouping_inputs import GroupingInputs, grouping_inputs
from windlass.cluster.workloads.units import declares_membership
from windlass.cluster.workloads.workload_attributes import declares_attributes
from windlass.cluster.workloads.workload_index import Grouping, WorkloadIndex, group_workloads

__all__ = [
    "Grouping",
    "GroupingInputs",
    "WorkloadIndex",
    "declares_attributes",
    "declares_membership",
    "group_workloads",
    "grouping_inputs",
]
