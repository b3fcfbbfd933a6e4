"""A change of the image of a StatefulSet whose pods run on the stack: its waves are pods, its partition stops it.

Called by `decide.change` in place of what takes nodes. The controller of StatefulSets changes pod after pod down to
the partition and no further, whether or not the operator lives. Gates compare the nodes of changed pods with the
nodes of others.
"""

from __future__ import annotations

import msgspec

from windlass.operator.decide.change_run import ChangeRun, find_set
from windlass.operator.decide.change_verdicts import Sides
from windlass.operator.decide.pool import Pool
from windlass.operator.kinds.base import node_count, seconds_of
from windlass.operator.kinds.fleet_change import WORKLOAD_IMAGE, FleetChange, FleetChangeStatus
from windlass.operator.kinds.reasons import Reason
from windlass.operator.pods import PodView
from windlass.operator.stateful_sets import StatefulSetView
from windlass.operator.writes import PatchStatefulSet

REVISION_LABEL = "controller-revision-hash"


def why_not_changed(pool: Pool, change: FleetChange) -> str:
    """Why it can't be changed wave by wave; empty if it can."""
    wanted, found = change.spec.workload_image, find_set(pool, change)
    assert wanted is not None  # it is of this component
    if found is None:
        return f"there is no StatefulSet {wanted.namespace}/{wanted.name}"
    if wanted.container not in found.images:
        return f"StatefulSet {found.key} has no container {wanted.container}: it has {', '.join(sorted(found.images))}"
    if found.is_on_delete:
        return f"StatefulSet {found.key} has updateStrategy OnDelete, which nothing rolls out"
    if found.partition:
        return f"StatefulSet {found.key} has a partition ({found.partition}): somebody else rolls it out"
    if not any(_pods(pool, found, name) for name in pool.nodes):
        return f"no pod of StatefulSet {found.key} is on a node of stack {pool.stack.name}"
    return ""


def image_now(pool: Pool, change: FleetChange) -> str:
    found, wanted = find_set(pool, change), change.spec.workload_image
    return found.images.get(wanted.container, "") if found is not None and wanted is not None else ""


def image_sides(run: ChangeRun) -> Sides:
    """Nodes whose pods all have the new image, and such whose pods all have the old one: for the values of gates a
    node with both says nothing."""
    pool, found = run.pool, find_set(run.pool, run.change)
    if found is None:
        return Sides((), (), frozenset())
    is_rolled = image_now(pool, run.change) == run.status.to
    before = run.waves[run.status.wave - 1].nodes if run.status.wave else 0
    first = found.replicas - min(found.replicas, node_count(before, found.replicas, round_up=True))
    changed, control, mixed, earlier = [], [], [], set()
    for name in pool.nodes:
        pods = _pods(pool, found, name)
        has_new = {is_rolled and pod.labels.get(REVISION_LABEL) == found.revision for pod in pods}
        if has_new == {True}:
            changed.append(name)
        elif has_new == {False}:
            control.append(name)
        elif has_new:
            mixed.append(name)
        if pods and all(ordinal(pod) >= first for pod in pods):
            earlier.add(name)
    return Sides(tuple(changed), tuple(control), frozenset(earlier), tuple(mixed))


def ordinal(pod: PodView) -> int:
    number = pod.key.rpartition("-")[2]
    return int(number) if number.isdecimal() else 0


def _pods(pool: Pool, found: StatefulSetView, name: str) -> list[PodView]:
    return [pod for pod in pool.pods_on(name) if pod.owner_uid == found.uid]


def progress(run: ChangeRun) -> bool:
    """Moves the partition to where the wave ends; whether all pods down to there run the image and are ready."""
    found = find_set(run.pool, run.change)
    if found is None:
        run.fail(Reason.WorkloadMissing, _missing(run))
        return False
    wanted = min(found.replicas, node_count(run.wave.nodes, found.replicas, round_up=True))
    words = f"wave {run.status.wave + 1} of {len(run.waves)}: {found.updated} of {wanted} pods run {run.status.to}"
    if _rolled(run, found, run.status.to, found.replicas - wanted):
        return True
    if run.status.reason == Reason.RollingOut and run.pool.is_past(run.status.deadline):
        run.fail(Reason.NodesFailed, f"{words}, {found.ready} of {found.replicas} are ready")
        return False
    run.put("Progressing", Reason.RollingOut, words, seconds_of(run.change.spec.node_timeout) * max(1, wanted))
    return False


def roll_back(run: ChangeRun) -> bool:
    """Every pod gets the image that was; whether all have it."""
    found, status = find_set(run.pool, run.change), run.status
    if found is None:
        run.end("Failed", Reason.WorkloadMissing, _missing(run))
        return False
    if _rolled(run, found, status.from_ or "", 0):
        return True
    run.put("RollingBack", status.reason, status.message)
    return False


def counted(run: ChangeRun) -> FleetChangeStatus:
    found = find_set(run.pool, run.change)
    changed = found.updated if found is not None and image_now(run.pool, run.change) == run.status.to else 0
    return msgspec.structs.replace(run.status, nodes=run.whole if found is not None else 0, changed=changed)


def abort(run: ChangeRun) -> None:
    """What has the new image keeps it, and the partition keeps it from the others."""
    found = counted(run)
    run.end("Aborted", Reason.Aborted, f"{run.status.message}; {found.changed} of {found.nodes} pods keep the image")


def _missing(run: ChangeRun) -> str:
    wanted = run.change.spec.workload_image
    return f"StatefulSet {wanted.namespace}/{wanted.name} is gone" if wanted is not None else ""


def _rolled(run: ChangeRun, found: StatefulSetView, image: str, partition: int) -> bool:
    wanted = run.change.spec.workload_image
    assert wanted is not None  # it is of this component
    if found.images.get(wanted.container) != image or found.partition != partition:
        run.pool.writes.append(PatchStatefulSet(found.key, found.version, wanted.container, image, partition))
        return False
    updated = found.updated >= found.replicas - partition
    return found.is_seen and updated and found.ready >= found.replicas


def is_of_image(change: FleetChange) -> bool:
    return change.spec.component == WORKLOAD_IMAGE
