"""One unit as a `Workload`: what it asks for, where it waits, what it holds already.

Fed by `units`; the result goes to `queueing` and `placement` by way of the engine. Each source of a unit (a Kueue
Workload, a PodGroup, an owner, a single pod) says who it is and which sets it has; everything else is read the same way
for all of them.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from windlass.cluster.shape import read_requests
from windlass.cluster.workloads.grouping_inputs import GroupingInputs
from windlass.cluster.workloads.pod_admission import admission_of_pods, pods_per_node, start_time
from windlass.cluster.workloads.pod_sets import pod_sets_of_group, pod_sets_of_owner, template_of, with_pods
from windlass.cluster.workloads.units import Unit
from windlass.cluster.workloads.workload_attributes import (
    WorkloadIdentity,
    checkpoint_of,
    declared_restart_cost,
    enforced_limit,
    evictions_of,
    is_evictable,
    is_nominated,
    preemption_policy_of,
    priority_of,
    queue_of,
    queued_since,
    run_limit,
)
from windlass.model.errors import InputError
from windlass.model.kueue import queue_hold, workload_from_object
from windlass.model.meta import ObjectMeta
from windlass.model.namespace_limits import limit_range_violation
from windlass.model.owners import Owner, template_pod
from windlass.model.owners.normalise import QUEUE_NAME
from windlass.model.pod import Pod
from windlass.model.pod_group import NOT_IMPLEMENTED
from windlass.model.queue import ClusterQueue
from windlass.model.times import parse_timestamp
from windlass.model.topology_request import topology_request_from_annotations
from windlass.model.workload import Admission, PodSet, Workload

TOTAL_COUNT = "kueue.x-k8s.io/pod-group-total-count"
TERMINATING_SUFFIX = "#leaving"
"""After the name of a workload: the part of it that is being deleted."""
NO_HOLD = ("", "")
HoldReason = tuple[str, str]
"""Message and code; empty where nothing holds it."""


class UnitMembers(msgspec.Struct, frozen=True):
    """The pods of a unit that count."""

    pods: tuple[Pod, ...]
    succeeded: int
    evicting: bool
    """All that is left of it is on its way out."""

    @property
    def bound(self) -> bool:
        return any(pod.is_bound for pod in self.pods)


class WorkloadParts(msgspec.Struct, frozen=True):
    """What the sources of units differ in."""

    identity: WorkloadIdentity
    sets: tuple[PodSet, ...]
    minimum: int | None = None
    all_or_nothing: bool = True
    deadline: int | None = None
    hold: HoldReason = NO_HOLD


def build_workload(unit: Unit, inputs: GroupingInputs) -> Workload | None:
    """The unit as a workload; None where nothing is left of it."""
    members = _members(unit)
    source = unit.key.source
    if source == "workload":
        return _from_workload(unit, members, inputs)
    try:
        if source == "owner":
            parts = _owner_parts(unit, members, inputs)
        elif not members.pods:
            return None
        elif source == "pod":
            parts = _pod_parts(members.pods[0])
        elif source == "kueue-group":
            parts = _kueue_group_parts(unit, members)
        else:
            parts = _pod_group_parts(unit, members, inputs)
    except InputError as error:
        parts = _unreadable_parts(unit, members, inputs, error)
    if parts is None or not any(one.count for one in parts.sets):
        return None
    return _assembled(parts, members, inputs)


def build_terminating_workload(unit: Unit, inputs: GroupingInputs) -> Workload | None:
    """Pods of a queued unit that are on their way out while others stay: they hold quota until they are gone."""
    staying = any(not pod.metadata.deletion_timestamp for pod in unit.pods)
    leaving = [pod for pod in unit.pods if pod.metadata.deletion_timestamp and pod.is_bound]
    if not staying or not leaving or unit.key.source == "workload":
        return None
    made = build_workload(Unit(unit.key, leaving, unit.succeeded), inputs)
    if made is None or not made.queue_name or made.admission is None:
        return None
    sets = [msgspec.structs.replace(one, count=len(one.pod_keys), min_count=None) for one in made.pod_sets]
    return msgspec.structs.replace(
        made,
        key=made.key + TERMINATING_SUFFIX,
        pod_sets=tuple(one for one in sets if one.count),
        min_pods=None,
    )


def _members(unit: Unit) -> UnitMembers:
    """A pod that is being deleted is no member any more, unless nothing else is left."""
    staying = tuple(pod for pod in unit.pods if not pod.metadata.deletion_timestamp)
    if staying:
        return UnitMembers(staying, unit.succeeded, evicting=False)
    leaving = tuple(pod for pod in unit.pods if pod.is_bound)
    return UnitMembers(leaving, unit.succeeded, evicting=bool(leaving))


def _from_workload(unit: Unit, members: UnitMembers, inputs: GroupingInputs) -> Workload:
    """A Kueue Workload, with the pods of the Job behind it."""
    wire = inputs.workloads[unit.key.key]
    base = workload_from_object(wire, inputs.queue_system, inputs.hostnames)
    kind, _, key = base.owner.partition(" ")
    owner = _with_sets(kind, key, inputs)
    sets = with_pods(base.pod_sets, members.pods, owner.pod_set_label if owner is not None else "")
    pods = {pod.key: pod for pod in members.pods}
    queue = _cluster_queue(base.namespace, base.queue_name, inputs)
    held = admission_of_pods(sets, pods, queue, inputs.queue_system, inputs.nodes)
    admission = base.admission
    if admission is None:
        admission = held
    elif held is not None:
        admission = _where_pods_are(admission, sets, pods)
    # Evicted in its status, and its pods have not been told yet: it goes, and holds quota until they are gone.
    leaving = base.admission is None and held is not None and wire.condition("Evicted") is not None
    unreadable = _unreadable(sets)
    hold = (base.hold, base.hold_code) if base.hold else unreadable
    if admission is None and hold == NO_HOLD:
        hold = _limit_hold(sets, inputs, base.namespace)
    limit, enforced = _run_limit(base, wire.metadata, owner, sets)
    return msgspec.structs.replace(
        base,
        pod_sets=sets,
        max_run_seconds=limit,
        run_limit_enforced=enforced,
        created=base.created or inputs.now,
        queued_at=queued_since(wire.metadata, base.queued_at) or inputs.now,
        nominated=admission is None and is_nominated(members.pods),
        admission=admission,
        evicting=base.evicting or leaving or members.evicting,
        hold=hold[0] if admission is None else "",
        hold_code=hold[1] if admission is None else "",
        unreadable=unreadable[0],
        started_at=base.started_at or _first_start(members),
        checkpoint_at=max(base.checkpoint_at, checkpoint_of(wire.metadata, members.pods)),
        restart_seconds=declared_restart_cost([wire.metadata, *(pod.metadata for pod in members.pods)]),
    )


def _run_limit(
    base: Workload, metadata: ObjectMeta, owner: Owner | None, sets: Sequence[PodSet]
) -> tuple[int | None, bool]:
    """Of a Kueue Workload, by its own field, its annotation or what it was made of; and whether it is enforced."""
    objects = [(metadata, None)] + ([(owner.metadata, owner.deadline)] if owner is not None else [])
    identities = [(WorkloadIdentity(base.key, "Workload", one), deadline) for one, deadline in objects]
    hard = [base.max_run_seconds, *(enforced_limit(one, sets, deadline) for one, deadline in identities)]
    every = [base.max_run_seconds, *(run_limit(one, sets, deadline) for one, deadline in identities)]
    limit = min((value for value in every if value is not None), default=None)
    return limit, limit in hard


def _where_pods_are(admission: Admission, sets: Sequence[PodSet], pods: dict[str, Pod]) -> Admission:
    """The pods on nodes say better than the topology assignment where a set is."""
    placed = {one.name: pods_per_node([pods[key] for key in one.pod_keys]) for one in sets}
    return msgspec.structs.replace(
        admission,
        assignments=tuple(
            msgspec.structs.replace(one, nodes=placed.get(one.name) or one.nodes)
            for one in admission.assignments
        ),
    )


def _pod_parts(pod: Pod) -> WorkloadParts:
    queued = QUEUE_NAME in pod.metadata.labels  # where lone pods are decided at once, nobody reads it either
    topology = topology_request_from_annotations(pod.metadata.annotations) if queued else None
    one = PodSet("main", 1, template_of(pod), pod_keys=(pod.key,), topology=topology)
    return WorkloadParts(WorkloadIdentity(pod.key, "Pod", pod.metadata), (one,))


def _kueue_group_parts(unit: Unit, members: UnitMembers) -> WorkloadParts:
    first = members.pods[0]
    text = first.metadata.annotations.get(TOTAL_COUNT, "")
    there = len(members.pods) + members.succeeded
    total = int(text) if text.isascii() and text.isdigit() and len(text) < 9 else there
    metadata = _shared_metadata(members.pods)
    hold = NO_HOLD
    if not members.bound:
        hold = _disagreement(members.pods) or (_incomplete(there, total) if there < total else NO_HOLD)
    return WorkloadParts(
        WorkloadIdentity(unit.key.key, "PodGroup", metadata),
        pod_sets_of_group(members.pods, None),
        minimum=max(0, total - members.succeeded),
        hold=hold,
    )


def _disagreement(pods: Sequence[Pod]) -> HoldReason | None:
    """Kueue refuses a group whose pods name different queues or sizes: whose quota would it be charged to?"""
    for name, values in (
        (QUEUE_NAME, {pod.key: pod.metadata.labels.get(QUEUE_NAME, "") for pod in pods}),
        (TOTAL_COUNT, {pod.key: pod.metadata.annotations.get(TOTAL_COUNT, "") for pod in pods}),
    ):
        first = min(values)
        other = min((key for key in values if values[key] != values[first]), default="")
        if other:
            said = f"{first} says {values[first] or 'nothing'}, {other} says {values[other] or 'nothing'}"
            return f"the pods of the group have different values of {name}: {said}", "INVALID_OBJECT"
    return None


def _pod_group_parts(unit: Unit, members: UnitMembers, inputs: GroupingInputs) -> WorkloadParts:
    found = inputs.pod_groups.get((unit.key.source, unit.key.key))
    if found is None:
        metadata = _shared_metadata(members.pods)
        name = unit.key.key.partition("/")[2]
        hold = (f"PodGroup {name} ({unit.key.source}) doesn't exist", "GANG_INCOMPLETE")
        return WorkloadParts(
            WorkloadIdentity(unit.key.key, "PodGroup", metadata),
            pod_sets_of_group(members.pods, None),
            hold=hold,
        )
    there = len(members.pods) + members.succeeded
    hold = NO_HOLD
    if found.hold:
        hold = (found.hold, NOT_IMPLEMENTED)
    elif there < found.min_pods and not members.bound:
        hold = _incomplete(there, found.min_pods)
    elif found.has_task_minimums and there > found.min_pods and not members.bound:
        said = "spec.minTaskMember: a minimum for each task is implemented only where it covers all pods"
        hold = (f"{said} ({there} pods, {found.min_pods} required)", NOT_IMPLEMENTED)
    identity = WorkloadIdentity(unit.key.key, "PodGroup", found.metadata, found)
    topology = found.topology or topology_request_from_annotations(found.metadata.annotations)
    return WorkloadParts(
        identity,
        pod_sets_of_group(members.pods, topology),
        minimum=max(0, found.min_pods - members.succeeded),
        all_or_nothing=found.all_or_nothing,
        hold=hold,
    )


def _owner_parts(unit: Unit, members: UnitMembers, inputs: GroupingInputs) -> WorkloadParts | None:
    owner = _with_sets(unit.key.kind, unit.key.key, inputs)
    key = unit.key.key if unit.key.index is None else f"{unit.key.key}-{unit.key.index}"
    if owner is None or not owner.pod_sets:
        if members.pods:
            metadata = owner.metadata if owner is not None else _shared_metadata(members.pods)
            return WorkloadParts(
                WorkloadIdentity(key, unit.key.kind, metadata), pod_sets_of_group(members.pods, None)
            )
        return _unmade_parts(owner) if owner is not None and not owner.finished else None
    if owner.finished and not members.pods:
        return None  # pods that have ended are all that is left of it
    hold = NO_HOLD
    identity = WorkloadIdentity(key, owner.kind, owner.metadata)
    if owner.suspended and not queue_of(identity, members.pods):
        hold = (f"{owner.kind} {owner.key} is suspended: spec.suspend is true", "JOB_SUSPENDED")
    return WorkloadParts(
        identity,
        pod_sets_of_owner(owner, members.pods),
        minimum=owner.min_pods if owner.is_gang else 1,
        all_or_nothing=owner.is_gang,
        deadline=owner.deadline,
        hold=hold,
    )


def _unmade_parts(owner: Owner) -> WorkloadParts:
    """A TrainJob says nothing of its pods: they stand in the JobSet that its controller makes."""
    nothing = Pod(metadata=ObjectMeta(name=owner.metadata.name, namespace=owner.key.partition("/")[0]))
    hold = (f"{owner.kind} {owner.key} waits for its controller to make a JobSet of it", "GANG_INCOMPLETE")
    return WorkloadParts(
        WorkloadIdentity(owner.key, owner.kind, owner.metadata), (PodSet("main", 1, nothing),), hold=hold
    )


def _with_sets(kind: str, key: str, inputs: GroupingInputs) -> Owner | None:
    """The owner; a TrainJob with the sets of the JobSet that was made of it."""
    owner = inputs.owners.get((kind, key))
    if owner is None or owner.pod_sets:
        return owner
    below = inputs.owners.get(("JobSet", key))
    if below is None:
        return owner
    return msgspec.structs.replace(
        owner, pod_sets=below.pod_sets, pod_set_label=below.pod_set_label, deadline=below.deadline
    )


def _unreadable_parts(
    unit: Unit, members: UnitMembers, inputs: GroupingInputs, error: InputError
) -> WorkloadParts:
    """Something that it asks for can't be read: it waits, and says what."""
    owner = _with_sets(unit.key.kind, unit.key.key, inputs) if unit.key.source == "owner" else None
    if owner is not None and owner.pod_sets:
        metadata = owner.metadata
        sets = tuple(PodSet(one.name, one.count, template_pod(owner, one)) for one in owner.pod_sets)
    else:
        metadata = _shared_metadata(members.pods)
        sets = tuple(
            PodSet(f"set-{number}", 1, template_of(pod), pod_keys=(pod.key,))
            for number, pod in enumerate(members.pods, start=1)
        )
    where = f"{error.path}: " if error.path else ""
    hold = (f"{where}{error.message}", error.code or "INVALID_OBJECT")
    return WorkloadParts(WorkloadIdentity(unit.key.key, unit.key.kind, metadata), sets, hold=hold)


