"""From objects to workloads: which pods start together, what they ask for, what they hold already.

    objects ─► inputs_of ─► Inputs ─► group ─► Grouping (workloads, notes)
    changes ─► WorkloadBook ─► Grouping, where objects come one by one

Pure functions on decoded objects. The engine's callers hand in everything they have; `queueing` orders and admits the
workloads that come out, `placement` places their pods.
"""

from __future__ import annotations

from windlass.cluster.workloads.book import Grouping, WorkloadBook, group
from windlass.cluster.workloads.facts import says_its_limit
from windlass.cluster.workloads.inputs import Inputs, inputs_of
from windlass.cluster.workloads.units import says_where_it_belongs

__all__ = [
    "Grouping",
    "Inputs",
    "WorkloadBook",
    "group",
    "inputs_of",
    "says_its_limit",
    "says_where_it_belongs",
]
