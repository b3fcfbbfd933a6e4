"""Attributes of a workload from labels, annotations and priority classes, for every kind of workload.

`build_workload` reads them from the object of the unit (`WorkloadIdentity`), or else from its pods.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from windlass.cluster.workloads.ancestors import OwnerKey, ancestors
from windlass.model.errors import InputError
from windlass.model.leaving import ASK, AskTerms
from windlass.model.meta import ObjectMeta
from windlass.model.names.kai import KAI_PREEMPTIBILITY_LABEL, NON_PREEMPTIBLE_PRIORITY
from windlass.model.names.kueue import (
    ADMISSION_GATED_BY_ANNOTATION,
    MAX_EXEC_TIME_LABEL,
    QUEUE_NAME_LABEL,
    WORKLOAD_PRIORITY_CLASS_LABEL,
)
from windlass.model.names.windlass import (
    ASK_ANNOTATION,
    CHECKPOINT_GRACE_ANNOTATION,
    CHECKPOINT_INTERVAL_ANNOTATION,
    DECLARED_DURATION_ANNOTATION,
    LAST_CHECKPOINT_ANNOTATION,
    ON_PREEMPTION_ANNOTATION,
    RESTART_COST_ANNOTATION,
    STOPPED_AT_DURATION_ANNOTATION,
    USER_LABEL,
)
from windlass.model.owners import Owner
from windlass.model.pod import Pod
from windlass.model.pod_group import PodGroup
from windlass.model.queue import QueueSystem
from windlass.model.queue_names import KAI_PREFIX, named_queue
from windlass.model.times import format_duration, parse_duration, parse_timestamp
from windlass.model.workload import PodSet

PREEMPTABLE = "volcano.sh/preemptable"
EVICTIONS = "windlass.dev/evictions"
"""How often the workload was preempted; written where no Kueue Workload counts it."""
REQUEUED_AT = "windlass.dev/requeued-at"
"""When the workload was stopped and queued again because its declared duration was over."""


class WorkloadIdentity(msgspec.Struct, frozen=True):
    """The object that defines a workload."""

    key: str
    kind: str
    metadata: ObjectMeta
    group: PodGroup | None = None

    @property
    def namespace(self) -> str:
        return self.key.partition("/")[0]


def queue_of(identity: WorkloadIdentity, pods: Sequence[Pod], owners: Mapping[OwnerKey, Owner]) -> str:
    """The queue that the object names, one of its pods, its group, or an owner above them: a Deployment's pods are in
    the queue of the Deployment, as Kueue's webhook would have it."""
    for metadata in (identity.metadata, *(pod.metadata for pod in pods)):
        queue = named_queue(metadata.labels, metadata.annotations)
        if queue:
            return queue
    if identity.group is not None and identity.group.queue:
        return identity.group.queue
    above = (identity.metadata, *(pod.metadata for pod in pods[:1]))
    for owner in (owner for metadata in above for _, owner in ancestors(metadata, owners) if owner is not None):
        queue = named_queue(owner.metadata.labels, owner.metadata.annotations) or owner.queue
        if queue:
            return queue
    return ""


def priority_of(identity: WorkloadIdentity, template: Pod, system: QueueSystem) -> int:
    """From the WorkloadPriorityClass, else the pod group, else the pods."""
    label = workload_priority_class(identity, template)
    if label in system.workload_priority_classes:
        return system.workload_priority_classes[label]
    group = identity.group
    if group is not None and group.priority is not None:
        return group.priority
    if group is not None and group.priority_class in system.priority_classes:
        return system.priority_classes[group.priority_class]
    spec = template.spec
    if spec.priority or (template.metadata.uid and not spec.priority_class_name):
        return spec.priority  # the API server has resolved it
    return system.priority_classes.get(spec.priority_class_name or system.default_priority_class, 0)


def workload_priority_class(identity: WorkloadIdentity, template: Pod) -> str:
    """The WorkloadPriorityClass that the object or its pods name; empty where they name none."""
    own, of_pods = identity.metadata.labels, template.metadata.labels
    return own.get(WORKLOAD_PRIORITY_CLASS_LABEL) or of_pods.get(WORKLOAD_PRIORITY_CLASS_LABEL, "")


