"""A snapshot in which some units are out of the decision: as if what waits of them did not exist.

`isolation` makes it when deciding on a unit fails. What runs of a unit stays where it is, counts on its node and in its
queue, and is never evicted; its own rules about other pods are left out, since they may be what a decision fails on.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec
import numpy as np

from windlass.cluster.pod_table import PENDING
from windlass.cluster.snapshot import Snapshot
from windlass.model.meta import ObjectMeta
from windlass.model.pod import Pod
from windlass.model.workload import PodSet, Workload

replace = msgspec.structs.replace


class DecisionUnit(msgspec.Struct, frozen=True):
    """What is set aside together: a workload with its pods, or a pod that is in none."""

    key: str
    rows: tuple[int, ...]
    is_pending: bool
    """Nothing of it runs or holds quota."""
    subject: Workload | Pod

    @property
    def namespace(self) -> str:
        return self.key.partition("/")[0]


def decision_units(snapshot: Snapshot) -> Iterator[DecisionUnit]:
    pods, alive = snapshot.pods, np.flatnonzero(snapshot.pods.alive == 1).tolist()
    row_of = {pods.keys[row]: row for row in alive}
    grouped: set[int] = set()
    for workload in snapshot.workloads:
        keys = [key for pod_set in workload.pod_sets for key in pod_set.pod_keys]
        rows = tuple(row_of[key] for key in keys if key in row_of)
        grouped.update(rows)
        yield DecisionUnit(workload.key, rows, workload.admission is None, workload)
    for row in alive:
        if row not in grouped:
            yield DecisionUnit(pods.keys[row], (row,), int(pods.node[row]) == PENDING, pods.objects[row])


def set_aside(snapshot: Snapshot, units: Sequence[DecisionUnit]) -> Snapshot:
    if not units:
        return snapshot
    rows = [row for unit in units for row in unit.rows]
    pending = [row for row in rows if int(snapshot.pods.node[row]) == PENDING]
    running = [row for row in rows if int(snapshot.pods.node[row]) != PENDING]
    gone = {unit.key for unit in units if unit.is_pending}
    frozen = {unit.key for unit in units if not unit.is_pending}
    staying = {snapshot.pods.keys[row] for row in running}
    workloads = [
        _frozen(workload, staying) if workload.key in frozen else workload
        for workload in snapshot.workloads
        if workload.key not in gone
    ]
    return replace(snapshot, pods=snapshot.pods.without(pending, running), workloads=tuple(workloads))


def _frozen(workload: Workload, staying: set[str]) -> Workload:
    """The workload with what runs of it, which nothing stops, moves or adds to."""
    sets = [_frozen_set(pod_set, staying) for pod_set in workload.pod_sets]
    return replace(
        workload,
        pod_sets=tuple(pod_set for pod_set in sets if pod_set.count) or tuple(sets[:1]),
        evictable=False,
        min_pods=None,
        all_or_nothing=False,
        max_run_seconds=None,
        execution_seconds=None,
        unready_since=0,
        owner_sizes={},
        is_elastic=False,
        nominated=False,
    )


def _frozen_set(pod_set: PodSet, staying: set[str]) -> PodSet:
    keys = tuple(key for key in pod_set.pod_keys if key in staying)
    template = pod_set.template.metadata
    named = Pod(metadata=ObjectMeta(name=template.name, namespace=template.namespace))
    return PodSet(pod_set.name, len(keys), named, pod_keys=keys, flavors=pod_set.flavors)
