"""One unit as a `Workload`: what it asks for, where it waits, what it holds already.

Fed by `units`; the result goes to `queueing` and `placement` by way of the engine. Each source of a unit (a Kueue
Workload, a PodGroup, an owner, a single pod) says who it is and which sets it has; everything else is read the same way
for all of them.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from windlass.cluster.shape import read_requests
from windlass.cluster.workloads.facts import (
    Identity,
    checkpoint_of,
    declared_restart,
    enforced_limit,
    evictions_of,
    is_evictable,
    is_promised,
    preemption_policy_of,
    priority_of,
    queue_of,
    queued_since,
    run_limit,
)
from windlass.cluster.workloads.holding import admission_of_pods, nodes_of, started
from windlass.cluster.workloads.inputs import Inputs
from windlass.cluster.workloads.sets import sets_of_group, sets_of_owner, template_of, with_pods
from windlass.cluster.workloads.units import Unit
from windlass.model.errors import InputError
from windlass.model.kueue import kueue_workload, queue_hold
from windlass.model.meta import ObjectMeta
from windlass.model.namespace_rules import outside_limits
from windlass.model.owners import Owner, template_pod
from windlass.model.owners.normalise import QUEUE_NAME
from windlass.model.pod import Pod
from windlass.model.podgroup import NOT_IMPLEMENTED
from windlass.model.queue import ClusterQueue
from windlass.model.times import seconds_of
from windlass.model.topology_request import topology_of_annotations
from windlass.model.workload import Admission, PodSet, Workload

TOTAL_COUNT = "kueue.x-k8s.io/pod-group-total-count"
LEAVING = "#leaving"
"""After the name of a workload: the part of it that is being deleted."""
NO_HOLD = ("", "")
Hold = tuple[str, str]
"""Message and code; empty where nothing holds it."""


class Members(msgspec.Struct, frozen=True):
    """The pods of a unit that count."""

    pods: tuple[Pod, ...]
    succeeded: int
    evicting: bool
    """All that is left of it is on its way out."""

    @property
    def bound(self) -> bool:
        return any(pod.is_bound for pod in self.pods)


class Parts(msgspec.Struct, frozen=True):
    """What the sources of units differ in."""

    identity: Identity
    sets: tuple[PodSet, ...]
    minimum: int | None = None
    all_or_nothing: bool = True
    deadline: int | None = None
    hold: Hold = NO_HOLD


def build(unit: Unit, inputs: Inputs) -> Workload | None:
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


def build_leaving(unit: Unit, inputs: Inputs) -> Workload | None:
    """Pods of a queued unit that are on their way out while others stay: they hold quota until they are gone."""
    staying = any(not pod.metadata.deletion_timestamp for pod in unit.pods)
    leaving = [pod for pod in unit.pods if pod.metadata.deletion_timestamp and pod.is_bound]
    if not staying or not leaving or unit.key.source == "workload":
        return None
    made = build(Unit(unit.key, leaving, unit.succeeded), inputs)
    if made is None or not made.queue or made.admission is None:
        return None
    sets = [msgspec.structs.replace(one, count=len(one.pods), min_count=None) for one in made.pod_sets]
    return msgspec.structs.replace(
        made, key=made.key + LEAVING, pod_sets=tuple(one for one in sets if one.count), minimum=None
    )


def _members(unit: Unit) -> Members:
    """A pod that is being deleted is no member any more, unless nothing else is left."""
    staying = tuple(pod for pod in unit.pods if not pod.metadata.deletion_timestamp)
    if staying:
        return Members(staying, unit.succeeded, evicting=False)
    leaving = tuple(pod for pod in unit.pods if pod.is_bound)
    return Members(leaving, unit.succeeded, evicting=bool(leaving))


def _from_workload(unit: Unit, members: Members, inputs: Inputs) -> Workload:
    """A Kueue Workload, with the pods of the Job behind it."""
    wire = inputs.workloads[unit.key.key]
    base = kueue_workload(wire, inputs.system, inputs.hostnames)
    kind, _, key = base.owner.partition(" ")
    owner = _with_sets(kind, key, inputs)
    sets = with_pods(base.pod_sets, members.pods, owner.set_label if owner is not None else "")
    pods = {pod.key: pod for pod in members.pods}
    queue = _cluster_queue(base.namespace, base.queue, inputs)
    held = admission_of_pods(sets, pods, queue, inputs.system, inputs.nodes)
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
        limit_enforced=enforced,
        created=base.created or inputs.now,
        queued_at=queued_since(wire.metadata, base.queued_at) or inputs.now,
        promised=admission is None and is_promised(members.pods),
        admission=admission,
        evicted=base.evicted or leaving or members.evicting,
        hold=hold[0] if admission is None else "",
        hold_code=hold[1] if admission is None else "",
        unreadable=unreadable[0],
        started_at=base.started_at or _first_start(members),
        checkpoint_at=max(base.checkpoint_at, checkpoint_of(wire.metadata, members.pods)),
        restart_seconds=declared_restart([wire.metadata, *(pod.metadata for pod in members.pods)]),
    )


def _run_limit(
    base: Workload, metadata: ObjectMeta, owner: Owner | None, sets: Sequence[PodSet]
) -> tuple[int | None, bool]:
    """Of a Kueue Workload, by its own field, its annotation or what it was made of; and whether it is enforced."""
    objects = [(metadata, None)] + ([(owner.metadata, owner.deadline)] if owner is not None else [])
    identities = [(Identity(base.key, "Workload", one), deadline) for one, deadline in objects]
    hard = [base.max_run_seconds, *(enforced_limit(one, sets, deadline) for one, deadline in identities)]
    every = [base.max_run_seconds, *(run_limit(one, sets, deadline) for one, deadline in identities)]
    limit = min((value for value in every if value is not None), default=None)
    return limit, limit in hard


def _where_pods_are(admission: Admission, sets: Sequence[PodSet], pods: dict[str, Pod]) -> Admission:
    """The pods on nodes say better than the topology assignment where a set is."""
    placed = {one.name: nodes_of([pods[key] for key in one.pods]) for one in sets}
    return msgspec.structs.replace(
        admission,
        assignments=tuple(
            msgspec.structs.replace(one, nodes=placed.get(one.name) or one.nodes)
            for one in admission.assignments
        ),
    )


def _pod_parts(pod: Pod) -> Parts:
    queued = QUEUE_NAME in pod.metadata.labels  # where lone pods are decided at once, nobody reads it either
    topology = topology_of_annotations(pod.metadata.annotations) if queued else None
    one = PodSet("main", 1, template_of(pod), pods=(pod.key,), topology=topology)
    return Parts(Identity(pod.key, "Pod", pod.metadata), (one,))


def _kueue_group_parts(unit: Unit, members: Members) -> Parts:
    first = members.pods[0]
    text = first.metadata.annotations.get(TOTAL_COUNT, "")
    there = len(members.pods) + members.succeeded
    total = int(text) if text.isascii() and text.isdigit() and len(text) < 9 else there
    metadata = _shared_metadata(members.pods)
    hold = _incomplete(there, total) if there < total and not members.bound else NO_HOLD
    return Parts(
        Identity(unit.key.key, "PodGroup", metadata),
        sets_of_group(members.pods, None),
        minimum=max(0, total - members.succeeded),
        hold=hold,
    )


def _pod_group_parts(unit: Unit, members: Members, inputs: Inputs) -> Parts:
    found = inputs.pod_groups.get((unit.key.source, unit.key.key))
    if found is None:
        metadata = _shared_metadata(members.pods)
        name = unit.key.key.partition("/")[2]
        hold = (f"PodGroup {name} ({unit.key.source}) doesn't exist", "GANG_INCOMPLETE")
        return Parts(
            Identity(unit.key.key, "PodGroup", metadata), sets_of_group(members.pods, None), hold=hold
        )
    there = len(members.pods) + members.succeeded
    hold = NO_HOLD
    if found.hold:
        hold = (found.hold, NOT_IMPLEMENTED)
    elif there < found.minimum and not members.bound:
        hold = _incomplete(there, found.minimum)
    identity = Identity(unit.key.key, "PodGroup", found.metadata, found)
    topology = found.topology or topology_of_annotations(found.metadata.annotations)
    return Parts(
        identity,
        sets_of_group(members.pods, topology),
        minimum=max(0, found.minimum - members.succeeded),
        all_or_nothing=found.all_or_nothing,
        hold=hold,
    )


def _owner_parts(unit: Unit, members: Members, inputs: Inputs) -> Parts | None:
    owner = _with_sets(unit.key.kind, unit.key.key, inputs)
    key = unit.key.key if unit.key.index is None else f"{unit.key.key}-{unit.key.index}"
    if owner is None or not owner.sets:
        if members.pods:
            metadata = owner.metadata if owner is not None else _shared_metadata(members.pods)
            return Parts(Identity(key, unit.key.kind, metadata), sets_of_group(members.pods, None))
        return _unmade_parts(owner) if owner is not None and not owner.finished else None
    if owner.finished and not members.pods:
        return None  # pods that have ended are all that is left of it
    hold = NO_HOLD
    identity = Identity(key, owner.kind, owner.metadata)
    if owner.suspended and not queue_of(identity, members.pods):
        hold = (f"{owner.kind} {owner.key} is suspended: spec.suspend is true", "JOB_SUSPENDED")
    return Parts(
        identity,
        sets_of_owner(owner, members.pods),
        minimum=owner.minimum if owner.together else 1,
        all_or_nothing=owner.together,
        deadline=owner.deadline,
        hold=hold,
    )


def _unmade_parts(owner: Owner) -> Parts:
    """A TrainJob says nothing of its pods: they stand in the JobSet that its controller makes."""
    nothing = Pod(metadata=ObjectMeta(name=owner.metadata.name, namespace=owner.key.partition("/")[0]))
    hold = (f"{owner.kind} {owner.key} waits for its controller to make a JobSet of it", "GANG_INCOMPLETE")
    return Parts(Identity(owner.key, owner.kind, owner.metadata), (PodSet("main", 1, nothing),), hold=hold)


def _with_sets(kind: str, key: str, inputs: Inputs) -> Owner | None:
    """The owner; a TrainJob with the sets of the JobSet that was made of it."""
    owner = inputs.owners.get((kind, key))
    if owner is None or owner.sets:
        return owner
    below = inputs.owners.get(("JobSet", key))
    if below is None:
        return owner
    return msgspec.structs.replace(owner, sets=below.sets, set_label=below.set_label, deadline=below.deadline)


def _unreadable_parts(unit: Unit, members: Members, inputs: Inputs, error: InputError) -> Parts:
    """Something that it asks for can't be read: it waits, and says what."""
    owner = _with_sets(unit.key.kind, unit.key.key, inputs) if unit.key.source == "owner" else None
    if owner is not None and owner.sets:
        metadata = owner.metadata
        sets = tuple(PodSet(one.name, one.count, template_pod(owner, one)) for one in owner.sets)
    else:
        metadata = _shared_metadata(members.pods)
        sets = tuple(
            PodSet(f"set-{number}", 1, template_of(pod), pods=(pod.key,))
            for number, pod in enumerate(members.pods, start=1)
        )
    where = f"{error.path}: " if error.path else ""
    hold = (f"{where}{error.message}", error.code or "INVALID_OBJECT")
    return Parts(Identity(unit.key.key, unit.key.kind, metadata), sets, hold=hold)