def preemption_policy_of(identity: WorkloadIdentity, template: Pod, system: QueueSystem) -> str:
    if identity.group is not None and identity.group.preemption_policy:
        return identity.group.preemption_policy
    if template.spec.priority_class_name in system.non_preempting_classes:
        return "Never"
    return template.spec.preemption_policy


def run_limit(identity: WorkloadIdentity, sets: Sequence[PodSet], deadline: int | None) -> int | None:
    """The shortest run limit, enforced or declared; None where there is none."""
    declared = [_declared_duration(identity.metadata), execution_limit(identity.metadata)]
    declared += [_declared_duration(pod_set.template.metadata) for pod_set in sets]
    limits = [enforced_limit(identity, sets, deadline), *declared]
    return min((value for value in limits if value), default=None)


def declares_run_limit(pod: Pod) -> bool:
    """Whether the pod itself declares how long it runs."""
    bounded = pod.spec.active_deadline_seconds is not None
    return (
        bounded
        or DECLARED_DURATION_ANNOTATION in pod.metadata.annotations
        or MAX_EXEC_TIME_LABEL in pod.metadata.labels
    )


def declares_attributes(pod: Pod) -> bool:
    """Whether the pod itself says what makes it a workload even where it is in no group and no queue."""
    return declares_run_limit(pod) or asks_to_be_asked(pod.metadata)


def enforced_limit(identity: WorkloadIdentity, sets: Sequence[PodSet], deadline: int | None) -> int | None:
    """The shortest limit at which a controller stops the workload; what is declared, Windlass enforces itself."""
    limits = [deadline] if deadline is not None else []
    deadlines = [pod_set.template.spec.active_deadline_seconds for pod_set in sets]
    if all(value is not None for value in deadlines):
        limits.append(max(value for value in deadlines if value is not None))
    return min((value for value in limits if value > 0), default=None)


def execution_limit(metadata: ObjectMeta) -> int | None:
    """Kueue's label for the maximum execution time, which counts for queued work only."""
    text = metadata.labels.get(MAX_EXEC_TIME_LABEL, "")
    if QUEUE_NAME_LABEL not in metadata.labels or not (text.isascii() and text.isdigit() and len(text) < 11):
        return None
    return int(text) or None


def checkpoint_of(metadata: Iterable[ObjectMeta]) -> int:
    """Time of the newest checkpoint that the object or one of its pods reports; 0: none."""
    texts = [text for meta in metadata if (text := meta.annotations.get(LAST_CHECKPOINT_ANNOTATION))]
    return max(map(parse_timestamp, texts)) if texts else 0


def declared_restart_cost(metadata: Iterable[ObjectMeta]) -> int | None:
    """The longest restart that the object or one of its pods declares; None where none is declared or readable."""
    declared = [
        _duration(meta, RESTART_COST_ANNOTATION) for meta in metadata if RESTART_COST_ANNOTATION in meta.annotations
    ]
    return max((seconds for seconds in declared if seconds is not None), default=None) if declared else None


def checkpoint_interval(metadata: Iterable[ObjectMeta]) -> int | None:
    """The longest time between two checkpoints that the object or one of its pods declares."""
    declared = [seconds for meta in metadata if (seconds := _duration(meta, CHECKPOINT_INTERVAL_ANNOTATION))]
    return max(declared, default=None)


def ask_terms_of(metadata: Iterable[ObjectMeta]) -> AskTerms | None:
    """On what terms the work is asked before it is preempted, by the object or one of its pods; None: it is not."""
    metadata = list(metadata)
    if not any(asks_to_be_asked(meta) for meta in metadata):
        return None
    graces = [_duration(meta, CHECKPOINT_GRACE_ANNOTATION) for meta in metadata]
    return AskTerms(max((grace for grace in graces if grace), default=None))


def asks_to_be_asked(metadata: ObjectMeta) -> bool:
    return metadata.annotations.get(ON_PREEMPTION_ANNOTATION) == ASK


def is_asked(metadata: Iterable[ObjectMeta]) -> bool:
    return any(ASK_ANNOTATION in meta.annotations for meta in metadata)


