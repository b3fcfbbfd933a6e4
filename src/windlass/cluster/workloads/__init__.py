"""From objects to workloads: which pods start together, what they ask for, what they hold already.

    objects ─► inputs_of ─► Inputs ─► group ─► Grouping (workloads, notes)
    changes ─► WorkloadBook ─► Grouping, where objects come one by one

Pure functions on decoded objects. The engine's callers hand in everything they have; `queueing` orders and admits the
workloads that come out, `placement` places their pods.
"""

from __future__ import annotations

from windlass.cluster.workloads.grouping_inputs import GroupingInputs, grouping_inputs
from windlass.cluster.workloads.units import declares_membership
from windlass.cluster.workloads.workload_attributes import declares_run_limit
from windlass.cluster.workloads.workload_index import Grouping, WorkloadIndex, group_workloads

__all__ = [
    "Grouping",
    "GroupingInputs",
    "WorkloadIndex",
    "declares_membership",
    "declares_run_limit",
    "group_workloads",
    "grouping_inputs",
]