def _assembled(parts: Parts, members: Members, inputs: Inputs) -> Workload:
    identity = parts.identity
    queue = queue_of(identity, members.pods)
    pods = {pod.key: pod for pod in members.pods}
    cluster_queue = _cluster_queue(identity.namespace, queue, inputs)
    admission = admission_of_pods(parts.sets, pods, cluster_queue, inputs.system, inputs.nodes)
    unreadable = _unreadable(parts.sets)
    hold = parts.hold if parts.hold != NO_HOLD else unreadable
    if hold == NO_HOLD and queue:
        hold = queue_hold(identity.namespace, queue, inputs.system)
    if hold == NO_HOLD and not members.pods:
        hold = _limit_hold(parts.sets, inputs, identity.namespace)
    if admission is not None:
        hold = NO_HOLD
    template = parts.sets[0].pod
    created = _created(identity, members, inputs.now)
    limit = run_limit(identity, parts.sets, parts.deadline)
    return Workload(
        key=identity.key,
        kind=identity.kind,
        pod_sets=parts.sets,
        uid=identity.metadata.uid,
        queue=queue,
        priority=priority_of(identity, template, inputs.system),
        preemption_policy=preemption_policy_of(identity, template, inputs.system),
        created=created,
        queued_at=queued_since(identity.metadata, created),
        admission=admission,
        evicted=members.evicting,
        hold=hold[0],
        hold_code=hold[1],
        unreadable=unreadable[0],
        minimum=parts.minimum,
        all_or_nothing=parts.all_or_nothing,
        max_run_seconds=limit,
        limit_enforced=limit == enforced_limit(identity, parts.sets, parts.deadline),
        started_at=_first_start(members),
        checkpoint_at=checkpoint_of(identity.metadata, members.pods),
        restart_seconds=declared_restart([identity.metadata, *(pod.metadata for pod in members.pods)]),
        evictable=is_evictable(identity.metadata, members.pods),
        evictions=evictions_of(identity.metadata, members.pods),
        promised=admission is None and is_promised(members.pods),
    )


