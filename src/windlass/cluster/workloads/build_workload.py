"""Builds the `Workload` of a unit: what it requests, where it waits, what it uses already.

`workload_index` calls it for every unit whose objects changed. `workload_parts` reads what each source of a unit (a
PodGroup, a Kueue group, an owner, a single pod) says in its own way; the rest is common to all.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from windlass.cluster.shape import read_requests
from windlass.cluster.workloads.ancestors import metadata_of_owners
from windlass.cluster.workloads.grouping_inputs import GroupingInputs
from windlass.cluster.workloads.owner_sizes import owner_sizes, with_room_to_grow
from windlass.cluster.workloads.pod_admission import admission_of_pods, pods_per_node, start_time
from windlass.cluster.workloads.pod_sets import template_of, with_pods
from windlass.cluster.workloads.units import Unit
from windlass.cluster.workloads.workload_attributes import (
    WorkloadIdentity,
    ask_terms_of,
    checkpoint_interval,
    checkpoint_of,
    declared_restart_cost,
    enforced_limit,
    evictions_of,
    execution_limit,
    gated_hold,
    is_asked,
    is_evictable,
    is_nominated,
    is_preemptible,
    preemption_policy_of,
    priority_of,
    queue_of,
    queued_since,
    run_limit,
    stopped_hold,
    user_of,
    workload_priority_class,
)
from windlass.cluster.workloads.workload_parts import (
    NO_HOLD,
    HoldReason,
    UnitMembers,
    WorkloadParts,
    excess_parts,
    members_of,
    owner_with_pod_sets,
    read_parts,
    shared_metadata,
)
from windlass.model.errors import InputError
from windlass.model.group_membership import ANNOUNCED_FORMS
from windlass.model.kueue import is_finished, priority_class_hold, queue_hold, workload_from_object
from windlass.model.kueue.workload_wire import Condition
from windlass.model.meta import ObjectMeta
from windlass.model.names.volcano import VOLCANO_DEFAULT_QUEUE
from windlass.model.namespace_limits import limit_range_violation
from windlass.model.owners import Owner, template_pod
from windlass.model.pod import Pod
from windlass.model.pod_defaults import pod_defaults
from windlass.model.pod_group import NOT_IMPLEMENTED
from windlass.model.queue import ClusterQueue
from windlass.model.queue_names import VOLCANO_PREFIX
from windlass.model.queue_policy import QueuePolicy
from windlass.model.times import parse_timestamp
from windlass.model.workload import Admission, PodSet, Workload

VOLCANO_DEFAULT = f"{VOLCANO_PREFIX}{VOLCANO_DEFAULT_QUEUE}"
TERMINATING_SUFFIX = "#leaving"
"""Appended to the key of a workload for its part that is being deleted."""
WORKLOAD_REF_HOLD = (
    "spec.workloadRef: groups of Kubernetes 1.35 are not implemented (name a PodGroup in spec.schedulingGroup)",
    NOT_IMPLEMENTED,
)
DEFAULT_GRACE_SECONDS = 30
"""Kubernetes' default of terminationGracePeriodSeconds."""


def build_workload(unit: Unit, inputs: GroupingInputs) -> Workload | None:
    """The workload of a unit; None where nothing is left of it."""
    members = members_of(unit)
    if unit.key.source == "workload":
        # Pods that have ended stay for a while, and must not make it wait.
        is_over = not members.pods and is_finished(inputs.workloads[unit.key.key])
        return None if is_over else _from_workload_object(unit, members, inputs)
    try:
        parts = read_parts(unit, members, inputs)
    except InputError as error:
        parts = _unreadable_parts(unit, members, inputs, error)
    if parts is None or not any(pod_set.count for pod_set in parts.sets):
        return None
    return _assemble(parts, members, inputs)


def build_terminating_workload(unit: Unit, inputs: GroupingInputs) -> Workload | None:
    """The pods of a queued unit that are being deleted while others stay: they hold quota until they have ended."""
    leaving = [pod for pod in unit.pods if pod.metadata.deletion_timestamp and pod.is_bound]
    if not leaving or unit.key.source == "workload":
        return None
    if all(pod.metadata.deletion_timestamp for pod in unit.pods):
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