def evictions_of(metadata: Iterable[ObjectMeta]) -> int:
    """How often the workload was preempted, as the object or one of its pods records."""
    texts = [text for meta in metadata if (text := meta.annotations.get(EVICTIONS))]
    counts = [int(text) for text in texts if text.isascii() and text.isdigit() and len(text) < 9]
    return max(counts) if counts else 0


def queued_since(metadata: ObjectMeta, created: int) -> int:
    """The creation time; or when it was stopped because its declared duration was over."""
    return max(created, parse_timestamp(metadata.annotations.get(REQUEUED_AT, "")))


def stopped_hold(metadata: ObjectMeta, limit: int | None, checkpoint_at: int, queued_at: int) -> tuple[str, str]:
    """Why a workload that was stopped at the end of its declared run time doesn't start again, and the code; empty
    where it may.

    Begun again from the start, it would be stopped again, for ever. It may start once it declares more, or nothing; or
    if it saved a checkpoint in its last run, and so goes on from there.
    """
    text = metadata.annotations.get(STOPPED_AT_DURATION_ANNOTATION, "")
    stopped = int(text) if text.isascii() and text.isdigit() and len(text) < 11 else 0
    if not stopped or limit is None or limit > stopped or checkpoint_at > queued_at - stopped:
        return "", ""
    declared = format_duration(stopped)
    why = f"it was stopped after its declared {declared} ({DECLARED_DURATION_ANNOTATION}) without a checkpoint"
    return f"{why}; started again, it would be stopped again", "DURATION_EXCEEDED"


def gated_hold(metadata: ObjectMeta) -> tuple[str, str]:
    """Why queued work is held whose annotation names somebody who has to let it in first, and the code; empty where
    none does. Kueue reads the annotation of the Job."""
    gates = metadata.annotations.get(ADMISSION_GATED_BY_ANNOTATION, "")
    if not gates:
        return "", ""
    why = f"admission is gated by {gates}, until the annotation {ADMISSION_GATED_BY_ANNOTATION} is gone"
    return why, "SCHEDULING_GATED"


def is_nominated(pods: Sequence[Pod]) -> bool:
    """Whether victims were evicted for one of its pods, which waits for them to end."""
    return any(pod.status.nominated_node_name and not pod.is_bound for pod in pods)


def is_preemptible(identity: WorkloadIdentity, pods: Sequence[Pod], queue: str, priority: int) -> bool:
    """False for KAI's work that is not preemptible: it is not evicted, and uses only its queue's own quota."""
    if not queue.startswith(KAI_PREFIX):
        return True
    word = identity.group.preemptibility if identity.group is not None else ""
    labels = (identity.metadata.labels, *(pod.metadata.labels for pod in pods[:1]))
    word = word or next((found for one in labels if (found := one.get(KAI_PREEMPTIBILITY_LABEL))), "")
    return word == "preemptible" if word else priority < NON_PREEMPTIBLE_PRIORITY


def declares_eviction_cost(metadata: ObjectMeta) -> bool:
    """Whether the object says that its pods are not preemptable, or what preempting them loses or needs."""
    costs = (LAST_CHECKPOINT_ANNOTATION, RESTART_COST_ANNOTATION, ON_PREEMPTION_ANNOTATION)
    return not is_evictable((metadata,)) or any(name in metadata.annotations for name in costs)


def is_evictable(metadata: Iterable[ObjectMeta]) -> bool:
    """False where Volcano's label or annotation, on any of these, excludes the workload from preemption."""
    said = [meta for meta in metadata if PREEMPTABLE in meta.annotations or PREEMPTABLE in meta.labels]
    return not any("false" in (meta.annotations.get(PREEMPTABLE), meta.labels.get(PREEMPTABLE)) for meta in said)


def user_of(metadata: Iterable[ObjectMeta]) -> str:
    """Who has submitted it, by a label or an annotation of any of these; empty where none says so."""
    names = (meta.labels.get(USER_LABEL) or meta.annotations.get(USER_LABEL, "") for meta in metadata)
    return next((name for name in names if name), "")


def _declared_duration(metadata: ObjectMeta) -> int | None:
    return _duration(metadata, DECLARED_DURATION_ANNOTATION)


def _duration(metadata: ObjectMeta, annotation: str) -> int | None:
    text = metadata.annotations.get(annotation)
    try:
        return None if text is None else parse_duration(text)
    except InputError:
        return None