def _cluster_queue(namespace: str, queue: str, inputs: Inputs) -> ClusterQueue | None:
    local = inputs.system.local_queues.get(f"{namespace}/{queue}")
    return inputs.system.queues.get(local.cluster_queue) if local is not None else None


def _unreadable(sets: Sequence[PodSet]) -> Hold:
    """Deciding can't fail on a workload whose requests were read here: one that can't be read is held, and says why."""
    for one in sets:
        try:
            read_requests(one.pod)
        except InputError as error:
            return str(error), error.code or "INVALID_OBJECT"
    return NO_HOLD


def _limit_hold(sets: Sequence[PodSet], inputs: Inputs, namespace: str) -> Hold:
    """Pods that are not made yet would be refused by the namespace's LimitRange."""
    ranges = [one for one in inputs.limit_ranges if one.namespace == namespace]
    for one in sets if ranges else ():
        try:
            problem = outside_limits(ranges, one.pod)
        except InputError as error:
            return f"{error.path}: {error.message}", error.code or "INVALID_OBJECT"
        if problem:
            return f"pod set {one.name}: {problem}", "POLICY_DENIED"
    return NO_HOLD


def _incomplete(there: int, wanted: int) -> Hold:
    return f"waiting for pods of the group: {there} of {wanted} are there", "GANG_INCOMPLETE"


def _shared_metadata(pods: Sequence[Pod]) -> ObjectMeta:
    """What the oldest pod of a group says for all of them; a group without an object has no uid of its own."""
    oldest = min(pods, key=lambda pod: (pod.metadata.creation_timestamp, pod.key))
    return msgspec.structs.replace(oldest.metadata, owner_references=())


def _created(identity: Identity, members: Members, now: int) -> int:
    stamps = [seconds_of(identity.metadata.creation_timestamp)]
    if not stamps[0]:
        stamps = [seconds_of(pod.metadata.creation_timestamp) for pod in members.pods]
    return min((stamp for stamp in stamps if stamp), default=now)


def _first_start(members: Members) -> int:
    return min((started(pod) for pod in members.pods if pod.is_bound), default=0)
