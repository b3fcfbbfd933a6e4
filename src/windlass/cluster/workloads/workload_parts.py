"""What each source of a unit reads in its own way: its identity, its pod sets, its minimum and what holds it.

`build_workload` calls `read_parts` and makes a workload of the result; the rest is common to all sources.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never

import msgspec

from windlass.cluster.workloads.ancestors import sibling_key
from windlass.cluster.workloads.grouping_inputs import GroupingInputs, is_submitted
from windlass.cluster.workloads.pod_sets import (
    pod_sets_of_group,
    pod_sets_of_owner,
    sort_members,
    template_of,
)
from windlass.cluster.workloads.units import Unit
from windlass.cluster.workloads.workload_attributes import WorkloadIdentity, queue_of
from windlass.model.group_membership import (
    ANNOUNCED_FORMS,
    POD_GROUP_SOURCES,
    GroupForm,
    GroupMember,
    GroupReference,
    group_disagreement,
    group_of_pod,
)
from windlass.model.meta import ObjectMeta
from windlass.model.owners import Owner, template_pod
from windlass.model.owners.kubeflow import with_job_set, with_runtime
from windlass.model.pod import Pod
from windlass.model.pod_group import NOT_IMPLEMENTED, PodGroup
from windlass.model.queue_names import named_queue
from windlass.model.topology_request import topology_request_from_annotations
from windlass.model.workload import PodSet

NO_HOLD = ("", "")
HoldReason = tuple[str, str]
"""Message and code; NO_HOLD where nothing holds the workload."""


class UnitMembers(msgspec.Struct, frozen=True):
    """The pods of a unit that count as its members."""

    pods: tuple[Pod, ...]
    succeeded: int
    evicting: bool
    """All pods that are left are being deleted."""
    excess: tuple[Pod, ...] = ()
    """Pods beyond the number that their group announces, which are no members."""

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
    queue: str = ""
    """The queue that the owner's spec names, where no label does."""


def read_parts(unit: Unit, members: UnitMembers, inputs: GroupingInputs) -> WorkloadParts | None:
    """None where nothing is left of the unit. Raises an `InputError` where its requests can't be read."""
    source = unit.key.source
    assert source != "workload", "a Kueue Workload says all this itself"
    if source == "owner":
        return _owner_parts(unit, members, inputs)
    if not members.pods:
        return None
    match source:
        case "pod":
            return _pod_parts(members.pods[0])
        case "kueue-group":
            return _announced_parts(unit, members, ANNOUNCED_FORMS[source])
        case "scheduling.k8s.io" | "scheduling.x-k8s.io" | "scheduling.volcano.sh" | "scheduling.run.ai":
            return _pod_group_parts(unit, members, inputs)
    assert_never(source)


def members_of(unit: Unit) -> UnitMembers:
    """Pods that are being deleted count only where no other pod is left."""
    staying = tuple([pod for pod in unit.pods if not pod.metadata.deletion_timestamp])
    if staying:
        excess = _excess_pods(unit, staying)
        if excess:
            excess_keys = {pod.key for pod in excess}
            staying = tuple(pod for pod in staying if pod.key not in excess_keys)
        return UnitMembers(staying, unit.succeeded, evicting=False, excess=excess)
    leaving = tuple(pod for pod in unit.pods if pod.is_bound)
    return UnitMembers(leaving, unit.succeeded, evicting=bool(leaving))


def _pod_parts(pod: Pod) -> WorkloadParts:
    # The compiled loop for single pods ignores topology requests, so only a queued pod may have one.
    queued = bool(named_queue(pod.metadata.labels, pod.metadata.annotations))
    topology = topology_request_from_annotations(pod.metadata.annotations) if queued else None
    pod_set = PodSet("main", 1, template_of(pod), pod_keys=(pod.key,), topology=topology)
    return WorkloadParts(WorkloadIdentity(pod.key, "Pod", pod.metadata), (pod_set,))


def _announced_parts(unit: Unit, members: UnitMembers, form: GroupForm) -> WorkloadParts:
    """A group without an object: each of its pods announces how many they are."""
    existing = len(members.pods) + members.succeeded
    size = form.size_in(members.pods[0].metadata.annotations)
    return WorkloadParts(
        WorkloadIdentity(unit.key.key, "PodGroup", shared_metadata(members.pods)),
        pod_sets_of_group(members.pods, None),
        minimum=max(0, (size or existing) - members.succeeded),
        hold=NO_HOLD if members.bound else _announced_hold(unit.key.key, form, members.pods, existing),
    )


