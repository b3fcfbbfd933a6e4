"""Converts a Kueue Workload object into a `model.workload.Workload`: requests, state and admission.

Called by `cluster.workloads`, which joins a Workload with its Job and pods; `QueueSystem` has the queues and priority
classes that the object names.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from windlass.model.errors import InputError
from windlass.model.kueue.admission import admission_of
from windlass.model.kueue.workload_wire import PodSetSpec, WorkloadObject
from windlass.model.names.windlass import LAST_CHECKPOINT_ANNOTATION
from windlass.model.pod import Container, Pod, PodSpec, ResourceRequirements
from windlass.model.queue import QueueSystem
from windlass.model.queue_names import describe_queue
from windlass.model.requests import is_extended_resource
from windlass.model.times import parse_timestamp
from windlass.model.topology_request import (
    MAX_PODS,
    slice_layers,
    topology_request,
    topology_request_from_annotations,
)
from windlass.model.validation import check_pod, check_priority
from windlass.model.workload import PodSet, TopologyRequest, Workload

PREEMPTED = "Preempted"
MAX_NAMED = 3
PODS_READY, WAIT_FOR_START, WAIT_FOR_RECOVERY = "PodsReady", "WaitForStart", "WaitForRecovery"
NO_HOLD = ("", "")
_REQUEUES_AT_EVICTION = ("PodsReadyTimeout", "AdmissionCheck", "DurationExceeded", "NoMatchingWorkload")
"""Eviction reasons after which a workload is queued by its eviction time; after others it keeps its place."""


def workload_from_object(
    wire: WorkloadObject, system: QueueSystem, hostnames: Mapping[str, str] | None = None
) -> Workload:
    """The workload of the object.

    `hostnames` maps values of the label `kubernetes.io/hostname` to nodes, for topology assignments that name hosts;
    without an entry the value is the node's name.
    """
    spec = wire.spec
    admission = None if is_finished(wire) else admission_of(wire, hostnames or {})
    hold, code = _waiting_hold(wire, system) if admission is None else NO_HOLD
    admitted = wire.condition("Admitted")
    return Workload(
        key=wire.key,
        kind="Workload",
        pod_sets=tuple(_pod_set(wire, index) for index in range(len(spec.pod_sets))),
        uid=wire.metadata.uid,
        queue_name=spec.queue_name,
        priority=_priority(wire, system),
        preemption_policy=_preemption_policy(wire, system),
        created=parse_timestamp(wire.metadata.creation_timestamp),
        queued_at=_queued_at(wire),
        admission=admission,
        evicting=admission is not None and wire.condition("Evicted") is not None,
        active=spec.active and not is_finished(wire),
        hold=hold,
        hold_code=code,
        max_run_seconds=_run_time_left(wire),
        execution_seconds=_run_time_left(wire),
        unready_since=_unready_since(wire) if admission is not None else 0,
        is_recovering=_is_recovering(wire),
        requeues=wire.status.requeue_state.count if wire.status.requeue_state is not None else 0,
        started_at=parse_timestamp(admitted.last_transition_time) if admitted and admission else 0,
        checkpoint_at=parse_timestamp(wire.metadata.annotations.get(LAST_CHECKPOINT_ANNOTATION, "")),
        evictions=_preemption_count(wire),
        owner=_owner(wire),
    )


def is_finished(wire: WorkloadObject) -> bool:
    """Finished: it holds no quota and will not run again."""
    return wire.condition("Finished") is not None


def queue_hold(namespace: str, queue: str, system: QueueSystem) -> tuple[str, str]:
    """Why a workload of that LocalQueue is held, and the code; `NO_HOLD` if the queue exists."""
    if not queue:
        return "the workload names no LocalQueue", "KUEUE_QUEUE_MISSING"
    local = system.local_queue(namespace, queue)
    if local is None:
        return f"{describe_queue(queue)} doesn't exist", "KUEUE_QUEUE_MISSING"
    if local.cluster_queue not in system.queues and not local.inactive_reason:
        return f"ClusterQueue {local.cluster_queue} doesn't exist", "KUEUE_QUEUE_MISSING"
    return NO_HOLD


def deactivated_message(key: str, because: str = "") -> str:
    state = f"spec.active: false; {because}" if because else "spec.active: false"
    return f"Workload {key} is deactivated ({state}): set spec.active to true"


def priority_class_hold(name: str, system: QueueSystem) -> tuple[str, str]:
    """Why a queued workload that names this WorkloadPriorityClass is held, and the code; `NO_HOLD` if it exists.

    As in Kueue, which doesn't queue a Job before its class is there: with priority 0 it would wait behind, or be
    preempted by, what it should come before.
    """
    if not name or name in system.workload_priority_classes:
        return NO_HOLD
    known = sorted(system.workload_priority_classes)
    named = ", ".join(known[:MAX_NAMED]) + (", …" if len(known) > MAX_NAMED else "")
    others = f"name one of the {len(known)} that exist ({named})" if known else "remove the label that names it"
    return f"WorkloadPriorityClass {name} doesn't exist: create it, or {others}", "INVALID_OBJECT"


def check_workload(wire: WorkloadObject) -> None:
    """Raises an `InputError` with the path for what can't become a `Workload`."""
    if not wire.metadata.name:
        raise InputError("needs a name", path="metadata.name", remedy="add a name")
    check_priority(wire.spec.priority, "spec.priority")
    if not wire.spec.pod_sets:
        raise InputError("has no pod sets", path="spec.podSets", remedy="add at least one")
    names = [pod_set.name for pod_set in wire.spec.pod_sets]
    for index, name in enumerate(names):
        if name in names[:index]:
            raise InputError(
                f"pod set {name} is defined twice", path=f"spec.podSets[{index}].name", remedy="rename one"
            )
    workload_from_object(wire, QueueSystem())