def _assembled(parts: WorkloadParts, members: UnitMembers, inputs: GroupingInputs) -> Workload:
    identity = parts.identity
    queue = queue_of(identity, members.pods)
    pods = {pod.key: pod for pod in members.pods}
    cluster_queue = _cluster_queue(identity.namespace, queue, inputs)
    admission = admission_of_pods(parts.sets, pods, cluster_queue, inputs.queue_system, inputs.nodes)
    unreadable = _unreadable(parts.sets)
    hold = parts.hold if parts.hold != NO_HOLD else unreadable
    if hold == NO_HOLD and queue:
        hold = queue_hold(identity.namespace, queue, inputs.queue_system)
    if hold == NO_HOLD and not members.pods:
        hold = _limit_hold(parts.sets, inputs, identity.namespace)
    if admission is not None:
        hold = NO_HOLD
    template = parts.sets[0].template
    created = _created(identity, members, inputs.now)
    limit = run_limit(identity, parts.sets, parts.deadline)
    return Workload(
        key=identity.key,
        kind=identity.kind,
        pod_sets=parts.sets,
        uid=identity.metadata.uid,
        queue_name=queue,
        priority=priority_of(identity, template, inputs.queue_system),
        preemption_policy=preemption_policy_of(identity, template, inputs.queue_system),
        created=created,
        queued_at=queued_since(identity.metadata, created),
        admission=admission,
        evicting=members.evicting,
        hold=hold[0],
        hold_code=hold[1],
        unreadable=unreadable[0],
        min_pods=parts.minimum,
        all_or_nothing=parts.all_or_nothing,
        max_run_seconds=limit,
        run_limit_enforced=limit == enforced_limit(identity, parts.sets, parts.deadline),
        started_at=_first_start(members),
        checkpoint_at=checkpoint_of(identity.metadata, members.pods),
        restart_seconds=declared_restart_cost([identity.metadata, *(pod.metadata for pod in members.pods)]),
        evictable=is_evictable(identity.metadata, members.pods),
        evictions=evictions_of(identity.metadata, members.pods),
        nominated=admission is None and is_nominated(members.pods),
    )