def _announced_hold(key: str, form: GroupForm, pods: Sequence[Pod], existing: int) -> HoldReason:
    """Without a number that can be read it is held. The number of pods that happen to exist is no substitute: the gang
    would start with those that were created first."""
    problem = _disagreement(form, pods)
    if problem:
        return problem, "INVALID_OBJECT"
    size = form.size_in(pods[0].metadata.annotations)
    if size is None:
        value = pods[0].metadata.annotations.get(form.size_annotation)
        problem = "is missing" if value is None else f"is {value!r}, which is not a number of pods"
        remedy = 'set it on every pod of the group to the number of its pods, as a string such as "4"'
        return f"metadata.annotations.{form.size_annotation} of {pods[0].key} {problem}: {remedy}", "INVALID_OBJECT"
    if existing < size:
        return f"{existing} of {size} pods of group {key} exist", "GANG_INCOMPLETE"
    return NO_HOLD


def _excess_pods(unit: Unit, pods: Sequence[Pod]) -> tuple[Pod, ...]:
    """The youngest pods of a group with more pods than it announces. Kueue deletes them; bound ones may stay."""
    form = ANNOUNCED_FORMS.get(unit.key.source)
    if form is None:
        return ()
    size = form.size_in(pods[0].metadata.annotations)
    if size is None or len(pods) + unit.succeeded <= size or _disagreement(form, pods):
        return ()  # complete or incomplete, or held as a whole
    bound = sum(pod.is_bound for pod in pods)
    return sort_members(pods)[max(bound, size - unit.succeeded) :]  # bound ones are sorted first


def excess_parts(pod: Pod, unit: Unit, members: UnitMembers) -> WorkloadParts:
    """A pod that its group has no place for: held on its own, so that its owner is told."""
    name = unit.key.key.partition("/")[2]
    existing = len(members.pods) + len(members.excess) + members.succeeded
    annotation = ANNOUNCED_FORMS[unit.key.source].size_annotation
    number = pod.metadata.annotations[annotation]
    problem = f"metadata.annotations.{annotation} is {number}, but group {name} has {existing} pods"
    hold = (
        f"{problem}; delete this pod, or raise the number on every pod of the group",
        "INVALID_OBJECT",
    )
    pod_set = PodSet("main", 1, template_of(pod), pod_keys=(pod.key,))
    return WorkloadParts(WorkloadIdentity(pod.key, "Pod", pod.metadata), (pod_set,), hold=hold)


def _disagreement(form: GroupForm, pods: Sequence[Pod]) -> str:
    labels, annotations = pods[0].metadata.labels, pods[0].metadata.annotations
    if all(pod.metadata.labels == labels and pod.metadata.annotations == annotations for pod in pods):
        return ""  # most groups: their pods have one template
    return group_disagreement(
        form, [GroupMember(pod.key, pod.metadata.labels, pod.metadata.annotations) for pod in pods]
    )