def build_excess_workloads(unit: Unit, inputs: GroupingInputs) -> list[Workload]:
    """The pods of a group beyond the number that it announces, each held on its own."""
    if unit.key.source not in ANNOUNCED_FORMS:
        return []
    members = members_of(unit)
    return [
        _assemble(excess_parts(pod, unit, members), UnitMembers((pod,), 0, evicting=False), inputs)
        for pod in members.excess
    ]


def _from_workload_object(unit: Unit, members: UnitMembers, inputs: GroupingInputs) -> Workload:
    """A Kueue Workload, with the pods of its Job."""
    workload_object = inputs.workloads[unit.key.key]
    metadata = workload_object.metadata
    base = workload_from_object(workload_object, inputs.queue_system, inputs.hostnames)
    kind, _, key = base.owner.partition(" ")
    owner = owner_with_pod_sets(kind, key, inputs)
    sets = _with_defaults(base.pod_sets, inputs, base.namespace)
    sets = with_pods(sets, members.pods, owner.pod_set_label if owner is not None else "")
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
    execution = base.execution_seconds
    if execution is None and owner is not None:
        execution = execution_limit(owner.metadata)  # its Workload was made without it
    limit, enforced = _run_limit(msgspec.structs.replace(base, max_run_seconds=execution), metadata, owner, sets)
    policy = queue.policy if queue is not None else QueuePolicy()
    limit = policy.run_seconds(limit, is_enforced=enforced)
    # People annotate the Job; Kueue makes the Workload beside it, without the annotations.
    annotated = [metadata, *([owner.metadata] if owner is not None else ()), *[pod.metadata for pod in members.pods]]
    checkpoint = max(base.checkpoint_at, checkpoint_of(annotated))
    queued_at = queued_since(metadata, base.queued_at) or inputs.now
    if hold == NO_HOLD:
        hold = gated_hold(owner.metadata if owner is not None else metadata)
    if hold == NO_HOLD:
        hold = stopped_hold(metadata, limit, checkpoint, queued_at)
    built = msgspec.structs.replace(
        base,
        pod_sets=sets,
        owner_sizes=tuple(owner_sizes(workload_object, base, owner, unit.pods)),
        is_elastic=owner is not None and owner.is_elastic,
        max_run_seconds=limit,
        run_limit_enforced=enforced,
        execution_seconds=execution,
        unready_since=0 if _are_ready(sets, members) else base.unready_since,
        created=base.created or inputs.now,
        queued_at=queued_at,
        nominated=admission is None and is_nominated(members.pods),
        admission=admission,
        evicting=base.evicting or leaving or members.evicting,
        ends_by=_ends_by(members, workload_object.condition("Evicted")),
        hold=hold[0] if admission is None else "",
        hold_code=hold[1] if admission is None else "",
        unreadable=unreadable[0],
        started_at=base.started_at or _first_start(members),
        checkpoint_at=checkpoint,
        restart_seconds=policy.restart_seconds(declared_restart_cost(annotated)),
        checkpoint_seconds=checkpoint_interval(declared := [*annotated, *_templates(sets)]),
        ask_terms=policy.ask_terms(ask_terms_of(declared)),
        is_asked=is_asked(annotated),
        evictable=base.evictable and (is_evictable(annotated) or not policy.allows_not_preemptable),
        user=user_of(annotated),
    )
    return with_room_to_grow(built)


def _templates(sets: Sequence[PodSet]) -> list[ObjectMeta]:
    """What is declared on pods that don't exist yet."""
    return [pod_set.template.metadata for pod_set in sets if not pod_set.pod_keys]


def _are_ready(sets: Sequence[PodSet], members: UnitMembers) -> bool:
    """Whether all pods are known to be ready, also where nobody was there to write the condition PodsReady."""
    ready = sum(1 for pod in members.pods if pod.is_bound and pod.status.conditions and pod.is_ready)
    return ready >= sum(pod_set.count for pod_set in sets)


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