def _cluster_queue(namespace: str, queue: str, inputs: GroupingInputs) -> ClusterQueue | None:
    local = inputs.queue_system.local_queues.get(f"{namespace}/{queue}")
    return inputs.queue_system.queues.get(local.cluster_queue) if local is not None else None


def _unreadable(sets: Sequence[PodSet]) -> HoldReason:
    """Deciding can't fail on a workload whose requests were read here: one that can't be read is held, and says why."""
    for one in sets:
        try:
            read_requests(one.template)
        except InputError as error:
            return str(error), error.code or "INVALID_OBJECT"
    return NO_HOLD


def _limit_hold(sets: Sequence[PodSet], inputs: GroupingInputs, namespace: str) -> HoldReason:
    """Pods that are not made yet would be refused by the namespace's LimitRange."""
    ranges = [one for one in inputs.limit_ranges if one.namespace == namespace]
    for one in sets if ranges else ():
        try:
            problem = limit_range_violation(ranges, one.template)
        except InputError as error:
            return f"{error.path}: {error.message}", error.code or "INVALID_OBJECT"
        if problem:
            return f"pod set {one.name}: {problem}", "POLICY_DENIED"
    return NO_HOLD


def _incomplete(there: int, wanted: int) -> HoldReason:
    return f"waiting for pods of the group: {there} of {wanted} are there", "GANG_INCOMPLETE"


def _shared_metadata(pods: Sequence[Pod]) -> ObjectMeta:
    """What the oldest pod of a group says for all of them; a group without an object has no uid of its own."""
    oldest = min(pods, key=lambda pod: (pod.metadata.creation_timestamp, pod.key))
    return msgspec.structs.replace(oldest.metadata, owner_references=())


def _created(identity: WorkloadIdentity, members: UnitMembers, now: int) -> int:
    stamps = [parse_timestamp(identity.metadata.creation_timestamp)]
    if not stamps[0]:
        stamps = [parse_timestamp(pod.metadata.creation_timestamp) for pod in members.pods]
    return min((stamp for stamp in stamps if stamp), default=now)


def _first_start(members: UnitMembers) -> int:
    return min((start_time(pod) for pod in members.pods if pod.is_bound), default=0)
