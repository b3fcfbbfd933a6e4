"""Builds the `Workload` of a unit: what it requests, where it waits, what it uses already.

`workload_index` calls it for every unit whose objects changed. Each source of a unit (a Kueue Workload, a PodGroup, an
owner, a single pod) has its own function for identity and pod sets (`WorkloadParts`); the rest is common to all.
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
from windlass.model.names.kueue import POD_GROUP_TOTAL_COUNT_ANNOTATION, QUEUE_NAME_LABEL
from windlass.model.namespace_limits import limit_range_violation
from windlass.model.owners import Owner, template_pod
from windlass.model.pod import Pod
from windlass.model.pod_group import NOT_IMPLEMENTED
from windlass.model.queue import ClusterQueue
from windlass.model.times import parse_timestamp
from windlass.model.topology_request import topology_request_from_annotations
from windlass.model.workload import Admission, PodSet, Workload

TERMINATING_SUFFIX = "#leaving"
"""Appended to the key of a workload for its part that is being deleted."""
NO_HOLD = ("", "")
HoldReason = tuple[str, str]
"""Message and code; NO_HOLD where nothing holds the workload."""


class UnitMembers(msgspec.Struct, frozen=True):
    """The pods of a unit that count as its members."""

    pods: tuple[Pod, ...]
    succeeded: int
    evicting: bool
    """All pods that are left are being deleted."""

    @property
    def bound(self) -> bool:
        return any(pod.is_bound for pod in self.pods)


class WorkloadParts(msgspec.Struct, frozen=True):
    """What each source of a unit reads in its own way."""

    identity: WorkloadIdentity
    sets: tuple[PodSet, ...]
    minimum: int | None = None
    all_or_nothing: bool = True
    deadline: int | None = None
    hold: HoldReason = NO_HOLD


def build_workload(unit: Unit, inputs: GroupingInputs) -> Workload | None:
    """The workload of a unit; None where nothing is left of it."""
    members = _members(unit)
    source = unit.key.source
    if source == "workload":
        return _from_workload_object(unit, members, inputs)
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
    if parts is None or not any(pod_set.count for pod_set in parts.sets):
        return None
    return _assemble(parts, members, inputs)


def build_terminating_workload(unit: Unit, inputs: GroupingInputs) -> Workload | None:
    """The pods of a queued unit that are being deleted while others stay: they hold quota until they have ended."""
    staying = any(not pod.metadata.deletion_timestamp for pod in unit.pods)
    leaving = [pod for pod in unit.pods if pod.metadata.deletion_timestamp and pod.is_bound]
    if not staying or not leaving or unit.key.source == "workload":
        return None
    workload = build_workload(Unit(unit.key, leaving, unit.succeeded), inputs)
    if workload is None or not workload.queue_name or workload.admission is None:
        return None
    sets = [
        msgspec.structs.replace(pod_set, count=len(pod_set.pod_keys), min_count=None)
        for pod_set in workload.pod_sets
        if pod_set.pod_keys
    ]
    key = workload.key + TERMINATING_SUFFIX
    return msgspec.structs.replace(workload, key=key, pod_sets=tuple(sets), min_pods=None)


def _members(unit: Unit) -> UnitMembers:
    """Pods that are being deleted count only where no other pod is left."""
    staying = tuple(pod for pod in unit.pods if not pod.metadata.deletion_timestamp)
    if staying:
        return UnitMembers(staying, unit.succeeded, evicting=False)
    leaving = tuple(pod for pod in unit.pods if pod.is_bound)
    return UnitMembers(leaving, unit.succeeded, evicting=bool(leaving))


def _from_workload_object(unit: Unit, members: UnitMembers, inputs: GroupingInputs) -> Workload:
    """A Kueue Workload, with the pods of its Job."""
    workload_object = inputs.workloads[unit.key.key]
    metadata = workload_object.metadata
    base = workload_from_object(workload_object, inputs.queue_system, inputs.hostnames)
    kind, _, key = base.owner.partition(" ")
    owner = _owner_with_pod_sets(kind, key, inputs)
    sets = with_pods(base.pod_sets, members.pods, owner.pod_set_label if owner is not None else "")
    pods = {pod.key: pod for pod in members.pods}
    queue = _cluster_queue(base.namespace, base.queue_name, inputs)
    pod_admission = admission_of_pods(sets, pods, queue, inputs.queue_system, inputs.nodes)
    admission = base.admission
    if admission is None:
        admission = pod_admission
    elif pod_admission is not None:
        admission = _with_actual_nodes(admission, sets, pods)
    # Evicted in its status, while its pods still run: it holds quota until they have ended.
    is_evicted = workload_object.condition("Evicted") is not None
    leaving = base.admission is None and pod_admission is not None and is_evicted
    unreadable = _unreadable_hold(sets)
    hold = (base.hold, base.hold_code) if base.hold else unreadable
    if admission is None and hold == NO_HOLD:
        hold = _limit_range_hold(sets, inputs, base.namespace)
    limit, enforced = _run_limit(base, metadata, owner, sets)
    return msgspec.structs.replace(
        base,
        pod_sets=sets,
        max_run_seconds=limit,
        run_limit_enforced=enforced,
        created=base.created or inputs.now,
        queued_at=queued_since(metadata, base.queued_at) or inputs.now,
        nominated=admission is None and is_nominated(members.pods),
        admission=admission,
        evicting=base.evicting or leaving or members.evicting,
        hold=hold[0] if admission is None else "",
        hold_code=hold[1] if admission is None else "",
        unreadable=unreadable[0],
        started_at=base.started_at or _first_start(members),
        checkpoint_at=max(base.checkpoint_at, checkpoint_of(metadata, members.pods)),
        restart_seconds=declared_restart_cost([metadata, *(pod.metadata for pod in members.pods)]),
    )


def _run_limit(
    base: Workload, metadata: ObjectMeta, owner: Owner | None, sets: Sequence[PodSet]
) -> tuple[int | None, bool]:
    """The run limit of a Kueue Workload (from its field, its annotation or its owner), and whether it is enforced."""
    objects = [(metadata, None)] + ([(owner.metadata, owner.deadline)] if owner is not None else [])
    identities = [(WorkloadIdentity(base.key, "Workload", meta), until) for meta, until in objects]
    enforced_limits = [
        base.max_run_seconds,
        *(enforced_limit(identity, sets, until) for identity, until in identities),
    ]
    limits = [base.max_run_seconds, *(run_limit(identity, sets, until) for identity, until in identities)]
    limit = min((value for value in limits if value is not None), default=None)
    return limit, limit in enforced_limits


def _with_actual_nodes(admission: Admission, sets: Sequence[PodSet], pods: dict[str, Pod]) -> Admission:
    """Takes the nodes of bound pods rather than those of the topology assignment, which may be out of date."""
    placed = {pod_set.name: pods_per_node([pods[key] for key in pod_set.pod_keys]) for pod_set in sets}
    assignments = tuple(
        msgspec.structs.replace(assignment, nodes=placed.get(assignment.name) or assignment.nodes)
        for assignment in admission.assignments
    )
    return msgspec.structs.replace(admission, assignments=assignments)


def _pod_parts(pod: Pod) -> WorkloadParts:
    # The compiled loop for single pods ignores topology requests, so only a queued pod may have one.
    queued = QUEUE_NAME_LABEL in pod.metadata.labels
    topology = topology_request_from_annotations(pod.metadata.annotations) if queued else None
    pod_set = PodSet("main", 1, template_of(pod), pod_keys=(pod.key,), topology=topology)
    return WorkloadParts(WorkloadIdentity(pod.key, "Pod", pod.metadata), (pod_set,))


def _kueue_group_parts(unit: Unit, members: UnitMembers) -> WorkloadParts:
    first = members.pods[0]
    text = first.metadata.annotations.get(POD_GROUP_TOTAL_COUNT_ANNOTATION, "")
    existing = len(members.pods) + members.succeeded
    total = int(text) if text.isascii() and text.isdigit() and len(text) < 9 else existing
    metadata = _shared_metadata(members.pods)
    hold = NO_HOLD
    if not members.bound:
        hold = _disagreement(members.pods) or (
            _gang_incomplete(existing, total) if existing < total else NO_HOLD
        )
    return WorkloadParts(
        WorkloadIdentity(unit.key.key, "PodGroup", metadata),
        pod_sets_of_group(members.pods, None),
        minimum=max(0, total - members.succeeded),
        hold=hold,
    )


def _disagreement(pods: Sequence[Pod]) -> HoldReason | None:
    """Kueue refuses a group whose pods name different queues or sizes: whose quota would it be charged to?"""
    for name, values in (
        (QUEUE_NAME_LABEL, {pod.key: pod.metadata.labels.get(QUEUE_NAME_LABEL, "") for pod in pods}),
        (
            POD_GROUP_TOTAL_COUNT_ANNOTATION,
            {pod.key: pod.metadata.annotations.get(POD_GROUP_TOTAL_COUNT_ANNOTATION, "") for pod in pods},
        ),
    ):
        first = min(values)
        other = min((key for key in values if values[key] != values[first]), default="")
        if other:
            said = f"{first} says {values[first] or 'nothing'}, {other} says {values[other] or 'nothing'}"
            return f"the pods of the group have different values of {name}: {said}", "INVALID_OBJECT"
    return None


def _pod_group_parts(unit: Unit, members: UnitMembers, inputs: GroupingInputs) -> WorkloadParts:
    pod_group = inputs.pod_groups.get((unit.key.source, unit.key.key))
    if pod_group is None:
        metadata = _shared_metadata(members.pods)
        name = unit.key.key.partition("/")[2]
        hold = (f"PodGroup {name} ({unit.key.source}) doesn't exist", "GANG_INCOMPLETE")
        return WorkloadParts(
            WorkloadIdentity(unit.key.key, "PodGroup", metadata),
            pod_sets_of_group(members.pods, None),
            hold=hold,
        )
    existing = len(members.pods) + members.succeeded
    hold = NO_HOLD
    if pod_group.hold:
        hold = (pod_group.hold, NOT_IMPLEMENTED)
    elif existing < pod_group.min_pods and not members.bound:
        hold = _gang_incomplete(existing, pod_group.min_pods)
    elif pod_group.has_task_minimums and existing > pod_group.min_pods and not members.bound:
        message = "spec.minTaskMember: a minimum for each task is implemented only where it covers all pods"
        hold = (f"{message} ({existing} pods, {pod_group.min_pods} required)", NOT_IMPLEMENTED)
    identity = WorkloadIdentity(unit.key.key, "PodGroup", pod_group.metadata, pod_group)
    topology = pod_group.topology or topology_request_from_annotations(pod_group.metadata.annotations)
    return WorkloadParts(
        identity,
        pod_sets_of_group(members.pods, topology),
        minimum=max(0, pod_group.min_pods - members.succeeded),
        all_or_nothing=pod_group.all_or_nothing,
        hold=hold,
    )


def _owner_parts(unit: Unit, members: UnitMembers, inputs: GroupingInputs) -> WorkloadParts | None:
    owner = _owner_with_pod_sets(unit.key.kind, unit.key.key, inputs)
    key = unit.key.key if unit.key.index is None else f"{unit.key.key}-{unit.key.index}"
    if owner is None or not owner.pod_sets:
        if members.pods:
            metadata = owner.metadata if owner is not None else _shared_metadata(members.pods)
            identity = WorkloadIdentity(key, unit.key.kind, metadata)
            return WorkloadParts(identity, pod_sets_of_group(members.pods, None))
        return _parts_without_templates(owner) if owner is not None and not owner.finished else None
    if owner.finished and not members.pods:
        return None
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


def _parts_without_templates(owner: Owner) -> WorkloadParts:
    """A TrainJob has no pod templates: they are in the JobSet that its controller creates."""
    empty_pod = Pod(metadata=ObjectMeta(name=owner.metadata.name, namespace=owner.key.partition("/")[0]))
    hold = (f"{owner.kind} {owner.key} waits for its controller to create a JobSet", "GANG_INCOMPLETE")
    return WorkloadParts(
        WorkloadIdentity(owner.key, owner.kind, owner.metadata), (PodSet("main", 1, empty_pod),), hold=hold
    )


def _owner_with_pod_sets(kind: str, key: str, inputs: GroupingInputs) -> Owner | None:
    """The owner; a TrainJob with the pod sets of its JobSet."""
    owner = inputs.owners.get((kind, key))
    if owner is None or owner.pod_sets:
        return owner
    job_set = inputs.owners.get(("JobSet", key))
    if job_set is None:
        return owner
    return msgspec.structs.replace(
        owner, pod_sets=job_set.pod_sets, pod_set_label=job_set.pod_set_label, deadline=job_set.deadline
    )


def _unreadable_parts(
    unit: Unit, members: UnitMembers, inputs: GroupingInputs, error: InputError
) -> WorkloadParts:
    """A workload whose requests can't be read is held with the error."""
    owner = _owner_with_pod_sets(unit.key.kind, unit.key.key, inputs) if unit.key.source == "owner" else None
    if owner is not None and owner.pod_sets:
        metadata = owner.metadata
        declared = owner.pod_sets
        sets = tuple(PodSet(item.name, item.count, template_pod(owner, item)) for item in declared)
    else:
        metadata = _shared_metadata(members.pods)
        sets = tuple(
            PodSet(f"set-{number}", 1, template_of(pod), pod_keys=(pod.key,))
            for number, pod in enumerate(members.pods, start=1)
        )
    where = f"{error.path}: " if error.path else ""
    hold = (f"{where}{error.message}", error.code or "INVALID_OBJECT")
    return WorkloadParts(WorkloadIdentity(unit.key.key, unit.key.kind, metadata), sets, hold=hold)


