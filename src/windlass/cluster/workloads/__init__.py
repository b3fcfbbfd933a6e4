"""From objects to workloads: which pods start together, what they ask for, what they hold already.

    objects ─► inputs_of ─► Inputs ─► find_units ─► build ─► Grouping (workloads, notes)

Pure functions on decoded objects. The engine's callers hand in everything they have; `queueing` orders and admits the
workloads that come out, `placement` places their pods.
"""

from __future__ import annotations

import msgspec

from windlass.cluster.workloads.build import build, build_leaving
from windlass.cluster.workloads.inputs import Inputs, inputs_of
from windlass.cluster.workloads.submitted import with_quota_holds
from windlass.cluster.workloads.units import find_units
from windlass.model.workload import Workload

__all__ = ["Grouping", "Inputs", "group", "inputs_of"]


class Grouping(msgspec.Struct, frozen=True):
    workloads: tuple[Workload, ...]
    """The oldest first."""
    notes: tuple[str, ...] = ()
    """What could not be grouped and is said instead of guessed."""


def group(inputs: Inputs) -> Grouping:
    """All workloads there are: waiting, running, and not submitted yet."""
    units, notes = find_units(inputs)
    found = (workload for unit in units for workload in (build(unit, inputs), build_leaving(unit, inputs)))
    made = [workload for workload in found if workload is not None]
    made.sort(key=lambda workload: (workload.created, workload.key, workload.kind))
    return Grouping(with_quota_holds(made, inputs.resource_quotas), tuple(notes))