def _unreadable_parts(unit: Unit, members: UnitMembers, inputs: GroupingInputs, error: InputError) -> WorkloadParts:
    """A workload whose requests can't be read is held with the error."""
    owner = owner_with_pod_sets(unit.key.kind, unit.key.key, inputs) if unit.key.source == "owner" else None
    if owner is not None and owner.pod_sets:
        metadata = owner.metadata
        declared = owner.pod_sets
        sets = tuple(PodSet(item.name, item.count, template_pod(owner, item)) for item in declared)
    else:
        metadata = shared_metadata(members.pods)
        sets = tuple(
            PodSet(f"set-{number}", 1, template_of(pod), pod_keys=(pod.key,))
            for number, pod in enumerate(members.pods, start=1)
        )
    hold = (_field_message(error), error.code or "INVALID_OBJECT")
    return WorkloadParts(WorkloadIdentity(unit.key.key, unit.key.kind, metadata), sets, hold=hold)


def _assemble(parts: WorkloadParts, members: UnitMembers, inputs: GroupingInputs) -> Workload:
    identity = parts.identity
    parts = msgspec.structs.replace(parts, sets=_with_defaults(parts.sets, inputs, identity.namespace))
    queue = queue_of(identity, members.pods, inputs.owners) or parts.queue
    if queue == VOLCANO_DEFAULT and queue not in inputs.queue_system.shared_queues:
        queue = ""  # what Volcano's webhook writes where nothing else is said
    pods = {pod.key: pod for pod in members.pods}
    cluster_queue = _cluster_queue(identity.namespace, queue, inputs)
    admission = admission_of_pods(parts.sets, pods, cluster_queue, inputs.queue_system, inputs.nodes)
    unreadable = _unreadable_hold(_sets_to_read(parts.sets, inputs))
    hold = parts.hold if parts.hold != NO_HOLD else unreadable
    if hold == NO_HOLD and any(pod_set.template.spec.workload_ref is not None for pod_set in parts.sets):
        hold = WORKLOAD_REF_HOLD
    if hold == NO_HOLD and queue:
        hold = queue_hold(identity.namespace, queue, inputs.queue_system)
    if hold == NO_HOLD and queue:
        hold = gated_hold(identity.metadata)
    if hold == NO_HOLD and queue:
        hold = priority_class_hold(workload_priority_class(identity, parts.sets[0].template), inputs.queue_system)
    if hold == NO_HOLD and not members.pods:
        hold = _limit_range_hold(parts.sets, inputs, identity.namespace)
    template = parts.sets[0].template
    priority = priority_of(identity, template, inputs.queue_system)
    preemptible = is_preemptible(identity, members.pods, queue, priority)
    created = _created(identity, members, inputs.now)
    queued_at = queued_since(identity.metadata, created)
    own = [identity.metadata, *[pod.metadata for pod in members.pods if pod.metadata is not identity.metadata]]
    annotated = [*own, *metadata_of_owners(members.pods, inputs.owners)]
    checkpoint = checkpoint_of(annotated)
    policy = cluster_queue.policy if cluster_queue is not None else QueuePolicy()
    limit = run_limit(identity, parts.sets, parts.deadline)
    enforced = limit == enforced_limit(identity, parts.sets, parts.deadline)
    limit = policy.run_seconds(limit, is_enforced=enforced)
    if hold == NO_HOLD:
        hold = stopped_hold(identity.metadata, limit, checkpoint, queued_at)
    if admission is not None:
        hold = NO_HOLD
    return Workload(
        key=identity.key,
        kind=identity.kind,
        pod_sets=parts.sets,
        uid=identity.metadata.uid,
        queue_name=queue,
        priority=priority,
        preemption_policy=preemption_policy_of(identity, template, inputs.queue_system),
        created=created,
        queued_at=queued_at,
        admission=admission,
        evicting=members.evicting,
        ends_by=_ends_by(members),
        hold=hold[0],
        hold_code=hold[1],
        unreadable=unreadable[0],
        min_pods=parts.minimum,
        all_or_nothing=parts.all_or_nothing,
        max_run_seconds=limit,
        run_limit_enforced=enforced,
        started_at=_first_start(members),
        checkpoint_at=checkpoint,
        restart_seconds=policy.restart_seconds(declared_restart_cost(annotated)),
        checkpoint_seconds=checkpoint_interval(declared := [*annotated, *_templates(parts.sets)]),
        ask_terms=policy.ask_terms(ask_terms_of(declared)),
        is_asked=is_asked(annotated),
        evictable=preemptible and (is_evictable(annotated) or not policy.allows_not_preemptable),
        user=user_of(annotated) if queue else "",
        may_borrow=preemptible,
        evictions=evictions_of(own),
        nominated=admission is None and is_nominated(members.pods),
    )