def _assemble(parts: WorkloadParts, members: UnitMembers, inputs: GroupingInputs) -> Workload:
    identity = parts.identity
    queue = queue_of(identity, members.pods)
    pods = {pod.key: pod for pod in members.pods}
    cluster_queue = _cluster_queue(identity.namespace, queue, inputs)
    admission = admission_of_pods(parts.sets, pods, cluster_queue, inputs.queue_system, inputs.nodes)
    unreadable = _unreadable_hold(parts.sets)
    hold = parts.hold if parts.hold != NO_HOLD else unreadable
    if hold == NO_HOLD and queue:
        hold = queue_hold(identity.namespace, queue, inputs.queue_system)
    if hold == NO_HOLD and not members.pods:
        hold = _limit_range_hold(parts.sets, inputs, identity.namespace)
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


def _unreadable_hold(sets: Sequence[PodSet]) -> HoldReason:
    """Reads all requests once, so that a decision can't fail on them: a workload that can't be read is held."""
    for pod_set in sets:
        try:
            read_requests(pod_set.template)
        except InputError as error:
            return str(error), error.code or "INVALID_OBJECT"
    return NO_HOLD


def _limit_range_hold(sets: Sequence[PodSet], inputs: GroupingInputs, namespace: str) -> HoldReason:
    """Holds a workload whose pods don't exist yet and would be refused by the namespace's LimitRange."""
    ranges = [limit_range for limit_range in inputs.limit_ranges if limit_range.namespace == namespace]
    for pod_set in sets if ranges else ():
        try:
            problem = limit_range_violation(ranges, pod_set.template)
        except InputError as error:
            return f"{error.path}: {error.message}", error.code or "INVALID_OBJECT"
        if problem:
            return f"pod set {pod_set.name}: {problem}", "POLICY_DENIED"
    return NO_HOLD


def _gang_incomplete(existing: int, wanted: int) -> HoldReason:
    return f"waiting for pods of the group: {existing} of {wanted} exist", "GANG_INCOMPLETE"


def _shared_metadata(pods: Sequence[Pod]) -> ObjectMeta:
    """The metadata of the oldest pod of a group counts for all, since a group without an object has none."""
    oldest = min(pods, key=lambda pod: (pod.metadata.creation_timestamp, pod.key))
    return msgspec.structs.replace(oldest.metadata, owner_references=())


def _created(identity: WorkloadIdentity, members: UnitMembers, now: int) -> int:
    timestamps = [parse_timestamp(identity.metadata.creation_timestamp)]
    if not timestamps[0]:
        timestamps = [parse_timestamp(pod.metadata.creation_timestamp) for pod in members.pods]
    return min((timestamp for timestamp in timestamps if timestamp), default=now)


def _first_start(members: UnitMembers) -> int:
    return min((start_time(pod) for pod in members.pods if pod.is_bound), default=0)