def _pod_set(wire: WorkloadObject, index: int) -> PodSet:
    spec = wire.spec.pod_sets[index]
    path = f"spec.podSets[{index}]"
    if not 0 <= spec.count <= MAX_PODS:
        raise InputError(f"{spec.count} pods", path=f"{path}.count", remedy=f"use 0 to {MAX_PODS}")
    if spec.min_count is not None and not 0 < spec.min_count <= spec.count:
        raise InputError(
            f"minCount {spec.min_count} of {spec.count} pods",
            path=f"{path}.minCount",
            remedy="use 1 to count",
        )
    reclaimed = sum(reclaimable.count for reclaimable in wire.status.reclaimable_pods if reclaimable.name == spec.name)
    count = max(0, spec.count - reclaimed)
    return PodSet(
        name=spec.name,
        count=count,
        template=_template_pod(wire, spec, path),
        min_count=None if spec.min_count is None else min(spec.min_count, count),
        topology=_topology(spec, path)[0],
    )


def _template_pod(wire: WorkloadObject, spec: PodSetSpec, path: str) -> Pod:
    """The template as a pod in its workload's namespace, with the API server's defaults."""
    metadata = msgspec.structs.replace(
        spec.template.metadata,
        name=f"{wire.metadata.name}-{spec.name}",
        namespace=wire.metadata.namespace or "default",
    )
    pod = Pod(metadata=metadata, spec=with_default_limits(spec.template.spec))
    try:
        check_pod(pod)
    except InputError as error:
        raise InputError(
            error.message, path=f"{path}.template.{error.path}", remedy=error.remedy, code=error.code
        ) from None
    return pod


def with_default_limits(spec: PodSpec) -> PodSpec:
    """The spec with a limit wherever an extended resource is requested.

    The API server requires it of pods. It does not check the templates of a Workload, whose pods will have the limits.
    """
    containers = tuple(_limited(container) for container in spec.containers)
    init_containers = tuple(_limited(container) for container in spec.init_containers)
    if containers == spec.containers and init_containers == spec.init_containers:
        return spec
    return msgspec.structs.replace(spec, containers=containers, init_containers=init_containers)


def _limited(container: Container) -> Container:
    resources = container.resources
    missing = {
        name: amount
        for name, amount in resources.requests.items()
        if is_extended_resource(name) and name not in resources.limits
    }
    if not missing:
        return container
    limits = {**resources.limits, **missing}
    return msgspec.structs.replace(
        container,
        resources=ResourceRequirements(limits=limits, requests=resources.requests, claims=resources.claims),
    )


def _topology(spec: PodSetSpec, path: str) -> tuple[TopologyRequest | None, str]:
    """(`topologyRequest`, or the request of the template's annotations; why it is invalid).

    Kueue stores invalid requests and never admits them, so that they are a reason to wait and not an error.
    """
    wire = spec.topology_request
    try:
        if wire is None:
            return topology_request_from_annotations(spec.template.metadata.annotations), ""
        layers = tuple((layer.topology, layer.size) for layer in wire.podset_slice_required_topology_constraints)
        # A leader is placed with the slices of its workers and needs no slice size.
        leader = spec.count == 1 and wire.pod_set_group_name
        size = wire.pod_set_slice_size or (1 if leader else 0)
        own = slice_layers(wire.pod_set_slice_required_topology, size, "topologyRequest")
        request = topology_request(
            required=wire.required,
            preferred=wire.preferred,
            unconstrained=wire.unconstrained,
            layers=layers or own,
            group=wire.pod_set_group_name,
            path="topologyRequest",
        )
    except InputError as error:
        where = f"{path}.{error.path}" if wire is not None else f"{path}.template.{error.path}"
        return None, f"{where}: {error.message} ({error.remedy})"
    return request, ""