def _ends_by(members: UnitMembers, evicted: Condition | None = None) -> int:
    """When the last grace period of the pods ends. Those that nobody deletes yet have theirs from the eviction on."""
    since = parse_timestamp(evicted.last_transition_time) if evicted is not None else 0
    return max((_pod_ends_by(pod, since) for pod in members.pods if pod.is_bound), default=0)


def _pod_ends_by(pod: Pod, evicted_at: int) -> int:
    if pod.metadata.deletion_timestamp:
        return parse_timestamp(pod.metadata.deletion_timestamp)
    return evicted_at + DEFAULT_GRACE_SECONDS if evicted_at else 0


def _cluster_queue(namespace: str, queue: str, inputs: GroupingInputs) -> ClusterQueue | None:
    local = inputs.queue_system.local_queue(namespace, queue)
    return inputs.queue_system.queues.get(local.cluster_queue) if local is not None else None


def _sets_to_read(sets: Sequence[PodSet], inputs: GroupingInputs) -> Sequence[PodSet]:
    """Without those of pods whose requests the store has read already: the template is one of them."""
    bad = inputs.unreadable_pods
    if bad is None:
        return sets
    return [pod_set for pod_set in sets if not pod_set.pod_keys or any(key in bad for key in pod_set.pod_keys)]


def _unreadable_hold(sets: Sequence[PodSet]) -> HoldReason:
    """Reads all requests once, so that a decision can't fail on them: a workload that can't be read is held."""
    for pod_set in sets:
        try:
            read_requests(pod_set.template)
        except InputError as error:
            return str(error), error.code or "INVALID_OBJECT"
    return NO_HOLD


def _with_defaults(sets: tuple[PodSet, ...], inputs: GroupingInputs, namespace: str) -> tuple[PodSet, ...]:
    """With what the API server will add to their pods, for sets without pods."""
    if not inputs.limit_ranges and not inputs.runtime_classes:
        return sets
    defaults = pod_defaults(namespace, inputs.limit_ranges, inputs.runtime_classes)
    return tuple(
        pod_set if pod_set.pod_keys else msgspec.structs.replace(pod_set, template=defaults.apply(pod_set.template))
        for pod_set in sets
    )


def _limit_range_hold(sets: Sequence[PodSet], inputs: GroupingInputs, namespace: str) -> HoldReason:
    """Holds a workload whose pods don't exist yet and would be refused by the namespace's LimitRange."""
    ranges = [limit_range for limit_range in inputs.limit_ranges if limit_range.namespace == namespace]
    for pod_set in sets if ranges else ():
        try:
            problem = limit_range_violation(ranges, pod_set.template)
        except InputError as error:
            return _field_message(error), error.code or "INVALID_OBJECT"
        if problem:
            return f"pod set {pod_set.name}: {problem}", "POLICY_DENIED"
    return NO_HOLD


def _field_message(error: InputError) -> str:
    """The error without its object, which the hold names already."""
    where = f"{error.path}: " if error.path else ""
    return f"{where}{error.message}" + (f" ({error.remedy})" if error.remedy else "")


def _created(identity: WorkloadIdentity, members: UnitMembers, now: int) -> int:
    timestamps = [parse_timestamp(identity.metadata.creation_timestamp)]
    if not timestamps[0]:
        timestamps = [parse_timestamp(pod.metadata.creation_timestamp) for pod in members.pods]
    return min((timestamp for timestamp in timestamps if timestamp), default=now)


def _first_start(members: UnitMembers) -> int:
    return min((start_time(pod) for pod in members.pods if pod.is_bound), default=0)