def _pod_group_parts(unit: Unit, members: UnitMembers, inputs: GroupingInputs) -> WorkloadParts:
    pod_group = inputs.pod_groups.get((unit.key.source, unit.key.key))
    if pod_group is None:
        metadata = shared_metadata(members.pods)
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
        hold = (f"{existing} of at least {pod_group.min_pods} pods of PodGroup {unit.key.key} exist", "GANG_INCOMPLETE")
    elif pod_group.has_task_minimums and existing > pod_group.min_pods and not members.bound:
        message = "spec.minTaskMember: minimums of tasks are implemented only if they add up to all pods"
        hold = (f"{message} ({pod_group.min_pods} of {existing} pods)", NOT_IMPLEMENTED)
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
    owner = owner_with_pod_sets(unit.key.kind, unit.key.key, inputs)
    key = unit.key.key if unit.key.index is None else f"{unit.key.key}-{unit.key.index}"
    if owner is None or not owner.pod_sets:
        if members.pods:
            metadata = owner.metadata if owner is not None else shared_metadata(members.pods)
            identity = WorkloadIdentity(key, unit.key.kind, metadata)
            return WorkloadParts(identity, pod_sets_of_group(members.pods, None))
        return _parts_without_templates(owner) if owner is not None and not owner.finished else None
    if owner.finished and not members.pods:
        return None
    hold = NO_HOLD
    reference, pod_group = _group_of_template(owner, inputs)
    identity = WorkloadIdentity(key, owner.kind, owner.metadata, pod_group)
    if owner.suspended and not queue_of(identity, members.pods, inputs.owners):
        hold = (f"{owner.kind} {owner.key} is suspended: spec.suspend is true", "JOB_SUSPENDED")
    elif owner.hold or (pod_group is not None and pod_group.hold):
        hold = (owner.hold or (pod_group.hold if pod_group is not None else ""), NOT_IMPLEMENTED)
    elif reference is not None and pod_group is None:
        hold = (f"PodGroup {reference.name} ({reference.source}) doesn't exist", "GANG_INCOMPLETE")
    count = sum(pod_set.count for pod_set in owner.pod_sets)
    announced = None if owner.is_gang else _announced_size(owner)
    minimum = owner.min_pods if owner.is_gang else 1
    if pod_group is not None:
        minimum = min(pod_group.min_pods, count)
    elif announced is not None:
        minimum = min(announced, count)
    return WorkloadParts(
        identity,
        pod_sets_of_owner(owner, members.pods),
        minimum=minimum,
        all_or_nothing=owner.is_gang or pod_group is not None or announced is not None,
        deadline=owner.deadline,
        hold=hold,
        queue=owner.queue,
    )


def _group_of_template(owner: Owner, inputs: GroupingInputs) -> tuple[GroupReference | None, PodGroup | None]:
    """The PodGroup that the pods of an owner will name, as long as there are none; they are grouped by it later."""
    template = template_pod(owner, owner.pod_sets[0])
    reference = group_of_pod(template)
    if reference is None or reference.source not in POD_GROUP_SOURCES:
        return None, None
    return reference, inputs.pod_groups.get((reference.source, sibling_key(template.metadata, reference.name)))


def _announced_size(owner: Owner) -> int | None:
    """The size of the group without an object that the pods of an owner will be in; None where they will be in none."""
    template = template_pod(owner, owner.pod_sets[0])
    reference = group_of_pod(template)
    form = ANNOUNCED_FORMS.get(reference.source) if reference is not None else None
    return form.size_in(template.metadata.annotations) if form is not None else None


def _parts_without_templates(owner: Owner) -> WorkloadParts | None:
    """A TrainJob has no pod templates: they are in its runtime, or in the JobSet that its controller creates."""
    if owner.makes_owners:
        return None  # a CronJob that is suspended
    empty_pod = Pod(metadata=ObjectMeta(name=owner.metadata.name, namespace=owner.key.partition("/")[0]))
    hold = (f"{owner.kind} {owner.key} waits for its controller to create a JobSet", "GANG_INCOMPLETE")
    if owner.hold:
        hold = (owner.hold, NOT_IMPLEMENTED)
    elif owner.runtime is not None and not is_submitted(owner.metadata):
        name = owner.runtime.key.partition("/")[2]
        hold = (f"spec.runtimeRef: {owner.runtime.kind} {name} doesn't exist", "GANG_INCOMPLETE")
    return WorkloadParts(
        WorkloadIdentity(owner.key, owner.kind, owner.metadata), (PodSet("main", 1, empty_pod),), hold=hold
    )


def owner_with_pod_sets(kind: str, key: str, inputs: GroupingInputs) -> Owner | None:
    """The owner; a TrainJob with the pod sets of its JobSet, or of its runtime as long as there is none."""
    owner = inputs.owners.get((kind, key))
    if owner is None or owner.pod_sets:
        return owner
    job_set = inputs.owners.get(("JobSet", key))
    described = with_job_set(owner, job_set) if job_set is not None else None
    if described is not None:
        return described
    runtime = inputs.owners.get((owner.runtime.kind, owner.runtime.key)) if owner.runtime is not None else None
    # One that was submitted waits for the trainer, which knows more of its runtime than Windlass.
    return owner if runtime is None or is_submitted(owner.metadata) else with_runtime(owner, runtime)


def shared_metadata(pods: Sequence[Pod]) -> ObjectMeta:
    """The metadata of the oldest pod of a group counts for all, since a group without an object has none."""
    oldest = min(pods, key=lambda pod: (pod.metadata.creation_timestamp, pod.key))
    return msgspec.structs.replace(oldest.metadata, owner_references=())