def _priority(wire: WorkloadObject, system: QueueSystem) -> int:
    """The priority of the object, else that of its class."""
    if wire.spec.priority is not None:
        return wire.spec.priority
    name, is_kueues_own = _priority_class(wire)
    if is_kueues_own:
        return system.workload_priority_classes.get(name, 0)
    return system.priority_classes.get(name or system.default_priority_class, 0)


def _priority_class(wire: WorkloadObject) -> tuple[str, bool]:
    """The class that it names, and whether that is a WorkloadPriorityClass."""
    spec = wire.spec
    if spec.priority_class_ref is not None:
        return spec.priority_class_ref.name, spec.priority_class_ref.kind == "WorkloadPriorityClass"
    return spec.priority_class_name, "workloadpriorityclass" in spec.priority_class_source


def _preemption_policy(wire: WorkloadObject, system: QueueSystem) -> str:
    """Never with a preemption gate that nobody has opened, or with a PriorityClass that never preempts."""
    opened = {gate.name for gate in wire.status.preemption_gates if gate.position == "Open"}
    never = any(gate.name not in opened for gate in wire.spec.preemption_gates)
    for pod_set in wire.spec.pod_sets:
        template = pod_set.template.spec
        never = never or template.preemption_policy == "Never"
        never = never or template.priority_class_name in system.non_preempting_classes
    return "Never" if never else "PreemptLowerPriority"


def _queued_at(wire: WorkloadObject) -> int:
    evicted = wire.condition("Evicted")
    if evicted is not None and evicted.reason in _REQUEUES_AT_EVICTION:
        return parse_timestamp(evicted.last_transition_time)
    return parse_timestamp(wire.metadata.creation_timestamp)


_REASONS_THAT_END = ("ClusterQueueStopped", "LocalQueueStopped", "Deactivated", "Inadmissible")


def _waiting_hold(wire: WorkloadObject, system: QueueSystem) -> tuple[str, str]:
    """Why it is held: its queue, its priority class, an invalid topology request, its own state."""
    hold = queue_hold(wire.metadata.namespace or "default", wire.spec.queue_name, system)
    name, is_kueues_own = _priority_class(wire)
    if hold == NO_HOLD and is_kueues_own and wire.spec.priority is None:
        hold = priority_class_hold(name, system)
    if hold != NO_HOLD:
        return hold
    for index, spec in enumerate(wire.spec.pod_sets):
        problem = _topology(spec, f"spec.podSets[{index}]")[1]
        if problem:
            return problem, "INVALID_OBJECT"
    if not wire.spec.active:
        evicted = wire.condition("Evicted")
        because = evicted.message if evicted is not None and "DueTo" in evicted.reason else ""
        return deactivated_message(wire.key, because), "JOB_SUSPENDED"
    for condition in wire.status.conditions:
        # Its queue is open, it is active, and what Kueue can't read is looked at again: what Kueue stopped for that is
        # over, and nobody else may say so.
        is_over = condition.reason.startswith(_REASONS_THAT_END)
        if condition.type == "Requeued" and condition.status == "False" and not is_over:
            until = wire.status.requeue_state.requeue_at if wire.status.requeue_state else ""
            again = f"is queued again at {until}" if until else "is not queued again yet"
            evicted_for = f"it was evicted ({condition.reason})" if condition.reason else "it was evicted"
            return f"{evicted_for} and {again}", "REQUEUE_BACKOFF"
    return NO_HOLD


def _unready_since(wire: WorkloadObject) -> int:
    """As Kueue counts: from the admission, or from when its pods ceased to be ready."""
    known = {condition.type: condition for condition in wire.status.conditions}
    ready, admitted = known.get(PODS_READY), wire.condition("Admitted")
    if admitted is None or (ready is not None and ready.status == "True"):
        return 0
    began = ready if ready is not None and ready.reason == WAIT_FOR_RECOVERY else admitted
    return parse_timestamp(began.last_transition_time)


def _is_recovering(wire: WorkloadObject) -> bool:
    return any(
        condition.type == PODS_READY and condition.status == "False" and condition.reason == WAIT_FOR_RECOVERY
        for condition in wire.status.conditions
    )


def _preemption_count(wire: WorkloadObject) -> int:
    evictions = wire.status.scheduling_stats.evictions
    return sum(eviction.count for eviction in evictions if eviction.reason == PREEMPTED)


def _owner(wire: WorkloadObject) -> str:
    for reference in wire.metadata.owner_references:
        if reference.controller:
            return f"{reference.kind} {wire.metadata.namespace or 'default'}/{reference.name}"
    return ""


def _run_time_left(wire: WorkloadObject) -> int | None:
    limit = wire.spec.maximum_execution_time_seconds
    if limit is None:
        return None
    status = wire.status
    spent = status.accumulated_past_execution_time_seconds or status.accumulated_past_exexcution_time_seconds or 0
    return max(0, limit - max(0, spent))
