"""What labels, annotations and classes say about a workload, whatever kind it is.

Read by `build` from the object that stands for the unit (`Identity`), or from its pods where that says nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from windlass.model.errors import InputError
from windlass.model.kueue.workloads import LAST_CHECKPOINT
from windlass.model.meta import ObjectMeta
from windlass.model.owners.normalise import QUEUE_NAME
from windlass.model.pod import Pod
from windlass.model.pod_group import PodGroup
from windlass.model.queue import QueueSystem
from windlass.model.times import parse_duration, parse_timestamp
from windlass.model.workload import PodSet

PRIORITY_CLASS = "kueue.x-k8s.io/priority-class"
MAX_EXEC_TIME = "kueue.x-k8s.io/max-exec-time-seconds"
DURATION = "windlass.dev/duration"
RESTART_COST = "windlass.dev/restart-cost"
"""What starting again costs: pulling, loading, warming up."""
PREEMPTABLE = "volcano.sh/preemptable"
EVICTIONS = "windlass.dev/evictions"
"""How often it was preempted so far; written where no Kueue Workload counts it."""
REQUEUED_AT = "windlass.dev/requeued-at"
"""Since when it queues again, having run for as long as it declared."""


class WorkloadIdentity(msgspec.Struct, frozen=True):
    """The object that stands for a workload."""

    key: str
    kind: str
    metadata: ObjectMeta
    group: PodGroup | None = None

    @property
    def namespace(self) -> str:
        return self.key.partition("/")[0]


def queue_of(identity: WorkloadIdentity, pods: Sequence[Pod]) -> str:
    """The LocalQueue that the object names, or its pods."""
    named = identity.metadata.labels.get(QUEUE_NAME, "")
    return named or next(
        (pod.metadata.labels[QUEUE_NAME] for pod in pods if QUEUE_NAME in pod.metadata.labels), ""
    )


def priority_of(identity: WorkloadIdentity, template: Pod, system: QueueSystem) -> int:
    """Kueue's own class first, then what the group says, then what the pods say."""
    label = identity.metadata.labels.get(PRIORITY_CLASS) or template.metadata.labels.get(PRIORITY_CLASS, "")
    if label in system.workload_priority_classes:
        return system.workload_priority_classes[label]
    group = identity.group
    if group is not None and group.priority is not None:
        return group.priority
    if group is not None and group.priority_class in system.priority_classes:
        return system.priority_classes[group.priority_class]
    spec = template.spec
    if spec.priority or (template.metadata.uid and not spec.priority_class_name):
        return spec.priority  # the API server has seen it
    return system.priority_classes.get(spec.priority_class_name or system.default_priority_class, 0)


def preemption_policy_of(identity: WorkloadIdentity, template: Pod, system: QueueSystem) -> str:
    if identity.group is not None and identity.group.preemption_policy:
        return identity.group.preemption_policy
    if template.spec.priority_class_name in system.non_preempting_classes:
        return "Never"
    return template.spec.preemption_policy


def run_limit(identity: WorkloadIdentity, sets: Sequence[PodSet], deadline: int | None) -> int | None:
    """The tightest bound on how long it runs; None where nothing bounds it."""
    declared = [_declared(identity.metadata)] + [_declared(one.template.metadata) for one in sets]
    limits = [enforced_limit(identity, sets, deadline), *declared]
    return min((value for value in limits if value), default=None)


def declares_run_limit(pod: Pod) -> bool:
    """Whether the pod alone tells for how long it runs."""
    bounded = pod.spec.active_deadline_seconds is not None
    return bounded or DURATION in pod.metadata.annotations or MAX_EXEC_TIME in pod.metadata.labels


def enforced_limit(identity: WorkloadIdentity, sets: Sequence[PodSet], deadline: int | None) -> int | None:
    """The tightest bound at which something stops it; a declared duration is not one."""
    limits = [deadline] if deadline is not None else []
    execution = identity.metadata.labels.get(MAX_EXEC_TIME, "")
    if execution.isascii() and execution.isdigit() and len(execution) < 11:
        limits.append(int(execution))
    pods = [one.template.spec.active_deadline_seconds for one in sets]
    if all(value is not None for value in pods):
        limits.append(max(value for value in pods if value is not None))
    return min((value for value in limits if value > 0), default=None)


def checkpoint_of(metadata: ObjectMeta, pods: Sequence[Pod]) -> int:
    """The newest checkpoint that the object or any of its pods reports; 0 where none does."""
    stamps = [metadata.annotations.get(LAST_CHECKPOINT, "")]
    stamps.extend(pod.metadata.annotations.get(LAST_CHECKPOINT, "") for pod in pods)
    return max(parse_timestamp(stamp) for stamp in stamps)


def declared_restart_cost(metadata: Iterable[ObjectMeta]) -> int | None:
    """What starting again costs, as the object or any of its pods declares; None where none does, or not legibly."""
    declared = [_duration(one, RESTART_COST) for one in metadata if RESTART_COST in one.annotations]
    return max((seconds for seconds in declared if seconds is not None), default=None)


def evictions_of(metadata: ObjectMeta, pods: Sequence[Pod]) -> int:
    """How often it was preempted, as the object or its pods tell."""
    texts = [one.annotations.get(EVICTIONS, "") for one in (metadata, *(pod.metadata for pod in pods))]
    return max(int(text) if text.isascii() and text.isdigit() and len(text) < 9 else 0 for text in texts)


def queued_since(metadata: ObjectMeta, created: int) -> int:
    """Its creation; or, for one whose declared time was over, the moment when it was stopped."""
    return max(created, parse_timestamp(metadata.annotations.get(REQUEUED_AT, "")))


def is_nominated(pods: Sequence[Pod]) -> bool:
    """Others were asked to go for one of its pods, which waits for that."""
    return any(pod.status.nominated_node_name and not pod.is_bound for pod in pods)


def is_evictable(metadata: ObjectMeta, pods: Sequence[Pod]) -> bool:
    """Volcano's mark for work that is not to be preempted."""
    marks = [metadata, *(pod.metadata for pod in pods)]
    return not any(
        "false" in (one.annotations.get(PREEMPTABLE), one.labels.get(PREEMPTABLE)) for one in marks
    )


def _declared(metadata: ObjectMeta) -> int | None:
    """A declared duration; one that can't be read bounds nothing."""
    return _duration(metadata, DURATION)


def _duration(metadata: ObjectMeta, annotation: str) -> int | None:
    text = metadata.annotations.get(annotation)
    try:
        return None if text is None else parse_duration(text)
    except InputError:
        return None
